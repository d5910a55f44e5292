//! The function's view of a file or of one chunk.

use crate::engine::Piece;
use crate::keep::Bytes;
use ioloom_budget::Budget;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// One file, borrowed for one call of the function.
pub struct File<'a> {
    pub(crate) piece: &'a Piece<'a>,
}

impl<'a> File<'a> {
    pub(crate) fn of(piece: &'a Piece<'a>) -> Self {
        Self { piece }
    }
}

impl File<'_> {
    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        self.piece.path
    }

    /// Returns the position in the input.
    pub fn index(&self) -> usize {
        self.piece.index
    }

    /// Returns the contents.
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.piece.bytes.len() as u64
    }

    /// Reports whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.piece.bytes.is_empty()
    }

    /// Retains the bytes beyond the call, without copying them where possible. They count against
    /// the memory budget until they are dropped, so a run whose function retains everything ends
    /// with [`Error::BudgetHeld`](crate::Error::BudgetHeld) instead of filling memory.
    ///
    /// If retained bytes fill the budget, the run waits for a drop. It waits without limit while a
    /// function is running, and in the iterator form while the caller is not waiting for the next
    /// result: both may still drop some. Other threads of the caller are unknown to the run. A thread
    /// to which the function sends retained bytes must therefore drop some at least every 200 ms
    /// while the budget is full. A thread that needs longer should receive them as results, with
    /// [`Job::scope`](crate::Job::scope) or as an iterator, or through a bounded channel on which the
    /// function waits.
    ///
    /// ```
    /// let kept = ioloom::files(["Cargo.toml"]).map(|f| f.keep()).collect()?;
    /// assert_eq!(&kept[0][..], std::fs::read("Cargo.toml").unwrap());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn keep(&self) -> Bytes {
        Bytes(self.piece.keep())
    }

    /// Reserves memory that the function is about to allocate, such as a decoded image, and waits
    /// for it if necessary. Files that are being read, and other functions, then wait for this one.
    ///
    /// Functions get their reservations in the order in which they request them. The wait is free of
    /// deadlock, because one function that has a reservation always goes on: a function waits only
    /// while another has one, and not for a second of its own. So the memory in
    /// use may exceed the budget by one reservation, or by all that one function nests. Do not wait
    /// for another file's function while holding a reservation.
    ///
    /// ```
    /// let paths = std::iter::repeat_n("Cargo.toml", 20);
    /// let run = ioloom::files(paths)
    ///     .memory(1 << 20)
    ///     .map(|f| {
    ///         let decoded = 700 << 10;
    ///         let _reserved = f.reserve(decoded);
    ///         vec![0u8; decoded as usize].len()
    ///     })
    ///     .run()?;
    /// assert!(run.measured.budget_peak_bytes < (1 << 20) + (700 << 10));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn reserve(&self, bytes: u64) -> Reserved<'_> {
        Reserved::of(self.piece, bytes)
    }
}

/// Bytes of the memory budget that a function uses for itself, until this is dropped. Created by
/// [`File::reserve`] and [`Chunk::reserve`].
#[derive(Debug)]
#[must_use = "the reservation ends when it is dropped"]
pub struct Reserved<'a> {
    budget: &'a Budget,
    count: &'a AtomicU32,
    bytes: u64,
}

impl<'a> Reserved<'a> {
    fn of(piece: &'a Piece<'_>, bytes: u64) -> Self {
        let (budget, count) = (piece.arena.budget(), &piece.reservations);
        let nested = count.fetch_add(1, Ordering::Relaxed) > 0;
        let taken = ioloom_observe::reserving(|| budget.reserve_working(bytes, nested));
        Self { budget, count, bytes: taken }
    }

    /// Returns the bytes reserved: those requested, if all reservations together do not exceed half of the
    /// range of `u64`.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.budget.release_working(self.bytes);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One chunk of a file, borrowed for one call of the function.
pub struct Chunk<'a> {
    pub(crate) piece: &'a Piece<'a>,
}

impl Chunk<'_> {
    /// Returns the path of the file as given.
    pub fn path(&self) -> &Path {
        self.piece.path
    }

    /// Returns the position of the file in the input.
    pub fn index(&self) -> usize {
        self.piece.index
    }

    /// Returns the offset of the chunk in the file.
    pub fn offset(&self) -> u64 {
        self.piece.offset
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes
    }

    /// Reports whether this is the last chunk of the file. An empty file has one empty chunk.
    ///
    /// A file that a walk found has no last chunk if its size is a multiple of the chunk size: its size is
    /// not queried, and its end is found by a read that returns nothing.
    pub fn is_last(&self) -> bool {
        self.piece.last
    }

    /// Reserves memory that the function is about to allocate; see [`File::reserve`].
    pub fn reserve(&self, bytes: u64) -> Reserved<'_> {
        Reserved::of(self.piece, bytes)
    }
}

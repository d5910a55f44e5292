//! The function's view of a file or of one chunk.

use crate::engine::Piece;
use crate::keep::Bytes;
use std::path::Path;

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
    /// with [`Error::BudgetHeld`](crate::Error::BudgetHeld) instead of filling memory. In the
    /// iterator form the run waits while the caller may still drop some, and ends only once the
    /// caller waits for the run.
    ///
    /// ```
    /// let kept = ioloom::files(["Cargo.toml"]).map(|f| f.keep()).collect()?;
    /// assert_eq!(&kept[0][..], std::fs::read("Cargo.toml").unwrap());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn keep(&self) -> Bytes {
        Bytes(self.piece.keep())
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
}

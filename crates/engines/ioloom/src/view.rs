//! What the function sees: a file, or a chunk of one.

use crate::engine::Piece;
use crate::keep::Bytes;
use std::path::Path;

/// One file, borrowed for the call of the function.
pub struct File<'a> {
    pub(crate) piece: &'a Piece<'a>,
}

impl File<'_> {
    /// The path as given.
    pub fn path(&self) -> &Path {
        self.piece.path
    }

    /// Position in the input.
    pub fn index(&self) -> usize {
        self.piece.index
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.piece.bytes.len() as u64
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.piece.bytes.is_empty()
    }

    /// Keeps the bytes beyond the call without copying them where possible. They count against the
    /// memory budget until they are dropped, so a run whose function keeps everything ends with
    /// [`Error::BudgetHeld`](crate::Error::BudgetHeld) instead of filling the memory. In the iterator form the run waits while
    /// the caller may yet drop some, and ends so only when the caller waits for it.
    ///
    /// ```
    /// let kept = ioloom::files(["Cargo.toml"]).map(|f| Ok(f.keep())).collect()?;
    /// assert_eq!(&kept[0][..], std::fs::read("Cargo.toml").unwrap());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn keep(&self) -> Bytes {
        Bytes(self.piece.keep())
    }
}

/// One piece of a file, borrowed for the call of the function.
pub struct Chunk<'a> {
    pub(crate) piece: &'a Piece<'a>,
}

impl Chunk<'_> {
    /// The path of the file as given.
    pub fn path(&self) -> &Path {
        self.piece.path
    }

    /// Position of the file in the input.
    pub fn index(&self) -> usize {
        self.piece.index
    }

    /// Offset of the piece in the file.
    pub fn offset(&self) -> u64 {
        self.piece.offset
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes
    }
}

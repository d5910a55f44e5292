//! How far the read of a piece has come.

/// How much of a piece has been read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PieceProgress {
    /// Offset of the piece in the file.
    pub(crate) offset: u64,
    /// Bytes of the piece read so far.
    pub(crate) filled: usize,
    /// Size of the file, if it was queried.
    pub(crate) size: Option<u64>,
    /// Whether the first buffer was too small.
    pub(crate) enlarged: bool,
    /// Whether a short read may not be the end of the file.
    pub(crate) cut: bool,
}

impl PieceProgress {
    /// Reports whether the file is read to its size after another `n` bytes, if that is known.
    pub(super) fn reaches_size(&self, n: usize) -> bool {
        let read = self.offset + (self.filled + n) as u64;
        self.size.is_some_and(|size| size > 0 && read >= size)
    }
}

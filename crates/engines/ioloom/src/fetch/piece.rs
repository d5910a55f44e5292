//! How far the piece of a file has been read, and when it has ended.

use super::interface::Cx;
use crate::arena::Lease;
use ioloom_sys::buffer;
use std::os::fd::OwnedFd;

/// Bytes of a first buffer, when a hint of the size is known.
pub(crate) fn first_buffer(cx: &Cx<'_, '_>, size: Option<u64>) -> u64 {
    match size {
        Some(size) if cx.shared.plan.chunk_bytes.is_none() => {
            (size + 1).clamp(1, cx.shared.first_bytes)
        }
        _ => cx.shared.first_bytes,
    }
}

/// How far a piece has come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PieceProgress {
    /// Offset of the piece in the file.
    pub(crate) offset: u64,
    /// Bytes of the piece read so far.
    pub(crate) filled: usize,
    /// Size of the file, if it was asked for.
    pub(crate) size: Option<u64>,
    /// The first buffer was not enough.
    pub(crate) enlarged: bool,
}

/// A file that is open and has its first buffer.
pub(crate) struct Begun {
    pub(crate) file: OwnedFd,
    pub(crate) lease: Lease,
    pub(crate) progress: PieceProgress,
}

/// Bytes that one read asks for at most: the kernel cuts a read below 2 GiB, and a cut read must
/// not be taken for the end of the file.
pub(crate) const READ_MAX: usize = 1 << 30;

/// Whether `n` bytes of `asked` prove the end of the file. Zero always does. Where the size is
/// known, less than it is read on, and so is a file that has bytes although its size is zero, as
/// those of /proc do. Where it is not, a short read that ends inside a page is the end; one that
/// ends with a page may also be what came before a page that could not be read, so it is asked
/// again: the end then answers zero, a bad page its error. Direct reads are short in the same two
/// cases, and after one that ends inside a page there is nothing more that could be read.
pub(crate) fn is_end(n: usize, asked: usize, progress: &PieceProgress, direct: bool) -> bool {
    if n == 0 {
        return true;
    }
    if n == asked {
        return false;
    }
    let inside_page = !(progress.filled + n).is_multiple_of(buffer::ALIGN);
    match progress.size {
        Some(_) if direct && inside_page => true,
        Some(size) => size > 0 && progress.offset + (progress.filled + n) as u64 >= size,
        None => inside_page,
    }
}

/// Bytes of this buffer that a piece may fill.
pub(crate) fn piece_limit(cx: &Cx<'_, '_>, lease: &Lease) -> usize {
    match cx.shared.plan.chunk_bytes {
        Some(chunk) => (chunk as usize).min(lease.capacity()),
        None => lease.capacity(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_the_end_only_where_nothing_can_follow() {
        let known = |size| PieceProgress { size, ..PieceProgress::default() };
        // (read, asked, size, direct) → end
        for (n, asked, size, direct, end) in [
            (0, 8192, None, false, true),
            (8192, 8192, None, false, false),
            (100, 8192, None, false, true),
            (4096, 8192, None, false, false),
            (4096, 8192, Some(4096), false, true),
            (4096, 8192, Some(5000), false, false),
            (100, 8192, Some(0), false, false),
            (4096, 8192, Some(4096), true, true),
            (4096, 8192, Some(5000), true, false),
            (4096, 8192, None, true, false),
            (4608, 8192, Some(4608), true, true),
        ] {
            assert_eq!(is_end(n, asked, &known(size), direct), end, "{n} of {asked}, {size:?}");
        }
        let filled = PieceProgress { filled: 100, ..PieceProgress::default() };
        assert!(!is_end(3996, 8192, &filled, false), "the file ends with a page");
    }
}

//! The progress of reading a piece of a file, and how its end is recognised.

use super::interface::Cx;
pub(crate) use super::progress::PieceProgress;
use crate::arena::Lease;
use crate::source::Item;
use ioloom_sys::buffer;
use std::os::fd::OwnedFd;

/// Returns the size of a first buffer, given the size of the file if known.
pub(crate) fn first_buffer(cx: &Cx<'_, '_>, size: Option<u64>) -> u64 {
    match size {
        Some(size) if cx.shared.plan.chunk_bytes.is_none() => {
            (size + 1).clamp(1, cx.shared.first_bytes)
        }
        _ => cx.shared.first_bytes,
    }
}

/// An open file with its first buffer.
pub(crate) struct Begun {
    pub(crate) file: OwnedFd,
    pub(crate) lease: Lease,
    pub(crate) progress: PieceProgress,
}

/// Most bytes of one read. The kernel cuts reads below 2 GiB, and a cut read must not be mistaken
/// for the end of the file.
pub(crate) const READ_MAX: usize = 1 << 30;

/// Reports whether a read of `n` bytes out of `asked` proves the end of the file. Zero always does.
/// If the size is known, a read that ends before it does not, and neither does one from a file that
/// has bytes although its size is zero, as in /proc. If the size is not known, a short read that
/// ends inside a page does. One that ends at a page boundary may have stopped at a page that could
/// not be read, so another read follows: at the end it returns zero, at a bad page an error. Direct
/// reads are short in the same two cases, and after one that ends inside a page nothing more can be
/// read.
pub(crate) fn is_end(n: usize, asked: usize, progress: &PieceProgress, direct: bool) -> bool {
    if n == 0 {
        return true;
    }
    if n == asked {
        return false;
    }
    let at = progress.offset + (progress.filled + n) as u64;
    let inside_page = !at.is_multiple_of(buffer::ALIGN as u64);
    match progress.size {
        Some(_) if direct && inside_page => true,
        Some(_) => progress.reaches_size(n),
        None => inside_page,
    }
}

/// Reports whether a read of `n` bytes out of `asked` is the end of the file, wherever the file is. On
/// file systems whose reads may be short anywhere, only the size or a read of nothing proves it.
#[inline]
pub(crate) fn is_end_here<S>(
    cx: &Cx<'_, '_>,
    item: &Item<'_, S>,
    file: &OwnedFd,
    (n, asked): (usize, usize),
    progress: &mut PieceProgress,
    direct: bool,
) -> bool {
    if !is_end(n, asked, progress, direct) {
        return false;
    }
    if n == 0 || progress.reaches_size(n) {
        return true;
    }
    progress.cut = progress.cut || cx.shared.short_reads.are_possible(item.path.as_path(), file);
    !progress.cut
}

/// Returns how many bytes of this buffer a piece may fill.
#[inline]
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
        assert!(!is_end(3996, 8192, &filled, false), "the read ends at a page boundary");
        let later = PieceProgress { offset: 6000, ..PieceProgress::default() };
        assert!(
            !is_end(2192, 6000, &later, false),
            "pages are those of the file, not of the piece"
        );
        assert!(is_end(2096, 6000, &later, false));
    }
}

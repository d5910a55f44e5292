//! What follows a read: the next piece, a larger buffer, or the end of the file.

use super::interface::{Cx, Started};
use super::lease::{lease_waiting, too_large};
use super::opening::size_of;
use super::piece::{Begun, PieceProgress};
use crate::arena::Lease;
use crate::error::{FileError, Operation};
use crate::loaded::{Data, Loaded};
use crate::source::Item;
use ioloom_model::CallKind;
use ioloom_sys::buffer;
use std::os::fd::OwnedFd;

/// Starts the next piece of a file, in the same buffer unless its bytes are retained.
pub(crate) fn next_piece<'p, S>(
    cx: &mut Cx<'_, '_>,
    done: Loaded<'p, S>,
) -> Result<(Item<'p, S>, Begun), FileError> {
    let Loaded { item, file, data, len, offset, size, cut, .. } = done;
    let lease = match data {
        Data::Buffer(lease) if !lease.is_kept() => lease,
        _ => lease_waiting(cx, &item, cx.shared.first_bytes, 0)?,
    };
    let file = file.expect("a file with more pieces stays open");
    let offset = offset + len as u64;
    let progress = PieceProgress { offset, size, cut, ..PieceProgress::default() };
    Ok((item, Begun { file, lease, progress }))
}

/// What a full buffer means.
pub(crate) enum Full {
    /// One piece of several, in chunk form.
    Piece,
    /// The whole file: its size is what was read.
    End,
    /// The start of a file that needs a larger buffer.
    Larger(Larger),
}

/// The larger buffer that a file needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Larger {
    pub(crate) bytes: u64,
    /// Whether the file has a large buffer already.
    pub(crate) grown: bool,
}

/// Decides what a full buffer means. Queries the size of the file; in chunk form only at the end that it
/// had before, so that a file that has grown is read to its new end. A file
/// that grows while it is read is read to its new end, but only while memory is free: a thread that
/// holds a large buffer never waits for another, because two such threads could wait for each
/// other.
pub(crate) fn full<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    file: &OwnedFd,
    progress: &mut PieceProgress,
) -> Result<Full, FileError> {
    if cx.shared.plan.chunk_bytes.is_some() {
        let read = progress.offset + progress.filled as u64;
        if progress.size.is_none_or(|size| size == 0 || read < size) {
            return Ok(Full::Piece);
        }
        // The size was queried before the file was opened, and the file may have grown since.
        let size = size_of(cx, item, file)?;
        progress.size = Some(size);
        return Ok(if read == size { Full::End } else { Full::Piece });
    }
    let size = size_of(cx, item, file)?;
    progress.size = Some(size);
    let (filled, whole_max) = (progress.filled as u64, cx.shared.whole_max);
    if size == filled {
        return Ok(Full::End);
    }
    let grown = std::mem::replace(&mut progress.enlarged, true);
    // Larger than its size says, or a second time: grow by half, so that copies stay few.
    let wanted = if size < filled || grown { size.max(filled + filled / 2) } else { size };
    let wanted = wanted.min(whole_max - 1).max(size).max(filled);
    if wanted >= whole_max {
        let reason = too_large(cx.shared, wanted);
        return Err(FileError::rejected(
            item.index,
            item.path.as_path(),
            Operation::Reserve,
            reason,
        ));
    }
    let bytes = (wanted + 1).next_multiple_of(buffer::ALIGN as u64);
    Ok(Full::Larger(Larger { bytes, grown }))
}

/// Returns the error of a file that outgrew its buffer while no memory was free.
pub(crate) fn outgrown<S>(item: &Item<'_, S>) -> FileError {
    let reason = "it grew while it was read, and no memory is free for the rest; read it again, or in \
                  chunks with .chunks()";
    FileError::rejected(item.index, item.path.as_path(), Operation::Reserve, reason)
}

/// Copies the bytes read so far into a larger buffer.
pub(crate) fn take_over(mut larger: Lease, from: &Lease, filled: usize) -> Lease {
    larger.whole_mut()[..filled].copy_from_slice(from.bytes(filled));
    larger
}

/// Returns the last piece of a file. A file without any bytes may not be a regular file, so that is
/// checked.
#[inline(always)] // a call would move the piece once more
pub(crate) fn ended<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    lease: Lease,
    progress: PieceProgress,
) -> Started<'p, S> {
    if progress.filled == 0
        && progress.offset == 0
        && let Err(error) = size_of(cx, &item, &file)
    {
        return Started::Failed(error);
    }
    Started::Ready(complete(cx, item, file, lease, progress, true))
}

/// Returns a complete piece, and closes the file unless it has more.
pub(crate) fn complete<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    lease: Lease,
    progress: PieceProgress,
    last: bool,
) -> Loaded<'p, S> {
    let file = if last {
        drop(file);
        cx.meter.lap(CallKind::Close, item.index);
        None
    } else {
        Some(file)
    };
    let data = Data::Buffer(lease);
    let PieceProgress { filled: len, offset, size, cut, .. } = progress;
    Loaded { item, file, data, len, offset, size, cut, last }
}

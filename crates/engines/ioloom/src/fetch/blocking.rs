//! Blocking reads, buffered or direct, and the method that reads nothing.
//!
//! A file of unknown size is read into its first buffer; a short read proves the end, so a small
//! file costs open, one read and close. A read that ends with a page proves it only where the size
//! is known (see [`is_end`]); else a second one is asked. Only a file that fills the first buffer is
//! asked for its size, gets a buffer of that size and one byte more (again so that a short read
//! proves the end), and is read on.

use super::opening::{Begun, begin, failed_on, size_of};
use super::{Cx, Data, Fetch, Loaded, Reaped, Started, lease_waiting, too_large};
use crate::arena::Lease;
use crate::error::{Error, FileError, Operation};
use crate::source::Item;
use ioloom_model::CallKind;
use ioloom_sys::{buffer, file};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// `pread`, through the page cache or past it.
pub(crate) struct Blocking<'p, S> {
    direct: bool,
    parked: Parked<'p, S>,
}

impl<S> Blocking<'_, S> {
    pub(crate) fn new(direct: bool) -> Self {
        Self { direct, parked: Parked::new() }
    }
}

/// Files that wait for a larger buffer, because their thread may not.
pub(crate) type Parked<'p, S> = VecDeque<Waiting<'p, S>>;

pub(crate) struct Waiting<'p, S> {
    item: Item<'p, S>,
    file: OwnedFd,
    lease: Lease,
    progress: Progress,
    size: u64,
}

/// Reads on the oldest parked file; with `wait` it is waited for memory.
pub(crate) fn unpark<'p, S>(
    cx: &mut Cx<'_, '_>,
    parked: &mut Parked<'p, S>,
    wait: bool,
    out: &mut Reaped<'p, S>,
    direct: bool,
) {
    let Some(Waiting { item, file, lease, progress, size }) = parked.pop_front() else { return };
    let larger = match cx.shared.arena.try_lease(size) {
        Ok(None) if !wait => {
            parked.push_front(Waiting { item, file, lease, progress, size });
            return;
        }
        Ok(Some(larger)) => Ok(larger),
        _ => {
            let holding = lease.charged() + charged(parked);
            lease_waiting(cx, &item, size, holding)
        }
    };
    let started = match larger {
        Ok(larger) => {
            let lease = take_over(larger, &lease, progress.filled);
            read_on(cx, item, file, lease, progress, (direct, parked))
        }
        Err(error) => Started::Failed(error),
    };
    out.extend(started.came());
}

/// Bytes charged for parked files.
pub(crate) fn charged<S>(parked: &Parked<'_, S>) -> u64 {
    parked.iter().map(|waiting| waiting.lease.charged()).sum()
}

impl<'p, S> Fetch<'p, S> for Blocking<'p, S> {
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S> {
        let Begun { file, lease, progress } = match begin(cx, &item, lease, self.direct) {
            Ok(begun) => begun,
            Err(not) => return not.started(item),
        };
        read_on(cx, item, file, lease, progress, (self.direct, &mut self.parked))
    }

    fn resume(&mut self, cx: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S> {
        match next_piece(cx, done) {
            Ok((item, Begun { file, lease, progress })) => {
                read_on(cx, item, file, lease, progress, (self.direct, &mut self.parked))
            }
            Err(error) => Started::Failed(error),
        }
    }

    fn reap(
        &mut self,
        cx: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, S>,
    ) -> Result<(), Error> {
        let wait = wait && cx.may_wait;
        unpark(cx, &mut self.parked, wait, out, self.direct);
        Ok(())
    }

    fn holding(&self) -> u64 {
        charged(&self.parked)
    }

    fn in_flight(&self) -> usize {
        self.parked.len()
    }
}

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
pub(crate) struct Progress {
    /// Offset of the piece in the file.
    pub(crate) offset: u64,
    /// Bytes of the piece read so far.
    pub(crate) filled: usize,
    /// Size of the file, if it was asked for.
    pub(crate) size: Option<u64>,
    /// The first buffer was not enough.
    pub(crate) enlarged: bool,
}

/// What the next piece of a file starts from: the same buffer unless its bytes are kept.
pub(crate) fn next_piece<'p, S>(
    cx: &mut Cx<'_, '_>,
    done: Loaded<'p, S>,
) -> Result<(Item<'p, S>, Begun), FileError> {
    let Loaded { item, file, data, len, offset, .. } = done;
    let lease = match data {
        Data::Buffer(lease) if !lease.is_kept() => lease,
        _ => lease_waiting(cx, &item, cx.shared.first_bytes, 0)?,
    };
    let file = file.expect("a file with more pieces stays open");
    let progress = Progress { offset: offset + len as u64, ..Progress::default() };
    Ok((item, Begun { file, lease, progress }))
}

/// Reads with blocking calls until the piece is complete, directly or not; a file that needs more
/// memory than there is goes to the parked ones if its thread may not wait.
pub(crate) fn read_on<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    mut lease: Lease,
    mut progress: Progress,
    (direct, parked): (bool, &mut Parked<'p, S>),
) -> Started<'p, S> {
    loop {
        let limit = piece_limit(cx, &lease);
        if progress.filled == limit {
            let Larger { bytes: size, grown } = match full(cx, &item, &file, &mut progress) {
                Ok(Full::Larger(larger)) => larger,
                Ok(Full::Piece) => {
                    return Started::Ready(complete(cx, item, file, lease, progress, false));
                }
                Ok(Full::End) => return ended(cx, item, file, lease, progress),
                Err(error) => return Started::Failed(error),
            };
            let larger = match cx.shared.arena.try_lease(size) {
                Ok(Some(larger)) => Ok(larger),
                Ok(None) if grown => return Started::Failed(outgrown(&item)),
                Ok(None) if !cx.may_wait && !cx.shared.unbounded() => {
                    parked.push_back(Waiting { item, file, lease, progress, size });
                    return Started::Pending;
                }
                _ => lease_waiting(cx, &item, size, lease.charged() + charged(parked)),
            };
            match larger {
                Ok(larger) => lease = take_over(larger, &lease, progress.filled),
                Err(error) => return Started::Failed(error),
            }
            continue;
        }
        let limit = limit.min(progress.filled + READ_MAX);
        let into = &mut lease.whole_mut()[progress.filled..limit];
        let result = file::read_at(&file, into, progress.offset + progress.filled as u64);
        cx.meter.lap(CallKind::Read, item.index);
        match result {
            Ok(n) if is_end(n, limit - progress.filled, &progress, direct) => {
                progress.filled += n;
                return ended(cx, item, file, lease, progress);
            }
            Ok(n) => progress.filled += n,
            Err(error) => {
                return Started::Failed(failed_on(&item, &file, Operation::Read, error));
            }
        }
    }
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
pub(crate) fn is_end(n: usize, asked: usize, progress: &Progress, direct: bool) -> bool {
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

/// What a full buffer is.
pub(crate) enum Full {
    /// A piece of several, in chunk form.
    Piece,
    /// All of the file: its size is what was read.
    End,
    /// The start of a file that needs a larger one.
    Larger(Larger),
}

/// The buffer that a file needs beyond the one it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Larger {
    pub(crate) bytes: u64,
    /// It has a large one already.
    pub(crate) grown: bool,
}

/// What a full buffer is; asks for the size of the file unless in chunk form. A file that grows
/// while it is read is read to where it ends now, but only while memory is free: a thread that
/// holds a large buffer never waits for another, because two of them might wait for ever.
pub(crate) fn full<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    file: &OwnedFd,
    progress: &mut Progress,
) -> Result<Full, FileError> {
    if cx.shared.plan.chunk_bytes.is_some() {
        return Ok(Full::Piece);
    }
    let size = size_of(cx, item, file)?;
    progress.size = Some(size);
    let (filled, whole_max) = (progress.filled as u64, cx.shared.whole_max);
    if size == filled {
        return Ok(Full::End);
    }
    let grown = std::mem::replace(&mut progress.enlarged, true);
    // More than the size says, or a second time: by half, so that the copies stay few.
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

/// The error of a file that outgrew a buffer of its size while no memory was free.
pub(crate) fn outgrown<S>(item: &Item<'_, S>) -> FileError {
    let reason = "it grew while it was read, and there is no memory for more; read it again, or in \
                  pieces with .chunks()";
    FileError::rejected(item.index, item.path.as_path(), Operation::Reserve, reason)
}

/// Copies the bytes read so far into a larger buffer.
pub(crate) fn take_over(mut larger: Lease, from: &Lease, filled: usize) -> Lease {
    larger.whole_mut()[..filled].copy_from_slice(from.bytes(filled));
    larger
}

/// The last piece of a file. One that gave nothing at all may be no file: that is asked.
#[inline(always)] // a call of its own moves the piece once more
pub(crate) fn ended<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    lease: Lease,
    progress: Progress,
) -> Started<'p, S> {
    if progress.filled == 0
        && progress.offset == 0
        && let Err(error) = size_of(cx, &item, &file)
    {
        return Started::Failed(error);
    }
    Started::Ready(complete(cx, item, file, lease, progress, true))
}

/// A complete piece; the file is closed unless it has more.
pub(crate) fn complete<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    lease: Lease,
    progress: Progress,
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
    Loaded { item, file, data, len: progress.filled, offset: progress.offset, last }
}

/// No input at all.
pub(crate) struct Nothing;

impl<'p, S> Fetch<'p, S> for Nothing {
    fn start(&mut self, _: &mut Cx<'_, '_>, item: Item<'p, S>, _: Option<Lease>) -> Started<'p, S> {
        Started::Ready(Loaded {
            item,
            file: None,
            data: Data::Empty,
            len: 0,
            offset: 0,
            last: true,
        })
    }

    fn resume(&mut self, _: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S> {
        Started::Ready(done)
    }

    fn reap(&mut self, _: &mut Cx<'_, '_>, _: bool, _: &mut Reaped<'p, S>) -> Result<(), Error> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_the_end_only_where_nothing_can_follow() {
        let known = |size| Progress { size, ..Progress::default() };
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
        let filled = Progress { filled: 100, ..Progress::default() };
        assert!(!is_end(3996, 8192, &filled, false), "the file ends with a page");
    }
}

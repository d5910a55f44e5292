//! Buffered reads without a ring and without additional threads: `preadv2(RWF_NOWAIT)`.
//!
//! A hit returns at once. A miss has made the kernel start readahead, so the file is appended to a
//! queue; when the window is full the oldest is read with a blocking call, by then mostly from
//! memory. While functions are long, the window may not fill with misses for a long time; the oldest
//! miss is then tried again after each function, without waiting, so that files in memory do not
//! overtake it without limit. Where a file system does not support `RWF_NOWAIT`, this method reads with blocking
//! calls, without another attempt for the next files of the same directory; the histogram of calls shows it.

use super::after_read::{ended, next_piece};
use super::interface::{Cx, Fetch, Reaped, SHORT_FUNCTION_NS, Started};
use super::missed::Missed;
use super::neighbours::{Neighbours, Unsupported};
use super::opening::{begin_among, failed_on};
use super::piece::{Begun, PieceProgress, READ_MAX, is_end, piece_limit};
use super::pread::{Parked, charged, read_on, unpark};
use crate::arena::Lease;
use crate::error::{Error, Operation};
use crate::loaded::Loaded;
use crate::lookups::LOOKUP_WAITED_NS;
use crate::source::Item;
use ioloom_model::{CallKind, Tuning};
use ioloom_observe::Meter;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{self, Nowait};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Typical time of reads above which files in memory count as waiting: much of them is swapped out, or
/// they are large.
const SWAPPED_NS: u64 = 50_000;

/// A window of files whose readahead was started.
pub(crate) struct NowaitWindow<'p, S> {
    window: usize,
    missed: VecDeque<Missed<'p, S>>,
    parked: Parked<'p, S>,
    neighbours: Neighbours,
    /// Whether a read that came at once, or its open, has blocked; see [`Fetch::take_blocked`].
    blocked: bool,
}

impl<S> NowaitWindow<'_, S> {
    /// Creates a window of `window` files. `may_refer`: a descriptor is left for a directory.
    pub(crate) fn new(window: u32, may_refer: bool) -> Self {
        let (missed, parked) = (VecDeque::new(), Parked::new());
        let neighbours = Neighbours::new(may_refer);
        Self { window: window as usize, missed, parked, neighbours, blocked: false }
    }
}

impl<'p, S> NowaitWindow<'p, S> {
    /// Returns the files that wait for memory.
    pub(crate) fn parked(&mut self) -> &mut Parked<'p, S> {
        &mut self.parked
    }

    fn attempt(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        file: OwnedFd,
        mut lease: Lease,
        mut progress: PieceProgress,
    ) -> Started<'p, S> {
        let limit = piece_limit(cx, &lease).min(READ_MAX);
        let into = &mut lease.whole_mut()[..limit];
        let result = file::read_nowait_at(&file, into, progress.offset);
        cx.meter.lap(CallKind::Read, item.index);
        match result {
            // File systems whose reads may be short anywhere do not support this call.
            Ok(Nowait::Hit(n)) if is_end(n, limit, &progress, false) => {
                progress.filled = n;
                ended(cx, item, file, lease, progress)
            }
            // A full buffer, or an end at a page boundary, which may be the end of what is cached.
            // Read the rest with blocking calls; at the end of the file one of them returns zero.
            Ok(Nowait::Hit(n)) => {
                progress.filled = n;
                let began_ns = (n == limit).then(monotonic_ns);
                let started = read_on(cx, item, file, lease, progress, (false, &mut self.parked));
                if let Started::Ready(piece) = &started {
                    self.blocked |= has_blocked(piece.len.saturating_sub(n), began_ns);
                }
                started
            }
            Ok(Nowait::Miss) => {
                self.missed.push_back(Missed { item, file, lease, progress });
                Started::Pending
            }
            Ok(Nowait::Unsupported) => {
                let how = self.neighbours.note(item.path.as_path(), &file);
                self.read_unasked(cx, item, Begun { file, lease, progress }, how)
            }
            Ok(Nowait::Refused) => {
                // File systems whose reads may be short anywhere are among those.
                progress.cut = true;
                self.blocked = true;
                cx.give_back_permit();
                let started = read_on(cx, item, file, lease, progress, (false, &mut self.parked));
                // A refusal may be that of a single file.
                if !matches!(started, Started::Failed(_)) {
                    cx.shared.unanswered.fetch_add(1, Ordering::Relaxed);
                }
                started
            }
            Err(error) => Started::Failed(failed_on(&item, &file, Operation::Read, error)),
        }
    }

    /// Reads a file whose file system does not support reads that do not wait.
    fn read_unasked(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        begun: Begun,
        how: Unsupported,
    ) -> Started<'p, S> {
        let Begun { file, lease, mut progress } = begun;
        if how == Unsupported::InMemory {
            // No read waits, so the permit may be kept.
            cx.kept = None;
        } else {
            cx.give_back_permit();
            // File systems whose reads may be short anywhere are among those.
            progress.cut = true;
            self.blocked = true;
            // Counted before the read, which may take long: the count brings more threads.
            cx.shared.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        let started = read_on(cx, item, file, lease, progress, (false, &mut self.parked));
        // The last lap is that of the close, and not every lap is timed.
        if how == Unsupported::InMemory
            && cx.meter.typical_ns(CallKind::Read).is_some_and(|ns| ns > SWAPPED_NS)
        {
            self.blocked = true;
            cx.shared.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        started
    }
}

/// Reports whether opening a file of this thread typically waits, as on a server. A single open that waited
/// or was preempted does not count: few opens are timed.
#[inline]
fn opens_wait(meter: &Meter) -> bool {
    meter.typical_ns(CallKind::Open).is_some_and(|ns| ns >= LOOKUP_WAITED_NS)
}

/// Reports whether `bytes` that were read beyond a hit had to wait for a device. What follows a short hit
/// is not in memory; what follows a full buffer (`began_ns`: when its read began) may be, and is judged by
/// its time: more than a nanosecond per byte is a wait. A device above 1 GB/s can be faster, and its reads
/// then count as hits.
#[inline]
fn has_blocked(bytes: usize, began_ns: Option<u64>) -> bool {
    let slow_ns = SWAPPED_NS + bytes as u64;
    bytes > 0 && began_ns.is_none_or(|began_ns| monotonic_ns().saturating_sub(began_ns) > slow_ns)
}

impl<'p, S> NowaitWindow<'p, S> {
    /// Reads a later piece of a file, what is in memory first, and counts the piece as a miss if the rest
    /// has bytes. Only the first piece is ever queued, so large files would seem to be hits.
    fn read_counted(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        begun: Begun,
    ) -> Started<'p, S> {
        let Begun { file, mut lease, mut progress } = begun;
        let limit = piece_limit(cx, &lease).min(READ_MAX);
        let result = file::read_nowait_at(&file, &mut lease.whole_mut()[..limit], progress.offset);
        cx.meter.lap(CallKind::Read, item.index);
        let in_memory = match result {
            Ok(Nowait::Hit(n)) => {
                let is_end = is_end(n, limit, &progress, false);
                progress.filled = n;
                if is_end {
                    return ended(cx, item, file, lease, progress);
                }
                Some(n)
            }
            Ok(Nowait::Miss) => Some(0),
            Ok(Nowait::Unsupported | Nowait::Refused) => {
                progress.cut = true;
                None
            }
            Err(error) => return Started::Failed(failed_on(&item, &file, Operation::Read, error)),
        };
        let started = read_on(cx, item, file, lease, progress, (false, &mut self.parked));
        count_later(cx, in_memory, &started);
        started
    }

    /// Tries the oldest miss again without waiting. It stays the oldest if its data has not come.
    fn retry_oldest(&mut self, cx: &mut Cx<'_, '_>, out: &mut Reaped<'p, S>) {
        let Some(Missed { item, file, lease, progress }) = self.missed.pop_front() else { return };
        let others = self.missed.len();
        out.extend(self.attempt(cx, item, file, lease, progress).came());
        if self.missed.len() > others {
            self.missed.rotate_right(1);
        }
    }
}

impl<'p, S> Fetch<'p, S> for NowaitWindow<'p, S> {
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S> {
        let begun = match begin_among(cx, &item, lease, &mut self.neighbours) {
            Ok(begun) => begun,
            Err(not) => return not.started(item),
        };
        self.blocked |= opens_wait(cx.meter);
        match self.neighbours.unsupported() {
            Some(how) if item.known_regular => self.read_unasked(cx, item, begun, how),
            _ => {
                let Begun { file, lease, progress } = begun;
                self.attempt(cx, item, file, lease, progress)
            }
        }
    }

    fn resume(&mut self, cx: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S> {
        match next_piece(cx, done) {
            // A controller counts how many of these reads wait.
            Ok((item, begun)) if cx.shared.plan.tuning != Tuning::Fixed && !begun.progress.cut => {
                self.read_counted(cx, item, begun)
            }
            // Readahead is far beyond this offset.
            Ok((item, Begun { file, lease, progress })) => {
                let started = read_on(cx, item, file, lease, progress, (false, &mut self.parked));
                if cx.shared.plan.tuning != Tuning::Fixed {
                    count_later(cx, None, &started);
                }
                started
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
        let wait_memory = wait && cx.may_wait && self.missed.is_empty();
        unpark(cx, &mut self.parked, wait_memory, out, false);
        if (wait && out.is_empty() || self.missed.len() >= self.window)
            && let Some(Missed { item, file, lease, progress }) = self.missed.pop_front()
        {
            // If more are queued or have their buffers, park the file instead of waiting.
            cx.may_wait &= wait && self.missed.is_empty() && out.is_empty();
            // The blocking read of a miss is timed as the wait for its completion.
            let parked = &mut self.parked;
            out.extend(finish_missed(cx, item, file, lease, progress, parked).came());
        } else if cx.meter.typical_ns(CallKind::Compute).is_some_and(|ns| ns > SHORT_FUNCTION_NS) {
            self.retry_oldest(cx, out);
        }
        Ok(())
    }

    #[inline]
    fn take_blocked(&mut self) -> bool {
        std::mem::take(&mut self.blocked)
    }

    fn in_flight(&self) -> usize {
        self.missed.len() + self.parked.len()
    }

    #[inline]
    fn set_window(&mut self, window: u32) {
        self.window = window as usize;
    }

    fn missed(&mut self) -> Option<&mut VecDeque<Missed<'p, S>>> {
        Some(&mut self.missed)
    }

    fn holding(&self) -> u64 {
        charged(&self.parked) + self.missed.iter().map(|missed| missed.lease.charged()).sum::<u64>()
    }
}

/// Counts a later piece of a file that has waited, or may have if its bytes `in_memory` are unknown. A
/// file that ends at a page boundary is read once more, which adds nothing and does not wait.
fn count_later<S>(cx: &Cx<'_, '_>, in_memory: Option<usize>, started: &Started<'_, S>) {
    let read = match started {
        Started::Ready(piece) => piece.len,
        Started::Failed(_) => 0,
        Started::Pending | Started::Later(_) => usize::MAX,
    };
    let counter = match in_memory {
        Some(_) => &cx.shared.waited_later,
        None => &cx.shared.unanswered_later,
    };
    if read > in_memory.unwrap_or(0) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn finish_missed<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    mut lease: Lease,
    mut progress: PieceProgress,
    parked: &mut Parked<'p, S>,
) -> Started<'p, S> {
    let limit = piece_limit(cx, &lease).min(READ_MAX);
    let result = file::read_at(&file, &mut lease.whole_mut()[..limit], progress.offset);
    cx.meter.lap(CallKind::Completion, item.index);
    match result {
        Ok(n) if is_end(n, limit, &progress, false) => {
            progress.filled = n;
            ended(cx, item, file, lease, progress)
        }
        Ok(n) => {
            progress.filled = n;
            read_on(cx, item, file, lease, progress, (false, parked))
        }
        Err(error) => Started::Failed(failed_on(&item, &file, Operation::Read, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_observe::Detail;

    #[test]
    fn opens_wait_if_they_typically_do() {
        let mut meter = Meter::start(monotonic_ns(), Detail::Traced);
        meter.lap(CallKind::Open, 0);
        assert!(!opens_wait(&meter));
        for file in 1..60 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            meter.lap(CallKind::Open, file);
        }
        assert!(opens_wait(&meter));
        (60..1000).for_each(|file| meter.lap(CallKind::Open, file));
        assert!(!opens_wait(&meter));
    }

    #[test]
    fn reads_after_a_hit_have_blocked_if_it_was_short_or_they_were_slow() {
        let now_ns = monotonic_ns();
        let long_ago_ns = now_ns - 10 * SWAPPED_NS;
        assert!(
            !has_blocked(0, None) && !has_blocked(0, Some(long_ago_ns)),
            "only the end was read"
        );
        assert!(has_blocked(4096, None));
        assert!(has_blocked(4096, Some(long_ago_ns)));
        assert!(!has_blocked(1 << 30, Some(now_ns)));
    }
}

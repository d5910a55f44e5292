//! Reads files to their ends with blocking calls.

use super::after_read::{Full, Larger, complete, ended, full, outgrown, take_over};
use super::interface::{Cx, Reaped, Started};
use super::lease::{lease_waiting, try_lease};
use super::opening::failed_on;
use super::piece::{PieceProgress, READ_MAX, is_end_here, piece_limit};
use crate::arena::Lease;
use crate::error::Operation;
use crate::source::Item;
use ioloom_model::CallKind;
use ioloom_sys::file::{self, Nowait};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// Files that wait for a larger buffer, because their thread may not wait.
pub(crate) type Parked<'p, S> = VecDeque<Waiting<'p, S>>;

pub(crate) struct Waiting<'p, S> {
    item: Item<'p, S>,
    file: OwnedFd,
    lease: Lease,
    progress: PieceProgress,
    size: u64,
}

impl<'p, S> Waiting<'p, S> {
    /// Returns a file of which a first buffer is full and that needs `size` bytes.
    pub(crate) fn new(
        item: Item<'p, S>,
        file: OwnedFd,
        (lease, progress): (Lease, PieceProgress),
        size: u64,
    ) -> Self {
        Self { item, file, lease, progress, size }
    }
}

/// Continues the oldest parked file. With `wait`, waits for memory.
pub(crate) fn unpark<'p, S>(
    cx: &mut Cx<'_, '_>,
    parked: &mut Parked<'p, S>,
    wait: bool,
    out: &mut Reaped<'p, S>,
    direct: bool,
) {
    let Some(Waiting { item, file, lease, progress, size }) = parked.pop_front() else { return };
    let larger = match try_lease(cx.shared, &cx.shared.arena, size) {
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

/// Returns the bytes charged for parked files.
pub(crate) fn charged<S>(parked: &Parked<'_, S>) -> u64 {
    parked.iter().map(|waiting| waiting.lease.charged()).sum()
}

/// Reads once. A thread that holds a permit first reads what is in memory. It returns the permit before a read
/// that may wait, so other threads can run their functions during that read.
#[inline]
fn read_once(
    cx: &mut Cx<'_, '_>,
    file: &OwnedFd,
    into: &mut [u8],
    at: u64,
    direct: bool,
) -> io::Result<usize> {
    if !direct && cx.holds_permit() {
        match file::read_nowait_at(file, into, at)? {
            Nowait::Hit(n) => return Ok(n),
            Nowait::Miss | Nowait::Unsupported | Nowait::Refused => cx.give_back_permit(),
        }
    }
    file::read_at(file, into, at)
}

/// Reads with blocking calls until the piece is complete. A file that needs more memory than is
/// free is parked if its thread may not wait.
pub(crate) fn read_on<'p, S>(
    cx: &mut Cx<'_, '_>,
    item: Item<'p, S>,
    file: OwnedFd,
    mut lease: Lease,
    mut progress: PieceProgress,
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
            let larger = match try_lease(cx.shared, &cx.shared.arena, size) {
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
        let asked = limit - progress.filled;
        let into = &mut lease.whole_mut()[progress.filled..limit];
        let at = progress.offset + progress.filled as u64;
        let result = read_once(cx, &file, into, at, direct);
        cx.meter.lap(CallKind::Read, item.index);
        match result {
            Ok(n) if is_end_here(cx, &item, &file, (n, asked), &mut progress, direct) => {
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

//! Blocking reads, buffered or direct, and the method that reads nothing.
//!
//! A file of unknown size is read into its first buffer. A short read proves the end, so a small
//! file costs an open, one read and a close. A read that ends at a page boundary proves the end
//! only if the size is known (see [`is_end`](super::piece::is_end)); otherwise another read
//! follows. On a file system whose reads may be short anywhere, only a read of nothing proves the
//! end. Only a file that fills its first buffer is queried for its size. It gets a buffer of
//! that size plus one byte, again so that a short read proves the end, and is read on.

use super::after_read::next_piece;
use super::interface::{Cx, Fetch, Reaped, Started};
use super::opening::begin;
use super::piece::Begun;
use super::pread::{Parked, charged, read_on, unpark};
use crate::arena::Lease;
use crate::error::Error;
use crate::loaded::{Data, Loaded};
use crate::source::Item;

/// `pread`, through the page cache or bypassing it.
pub(crate) struct Blocking<'p, S> {
    direct: bool,
    parked: Parked<'p, S>,
}

impl<S> Blocking<'_, S> {
    pub(crate) fn new(direct: bool) -> Self {
        Self { direct, parked: Parked::new() }
    }
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

/// Reads nothing.
pub(crate) struct Nothing;

impl<'p, S> Fetch<'p, S> for Nothing {
    fn start(&mut self, _: &mut Cx<'_, '_>, item: Item<'p, S>, _: Option<Lease>) -> Started<'p, S> {
        Started::Ready(Loaded {
            item,
            file: None,
            data: Data::Empty,
            len: 0,
            offset: 0,
            size: None,
            cut: false,
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

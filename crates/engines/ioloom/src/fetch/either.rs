//! Both methods of a run whose controller chooses the method.
//!
//! Every piece ends by the method by which it began, so after a change both have some in flight for a
//! moment. The ring is created when it is first used: most runs never need it.

use super::interface::{Cx, Fetch, Reaped, Started};
use super::missed::Missed;
use super::nowait::NowaitWindow;
use super::ring::Rings;
use crate::arena::Lease;
use crate::error::Error;
use crate::loaded::Loaded;
use crate::shared::Shared;
use crate::source::Item;
use std::collections::VecDeque;

/// A window of `nowait`, and a ring.
pub(crate) struct Either<'p, S> {
    nowait: NowaitWindow<'p, S>,
    ring: Option<Rings<'p, S>>,
    /// Most requests in the ring.
    depth: u32,
    /// Whether the ring could not be created.
    refused: bool,
}

impl<S> Either<'_, S> {
    /// Creates a fetch with at most `window` pieces in flight, `depth` of them in the ring. `may_refer`: a
    /// descriptor is left for a directory.
    pub(crate) fn new(window: u32, depth: u32, may_refer: bool) -> Self {
        let nowait = NowaitWindow::new(window, may_refer);
        Self { nowait, ring: None, depth, refused: false }
    }
}

impl<'p, S> Either<'p, S> {
    /// Returns the ring, if files begin by it and it has room.
    #[inline]
    fn ring(&mut self, shared: &Shared<'_>) -> Option<&mut Rings<'p, S>> {
        if !shared.methods.is_ring() {
            return None;
        }
        if self.ring.is_none() && !self.refused {
            self.create(shared);
        }
        self.ring.as_mut().filter(|ring| ring.has_room())
    }

    #[cold]
    fn create(&mut self, shared: &Shared<'_>) {
        match Rings::that_opens(self.depth) {
            Ok(ring) => self.ring = Some(ring),
            Err(error) => {
                self.refused = true;
                shared.methods.cannot_create(error);
            }
        }
    }
}

impl<'p, S> Fetch<'p, S> for Either<'p, S> {
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S> {
        match self.ring(cx.shared) {
            Some(ring) => ring.start(cx, item, lease),
            None => self.nowait.start(cx, item, lease),
        }
    }

    fn resume(&mut self, cx: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S> {
        match self.ring(cx.shared) {
            Some(ring) => ring.resume(cx, done),
            None => self.nowait.resume(cx, done),
        }
    }

    fn reap(
        &mut self,
        cx: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, S>,
    ) -> Result<(), Error> {
        let ring = match &mut self.ring {
            Some(ring) if ring.in_flight() > 0 => ring,
            _ => return self.nowait.reap(cx, wait, out),
        };
        if self.nowait.in_flight() == 0 {
            return ring.reap(cx, wait, out);
        }
        // A thread may wait for memory in one place only, where all that it holds is known.
        let (before, may_wait) = (out.len(), cx.may_wait);
        cx.may_wait = false;
        ring.reap(cx, false, out)?;
        ring.move_parked(self.nowait.parked());
        cx.may_wait = may_wait && ring.in_flight() == 0;
        self.nowait.reap(cx, wait && out.len() == before, out)?;
        if wait && out.len() == before {
            cx.may_wait = false;
            ring.reap(cx, true, out)?;
        }
        Ok(())
    }

    fn take_blocked(&mut self) -> bool {
        self.nowait.take_blocked()
    }

    fn in_flight(&self) -> usize {
        self.nowait.in_flight() + self.ring.as_ref().map_or(0, Fetch::in_flight)
    }

    #[inline]
    fn set_window(&mut self, window: u32) {
        self.nowait.set_window(window);
    }

    fn missed(&mut self) -> Option<&mut VecDeque<Missed<'p, S>>> {
        self.nowait.missed()
    }

    fn holding(&self) -> u64 {
        self.nowait.holding() + self.ring.as_ref().map_or(0, Fetch::holding)
    }
}

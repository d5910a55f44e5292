//! The interface between schedules and methods.

use crate::arena::{Arena, Lease};
use crate::error::{Error, FileError};
use crate::loaded::Loaded;
use crate::shared::Shared;
use crate::source::Item;
use ioloom_observe::Meter;
use std::collections::VecDeque;
use std::sync::Arc;

/// What became of a start.
pub(crate) enum Started<'p, S> {
    /// Here at once.
    Ready(Loaded<'p, S>),
    /// In flight.
    Pending,
    /// It failed.
    Failed(FileError),
    /// Not begun, because no descriptor is left: again when this thread has closed some, or is idle.
    Later(Item<'p, S>),
}

impl<'p, S> Started<'p, S> {
    /// What came of a file that is open, unless it is in flight still.
    pub(crate) fn came(self) -> Option<Result<Loaded<'p, S>, FileError>> {
        match self {
            Self::Ready(loaded) => Some(Ok(loaded)),
            Self::Failed(error) => Some(Err(error)),
            Self::Pending => None,
            Self::Later(_) => unreachable!("it is open"),
        }
    }
}

/// What came out of flight: a piece, or why not.
pub(crate) type Reaped<'p, S> = VecDeque<Result<Loaded<'p, S>, FileError>>;

/// What a fetch needs of its thread.
pub(crate) struct Cx<'a, 'e> {
    pub(crate) shared: &'a Shared<'e>,
    pub(crate) meter: &'a mut Meter,
    /// Whether this thread may wait for memory: only if it holds no ready file, which it might be
    /// the only one to compute, and not the open limit. Else a file that needs more is parked.
    pub(crate) may_wait: bool,
    /// Whether nothing of this thread is in flight or ready, so that without a descriptor left it
    /// can only wait for others. Else it is done with its own files first: they hold some.
    pub(crate) idle: bool,
}

/// A method, as one thread uses it.
pub(crate) trait Fetch<'p, S> {
    /// Begins with the first piece of a file. `lease` is its first buffer.
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S>;

    /// Begins with the next piece of a file in chunk form, into the same buffer.
    fn resume(&mut self, cx: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S>;

    /// Brings what has come out of flight; with `wait` at least one, unless nothing is in flight or
    /// what is waits for memory and the thread may not.
    fn reap(
        &mut self,
        cx: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, S>,
    ) -> Result<(), Error>;

    /// Pieces in flight.
    fn in_flight(&self) -> usize;

    /// Bytes charged for what is parked: given back only after more was reserved.
    fn holding(&self) -> u64 {
        0
    }

    /// The arena that first buffers come from.
    fn arena<'a>(&'a self, shared: &'a Shared<'_>) -> &'a Arc<Arena> {
        &shared.arena
    }
}

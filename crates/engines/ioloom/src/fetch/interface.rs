//! The interface between schedules and methods.

use super::missed::Missed;
use crate::arena::{Arena, Lease};
use crate::error::{Error, FileError};
use crate::loaded::Loaded;
use crate::shared::Shared;
use crate::source::Item;
use ioloom_budget::Permit;
use ioloom_observe::Meter;
use std::collections::VecDeque;
use std::sync::Arc;

/// Functions that take at most this long on average run at once on a hit: a device does not go idle
/// in that time.
pub(crate) const SHORT_FUNCTION_NS: u64 = 20_000;

/// The outcome of a start.
pub(crate) enum Started<'p, S> {
    /// The piece is loaded.
    Ready(Loaded<'p, S>),
    /// The piece is in flight.
    Pending,
    /// The file failed.
    Failed(FileError),
    /// Not started, for want of a file descriptor. Try again when this thread has closed some, or
    /// is idle.
    Later(Item<'p, S>),
}

impl<'p, S> Started<'p, S> {
    /// Converts the outcome for a file that is open; `None` if it is still in flight.
    pub(crate) fn came(self) -> Option<Result<Loaded<'p, S>, FileError>> {
        match self {
            Self::Ready(loaded) => Some(Ok(loaded)),
            Self::Failed(error) => Some(Err(error)),
            Self::Pending => None,
            Self::Later(_) => unreachable!("the file is open"),
        }
    }
}

/// Completions: pieces or errors.
pub(crate) type Reaped<'p, S> = VecDeque<Result<Loaded<'p, S>, FileError>>;

/// The context of a call.
pub(crate) struct Cx<'a, 'e> {
    pub(crate) shared: &'a Shared<'e>,
    pub(crate) meter: &'a mut Meter,
    /// Whether this thread may wait for memory. It must not if it holds a ready file, which no
    /// other thread may be able to compute, or the open limit. A file that needs more memory is
    /// then parked.
    pub(crate) may_wait: bool,
    /// Whether nothing of this thread is in flight or ready. Without a descriptor an idle thread
    /// waits for other threads; any other first finishes its own files, which hold some.
    pub(crate) idle: bool,
    /// The permit that this thread keeps for its next function, if it keeps one.
    pub(crate) kept: Option<&'a mut Option<Permit<'e>>>,
}

impl Cx<'_, '_> {
    /// Reports whether this thread holds a permit while it reads.
    #[inline]
    pub(crate) fn holds_permit(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.is_some())
    }

    /// Returns the permit before a read that may wait.
    pub(crate) fn give_back_permit(&mut self) {
        if let Some(kept) = &mut self.kept {
            **kept = None;
        }
    }
}

/// A method, as used by one thread.
pub(crate) trait Fetch<'p, S> {
    /// Starts the first piece of a file. `lease` is its first buffer.
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S>;

    /// Starts the next piece of a file in chunk form, in the same buffer.
    fn resume(&mut self, cx: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S>;

    /// Collects completions. With `wait` it returns at least one, unless nothing is in flight, or
    /// what is in flight waits for memory and the thread may not.
    fn reap(
        &mut self,
        cx: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, S>,
    ) -> Result<(), Error>;

    /// Reports whether a read that returned its piece at once, or its open, has blocked since the last call.
    /// Methods whose threads hold no permits need not know.
    fn take_blocked(&mut self) -> bool {
        false
    }

    /// Returns the number of pieces in flight.
    fn in_flight(&self) -> usize;

    /// Changes the number of pieces that may be in flight, up to the one for which it was made.
    fn set_window(&mut self, _window: u32) {}

    /// Returns the files in flight that any thread can read with the same method, if the method has
    /// such. Their number changes that of the pieces in flight.
    fn missed(&mut self) -> Option<&mut VecDeque<Missed<'p, S>>> {
        None
    }

    /// Returns the bytes charged for parked files, which are returned only after more was reserved.
    fn holding(&self) -> u64 {
        0
    }

    /// Returns the arena of first buffers.
    fn arena<'a>(&'a self, shared: &'a Shared<'_>) -> &'a Arc<Arena> {
        &shared.arena
    }
}

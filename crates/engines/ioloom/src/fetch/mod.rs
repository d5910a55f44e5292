//! Methods: how one thread gets loaded files.
//!
//! A [`Fetch`] belongs to one thread. [`Fetch::start`] begins with the first piece of a file,
//! [`Fetch::resume`] with the next; either has it at once, or it is in flight and comes out of
//! [`Fetch::reap`]. Blocking methods always have it at once. One interface for all of them is what
//! lets every schedule drive every method.

mod blocking;
mod map;
mod nowait;
mod opening;
mod ring;

pub(crate) use ring::REGISTERED_BYTES;

use crate::arena::{Arena, Lease, NoBuffer};
use crate::engine::Shared;
use crate::error::{Error, FileError, Operation};
use crate::source::Item;
use ioloom_budget::Reserve;
use ioloom_model::{CallKind, Method};
use ioloom_observe::Meter;
use ioloom_sys::map::Map;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The bytes of a piece.
pub(crate) enum Data {
    /// In a recycled buffer.
    Buffer(Lease),
    /// In a mapping.
    Map(Map),
    /// None.
    Empty,
}

impl Data {
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            Self::Buffer(lease) => lease.bytes(len),
            Self::Map(map) => map.bytes(),
            Self::Empty => &[],
        }
    }
}

/// A piece of a file, ready to be computed.
pub(crate) struct Loaded<'p, S> {
    pub(crate) item: Item<'p, S>,
    pub(crate) file: Option<OwnedFd>,
    pub(crate) data: Data,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    pub(crate) last: bool,
}

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
    fn came(self) -> Option<Result<Loaded<'p, S>, FileError>> {
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

/// Makes the fetch of a plan for the calling thread with at most `window` pieces in flight.
pub(crate) fn make<'p, S: Send + 'p>(
    shared: &Shared<'_>,
    window: u32,
) -> Result<Box<dyn Fetch<'p, S> + 'p>, Error> {
    Ok(match shared.plan.method {
        Method::Read => Box::new(blocking::Blocking::new(false)),
        Method::DirectRead => Box::new(blocking::Blocking::new(true)),
        Method::Null => Box::new(blocking::Nothing),
        Method::Nowait => Box::new(nowait::NowaitWindow::new(window)),
        Method::MmapPlain | Method::MmapSequential | Method::MmapPopulate => {
            Box::new(map::Mapped::new(shared.plan.method, 1))
        }
        Method::MmapWillneed => Box::new(map::Mapped::new(Method::MmapWillneed, window)),
        Method::Uring | Method::UringOpen | Method::UringRegistered | Method::DirectUring => {
            Box::new(ring::Rings::new(shared, window)?)
        }
    })
}

/// A buffer for `bytes`, waiting for memory; the wait is a lap of its own. `holding`: bytes charged
/// for what this thread has parked.
pub(crate) fn lease_waiting<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    bytes: u64,
    holding: u64,
) -> Result<Lease, FileError> {
    if let Ok(Some(lease)) = cx.shared.arena.try_lease(bytes) {
        return Ok(lease);
    }
    if cx.shared.unbounded() {
        let reason = full_of_window(cx.shared, item.index);
        cx.shared.fail(Error::Refused(reason.clone()));
        return Err(FileError::rejected(
            item.index,
            item.path.as_path(),
            Operation::Reserve,
            reason,
        ));
    }
    let lease = cx.shared.arena.lease(bytes, holding);
    cx.meter.lap(CallKind::Memory, item.index);
    lease.map_err(|none| no_buffer(cx.shared, item, bytes, none))
}

/// Why a window of all files ends when memory does: waiting there would be another plan.
pub(crate) fn full_of_window(shared: &Shared<'_>, files: usize) -> String {
    format!(
        "{}: the memory budget was full after {files} files; a window of all files needs memory \
         for all of them: give memory= or a bounded w=",
        shared.plan
    )
}

/// The error of a file for which there is no buffer. Kept bytes that fill the budget end the run.
pub(crate) fn no_buffer<S>(
    shared: &Shared<'_>,
    item: &Item<'_, S>,
    bytes: u64,
    none: NoBuffer,
) -> FileError {
    let reason = match none {
        NoBuffer::Budget(Reserve::Held) => {
            shared.fail_held();
            "the memory budget is held by kept bytes".to_owned()
        }
        NoBuffer::Budget(Reserve::TooLarge) => too_large(shared, bytes),
        NoBuffer::Budget(_) => "the run was ended".to_owned(),
        NoBuffer::System(error) => format!("no memory: {error}"),
    };
    FileError::rejected(item.index, item.path.as_path(), Operation::Reserve, reason)
}

/// Why a whole file cannot be held.
pub(crate) fn too_large(shared: &Shared<'_>, bytes: u64) -> String {
    use ioloom_model::units::format_size;
    format!(
        "its {} do not fit the memory budget of {}; read it in pieces with .chunks(), or raise \
         .memory()",
        format_size(bytes),
        format_size(shared.budget.limit())
    )
}

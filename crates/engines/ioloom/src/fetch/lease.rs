//! Buffers for files, and the errors of files that get none.

use super::interface::Cx;
use crate::arena::{Arena, Lease, NoBuffer};
use crate::error::{Error, FileError, Operation};
use crate::shared::Shared;
use crate::source::Item;
use ioloom_budget::Reserve;
use ioloom_model::layout::Driver;
use ioloom_model::units::{format_size, spell_size};
use ioloom_model::{CallKind, Method};
use ioloom_sys::buffer;
use std::sync::Arc;

/// Most bytes of the first read of a file whose size is not known.
pub(crate) const FIRST_READ: u64 = 64 << 10;

/// Most files that the default plan has at once, in a large budget.
const FILES_OF_DEFAULT: u64 = 768;

/// Returns a buffer of `bytes`, or `None` if memory is short. If the system refuses memory, buffers in use may
/// come back: so that is an error only in the schedule `roles`, where a thread that waits may be one that
/// has to return them.
pub(crate) fn try_lease(
    shared: &Shared<'_>,
    arena: &Arc<Arena>,
    bytes: u64,
) -> Result<Option<Lease>, NoBuffer> {
    match arena.try_lease(bytes) {
        Err(NoBuffer::System(_)) if shared.layout.driver != Driver::Queued => Ok(None),
        other => other,
    }
}

/// Returns a buffer of `bytes`, after waiting for memory if necessary. The wait is timed
/// separately. `holding`: bytes charged for files that this thread has parked. A thread that may not wait can
/// hold others, so it does not wait for buffers in use if the system refuses memory.
pub(crate) fn lease_waiting<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    bytes: u64,
    holding: u64,
) -> Result<Lease, FileError> {
    match try_lease(cx.shared, &cx.shared.arena, bytes) {
        Ok(Some(lease)) => return Ok(lease),
        Ok(None) => {}
        Err(none) => return Err(no_buffer(cx.shared, item, bytes, none)),
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
    let (arena, may_wait) = (&cx.shared.arena, cx.may_wait);
    let lease = cx.meter.waiting(CallKind::Memory, item.index, || match may_wait {
        true => arena.lease(bytes, holding),
        false => arena.lease_or_fail(bytes),
    });
    lease.map_err(|none| no_buffer(cx.shared, item, bytes, none))
}

/// Explains why a window of all files ends when memory is full: waiting would be a different plan.
pub(crate) fn full_of_window(shared: &Shared<'_>, files: usize) -> String {
    format!(
        "{}: the memory budget was full after {files} files; a window of all files needs memory \
         for all of them: raise memory= or bound w=",
        shared.plan
    )
}

/// Returns the error of a file for which there is no buffer. Ends the run if retained bytes fill
/// the budget.
pub(crate) fn no_buffer<S>(
    shared: &Shared<'_>,
    item: &Item<'_, S>,
    bytes: u64,
    none: NoBuffer,
) -> FileError {
    let reason = match none {
        NoBuffer::Budget(Reserve::Held) => {
            shared.fail_held();
            "retained bytes fill the memory budget".to_owned()
        }
        NoBuffer::Budget(Reserve::TooLarge) => too_large(shared, bytes),
        NoBuffer::Budget(_) => "the run has ended".to_owned(),
        NoBuffer::System(error) => {
            let (index, path) = (item.index, item.path.as_path());
            return FileError::io(index, path, Operation::Reserve, error);
        }
    };
    FileError::rejected(item.index, item.path.as_path(), Operation::Reserve, reason)
}

/// Explains why a file cannot be read whole.
pub(crate) fn too_large(shared: &Shared<'_>, bytes: u64) -> String {
    let limit = shared.budget.limit();
    let others = match (shared.plan.method, limit.saturating_sub(shared.whole_max)) {
        (_, 0) => String::new(),
        (Method::UringRegistered, used) => {
            format!(", of which the registered buffers use {}", format_size(used))
        }
        (_, used) => {
            format!(", of which the first buffers of other files use {}", format_size(used))
        }
    };
    format!(
        "its {} do not fit the memory budget of {}{others}; read it in chunks with .chunks(), or raise \
         .memory() to {}",
        format_size(bytes),
        format_size(limit),
        spell_size(sufficient(shared, bytes))
    )
}

/// Returns a memory budget, in whole MiB, in which a file of `bytes` fits. In a larger budget a plan that
/// is not pinned has more files at once: at most those of 256 MiB, whose first buffers take at most a
/// fifth of the budget, unless each of many threads has a file ([`of_threads`]).
fn sufficient(shared: &Shared<'_>, bytes: u64) -> u64 {
    let needed = bytes.saturating_add(1).next_multiple_of(buffer::ALIGN as u64);
    let others = match shared.plan.method {
        Method::UringRegistered => shared.budget.limit().saturating_sub(shared.whole_max),
        _ => {
            let pinned = shared.at_once.saturating_mul(FIRST_READ);
            let most = pinned.max(FILES_OF_DEFAULT * FIRST_READ);
            let permits = u64::from(shared.layout.permits.unwrap_or(0));
            most.min(pinned.max(needed / 4 + (1 << 20))).max(of_threads(permits, needed))
        }
    };
    needed.saturating_add(others).next_multiple_of(1 << 20)
}

/// Returns the most that first buffers take of a budget in which `needed` bytes are left, with a file for
/// each of `threads` and for each blocking thread, of which there is at most one per MiB. First buffers
/// share half of the budget; rounded up, they take two thirds at most.
fn of_threads(threads: u64, needed: u64) -> u64 {
    let own = threads.saturating_mul(FIRST_READ);
    let blocking = needed.saturating_add(own) / 15;
    own.saturating_add(blocking).min(needed.saturating_mul(2))
}

//! Buffers for files, and what to do when there are none.

use super::interface::Cx;
use crate::arena::{Lease, NoBuffer};
use crate::error::{Error, FileError, Operation};
use crate::shared::Shared;
use crate::source::Item;
use ioloom_budget::Reserve;
use ioloom_model::CallKind;
use ioloom_model::units::format_size;

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
    format!(
        "its {} do not fit the memory budget of {}; read it in pieces with .chunks(), or raise \
         .memory()",
        format_size(bytes),
        format_size(shared.budget.limit())
    )
}

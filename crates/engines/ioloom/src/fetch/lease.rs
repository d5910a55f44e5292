//! Buffers for files, and the errors of files that get none.

use super::interface::Cx;
use crate::arena::{Lease, NoBuffer};
use crate::error::{Error, FileError, Operation};
use crate::shared::Shared;
use crate::source::Item;
use ioloom_budget::Reserve;
use ioloom_model::units::format_size;
use ioloom_model::{CallKind, Method};

/// Returns a buffer of `bytes`, after waiting for memory if necessary. The wait is timed
/// separately. `holding`: bytes charged for files that this thread has parked.
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
    let buffers = match shared.plan.method {
        Method::UringRegistered => ", of which the registered buffers use a part",
        _ => "",
    };
    format!(
        "its {} do not fit the memory budget of {}{buffers}; read it in chunks with .chunks(), or \
         raise .memory()",
        format_size(bytes),
        format_size(shared.budget.limit())
    )
}

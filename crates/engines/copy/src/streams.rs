//! Refuses what cannot be done with pipes and devices, before anything is written: sharing blocks, reading
//! back, and syncing.

use crate::context::CopyContext;
use crate::error::CopyError;
use crate::options::Durable;
use crate::route::{Route, Source, TargetState};
use ioloom_failure::Operation;
use ioloom_sys::attr::Attr;
use ioloom_sys::dir::Kind;
use rustix::io::Errno;

/// Returns the pipe or device that is written to, if any.
pub(crate) fn written(target: &TargetState) -> Option<Attr> {
    match target {
        TargetState::InPlace(end) if end.kind != Kind::Regular => Some(*end),
        _ => None,
    }
}

/// Returns true if the target can be synced: a file or a block device.
pub(crate) fn can_be_synced(target: &TargetState) -> bool {
    written(target).is_none_or(|end| end.kind == Kind::BlockDevice)
}

/// Fails if the source or the target is a pipe or device and the options ask for what it cannot do.
pub(crate) fn check(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Source,
    target: &TargetState,
) -> Result<(), CopyError> {
    let options = context.options;
    let is_written = written(target).is_some();
    if options.attributes_only || !(source.is_stream() || is_written) {
        return Ok(());
    }
    if let Some(mode) = context.pinned_other_than_buffered() {
        if options.mode.is_none() {
            // As GNU cp reports it.
            let (from, to) = (route.paths)();
            let device = written(target).map_or(route.parent_attr.device, |end| end.device);
            let errno = if device == source.attr.device { Errno::INVAL } else { Errno::XDEV };
            return Err(CopyError::io(Operation::Clone, to, errno.into()).and(from));
        }
        let why = "pipes and devices are read and written in order";
        return Err(route.refused(mode, why));
    }
    let cannot = |operation, why: &str| {
        let (_, to) = (route.paths)();
        Err(CopyError::cannot(operation, &to, why))
    };
    if is_written && options.verify.reads_again() {
        return cannot(Operation::Verify, "pipes and devices are not read back; omit --verify");
    }
    if options.durable != Durable::None && !can_be_synced(target) {
        return cannot(Operation::Sync, "it is a pipe or a character device; omit --durable");
    }
    Ok(())
}

//! Copies files without content: symbolic links, pipes, sockets and devices.

use crate::context::CopyContext;
use crate::links::{EntryResult, Outcome};
use crate::meta::{Creation, FileRef};
use crate::new_file::with_hidden_name;
use crate::route::{Route, TargetState};
use ioloom_failure::Operation;
use ioloom_sys::attr::Attr;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use std::ffi::CStr;

/// Copies one special file unchanged. Does not replace a file created at the target since it was
/// inspected.
pub(crate) fn copy(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Attr,
    target: &TargetState,
) -> EntryResult {
    let mode = context.rules.initial_mode(source);
    let make_as = |name: &CStr| match source.kind {
        Kind::Symlink => {
            let target = make::read_link(route.from, route.from_name)?;
            make::symlink(&target, route.to, name)
        }
        kind => make::node(route.to, name, kind, mode, source.rdev),
    };
    let operation = match source.kind {
        Kind::Symlink => Operation::Symlink,
        _ => Operation::MakeNode,
    };
    let made = Creation {
        mode,
        parent_attr: route.parent_attr,
        is_link: source.kind == Kind::Symlink,
        is_dir: false,
        is_old: false,
    };
    let put = |name: &CStr| {
        let from = FileRef::Name(route.from, route.from_name);
        let on = FileRef::Name(route.to, name);
        context
            .rules
            .put(source, from, on, made)
            .map_err(|(operation, e)| route.failed_to(operation, e))
    };
    if route.hidden {
        make_as(route.to_name).map_err(|e| route.failed_to(operation, e))?;
        let guard = Guard { dir: route.to, name: route.to_name };
        put(route.to_name)?;
        std::mem::forget(guard);
        return Ok(Outcome::Copied(0));
    }
    let (hidden, ()) =
        with_hidden_name(route.to_name, make_as).map_err(|e| route.failed_to(operation, e))?;
    let guard = Guard { dir: route.to, name: &hidden };
    put(&hidden)?;
    let replace = matches!(target, TargetState::Present(_));
    make::rename(route.to, &hidden, route.to, route.to_name, replace)
        .map_err(|e| route.failed_to(Operation::Publish, e))?;
    std::mem::forget(guard);
    Ok(Outcome::Copied(0))
}

/// Removes the new file when dropped.
struct Guard<'a> {
    dir: &'a Dir,
    name: &'a CStr,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let _ = make::remove(self.dir, self.name);
    }
}

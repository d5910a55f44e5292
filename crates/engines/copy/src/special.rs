//! Creates entries without content: symbolic links, pipes, sockets and devices, and links to the
//! source instead of copies of it.

use crate::backup::Kept;
use crate::context::CopyContext;
use crate::error::CopyError;
use crate::link_text::link_text;
use crate::links::{Copied, EntryResult, Outcome};
use crate::meta::{Creation, FileRef};
use crate::new_file::{SWEPT_TRIES, with_temporary_name};
use crate::options::{Existing, Make};
use crate::place;
use crate::route::{Route, TargetState};
use ioloom_failure::Operation;
use ioloom_sys::attr::Attr;
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use std::ffi::CStr;
use std::io;

/// Copies one special file unchanged. Does not replace a file created at the target since it was
/// inspected, unless existing files are replaced anyway.
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
        Kind::Fifo => Operation::MakeFifo,
        _ => Operation::MakeNode,
    };
    let is_link = source.kind == Kind::Symlink;
    let made = Creation { is_link, ..Creation::file(mode, route.parent_attr) };
    let put = |name: &CStr| {
        let from = FileRef::Name(route.from, route.from_name);
        let on = FileRef::Name(route.to, name);
        let failed = context.rules.put(source, from, on, made);
        context.failed_attributes(failed, || (route.paths)().1);
    };
    let failed = |operation, e| match operation {
        Operation::Publish | Operation::Backup => route.failed_to(operation, e),
        making => route.not_made(context.options, target, (making, e)),
    };
    create(context, route, (target, is_link), &make_as, &put)
        .map(Outcome::Copied)
        .map_err(|failure| failure.at(operation, failed))
}

/// Makes a hard link or symbolic link to the source instead of a copy.
pub(crate) fn link(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    source: &Attr,
    target: &TargetState,
) -> EntryResult {
    let is_hard = context.options.make == Make::HardLink;
    let text = if is_hard { None } else { Some(link_text(route)?) };
    let make_as = |name: &CStr| match &text {
        Some(text) => make::symlink(text, route.to, name),
        None if route.follow => make::link_followed(route.from, route.from_name, route.to, name),
        None => make::link(route.from, route.from_name, route.to, name),
    };
    let operation = if is_hard { Operation::HardLink } else { Operation::Symlink };
    let failed = |operation, e| {
        let (from, _) = (route.paths)();
        let error = match operation {
            Operation::Publish | Operation::Backup => route.failed_to(operation, e),
            making => route.not_made(context.options, target, (making, e)),
        };
        if matches!(error.operation, Operation::HardLink | Operation::Symlink) {
            return error.and(from);
        }
        error
    };
    let is_removed = matches!(target, TargetState::Fresh)
        && context.watcher.wants_names()
        && place::is_removed_for_link(context, route, source);
    create(context, route, (target, true), &make_as, &|_| {})
        .map(|made| Outcome::Linked(Copied { removed: made.removed && is_removed, ..made }))
        .map_err(|failure| failure.at(operation, failed))
}

/// The step that failed.
enum Failure {
    Make(io::Error),
    Backup(io::Error),
    Publish(io::Error),
}

impl Failure {
    fn at(self, make: Operation, failed: impl Fn(Operation, io::Error) -> CopyError) -> CopyError {
        match self {
            Self::Make(e) => failed(make, e),
            Self::Backup(e) => failed(Operation::Backup, e),
            Self::Publish(e) => failed(Operation::Publish, e),
        }
    }
}

/// Creates an entry with its attributes, and gives it its final name. `is_link`: it is complete as soon as
/// it exists, and cannot replace another file, so that an unused name is its own from the start.
fn create(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    (target, is_link): (&TargetState, bool),
    make_as: &dyn Fn(&CStr) -> io::Result<()>,
    put: &dyn Fn(&CStr),
) -> Result<Copied, Failure> {
    if route.hidden {
        make_as(route.to_name).map_err(Failure::Make)?;
        put(route.to_name);
        return Ok(Copied::default());
    }
    let append_only = route.parent_attr.append_only;
    if (is_link || append_only) && matches!(target, TargetState::Absent) {
        match make_as(route.to_name) {
            Ok(()) => {
                put(route.to_name);
                return Ok(Copied::default());
            }
            // Another program created it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !append_only => {}
            Err(e) => return Err(Failure::Make(e)),
        }
    }
    let mut tries = 1;
    loop {
        match replace(context, route, target, make_as, put) {
            // Another copy removed the hidden name.
            Err(Failure::Publish(e))
                if e.kind() == io::ErrorKind::NotFound && tries < SWEPT_TRIES =>
            {
                tries += 1;
            }
            result => return result,
        }
    }
}

/// Creates an entry under a hidden name, and renames it.
fn replace(
    context: &CopyContext<'_>,
    route: &Route<'_>,
    target: &TargetState,
    make_as: &dyn Fn(&CStr) -> io::Result<()>,
    put: &dyn Fn(&CStr),
) -> Result<Copied, Failure> {
    let (hidden, ()) = with_temporary_name(route.to_name, make_as).map_err(Failure::Make)?;
    let guard = Guard { dir: route.to, name: &hidden };
    put(&hidden);
    let is_there = !matches!(target, TargetState::Absent);
    let kept = match &context.options.backup {
        Some(backup) if is_there => {
            Some(Kept::make(backup, route.to, route.to_name).map_err(Failure::Backup)?)
        }
        _ => None,
    };
    let backup = kept.as_ref().map(|kept| kept.name().to_owned());
    // What another program created meanwhile has no backup.
    let replace = is_there
        || context.options.existing == Existing::Replace && context.options.backup.is_none();
    let may_be_same = is_there && context.options.make == Make::HardLink;
    let published = match &kept {
        Some(kept) => kept.replace_by(route.to, &hidden),
        None => publish(route, &hidden, replace, may_be_same),
    };
    if let Err(error) = published {
        kept.into_iter().for_each(Kept::undo);
        return Err(Failure::Publish(error));
    }
    std::mem::forget(guard);
    Ok(Copied { removed: is_there && backup.is_none(), backup, ..Copied::default() })
}

/// `may_be_same`: whether the existing file can be the same file under another name.
fn publish(route: &Route<'_>, hidden: &CStr, replace: bool, may_be_same: bool) -> io::Result<()> {
    make::rename(route.to, hidden, route.to, route.to_name, replace)?;
    if !may_be_same {
        return Ok(());
    }
    // Renaming one hard link of a file to another has no effect, so the hidden name may still exist. Ignore a
    // failure: the new name is there, and the hidden one identifies itself.
    let _ = make::remove(route.to, hidden);
    Ok(())
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

//! The directories of a source path, created below the target (`--parents`).
//!
//! They are created before the copy, accessible to others at most as their sources are, and get
//! their attributes at the end, like any other directory. As in GNU cp, nothing is changed if the
//! last of them existed before the copy.

use crate::context::CopyContext;
use crate::dirs::{MadeDir, MadeDirs, c_name, check_same};
use crate::error::CopyError;
use crate::meta::{Creation, DirModes, FileRef, OWNER_ALL, ParentAttr};
use crate::options::Durable;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// Creates the directories of `source` below `target`; returns the path of the copy.
pub(crate) fn make(
    context: &CopyContext<'_>,
    source: &Path,
    target: &Path,
    made: &mut MadeDirs,
) -> Result<PathBuf, CopyError> {
    refuse_escape(source)?;
    let bytes = source.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let begin = bytes.iter().position(|byte| *byte != b'/').unwrap_or(end);
    let below = &bytes[begin.min(end)..end];
    if existed(below, target, made) {
        for (at, _) in below.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            refuse_new_link(context, source, &target.join(OsStr::from_bytes(&below[..at])))?;
        }
        return Ok(target.join(OsStr::from_bytes(below)));
    }
    let before = made.dirs.len();
    for (at, byte) in below.iter().enumerate() {
        // A doubled slash does not name another directory.
        if *byte == b'/' && below[at - 1] != b'/' {
            let from = Path::new(OsStr::from_bytes(&bytes[..begin + at]));
            let to = target.join(OsStr::from_bytes(&below[..at]));
            let next = refuse_new_link(context, source, &to).and_then(|()| {
                let is_new = !made.seen.contains(&to);
                is_new.then(|| make_one(context, from, &to)).transpose()
            });
            match next {
                Ok(Some(dir)) => {
                    made.dirs.push(dir);
                    made.seen.insert(to);
                }
                Ok(None) => {}
                Err(error) => {
                    leave_old(made, before);
                    return Err(error);
                }
            }
        }
    }
    Ok(target.join(OsStr::from_bytes(below)))
}

/// Leaves directories that existed as they are if nothing can be copied below them.
fn leave_old(made: &mut MadeDirs, from: usize) {
    for dir in made.dirs.split_off(from) {
        if dir.made.is_old {
            made.seen.remove(&dir.target);
        } else {
            made.dirs.push(dir);
        }
    }
}

/// Returns true if the directory of the copy existed before.
fn existed(below: &[u8], target: &Path, made: &MadeDirs) -> bool {
    let to = target.join(OsStr::from_bytes(below));
    let Some(above) = to.parent() else { return false };
    !made.seen.contains(above)
        && attr::of_path(above, true).is_ok_and(|above| above.kind == Kind::Directory)
}

/// Refuses a path whose copy would be outside the target.
fn refuse_escape(source: &Path) -> Result<(), CopyError> {
    let mut depth = 0i64;
    for component in source.components() {
        match component {
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
        if depth < 0 {
            let why = "its copy would be outside the target; use a path without '..'";
            return Err(CopyError::cannot(Operation::Copy, source, why));
        }
    }
    Ok(())
}

/// Refuses to copy through a symbolic link that an earlier part of this copy created.
fn refuse_new_link(context: &CopyContext<'_>, source: &Path, to: &Path) -> Result<(), CopyError> {
    if !context.is_created_link(to) {
        return Ok(());
    }
    let (source, link) = (quoted(source), quoted(to));
    let text = format!("will not copy {source} through just-created symlink {link}");
    Err(CopyError::whole(to, text))
}

fn make_one(context: &CopyContext<'_>, from: &Path, to: &Path) -> Result<MadeDir, CopyError> {
    let failed = |e| {
        let text =
            format!("failed to get attributes of {}: {}", quoted(from), ioloom_failure::reason(&e));
        CopyError::whole(from, text)
    };
    let attr = attr::of_path(from, true).map_err(failed)?;
    if attr.kind != Kind::Directory {
        return Err(failed(io::Error::from(rustix::io::Errno::NOTDIR)));
    }
    let rules = &context.rules;
    let attr = rules.without_sticky(attr);
    let mode = rules.visible_mode(rules.initial_mode(&attr)) | 0o700;
    let created = std::fs::DirBuilder::new().mode(mode).create(to);
    let is_old = match created {
        Ok(()) => false,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            match attr::of_path(to, true) {
                Ok(found) if found.kind == Kind::Directory => true,
                Ok(_) => {
                    let text = format!("{} exists but is not a directory", quoted(to));
                    return Err(CopyError::whole(to, text));
                }
                // A symbolic link that leads nowhere.
                Err(_) => return Err(not_made(to, &e)),
            }
        }
        Err(e) => return Err(not_made(to, &e)),
    };
    if !is_old && context.watcher.wants_names() {
        context.watcher.made_parent(from, to);
    }
    let own =
        widen(to, is_old).map_err(|e| CopyError::io(Operation::ChangeMode, to.to_owned(), e))?;
    let withheld = if context.options.preserve.owner { rules.withheld() } else { 0 };
    let modes = DirModes { found: own.mode, withheld };
    let parent_attr = parent_attr_of(context, to)
        .map_err(|e| CopyError::io(Operation::Stat, to.to_owned(), e))?;
    let made = Creation::dir(mode, parent_attr, is_old, modes);
    let (source, target, own) = (from.to_owned(), to.to_owned(), own.identity());
    Ok(MadeDir { source, target, own, attr, made })
}

fn not_made(to: &Path, error: &io::Error) -> CopyError {
    let text = format!("cannot make directory {}: {}", quoted(to), ioloom_failure::reason(error));
    CopyError::whole(to, text)
}

/// Returns what the directory above gives to new ones.
pub(crate) fn parent_attr_of(context: &CopyContext<'_>, to: &Path) -> io::Result<ParentAttr> {
    let above = to.parent().filter(|above| !above.as_os_str().is_empty());
    let above = Dir::open_path_only(above.unwrap_or(Path::new(".")))?;
    let attr = attr::of_file(&above)?;
    Ok(ParentAttr {
        device: attr.device,
        group: attr.group,
        has_default_acl: context.rules.has_default_acl(&above),
        is_remote: attr::file_system(&above).is_ok_and(|system| system.remote),
        append_only: attr.append_only,
    })
}

/// Gives the owner of a new directory the permissions that the umask withheld. Returns its
/// attributes before that.
pub(crate) fn widen(to: &Path, is_old: bool) -> io::Result<Attr> {
    let own = attr::of_path(to, is_old)?;
    let is_open = is_old || own.mode & OWNER_ALL == OWNER_ALL;
    let (Some(name), false) = (to.file_name(), is_open) else { return Ok(own) };
    let above = to.parent().filter(|above| !above.as_os_str().is_empty());
    let above = Dir::open_path_only(above.unwrap_or(Path::new(".")))?;
    let name = c_name(name.as_bytes())?;
    attr::set_mode_at(&above, &name, own.mode | OWNER_ALL).map(|()| own)
}

/// Sets the attributes of the directories, the deepest first, and syncs them and those that contain
/// them if requested. Another directory that has the name by now is left as it is.
pub(crate) fn finish(context: &CopyContext<'_>, made: &MadeDirs) {
    let syncs = context.options.durable != Durable::None;
    for dir in made.dirs.iter().rev() {
        let failed = |operation, e| context.failed(CopyError::io(operation, dir.target.clone(), e));
        let put = || -> io::Result<Dir> {
            // Syncing needs a descriptor that is open for reading, which the final mode can refuse.
            let readable = syncs.then(|| Dir::open(&dir.target).ok()).flatten();
            let to = readable.map_or_else(|| Dir::open_path_only(&dir.target), Ok)?;
            check_same(&to, |found| found.identity() == dir.own)?;
            let from = Dir::open_path_only(&dir.source)?;
            let (from, on) = (FileRef::Open(from.as_fd()), FileRef::Open(to.as_fd()));
            let failed = context.rules.put(&dir.attr, from, on, dir.made);
            context.failed_attributes(failed, || dir.target.clone());
            Ok(to)
        };
        let to = match put() {
            Ok(to) => to,
            Err(error) => {
                failed(Operation::ChangeMode, error);
                continue;
            }
        };
        if syncs && let Err(error) = to.sync().and_then(|()| sync_above(made, &dir.target)) {
            failed(Operation::Sync, error);
        }
    }
}

/// Syncs the directory that contains a new one, unless that is new too: it is synced later.
fn sync_above(made: &MadeDirs, path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(above) if made.seen.contains(above) => Ok(()),
        Some(above) if !above.as_os_str().is_empty() => Dir::open(above)?.sync(),
        _ => Dir::open(Path::new("."))?.sync(),
    }
}

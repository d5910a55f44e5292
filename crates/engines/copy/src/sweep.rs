//! Finds the remains of interrupted copies, reports their size and removes them.
//!
//! A copy holds a lock on every hidden directory that it fills, and on every hidden file that only it
//! uses. What this process can lock was abandoned. Links, nodes and second names of files cannot be locked,
//! but exist for less than a millisecond: those that are older than two seconds were abandoned, or their copy
//! makes them again. An empty directory that is newer may be about to be locked. Directories and journals of resumable
//! copies are kept unless their target is copied again without `--resume`.
//!
//! A name proves nothing where another user can rename entries: that user can give a hidden name to any
//! directory of this one. Such directories, and what belongs to another user, are reported and kept.
//! Cost: listing a directory, once, if the copy creates a directory in it or merges one into it, or copies a
//! named file into it that is large compared with the directory.

use crate::context::CopyContext;
use crate::meta::STICKY;
use crate::new_file::{
    NAME_PART_MAX, hidden_name, is_ours, is_private, is_shared, is_temporary, journal_name,
    number_of_hidden, number_of_journal,
};
use ioloom_failure::quoted;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind, ReadBuffer};
use ioloom_sys::{make, remove};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Age at which a name that cannot be locked was left by a killed copy.
const STALE: Duration = Duration::from_secs(2);

/// Looks for remains in `dir`, in which `targets` are about to be copied. `adopts`:
/// whether this copy continues with the remains of an earlier attempt.
pub(crate) fn sweep(
    context: &CopyContext<'_>,
    dir: &Dir,
    path: &Path,
    targets: &[&CStr],
    adopts: bool,
) {
    let (mut found, mut files, mut journals) = (Vec::new(), Vec::new(), Vec::new());
    // A directory that cannot be listed keeps its remains.
    let Ok(listed) = dir.open_at(b".") else { return };
    // Another machine or mount can use a remote file system, and its locks of directories are not seen.
    if attr::file_system(dir).is_ok_and(|system| system.remote) {
        return;
    }
    let _ = listed.read(&mut ReadBuffer::new(), &mut |entry| {
        if matches!(entry.kind, Kind::Directory | Kind::Unknown)
            && let Some(number) = number_of_hidden(entry.name)
            && let Ok(name) = CString::new(entry.name)
        {
            found.push((name, number));
        } else if is_temporary(entry.name)
            && let Ok(name) = CString::new(entry.name)
        {
            files.push(name);
        } else if let Some(number) = number_of_journal(entry.name)
            && let Ok(name) = CString::new(entry.name)
        {
            journals.push((name, number));
        }
        true
    });
    for name in files {
        remove_stale_file(context, dir, path, &name);
    }
    let resumes = context.resume.get().map(|resume| resume.number);
    for (name, number) in found {
        let is_own = resumes == Some(number);
        if is_own && adopts {
            note_foreign(context, dir, path, &name);
            continue;
        }
        let journal = journal_name(&name);
        let is_target = || targets.iter().any(|target| is_for(&name, target));
        let resumable = attr::of_name(dir, &journal, false).is_ok();
        if resumable && !is_target() {
            continue;
        }
        if resumable && resumes.is_some() && !is_own {
            note_kept(context, dir, path, &name);
            continue;
        }
        // The journal of this copy is in use.
        remove_stale(context, dir, path, &name, (!is_own).then_some(&journal));
    }
    if resumes.is_none() {
        remove_stale_journals(context, dir, path, targets, &journals);
    }
}

/// Removes the journals of earlier copies to the same targets that had an existing directory as target, or
/// had not created theirs.
fn remove_stale_journals(
    context: &CopyContext<'_>,
    dir: &Dir,
    path: &Path,
    targets: &[&CStr],
    journals: &[(CString, u64)],
) {
    for (name, number) in journals {
        // Longer names share hidden names, and their pieces have other ones.
        let short = targets.iter().filter(|target| target.to_bytes().len() <= NAME_PART_MAX);
        let mut hidden = short.map(|target| hidden_name(target, *number));
        let hidden = hidden.find(|hidden| journal_name(hidden) == *name);
        // A journal is removed only with what it describes.
        if hidden.is_some_and(|hidden| attr::of_name(dir, &hidden, false).is_err()) {
            remove_stale_file(context, dir, path, name);
        }
    }
}

/// Returns true if a hidden name is that of `target`.
fn is_for(hidden: &CStr, target: &CStr) -> bool {
    let number = number_of_hidden(hidden.to_bytes()).unwrap_or(0);
    hidden_name(target, number).as_c_str() == hidden
}

/// Reports the incomplete copy of another source to the same target, which that source can continue.
fn note_kept(context: &CopyContext<'_>, dir: &Dir, path: &Path, name: &CStr) {
    let Ok(left) = dir.open_at(name.to_bytes()) else { return };
    // It is still running.
    if !make::try_lock(&left).unwrap_or(true) {
        return;
    }
    // Printing can take long, and that copy could not continue.
    drop(left);
    let path = path.join(OsStr::from_bytes(name.to_bytes()));
    let text = format!(
        "kept {}, left by an interrupted copy of another source to the same target; remove it unless \
         that copy is to be continued",
        quoted(&path)
    );
    context.watcher.note(&text);
}

fn remove_stale(
    context: &CopyContext<'_>,
    dir: &Dir,
    path: &Path,
    name: &CStr,
    journal: Option<&CString>,
) {
    let Ok(stale) = dir.open_at(name.to_bytes()) else { return };
    let Ok(opened) = attr::of_file(&stale) else { return };
    // Its copy may be about to lock it. One that is resumed waits for the lock.
    let is_resumed = journal.is_none_or(|journal| attr::of_name(dir, journal, false).is_ok());
    if !is_resumed && !is_old(&opened) && is_empty(&stale) {
        return;
    }
    if !make::try_lock(&stale).unwrap_or(false) {
        return;
    }
    let is_of_other = opened.user != attr::own_ids().0;
    if is_of_other || !attr::of_file(dir).is_ok_and(|above| is_protected(&opened, &above)) {
        // A copy that was about to lock it makes another one.
        if make::remove_directory(dir, name).is_ok() {
            return report(context, path, name, Ok(0));
        }
        // Its copy can continue while it is measured.
        drop(stale);
        let bytes = remove::measure(dir, name).ok().map(|found| found.bytes);
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        return note_suspect(context, &path, bytes, is_of_other);
    }
    // A copy that resumes it has locked the journal, and finds it locked until the removal ends.
    let _held = match journal.map(|journal| ioloom_sys::open_at::open_to_read(dir, journal, false))
    {
        Some(Ok(journal)) if !make::try_lock(&journal).unwrap_or(false) => return,
        held => held,
    };
    // Such a copy can have removed the directory and created it again.
    let there = attr::of_name(dir, name, false);
    if !there.is_ok_and(|there| there.identity() == opened.identity()) {
        return;
    }
    let _cleaning = context.cleaning();
    let removed = match remove::tree(dir, name, &mut |_, _| {}) {
        Ok(removed) if removed.names == 0 => return,
        Ok(removed) => {
            // Without the directory, the journal describes nothing.
            let _ = journal.map(|journal| make::remove(dir, journal));
            Ok(removed.bytes)
        }
        Err(error) => Err(error),
    };
    report(context, path, name, removed);
}

fn is_empty(dir: &Dir) -> bool {
    // An empty directory ends at once.
    dir.read(&mut ReadBuffer::new(), &mut |_| false).unwrap_or(false)
}

/// Returns true if no other user except root can have given its name to a directory of this user in `above`.
fn is_protected(dir: &Attr, above: &Attr) -> bool {
    // There, others cannot rename entries, but can still move in a directory to which they can write.
    let is_sticky = above.mode & STICKY != 0 && !is_shared(dir);
    is_private(above) || is_sticky && [0, attr::own_ids().0].contains(&above.user)
}

/// Reports a directory of another user that has the name of this copy's, and is not continued because that user
/// could have made it.
fn note_foreign(context: &CopyContext<'_>, dir: &Dir, path: &Path, name: &CStr) {
    let there = attr::of_name(dir, name, false);
    let is_of_other = there.is_ok_and(|there| there.user != attr::own_ids().0);
    if is_of_other && !attr::of_file(dir).is_ok_and(|above| is_private(&above)) {
        let bytes = remove::measure(dir, name).ok().map(|found| found.bytes);
        note_suspect(context, &path.join(OsStr::from_bytes(name.to_bytes())), bytes, true);
    }
}

/// Reports what was probably left by an interrupted copy, and is kept.
fn note_suspect(context: &CopyContext<'_>, path: &Path, bytes: Option<u64>, is_of_other: bool) {
    let size = bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
    let why = match is_of_other {
        true => "it belongs to another user",
        false => "other users can rename entries in its directory",
    };
    let text = format!(
        "kept {}{size}, which looks like the rest of an interrupted copy: {why}; remove it if it is one",
        quoted(path)
    );
    context.watcher.note(&text);
}

fn remove_stale_file(context: &CopyContext<'_>, dir: &Dir, path: &Path, name: &CStr) {
    let Ok(there) = attr::of_name(dir, name, false) else { return };
    // Root makes links of the files of others.
    let own = attr::own_ids().0;
    let is_one_of_several = there.links > 1 || there.kind != Kind::Regular;
    if there.kind == Kind::Directory
        || is_one_of_several && !(is_old(&there) && (own == 0 || there.user == own))
    {
        return;
    }
    if there.kind != Kind::Regular {
        return report(context, path, name, make::remove(dir, name).map(|()| 0));
    }
    let Ok(stale) = ioloom_sys::open_at::open_to_read(dir, name, false) else { return };
    let Ok(opened) = attr::of_file(&stale) else { return };
    if !is_one_of_several && opened.user != attr::own_ids().0 {
        if is_old(&opened) && make::try_lock(&stale).unwrap_or(false) {
            drop(stale);
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            note_suspect(context, &path, Some(opened.bytes), true);
        }
        return;
    }
    // A file of a running copy can have got a second name, as by a snapshot of hard links.
    if !(is_one_of_several || is_ours(&opened)) || !make::try_lock(&stale).unwrap_or(false) {
        return;
    }
    // Meanwhile its copy may have been completed, and the name may be that of another file.
    let there = attr::of_name(dir, name, false);
    if there.is_ok_and(|there| there.identity() == opened.identity()) {
        let bytes = if is_one_of_several { 0 } else { opened.bytes };
        report(context, path, name, make::remove(dir, name).map(|()| bytes));
    }
}

/// Returns true if an entry was last changed at least [`STALE`] ago.
fn is_old(there: &Attr) -> bool {
    let (seconds, nanoseconds) = there.changed;
    let changed = u64::try_from(seconds).map(|seconds| Duration::new(seconds, nanoseconds));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    matches!((changed, now), (Ok(changed), Ok(now)) if now.saturating_sub(changed) > STALE)
}

fn report(context: &CopyContext<'_>, path: &Path, name: &CStr, removed: io::Result<u64>) {
    let path = path.join(OsStr::from_bytes(name.to_bytes()));
    let text = match removed {
        Ok(bytes) => {
            format!("removed {}, {bytes} bytes left by an interrupted copy", quoted(&path))
        }
        Err(error) => {
            let reason = ioloom_failure::reason(&error);
            format!("cannot remove {}, left by an interrupted copy: {reason}", quoted(&path))
        }
    };
    context.watcher.note(&text);
}

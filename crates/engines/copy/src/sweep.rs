//! Finds the remains of interrupted copies, reports their size and removes them.
//!
//! A copy holds a lock on every hidden directory that it fills. One that this process can lock was
//! abandoned. Directories of resumable copies are kept unless their target is copied again.
//! Cost: listing a directory, once, if the copy creates a directory in it or merges one into it.

use crate::context::CopyContext;
use crate::new_file::{journal_name, number_of_hidden};
use ioloom_failure::quoted;
use ioloom_sys::attr;
use ioloom_sys::dir::{Dir, Kind, ReadBuffer};
use ioloom_sys::{make, remove};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Looks for remains in `dir`, in which the directories `targets` are about to be copied. `adopts`:
/// whether this copy continues with the remains of an earlier attempt.
pub(crate) fn sweep(
    context: &CopyContext<'_>,
    dir: &Dir,
    path: &Path,
    targets: &[&CStr],
    adopts: bool,
) {
    let mut found = Vec::new();
    // A directory that cannot be listed keeps its remains.
    let Ok(listed) = dir.open_at(b".") else { return };
    let _ = listed.read(&mut ReadBuffer::new(), &mut |entry| {
        if matches!(entry.kind, Kind::Directory | Kind::Unknown)
            && let Some(number) = number_of_hidden(entry.name)
            && let Ok(name) = CString::new(entry.name)
        {
            found.push((name, number));
        }
        true
    });
    let resumes = context.resume.get().map(|resume| resume.number);
    for (name, number) in found {
        let is_own = resumes == Some(number);
        if is_own && adopts {
            continue;
        }
        let journal = journal_name(&name);
        let is_target = || targets.iter().any(|target| is_for(&name, target));
        if attr::of_name(dir, &journal, false).is_ok() && !is_target() {
            continue;
        }
        // The journal of this copy is in use.
        remove_stale(context, dir, path, &name, (!is_own).then_some(&journal));
    }
}

/// Returns true if a hidden name is that of `target`.
fn is_for(hidden: &CStr, target: &CStr) -> bool {
    let number = number_of_hidden(hidden.to_bytes()).unwrap_or(0);
    crate::new_file::hidden_name(target, number).as_c_str() == hidden
}

fn remove_stale(
    context: &CopyContext<'_>,
    dir: &Dir,
    path: &Path,
    name: &CStr,
    journal: Option<&CString>,
) {
    let Ok(stale) = dir.open_at(name.to_bytes()) else { return };
    let is_ours = attr::of_file(&stale).is_ok_and(|attr| attr.user == attr::own_ids().0);
    if !is_ours || !make::try_lock(&stale).unwrap_or(false) {
        return;
    }
    let path = path.join(OsStr::from_bytes(name.to_bytes()));
    let text = match remove::tree(dir, name, &mut |_, _| {}) {
        Ok(removed) if removed.names == 0 => return,
        Ok(removed) => {
            // Without the directory, the journal describes nothing.
            let _ = journal.map(|journal| make::remove(dir, journal));
            format!(
                "removed {}, {} bytes left by an interrupted copy",
                quoted(&path),
                removed.bytes
            )
        }
        Err(error) => {
            let reason = ioloom_failure::reason(&error);
            format!("cannot remove {}, left by an interrupted copy: {reason}", quoted(&path))
        }
    };
    context.watcher.note(&text);
}

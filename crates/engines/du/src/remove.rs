//! Removes one entry of a scanned tree, with everything below it, without ever leaving the tree.
//!
//! Every directory is opened relative to the root's descriptor and never through a symbolic link,
//! so concurrent changes cannot redirect the removal outside the tree. Symbolic links are removed,
//! not their targets. The entry must still be the scanned inode. Directories on another device or
//! mount are not entered; nothing is removed if the table of mounts contains one. Depth consumes
//! neither stack nor descriptors.

use crate::links::FileId;
use crate::mounts::visible;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir::{Dir, Fields, Kind, ReadBuffer};
use ioloom_sys::mount::mounts;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The reason why an entry was not removed. Paths are relative to the root.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PathError),
    /// The path now refers to another file.
    #[error("cannot remove {}: it changed since the scan; scan again", quoted(.0))]
    Changed(PathBuf),
    /// Another file system is mounted on or below the path.
    #[error("cannot remove {}: it is on another mount; unmount it first", quoted(.0))]
    Mounted(PathBuf),
    /// The second path, at or below the first one, is on another device although nothing is mounted there: a
    /// subvolume of btrfs, or a directory of a share of several file systems.
    #[error("cannot remove {}: {} is a subvolume or another file system", quoted(.0), quoted(.1))]
    Contains(PathBuf, PathBuf),
    /// A directory on another device or mount was found during the removal.
    #[error("cannot remove {}: it is a subvolume or another file system", quoted(.0))]
    OtherDevice(PathBuf),
    /// The caller stopped the removal.
    #[error("stopped removing {}: a part remains", quoted(.0))]
    Stopped(PathBuf),
}

impl RemoveError {
    /// Returns whether a part of a directory may have been removed.
    pub fn may_be_partial(&self) -> bool {
        matches!(self, Self::Call(_) | Self::OtherDevice(_) | Self::Stopped(_))
    }
}

fn call(operation: Operation, path: &[u8]) -> impl FnOnce(io::Error) -> RemoveError + '_ {
    move |source| PathError::new(operation, as_path(path), source).into()
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes `path`, relative to the directory `root`, and everything below it. `id` is the inode
/// that was scanned. `stop` is called for each name; the removal ends if it returns true.
pub fn remove(
    root: &Path,
    path: &[u8],
    id: FileId,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(), RemoveError> {
    let base =
        Dir::open(root).map_err(call(Operation::OpenDir, root.as_os_str().as_encoded_bytes()))?;
    let (above, name) = split(path);
    let parent = base.open_below(above).map_err(call(Operation::OpenDir, above))?;
    let fields = Fields::IDENTITY | Fields::MOUNT;
    let c_name = CString::new(name).map_err(|e| call(Operation::Stat, path)(e.into()))?;
    let meta = parent.meta_at(&c_name, false, fields).map_err(call(Operation::Stat, path))?;
    if FileId::new(meta.device, meta.inode) != id {
        return Err(RemoveError::Changed(as_path(path).to_owned()));
    }
    let stopped = || RemoveError::Stopped(as_path(path).to_owned());
    if meta.kind != Kind::Directory {
        if stop() {
            return Err(stopped());
        }
        return parent.remove_file_at(name).map_err(call(Operation::Remove, path));
    }
    if let Some(point) = mount_below(root, path) {
        return Err(RemoveError::Mounted(point));
    }
    let root_meta = parent.meta(fields).map_err(call(Operation::Stat, above))?;
    let mount = (root_meta.device, root_meta.mount);
    // Directories not yet emptied, relative to the root.
    let mut waiting = vec![path.to_vec()];
    let mut buffer = ReadBuffer::new();
    while let Some(at) = waiting.last() {
        if stop() {
            return Err(stopped());
        }
        let dir = match base.open_below(at) {
            Err(e) if is_gone(&e) => {
                waiting.pop();
                continue;
            }
            dir => dir.map_err(call(Operation::OpenDir, at))?,
        };
        let meta = dir.meta(fields).map_err(call(Operation::Stat, at))?;
        if (meta.device, meta.mount) != mount {
            return Err(RemoveError::OtherDevice(as_path(at).to_owned()));
        }
        let Some(within) = empty(&dir, at, &mut buffer, stop)? else {
            return Err(stopped());
        };
        if within.is_empty() {
            drop(dir);
            let (above, name) = split(at);
            let parent = base.open_below(above).map_err(call(Operation::OpenDir, above))?;
            match parent.remove_dir_at(name) {
                Err(e) if !is_gone(&e) => return Err(call(Operation::Remove, at)(e)),
                _ => waiting.pop(),
            };
        } else {
            waiting.extend(within);
        }
    }
    Ok(())
}

/// Returns the first mount point at or below `path`, both relative to `root`. `None` if the table of mounts
/// cannot be read.
fn mount_below(root: &Path, path: &[u8]) -> Option<PathBuf> {
    let root = std::fs::canonicalize(root).ok()?;
    let whole = root.join(as_path(path));
    let all = mounts().ok()?;
    let is_visible = visible(&all);
    let mut within = all.iter().filter(|mount| mount.point.starts_with(&whole));
    let found = within.find(|mount| is_visible(mount))?;
    found.point.strip_prefix(&root).ok().map(Path::to_owned)
}

/// Removes all entries except directories; returns the paths of the directories, or `None` if it was stopped.
fn empty(
    dir: &Dir,
    at: &[u8],
    buffer: &mut ReadBuffer,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<Vec<u8>>>, RemoveError> {
    let mut names: Vec<(Vec<u8>, Kind)> = Vec::new();
    dir.read(buffer, &mut |entry| {
        names.push((entry.name.to_vec(), entry.kind));
        true
    })
    .map_err(call(Operation::ReadDir, at))?;
    let mut within = Vec::new();
    for (name, mut kind) in names {
        if stop() {
            return Ok(None);
        }
        let path = [at, b"/", &name].concat();
        if kind == Kind::Unknown {
            kind = dir.stat_at(&name).map_err(call(Operation::Stat, &path))?.kind;
        }
        if kind == Kind::Directory {
            within.push(path);
        } else {
            match dir.remove_file_at(&name) {
                Err(e) if !is_gone(&e) => return Err(call(Operation::Remove, &path)(e)),
                _ => {}
            }
        }
    }
    Ok(Some(within))
}

/// Splits a path into its parent and last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn remove(root: &Path, path: &[u8], id: FileId) -> Result<(), RemoveError> {
        super::remove(root, path, id, &mut || false)
    }

    fn id(path: &Path) -> FileId {
        let meta = fs::symlink_metadata(path).unwrap();
        let device =
            ioloom_sys::dir::meta(path.as_os_str().as_encoded_bytes(), false, Fields::IDENTITY);
        FileId::new(device.unwrap().device, meta.ino())
    }

    #[test]
    fn a_tree_is_removed_and_link_targets_stay() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        fs::create_dir_all(root.join("out/keep")).unwrap();
        fs::write(root.join("out/keep/f"), "x").unwrap();
        fs::create_dir_all(root.join("t/a/b")).unwrap();
        fs::write(root.join("t/a/b/f"), "x").unwrap();
        symlink("../out", root.join("t/to-dir")).unwrap();
        symlink(root.join("out/keep/f"), root.join("t/a/to-file")).unwrap();
        remove(root, b"t", id(&root.join("t"))).unwrap();
        assert!(!root.join("t").exists());
        assert!(root.join("out/keep/f").exists());
        symlink("out", root.join("link")).unwrap();
        remove(root, b"link", id(&root.join("link"))).unwrap();
        assert!(root.join("out/keep/f").exists() && !root.join("link").exists());
        let error = remove(root, b"link/keep", id(&root.join("out"))).unwrap_err().to_string();
        assert!(error.contains("link"), "{error}");
    }

    #[test]
    fn a_replaced_entry_stays() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("t")).unwrap();
        let seen = id(&temp.path().join("t"));
        fs::rename(temp.path().join("t"), temp.path().join("old")).unwrap();
        symlink("old", temp.path().join("t")).unwrap();
        let error = remove(temp.path(), b"t", seen).unwrap_err();
        assert!(matches!(error, RemoveError::Changed(_)), "{error}");
        assert!(temp.path().join("old").exists());
    }

    #[test]
    fn a_stop_ends_it_before_the_next_name() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("t")).unwrap();
        for number in 0..10 {
            fs::write(temp.path().join(format!("t/{number}")), "x").unwrap();
        }
        let mut calls = 0;
        let mut stop = || {
            calls += 1;
            calls > 4
        };
        let error = super::remove(temp.path(), b"t", id(&temp.path().join("t")), &mut stop);
        assert!(matches!(error, Err(RemoveError::Stopped(_))), "{error:?}");
        assert_eq!(fs::read_dir(temp.path().join("t")).unwrap().count(), 7);
    }

    #[test]
    fn mounts_at_and_below_a_path_are_found() {
        let root = Path::new("/");
        assert!(mount_below(root, b"proc").is_some_and(|point| point.starts_with("proc")));
        assert_eq!(mount_below(root, b"proc/self"), None);
        assert_eq!(mount_below(root, b"pro"), None, "names are compared whole");
        assert_eq!(mount_below(tempfile::tempdir().unwrap().path(), b"t"), None);
    }

    #[test]
    fn depth_uses_no_stack() {
        let temp = tempfile::tempdir().unwrap();
        let mut at = Dir::open(temp.path()).unwrap();
        at.make_dir_at(b"t").unwrap();
        at = at.open_at(b"t").unwrap();
        for _ in 0..3000 {
            at.make_dir_at(b"d").unwrap();
            at = at.open_at(b"d").unwrap();
        }
        drop(at);
        remove(temp.path(), b"t", id(&temp.path().join("t"))).unwrap();
        assert!(!temp.path().join("t").exists());
    }
}

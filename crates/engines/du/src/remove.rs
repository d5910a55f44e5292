//! Removes one entry of a scanned tree, with everything below it, without ever leaving the tree.
//!
//! Every directory is opened relative to the root's descriptor and never through a symbolic link,
//! so concurrent changes cannot redirect the removal outside the tree. Symbolic links are removed,
//! not their targets. The entry must still be the scanned inode. Directories on another device or
//! mount are not entered. Depth consumes neither stack nor descriptors.

use crate::links::FileId;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir::{Dir, Fields, Kind, ReadBuffer};
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
/// that was scanned.
pub fn remove(root: &Path, path: &[u8], id: FileId) -> Result<(), RemoveError> {
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
    if meta.kind != Kind::Directory {
        return parent.remove_file_at(name).map_err(call(Operation::Remove, path));
    }
    let root_meta = parent.meta(fields).map_err(call(Operation::Stat, above))?;
    let mount = (root_meta.device, root_meta.mount);
    // Directories not yet emptied, relative to the root.
    let mut waiting = vec![path.to_vec()];
    let mut buffer = ReadBuffer::new();
    while let Some(at) = waiting.last() {
        let dir = match base.open_below(at) {
            Err(e) if is_gone(&e) => {
                waiting.pop();
                continue;
            }
            dir => dir.map_err(call(Operation::OpenDir, at))?,
        };
        let meta = dir.meta(fields).map_err(call(Operation::Stat, at))?;
        if (meta.device, meta.mount) != mount {
            return Err(RemoveError::Mounted(as_path(at).to_owned()));
        }
        let within = empty(&dir, at, &mut buffer)?;
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

/// Removes all entries except directories; returns the paths of the directories.
fn empty(dir: &Dir, at: &[u8], buffer: &mut ReadBuffer) -> Result<Vec<Vec<u8>>, RemoveError> {
    let mut names: Vec<(Vec<u8>, Kind)> = Vec::new();
    dir.read(buffer, &mut |entry| {
        names.push((entry.name.to_vec(), entry.kind));
        true
    })
    .map_err(call(Operation::ReadDir, at))?;
    let mut within = Vec::new();
    for (name, mut kind) in names {
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
    Ok(within)
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

//! Removes one entry of a scanned tree with all below, without ever leaving the tree.
//!
//! Every directory is opened below the root's descriptor and through no symbolic link, so a tree
//! that changes meanwhile cannot lead outside; a link is removed itself, never what it leads to.
//! What is removed must still be the inode that the scan saw. Directories on another device or
//! mount are not entered. Depth costs neither stack nor descriptors.

use crate::links::FileId;
use ioloom_sys::dir::{Dir, Fields, Kind, ReadBuffer};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// Why something was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// A call failed.
    #[error("cannot {operation} {path}: {source}; check permissions, then scan again")]
    Call {
        /// What was tried.
        operation: &'static str,
        /// On what, below the root.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Something else lies there now.
    #[error("{0} is no longer what was scanned; nothing of it was removed, scan again")]
    Changed(String),
    /// Another file system is mounted below.
    #[error("{0} lies on another mount and is left alone; unmount it first")]
    Mounted(String),
}

fn call<'a>(operation: &'static str, path: &'a [u8]) -> impl FnOnce(io::Error) -> RemoveError + 'a {
    move |source| {
        let path = readable(path);
        RemoveError::Call { operation, path, source }
    }
}

fn readable(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes `path`, given below the directory `root`, and all below it. `id` is what the scan saw.
pub fn remove(root: &Path, path: &[u8], id: FileId) -> Result<(), RemoveError> {
    let base = Dir::open(root).map_err(call("open", root.as_os_str().as_encoded_bytes()))?;
    let (above, name) = split(path);
    let parent = base.open_below(above).map_err(call("open", above))?;
    let fields = Fields::IDENTITY | Fields::MOUNT;
    let c_name = CString::new(name).map_err(|e| call("name", path)(e.into()))?;
    let meta = parent.meta_at(&c_name, false, fields).map_err(call("ask for", path))?;
    if FileId::new(meta.device, meta.inode) != id {
        return Err(RemoveError::Changed(readable(path)));
    }
    if meta.kind != Kind::Directory {
        return parent.remove_file_at(name).map_err(call("remove", path));
    }
    let home = parent.meta(fields).map_err(call("ask for", above))?;
    let mount = (home.device, home.mount);
    // Directories below `path` that are still to be emptied, as paths below the root.
    let mut waiting = vec![path.to_vec()];
    let mut buffer = ReadBuffer::new();
    while let Some(at) = waiting.last() {
        let dir = match base.open_below(at) {
            Err(e) if is_gone(&e) => {
                waiting.pop();
                continue;
            }
            dir => dir.map_err(call("open", at))?,
        };
        let meta = dir.meta(fields).map_err(call("ask for", at))?;
        if (meta.device, meta.mount) != mount {
            return Err(RemoveError::Mounted(readable(at)));
        }
        let within = empty(&dir, at, &mut buffer)?;
        if within.is_empty() {
            drop(dir);
            let (above, name) = split(at);
            let parent = base.open_below(above).map_err(call("open", above))?;
            match parent.remove_dir_at(name) {
                Err(e) if !is_gone(&e) => return Err(call("remove", at)(e)),
                _ => waiting.pop(),
            };
        } else {
            waiting.extend(within);
        }
    }
    Ok(())
}

/// Removes what is no directory; the paths of the directories come back.
fn empty(dir: &Dir, at: &[u8], buffer: &mut ReadBuffer) -> Result<Vec<Vec<u8>>, RemoveError> {
    let mut names: Vec<(Vec<u8>, Kind)> = Vec::new();
    dir.read(buffer, &mut |entry| {
        names.push((entry.name.to_vec(), entry.kind));
        true
    })
    .map_err(call("read", at))?;
    let mut within = Vec::new();
    for (name, mut kind) in names {
        let path = [at, b"/", &name].concat();
        if kind == Kind::Unknown {
            kind = dir.stat_at(&name).map_err(call("ask for", &path))?.kind;
        }
        if kind == Kind::Directory {
            within.push(path);
        } else {
            match dir.remove_file_at(&name) {
                Err(e) if !is_gone(&e) => return Err(call("remove", &path)(e)),
                _ => {}
            }
        }
    }
    Ok(within)
}

/// The directory and the last name of a path.
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
    fn a_tree_goes_and_what_its_links_lead_to_stays() {
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
    fn what_was_replaced_stays() {
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
    fn depth_costs_no_stack() {
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

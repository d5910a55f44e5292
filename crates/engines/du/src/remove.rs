//! Removes one entry of a scanned tree, with everything below it, without ever leaving the tree.
//!
//! Every directory is opened relative to the root's descriptor and never through a symbolic link,
//! so concurrent changes cannot redirect the removal outside the tree. Symbolic links are removed,
//! not their targets. The entry must still be the scanned inode, also when the removal begins, and not a new file
//! with its number. Directories below it are opened from its descriptor, so one that replaces it stays. All
//! directories are read before the first removal: nothing is removed if one is on another device or mount, or
//! cannot be read. Mounts and subvolumes that appear later are not entered. Depth consumes neither stack nor
//! descriptors.

use crate::links::FileId;
use crate::mounts::visible;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir::{Dir, Fields, Kind, ReadBuffer};
use ioloom_sys::mount::mounts;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The reason why an entry was not removed. Paths are relative to the root.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PathError),
    /// A call failed before anything was removed.
    #[error(transparent)]
    Unread(PathError),
    /// The path now refers to another file.
    #[error("cannot remove {}: it changed since the scan; scan again", quoted(.0))]
    Changed(PathBuf),
    /// Another file system is mounted on or below the path.
    #[error("cannot remove {}: it is on another mount; unmount it first", quoted(.0))]
    Mounted(PathBuf),
    /// The second path, at or below the first one, is a directory on another device, but not another mount: a
    /// subvolume of btrfs, or a directory of a share of several file systems.
    #[error("cannot remove {}: {} is a subvolume or another file system", quoted(.0), quoted(.1))]
    Contains(PathBuf, PathBuf),
    /// A directory on another device or mount was found during the removal.
    #[error("cannot remove {}: it is a subvolume or another file system", quoted(.0))]
    OtherDevice(PathBuf),
    /// The path refers to another file since the removal began.
    #[error("stopped removing {}: it was replaced during the removal", quoted(.0))]
    Replaced(PathBuf),
    /// The caller stopped the removal.
    #[error("stopped removing {}: a part remains", quoted(.0))]
    Stopped(PathBuf),
    /// The caller stopped it before anything was removed.
    #[error("stopped: {} was not removed", quoted(.0))]
    NotBegun(PathBuf),
}

impl RemoveError {
    /// Returns whether a part of a directory may have been removed.
    pub fn may_be_partial(&self) -> bool {
        matches!(self, Self::Call(_) | Self::OtherDevice(_) | Self::Replaced(_) | Self::Stopped(_))
    }
}

fn call(operation: Operation, path: &[u8]) -> impl FnOnce(io::Error) -> RemoveError + '_ {
    move |source| PathError::new(operation, as_path(path), source).into()
}

/// Turns errors of calls before the first removal into [`RemoveError::Unread`].
fn unread(error: RemoveError) -> RemoveError {
    match error {
        RemoveError::Call(error) => RemoveError::Unread(error),
        other => other,
    }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// An entry to remove.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The path, relative to the root.
    pub path: &'a [u8],
    /// The inode that was scanned.
    pub id: FileId,
    /// Whether it was a directory: file systems soon reuse the numbers of removed inodes.
    pub is_directory: bool,
    /// A time after the scan. What was created later was not scanned, whatever its inode number.
    pub scanned: SystemTime,
    /// A directory at or below the path that was on another device during the scan, relative to the root.
    pub other_device: Option<&'a [u8]>,
}

/// Device and mount of a directory.
type Place = ((u32, u32), Option<u64>);

/// Removes an entry of the directory `root` and everything below it. `stop` is called for each directory that is
/// read, and for each name that is removed; the removal ends if it returns true.
pub fn remove(
    root: &Path,
    entry: &Entry<'_>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(), RemoveError> {
    let base = Dir::open(root)
        .map_err(call(Operation::OpenDir, root.as_os_str().as_encoded_bytes()))
        .map_err(unread)?;
    let (above, name) = split(entry.path);
    let parent = base.open_below(above).map_err(call(Operation::OpenDir, above)).map_err(unread)?;
    match check(root, &base, &parent, entry, stop).map_err(unread)? {
        Some(place) => remove_tree(&base, entry, place, stop),
        None => parent.remove_file_at(name).map_err(call(Operation::Remove, entry.path)),
    }
}

/// Returns the device and mount of a directory that may be removed; `None` for another file.
fn check(
    root: &Path,
    base: &Dir,
    parent: &Dir,
    entry: &Entry<'_>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Place>, RemoveError> {
    let path = entry.path;
    let (above, name) = split(path);
    let c_name = CString::new(name).map_err(|e| call(Operation::Stat, path)(e.into()))?;
    let meta =
        parent.meta_at(&c_name, false, Fields::MOUNT).map_err(call(Operation::Stat, path))?;
    let is_directory = meta.kind == Kind::Directory;
    if FileId::new(meta.device, meta.inode) != entry.id || is_directory != entry.is_directory {
        return Err(RemoveError::Changed(as_path(path).to_owned()));
    }
    let created = parent.creation_of(name).map_err(call(Operation::Stat, path))?;
    // A time in the future is that of a clock that was wrong.
    let is_new =
        |created| is_later(created, entry.scanned) && !is_later(created, SystemTime::now());
    if created.is_some_and(is_new) {
        return Err(RemoveError::Changed(as_path(path).to_owned()));
    }
    if !is_directory {
        return if stop() {
            Err(RemoveError::NotBegun(as_path(path).to_owned()))
        } else {
            Ok(None)
        };
    }
    if let Some(point) = mount_below(root, path) {
        return Err(RemoveError::Mounted(point));
    }
    let meta = parent.meta(Fields::MOUNT).map_err(call(Operation::Stat, above))?;
    let place = (meta.device, meta.mount);
    check_below(base, path, place, stop)?;
    match entry.other_device {
        // What it covered during the scan was not scanned.
        Some(other) => Err(RemoveError::Changed(as_path(other).to_owned())),
        None => Ok(Some(place)),
    }
}

/// Returns whether a time, in seconds since 1970 and nanoseconds, is after another one.
fn is_later(time: (i64, u32), other: SystemTime) -> bool {
    let since = other.duration_since(UNIX_EPOCH).unwrap_or_default();
    time > (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Directories to process, the last first, relative to the root. Memory is proportional to the names, not to the
/// paths.
struct Waiting {
    /// Names, each with the length of the path of its parent. The first one is a path.
    names: Vec<(usize, Vec<u8>)>,
    /// The path of the directory returned last; it begins with that of the parent of the next one.
    path: Vec<u8>,
}

impl Waiting {
    fn new(path: &[u8]) -> Self {
        Self { names: vec![(0, path.to_vec())], path: Vec::new() }
    }

    /// Returns the path of the last directory.
    fn last(&mut self) -> Option<&[u8]> {
        let (parent_bytes, name) = self.names.last()?;
        self.path.truncate(*parent_bytes);
        if *parent_bytes > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        Some(&self.path)
    }

    /// Removes the last directory.
    fn pop(&mut self) {
        self.names.pop();
    }

    /// Adds directories in the one returned last.
    fn extend(&mut self, names: Vec<Vec<u8>>) {
        let parent_bytes = self.path.len();
        self.names.extend(names.into_iter().map(|name| (parent_bytes, name)));
    }
}

/// Refuses a directory if it, or one below it, is on another device or mount.
fn check_below(
    base: &Dir,
    path: &[u8],
    place: Place,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(), RemoveError> {
    let mut waiting = Waiting::new(path);
    let mut buffer = ReadBuffer::new();
    while let Some(at) = waiting.last() {
        if stop() {
            return Err(RemoveError::NotBegun(as_path(path).to_owned()));
        }
        let dir = match base.open_below(at) {
            Err(e) if is_gone(&e) => {
                waiting.pop();
                continue;
            }
            dir => dir.map_err(call(Operation::OpenDir, at))?,
        };
        let meta = dir.meta(Fields::MOUNT).map_err(call(Operation::Stat, at))?;
        if meta.mount != place.1 {
            return Err(RemoveError::Mounted(as_path(at).to_owned()));
        }
        if meta.device != place.0 {
            let (path, at) = (as_path(path).to_owned(), as_path(at).to_owned());
            return Err(RemoveError::Contains(path, at));
        }
        let within = directories(&dir, at, &mut buffer)?;
        waiting.pop();
        waiting.extend(within);
    }
    Ok(())
}

/// Returns the names of the directories in a directory.
fn directories(dir: &Dir, at: &[u8], buffer: &mut ReadBuffer) -> Result<Vec<Vec<u8>>, RemoveError> {
    let mut names: Vec<(Vec<u8>, Kind)> = Vec::new();
    dir.read(buffer, &mut |entry| {
        if matches!(entry.kind, Kind::Directory | Kind::Unknown) {
            names.push((entry.name.to_vec(), entry.kind));
        }
        true
    })
    .map_err(call(Operation::ReadDir, at))?;
    let mut within = Vec::new();
    for (name, mut kind) in names {
        if kind == Kind::Unknown {
            kind = match dir.stat_at(&name) {
                Err(e) if is_gone(&e) => continue,
                stat => stat.map_err(call(Operation::Stat, &join(at, &name)))?.kind,
            };
        }
        if kind == Kind::Directory {
            within.push(name);
        }
    }
    Ok(within)
}

/// Removes a directory and everything below it.
fn remove_tree(
    base: &Dir,
    entry: &Entry<'_>,
    place: Place,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(), RemoveError> {
    let path = entry.path;
    let stopped = || RemoveError::Stopped(as_path(path).to_owned());
    // Directories not yet emptied, relative to the root.
    let mut waiting = Waiting::new(path);
    // The entry: its path may refer to another directory by then.
    let mut top: Option<Dir> = None;
    let mut buffer = ReadBuffer::new();
    while let Some(at) = waiting.last() {
        if stop() {
            return Err(stopped());
        }
        let within_entry = at.get(path.len() + 1..).unwrap_or_default();
        let is_entry = within_entry.is_empty();
        let (from, below) = match &top {
            Some(top) if !is_entry => (top, within_entry),
            _ => (base, at),
        };
        let dir = match from.open_below(below) {
            Err(e) if is_gone(&e) => {
                waiting.pop();
                continue;
            }
            dir => dir.map_err(call(Operation::OpenDir, at))?,
        };
        let meta = dir.meta(Fields::MOUNT).map_err(call(Operation::Stat, at))?;
        if is_entry && FileId::new(meta.device, meta.inode) != entry.id {
            let path = as_path(path).to_owned();
            let begun = top.is_some();
            return Err(if begun {
                RemoveError::Replaced(path)
            } else {
                RemoveError::Changed(path)
            });
        }
        if (meta.device, meta.mount) != place {
            return Err(RemoveError::OtherDevice(as_path(at).to_owned()));
        }
        let Some(within) = empty(&dir, at, &mut buffer, stop)? else {
            return Err(stopped());
        };
        if within.is_empty() {
            drop(dir);
            let (above, name) = split(below);
            let parent = from.open_below(above).map_err(call(Operation::OpenDir, split(at).0))?;
            if is_entry {
                // Some file systems do not remove an open directory.
                top = None;
            }
            match parent.remove_dir_at(name) {
                Err(e) if !is_gone(&e) => return Err(call(Operation::Remove, at)(e)),
                _ => waiting.pop(),
            }
        } else {
            if is_entry {
                top = Some(dir);
            }
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

/// Removes all entries except directories; returns the names of the directories, or `None` if it was stopped.
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
        if kind == Kind::Unknown {
            kind = dir.stat_at(&name).map_err(call(Operation::Stat, &join(at, &name)))?.kind;
        }
        if kind == Kind::Directory {
            within.push(name);
        } else {
            match dir.remove_file_at(&name) {
                Err(e) if !is_gone(&e) => return Err(call(Operation::Remove, &join(at, &name))(e)),
                _ => {}
            }
        }
    }
    Ok(Some(within))
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, b"/", name].concat()
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
    use std::time::Duration;

    fn remove(root: &Path, path: &[u8], id: FileId) -> Result<(), RemoveError> {
        super::remove(root, &entry(path, id), &mut || false)
    }

    fn entry(path: &[u8], id: FileId) -> Entry<'_> {
        let (is_directory, scanned) = (path != b"link", SystemTime::now());
        Entry { path, id, is_directory, scanned, other_device: None }
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
    fn a_directory_with_the_inode_of_a_removed_file_stays() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("t")).unwrap();
        let file = Entry { is_directory: false, ..entry(b"t", id(&temp.path().join("t"))) };
        let error = super::remove(temp.path(), &file, &mut || false).unwrap_err();
        assert!(matches!(error, RemoveError::Changed(_)) && !error.may_be_partial(), "{error}");
        assert!(temp.path().join("t").exists());
    }

    #[test]
    fn an_entry_that_was_created_after_the_scan_stays() {
        let temp = tempfile::tempdir().unwrap();
        let t = temp.path().join("t");
        fs::create_dir(&t).unwrap();
        let parent = Dir::open(temp.path()).unwrap();
        let is_known = parent.creation_of(b"t").unwrap().is_some();
        let scanned = SystemTime::now() - Duration::from_secs(60);
        let again = Entry { scanned, ..entry(b"t", id(&t)) };
        let removed = super::remove(temp.path(), &again, &mut || false);
        let refused = matches!(&removed, Err(RemoveError::Changed(_)));
        assert_eq!((refused, t.exists()), (is_known, is_known), "{removed:?}");
        assert!(!is_later((-1, 0), UNIX_EPOCH) && is_later((0, 1), UNIX_EPOCH));
    }

    #[test]
    fn a_directory_that_replaces_the_entry_during_the_removal_stays() {
        // At the first directory that is read, and when `t/a` is to be emptied.
        for (replaced_at, partial) in [(1, false), (5, true)] {
            let temp = tempfile::tempdir().unwrap();
            let (t, old) = (temp.path().join("t"), temp.path().join("old"));
            fs::create_dir_all(t.join("a")).unwrap();
            fs::write(t.join("a/f"), "x").unwrap();
            let seen = id(&t);
            let mut calls = 0;
            let mut replace = || {
                calls += 1;
                if calls == replaced_at {
                    fs::rename(&t, &old).unwrap();
                    fs::create_dir_all(t.join("a")).unwrap();
                    fs::write(t.join("a/f"), "new").unwrap();
                }
                false
            };
            let error = super::remove(temp.path(), &entry(b"t", seen), &mut replace).unwrap_err();
            let expected = match error {
                RemoveError::Changed(_) => !partial,
                RemoveError::Replaced(_) => partial,
                _ => false,
            };
            assert!(expected && error.may_be_partial() == partial, "{error}");
            assert_eq!(fs::read(t.join("a/f")).unwrap(), b"new");
            assert_eq!(old.join("a/f").exists(), !partial);
        }
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
        let t = entry(b"t", id(&temp.path().join("t")));
        let error = super::remove(temp.path(), &t, &mut stop);
        assert!(matches!(error, Err(RemoveError::Stopped(_))), "{error:?}");
        assert_eq!(fs::read_dir(temp.path().join("t")).unwrap().count(), 8);
        let error = super::remove(temp.path(), &t, &mut || true).unwrap_err();
        assert!(matches!(error, RemoveError::NotBegun(_)) && !error.may_be_partial(), "{error}");
        assert_eq!(fs::read_dir(temp.path().join("t")).unwrap().count(), 8);
    }

    #[test]
    fn directories_elsewhere_are_found_before_anything_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("t/a/b")).unwrap();
        fs::write(temp.path().join("t/f"), "x").unwrap();
        let base = Dir::open(temp.path()).unwrap();
        let meta = base.meta(Fields::MOUNT).unwrap();
        let mut calls = 0;
        let mut count = || {
            calls += 1;
            false
        };
        check_below(&base, b"t", (meta.device, meta.mount), &mut count).unwrap();
        assert_eq!(calls, 3, "every directory is checked");
        let check = |place: Place| check_below(&base, b"t", place, &mut || false).unwrap_err();
        let error = check(((u32::MAX, 1), meta.mount));
        assert!(matches!(error, RemoveError::Contains(..)) && !error.may_be_partial(), "{error}");
        let error = check((meta.device, Some(u64::MAX)));
        assert!(matches!(error, RemoveError::Mounted(_)) && !error.may_be_partial(), "{error}");
        // It was a mount during the scan, which did not read what it covered.
        let seen = Entry { other_device: Some(b"t/a"), ..entry(b"t", id(&temp.path().join("t"))) };
        let error = super::remove(temp.path(), &seen, &mut || false).unwrap_err();
        assert!(error.to_string().contains("'t/a': it changed since the scan"), "{error}");
        assert!(temp.path().join("t/f").exists());
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
    fn directories_that_wait_have_their_paths_but_keep_only_names() {
        let mut waiting = Waiting::new(b"a/t");
        let names = |names: &[&str]| -> Vec<Vec<u8>> {
            names.iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        assert_eq!(waiting.last(), Some(&b"a/t"[..]));
        waiting.extend(names(&["x", "y"]));
        assert_eq!(waiting.last(), Some(&b"a/t/y"[..]));
        waiting.extend(names(&["z"]));
        assert_eq!(waiting.last(), Some(&b"a/t/y/z"[..]));
        assert!(waiting.names.iter().all(|(_, name)| name.len() <= 3));
        waiting.pop();
        assert_eq!(waiting.last(), Some(&b"a/t/y"[..]));
        waiting.pop();
        assert_eq!(waiting.last(), Some(&b"a/t/x"[..]));
        waiting.pop();
        waiting.pop();
        assert_eq!(waiting.last(), None);
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

//! Removes directory trees of any depth with two descriptors.
//!
//! The walk goes down by name and up by `..`, and checks on the way up that `..` is the directory
//! it came from, so a tree that is moved during the removal cannot lead elsewhere. Memory: the
//! names of the directories that wait. Cost: three calls per directory, one per file.

use crate::attr::{self, Attr};
use crate::dir::{Dir, Kind, ReadBuffer};
use crate::make;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Size of the regular files in bytes; hard links count separately.
    pub bytes: u64,
    /// Number of names, including the tree itself.
    pub names: u64,
}

/// One directory on the way down.
struct Level {
    name: CString,
    above: ((u32, u32), u64),
    /// Directories in it that are still to be removed.
    waiting: Vec<CString>,
}

/// Removes the directory `name` with its contents, and calls `each` before every removal with the
/// path below `name` (empty for the tree itself) and the attributes, `None` for directories. Does not follow symbolic links. It is
/// not an error if the directory does not exist.
pub fn tree(
    dir: &Dir,
    name: &CStr,
    each: &mut dyn FnMut(&[u8], Option<&Attr>),
) -> io::Result<Removed> {
    let mut removed = Removed::default();
    let mut path = Vec::new();
    let mut levels: Vec<Level> = Vec::new();
    let first = match open(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(removed),
        opened => opened?,
    };
    let mut at = enter(first, dir, name, &mut levels, (&mut path, &mut removed), each)?;
    loop {
        let level = levels.last_mut().expect("the loop ends with the first level");
        if let Some(next) = level.waiting.pop() {
            path.extend_from_slice(next.to_bytes());
            path.push(b'/');
            let below = open(&at, &next)?;
            at = enter(below, &at, &next, &mut levels, (&mut path, &mut removed), each)?;
            continue;
        }
        let done = levels.pop().expect("checked above");
        each(path.strip_suffix(b"/").unwrap_or(&path), None);
        removed.names += 1;
        if levels.is_empty() {
            make::remove_directory(dir, name)?;
            return Ok(removed);
        }
        let above = at.open_above()?;
        if attr::of_file(&above)?.identity() != done.above {
            // It was moved during the removal.
            return Err(Errno::STALE.into());
        }
        permitted(&above, || make::remove_directory(&above, &done.name))?;
        path.truncate(path.len() - done.name.to_bytes().len() - 1);
        at = above;
    }
}

/// Opens a directory to be removed. Its owner may have to permit it first.
fn open(above: &Dir, name: &CStr) -> io::Result<Dir> {
    match above.open_at(name.to_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            attr::set_mode_at(above, name, 0o700)?;
            above.open_at(name.to_bytes())
        }
        opened => opened,
    }
}

/// Removes a name from a directory, which its owner may have to make writable first.
fn permitted(dir: &Dir, remove: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match remove() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            attr::set_mode(dir, 0o700)?;
            remove()
        }
        removed => removed,
    }
}

/// Removes the files of an open directory, and lists its directories.
fn enter(
    at: Dir,
    above: &Dir,
    name: &CStr,
    levels: &mut Vec<Level>,
    (path, removed): (&mut Vec<u8>, &mut Removed),
    each: &mut dyn FnMut(&[u8], Option<&Attr>),
) -> io::Result<Dir> {
    let (mut waiting, mut files) = (Vec::new(), Vec::new());
    at.read(&mut ReadBuffer::new(), &mut |entry| {
        let name = CString::new(entry.name).expect("a file name contains no NUL bytes");
        if entry.kind == Kind::Directory {
            waiting.push(name)
        } else {
            files.push(name)
        }
        true
    })?;
    for file in files {
        let found = attr::of_name(&at, &file, false);
        let kind = found.as_ref().map_or(Kind::Unknown, |found| found.kind);
        if kind == Kind::Directory {
            waiting.push(file);
            continue;
        }
        let length = path.len();
        path.extend_from_slice(file.to_bytes());
        if let Ok(found) = &found {
            each(path, Some(found));
        }
        path.truncate(length);
        permitted(&at, || make::remove(&at, &file))?;
        removed.names += 1;
        removed.bytes +=
            found.map_or(0, |found| if kind == Kind::Regular { found.bytes } else { 0 });
    }
    levels.push(Level { name: name.to_owned(), above: attr::of_file(above)?.identity(), waiting });
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_tree_is_removed_and_links_are_not_followed() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "kept").unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        make::directory(&dir, c"tree", 0o700).unwrap();
        let mut at = dir.open_at(b"tree").unwrap();
        for depth in 0..3000 {
            if depth % 500 == 0 {
                make::symlink(c"/", &at, c"link").unwrap();
                at.create_at(b"file").unwrap().write(b"12345").unwrap();
                make::directory(&at, c"wide", 0o700).unwrap();
            }
            make::directory(&at, c"d", 0o700).unwrap();
            at = at.open_at(b"d").unwrap();
        }
        std::os::unix::fs::symlink(&outside, temp.path().join("tree/out")).unwrap();
        let mut seen = Vec::new();
        let removed = tree(&dir, c"tree", &mut |path, found| {
            if found.is_some_and(|found| found.kind == Kind::Regular) {
                seen.push(path.len());
            }
        });
        assert_eq!(removed.unwrap(), Removed { bytes: 30, names: 3001 + 3 * 6 + 1 });
        assert_eq!(seen.len(), 6);
        assert!(!temp.path().join("tree").exists());
        assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"kept");
        assert_eq!(tree(&dir, c"tree", &mut |_, _| {}).unwrap(), Removed::default());
    }
}

//! Removes directory trees of any depth with two descriptors.
//!
//! The walk goes down by name and up by `..`, and checks on the way up that `..` is the directory
//! it came from, so a tree that is moved during the removal cannot lead elsewhere. It does not leave the
//! file system: a mount below the tree is an error. Memory: the names of the directories that wait. Cost:
//! three calls per directory, one per file.

use crate::attr::{self, Attr};
use crate::dir::{Dir, Kind, ReadBuffer};
use crate::make;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;

/// Maximum number of names that [`measure`] counts.
const MEASURED_MAX: usize = 10_000;

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
    own: ((u32, u32), u64),
    /// Directories in it that are still to be removed.
    waiting: Vec<CString>,
}

/// What to do with the entries of a tree.
type Each<'a> = dyn FnMut(&[u8], Option<&Attr>) + 'a;

/// A walk through a tree.
struct Walk<'a, 'b> {
    /// Whether entries are removed, or only counted.
    removes: bool,
    device: (u32, u32),
    levels: Vec<Level>,
    path: Vec<u8>,
    counted: Removed,
    each: &'a mut Each<'b>,
}

/// Removes the directory `name` with its contents, and calls `each` before every removal with the
/// path below `name` (empty for the tree itself) and the attributes, `None` for directories. Does not follow symbolic links. It is
/// not an error if the directory does not exist.
pub fn tree(
    dir: &Dir,
    name: &CStr,
    each: &mut dyn FnMut(&[u8], Option<&Attr>),
) -> io::Result<Removed> {
    walk(dir, name, true, each)
}

/// Counts what [`tree`] would remove, and leaves it as it is. A tree with more than ten thousand names is an error,
/// because to count them could take longer than what the caller does.
pub fn measure(dir: &Dir, name: &CStr) -> io::Result<Removed> {
    walk(dir, name, false, &mut |_, _| {})
}

fn walk(dir: &Dir, name: &CStr, removes: bool, each: &mut Each<'_>) -> io::Result<Removed> {
    let device = attr::of_file(dir)?.device;
    let (levels, path, counted) = (Vec::new(), Vec::new(), Removed::default());
    let mut walk = Walk { removes, device, levels, path, counted, each };
    let mut at = match walk.open(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(walk.counted),
        opened => walk.enter(opened?, name)?,
    };
    loop {
        let level = walk.levels.last_mut().expect("the loop ends with the first level");
        if let Some(next) = level.waiting.pop() {
            walk.path.extend_from_slice(next.to_bytes());
            walk.path.push(b'/');
            let below = walk.open(&at, &next)?;
            at = walk.enter(below, &next)?;
            continue;
        }
        let done = walk.levels.pop().expect("checked above");
        (walk.each)(walk.path.strip_suffix(b"/").unwrap_or(&walk.path), None);
        walk.counted.names += 1;
        let Some(level) = walk.levels.last() else {
            if removes {
                make::remove_directory(dir, name)?;
            }
            return Ok(walk.counted);
        };
        let above = at.open_above()?;
        if attr::of_file(&above)?.identity() != level.own {
            // It was moved during the removal.
            return Err(Errno::STALE.into());
        }
        if removes {
            permitted(&above, || make::remove_directory(&above, &done.name))?;
        }
        walk.path.truncate(walk.path.len() - done.name.to_bytes().len() - 1);
        at = above;
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

impl Walk<'_, '_> {
    /// Opens a directory to be removed. Its owner may have to permit it first.
    fn open(&self, above: &Dir, name: &CStr) -> io::Result<Dir> {
        match above.open_at(name.to_bytes()) {
            Err(e) if self.removes && e.kind() == io::ErrorKind::PermissionDenied => {
                attr::set_mode_at(above, name, 0o700)?;
                above.open_at(name.to_bytes())
            }
            opened => opened,
        }
    }

    /// Removes the files of an open directory, and lists its directories.
    fn enter(&mut self, at: Dir, name: &CStr) -> io::Result<Dir> {
        let own = attr::of_file(&at)?;
        if own.device != self.device || own.mount_root {
            return Err(Errno::XDEV.into());
        }
        let (mut waiting, mut files) = (Vec::new(), Vec::new());
        let removes = self.removes;
        at.read(&mut ReadBuffer::new(), &mut |entry| {
            let name = CString::new(entry.name).expect("a file name contains no NUL bytes");
            if entry.kind == Kind::Directory {
                waiting.push(name)
            } else {
                files.push(name)
            }
            removes || waiting.len() + files.len() <= MEASURED_MAX
        })?;
        let counted = self.counted.names + (waiting.len() + files.len()) as u64;
        if !removes && counted > MEASURED_MAX as u64 {
            return Err(Errno::FBIG.into());
        }
        for file in files {
            let found = attr::of_name(&at, &file, false);
            let kind = found.as_ref().map_or(Kind::Unknown, |found| found.kind);
            if kind == Kind::Directory {
                waiting.push(file);
                continue;
            }
            let length = self.path.len();
            self.path.extend_from_slice(file.to_bytes());
            if let Ok(found) = &found {
                (self.each)(&self.path, Some(found));
            }
            self.path.truncate(length);
            if self.removes {
                permitted(&at, || make::remove(&at, &file))?;
            }
            self.counted.names += 1;
            self.counted.bytes +=
                found.map_or(0, |found| if kind == Kind::Regular { found.bytes } else { 0 });
        }
        self.levels.push(Level { name: name.to_owned(), own: own.identity(), waiting });
        Ok(at)
    }
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
        let all = Removed { bytes: 30, names: 3001 + 3 * 6 + 1 };
        assert_eq!(measure(&dir, c"tree").unwrap(), all);
        let removed = tree(&dir, c"tree", &mut |path, found| {
            if found.is_some_and(|found| found.kind == Kind::Regular) {
                seen.push(path.len());
            }
        });
        assert_eq!(removed.unwrap(), all);
        assert_eq!(seen.len(), 6);
        assert!(!temp.path().join("tree").exists());
        assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"kept");
        assert_eq!(tree(&dir, c"tree", &mut |_, _| {}).unwrap(), Removed::default());
    }
    #[test]
    fn a_mount_is_not_emptied() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mount_point = temp.path().join("tree/mount");
        std::fs::create_dir_all(&mount_point).unwrap();
        let run = |command: &mut std::process::Command| {
            command.output().is_ok_and(|output| output.status.success())
        };
        let mut mount = std::process::Command::new("mount");
        if !run(mount.args(["-t", "tmpfs", "none"]).arg(&mount_point)) {
            return println!("skipped: this user cannot mount");
        }
        std::fs::write(mount_point.join("kept"), "kept").unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let removed = tree(&dir, c"tree", &mut |_, _| {});
        let kept = std::fs::read(mount_point.join("kept"));
        // A child process that another test is starting can hold a file of the mount open.
        let unmounted = (0..600).any(|_| {
            let done = run(std::process::Command::new("umount").arg(&mount_point));
            if !done {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            done
        });
        assert!(unmounted);
        assert_eq!(kept.unwrap(), b"kept");
        assert_eq!(removed.map_err(|e| Errno::from_io_error(&e)), Err(Some(Errno::XDEV)));
        assert!(tree(&dir, c"tree", &mut |_, _| {}).is_ok());
    }
}

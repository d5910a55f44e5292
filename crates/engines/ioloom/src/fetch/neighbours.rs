//! The directory of the files that a thread opens one after another, and what is known of it.
//!
//! The kernel looks up every directory of a path at each open. A thread that has begun several files of
//! a directory keeps a reference to it, a descriptor, and opens the next ones by their names alone. If
//! that fails, the reference is dropped and the file is opened by its path: errors are those of the path,
//! and a directory that was replaced costs one more call. The thread also remembers that reads which do
//! not wait are not supported there, so it does not ask for them again.

use ioloom_sys::attr;
use ioloom_sys::file::{self, OpenHow};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files of a directory in a row before a reference to it is worth its calls.
const ENOUGH: u32 = 8;
/// Length from which the system refuses a path. It could open such a file by its name, but then the
/// result would depend on the files before it.
const PATH_MAX: usize = 4096;

/// How files are read where reads that do not wait are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// They are stored in memory, so no read waits.
    InMemory,
    /// Any read may wait.
    Waiting,
}

/// The directory of the last file that a thread began.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Whether a descriptor may be used for a reference.
    may_refer: bool,
    /// Its path with a slash at the end; empty for the current directory.
    dir: Vec<u8>,
    /// Files of it in a row, at most [`ENOUGH`].
    files: u32,
    handle: Option<OwnedFd>,
    unsupported: Option<Unsupported>,
    /// The device of the last file system that was queried, and the answer.
    queried: Option<((u32, u32), Unsupported)>,
}

impl Neighbours {
    /// Creates what a thread knows at its start. `may_refer`: it may keep a reference to a directory.
    pub(crate) fn new(may_refer: bool) -> Self {
        Self { may_refer, ..Self::default() }
    }

    /// Notes the directory of a file that is about to be opened.
    #[inline]
    pub(crate) fn enter(&mut self, path: &Path) {
        let (dir, _) = split(path);
        if self.files > 0 && self.dir == dir {
            self.files = (self.files + 1).min(ENOUGH);
            return;
        }
        self.dir.clear();
        self.dir.extend_from_slice(dir);
        self.files = 1;
        self.handle = None;
        self.unsupported = None;
    }

    /// Opens a file of the directory that was entered.
    #[inline]
    pub(crate) fn open(&mut self, path: &Path, how: OpenHow) -> io::Result<OwnedFd> {
        let may_refer = self.may_refer && path.as_os_str().len() < PATH_MAX;
        if may_refer && self.files == ENOUGH && !self.dir.is_empty() {
            if self.handle.is_none() {
                // If this fails, it is tried again only after as many files.
                self.files = 1;
                let dir = Path::new(OsStr::from_bytes(&self.dir));
                self.handle = file::reference_to_dir(dir).ok();
            }
            if let Some(handle) = &self.handle {
                self.files = ENOUGH;
                let name = path.as_os_str().as_bytes().get(self.dir.len()..).unwrap_or_default();
                if let Ok(file) = file::open_in(handle, OsStr::from_bytes(name), how) {
                    return Ok(file);
                }
                (self.handle, self.files) = (None, 1);
            }
        }
        file::open(path, how)
    }

    /// Returns how files of the directory that was entered are read, if reads that do not wait are not
    /// supported there.
    #[inline]
    pub(crate) fn unsupported(&self) -> Option<Unsupported> {
        self.unsupported
    }

    /// Notes that reads which do not wait are not supported for an open file. Returns how it is read.
    #[cold]
    pub(crate) fn note(&mut self, path: &Path, file: &OwnedFd) -> Unsupported {
        let device = file::device_number(file).ok();
        let how = match self.queried {
            // Another query could cost a request to a server for each file of a list.
            Some((queried, how)) if device == Some(queried) => how,
            _ => {
                let in_memory = attr::file_system(file).is_ok_and(|system| system.in_memory);
                if in_memory { Unsupported::InMemory } else { Unsupported::Waiting }
            }
        };
        self.queried = device.map(|device| (device, how));
        if self.files > 0 && split(path).0 == self.dir {
            self.unsupported = Some(how);
        }
        how
    }
}

/// Splits a path into its directory with the slash, and the name.
#[inline]
fn split(path: &Path) -> (&[u8], &[u8]) {
    let path = path.as_os_str().as_bytes();
    let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    path.split_at(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;

    fn text(file: OwnedFd) -> String {
        let mut text = String::new();
        fs::File::from(file).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_directory_that_was_replaced_is_found_by_its_path() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "old").unwrap();
        let mut neighbours = Neighbours::new(true);
        let mut open = |name: &str| {
            let path = dir.join(name);
            neighbours.enter(&path);
            let opened = neighbours.open(&path, OpenHow::default());
            (opened.map(text), neighbours.handle.is_some())
        };
        for n in 1..=ENOUGH {
            let (read, by_name) = open("file");
            assert_eq!((read.unwrap().as_str(), by_name), ("old", n == ENOUGH));
        }
        // The reference follows the directory, and a name that it lacks is looked up by its path.
        fs::rename(&dir, top.path().join("moved")).unwrap();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("new"), "new").unwrap();
        let (read, by_name) = open("new");
        assert_eq!((read.unwrap().as_str(), by_name), ("new", false));
        let (missing, _) = open("missing");
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_directory_ends_what_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for dir in [&a, &b] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("file"), "text").unwrap();
        }
        let mut neighbours = Neighbours::new(true);
        for _ in 0..ENOUGH {
            neighbours.enter(&a.join("file"));
            neighbours.open(&a.join("file"), OpenHow::default()).unwrap();
        }
        let file = file::open(&a.join("file"), OpenHow::default()).unwrap();
        // The answer for a file of another directory says nothing about this one.
        neighbours.note(&b.join("file"), &file);
        assert_eq!(neighbours.unsupported(), None);
        let how = neighbours.note(&a.join("file"), &file);
        assert_eq!(neighbours.unsupported(), Some(how));
        neighbours.enter(&b.join("file"));
        assert_eq!((neighbours.unsupported(), neighbours.handle.is_none()), (None, true));
    }

    #[test]
    fn a_path_that_is_too_long_fails_whatever_is_known_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(100);
        fs::write(dir.path().join(&name), "text").unwrap();
        // The path of the directory is not too long.
        let mut path = dir.path().as_os_str().to_owned();
        while path.len() < PATH_MAX - 50 {
            path.push("/.");
        }
        path.push(format!("/{name}"));
        let mut neighbours = Neighbours::new(true);
        for _ in 0..2 * ENOUGH {
            neighbours.enter(Path::new(&path));
            let error = neighbours.open(Path::new(&path), OpenHow::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
        }
    }

    #[test]
    fn a_thread_without_a_spare_descriptor_opens_files_by_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "text").unwrap();
        let mut neighbours = Neighbours::new(false);
        for _ in 0..2 * ENOUGH {
            neighbours.enter(&path);
            assert_eq!(text(neighbours.open(&path, OpenHow::default()).unwrap()), "text");
            assert!(neighbours.handle.is_none());
        }
    }

    #[test]
    fn names_without_a_directory_are_opened_as_they_are() {
        for (path, dir, name) in
            [("name", "", "name"), ("/name", "/", "name"), ("a/b/c", "a/b/", "c")]
        {
            assert_eq!(split(Path::new(path)), (dir.as_bytes(), name.as_bytes()));
        }
    }
}

//! Directories of a copy: the two sides of each, its name now and later, and how it is made.

use crate::meta::{Home, Made};
use crate::place::{hidden_name, with_hidden_name};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use ioloom_walk::{DirRef, NewDir, RetainedDir};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// `ENOTDIR`, for the words of the system.
const NOT_A_DIRECTORY: i32 = 20;

/// Where one source goes.
pub(crate) struct RootTo {
    /// Index of the directory that it goes into.
    pub(crate) parent: usize,
    pub(crate) name: CString,
    /// The whole path of the target.
    pub(crate) path: PathBuf,
}

/// A directory that sources go into.
pub(crate) struct Parent {
    pub(crate) dir: Dir,
    pub(crate) home: Home,
}

/// The sources of a copy and where they go.
pub(crate) struct Roots {
    pub(crate) from: Vec<PathBuf>,
    pub(crate) to: Vec<RootTo>,
    pub(crate) parents: Vec<Parent>,
}

/// The two sides of a directory.
pub(crate) struct Pair {
    pub(crate) from: Dir,
    pub(crate) to: Dir,
}

/// What belongs to a directory in work.
pub(crate) struct CopyDir {
    pub(crate) id: u64,
    pub(crate) source: Attr,
    /// The hidden name that it was made under, if it is the one that is renamed in the end.
    pub(crate) hidden_name: Option<CString>,
    pub(crate) shown: AtomicBool,
    /// Nobody sees it yet.
    pub(crate) hidden: bool,
    /// Bytes that were moved for files below, while nobody sees it: they go with it if it must go.
    pub(crate) bytes: AtomicU64,
    /// What is in it stays out: it lies on another file system.
    pub(crate) empty: bool,
    pub(crate) home: Home,
    pub(crate) made: Made,
    pub(crate) pair: Mutex<Option<Arc<Pair>>>,
}

impl CopyDir {
    /// So many bytes more are below.
    pub(crate) fn holds(&self, bytes: u64) {
        if self.hidden {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// Where the first name of a file with several names is.
#[derive(Clone)]
pub(crate) enum Place {
    /// In a directory of the walk.
    In(RetainedDir<CopyDir>, Box<[u8]>),
    /// A source of its own.
    Root(usize),
}

/// Numbers of directories, and how many pairs are held.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) next: AtomicU64,
    pub(crate) pairs: AtomicUsize,
}

pub(crate) fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidFilename.into())
}

pub(crate) fn root_of<'a>(dir: DirRef<'a, CopyDir>) -> DirRef<'a, CopyDir> {
    let mut at = dir;
    while let Some(parent) = at.parent() {
        at = parent;
    }
    at
}

pub(crate) fn target_path(
    roots: &Roots,
    dir: Option<DirRef<'_, CopyDir>>,
    root: usize,
    name: &[u8],
) -> PathBuf {
    let Some(dir) = dir else { return roots.to[root].path.clone() };
    let mut relative = Vec::new();
    dir.write_relative(&mut relative);
    relative.extend_from_slice(name);
    let relative = relative.strip_suffix(b"/").unwrap_or(&relative);
    if relative.is_empty() {
        return roots.to[root].path.clone();
    }
    roots.to[root].path.join(OsStr::from_bytes(relative))
}

pub(crate) fn new_target_path(roots: &Roots, new: &NewDir<'_, CopyDir>) -> PathBuf {
    let name = if new.parent.is_some() { new.name } else { b"" };
    target_path(roots, new.parent, new.root, name)
}

/// Opens the target of a directory under the name that it has now.
pub(crate) fn open_target(above: &Dir, name: &[u8], data: &CopyDir) -> io::Result<Dir> {
    match &data.hidden_name {
        Some(hidden) if !data.shown.load(Ordering::Acquire) => {
            match above.open_at(hidden.to_bytes()) {
                // It was renamed at this moment.
                Err(e) if e.kind() == io::ErrorKind::NotFound => above.open_at(name),
                result => result,
            }
        }
        _ => above.open_at(name),
    }
}

/// Removes what was made under a hidden name beside `path`.
pub(crate) fn remove_hidden(path: PathBuf, hidden: &CStr) {
    let hidden = OsStr::from_bytes(hidden.to_bytes());
    // What cannot be removed stays under a name that tells what it is.
    let _ = make::remove_tree(&path.with_file_name(hidden));
}

/// A target directory.
pub(crate) struct MadeDir {
    pub(crate) dir: Dir,
    /// What it is now.
    pub(crate) own: Attr,
    pub(crate) hidden_name: Option<CString>,
    pub(crate) is_hidden: bool,
    pub(crate) is_new: bool,
}

/// How a copy that may go on later makes directories.
#[derive(Clone, Copy)]
pub(crate) struct Again {
    /// What its hidden names end in.
    pub(crate) number: u64,
    pub(crate) is_root: bool,
}

/// Makes a directory, or takes the one that an earlier copy left.
fn make_again(above: &Dir, name: &CStr, mode: u32, again: bool) -> io::Result<()> {
    match make::directory(above, name, mode) {
        Err(e) if again && e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Opens a directory that was just made; where that fails it is taken away again, unless a later copy
/// goes on with it.
fn open_new(above: &Dir, name: &CStr, stays: bool) -> io::Result<(Dir, Attr)> {
    let opened = open_known(above, name);
    if opened.is_err() && !stays {
        // What cannot be removed stays under a name that tells what it is, and is empty.
        let _ = make::remove_directory(above, name);
    }
    opened
}

fn open_known(above: &Dir, name: &CStr) -> io::Result<(Dir, Attr)> {
    let dir = above.open_at(name.to_bytes())?;
    let own = attr::of_file(&dir)?;
    Ok((dir, own))
}

impl MadeDir {
    /// Makes or opens the directory `name`. That something else is there is told as `ENOTDIR`.
    pub(crate) fn make(
        above: &Dir,
        name: &CStr,
        above_hidden: bool,
        mode: u32,
        again: Option<Again>,
    ) -> io::Result<Self> {
        if above_hidden {
            make_again(above, name, mode, again.is_some())?;
            let (dir, own) = open_new(above, name, again.is_some())?;
            return Ok(Self { dir, own, hidden_name: None, is_hidden: true, is_new: true });
        }
        match open_known(above, name) {
            Ok((dir, own)) => {
                return Ok(Self { dir, own, hidden_name: None, is_hidden: false, is_new: false });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(e),
            Err(e) => {
                return Err(match attr::of_name(above, name, false) {
                    Ok(there) if there.kind != Kind::Directory => {
                        io::Error::from_raw_os_error(NOT_A_DIRECTORY)
                    }
                    _ => e,
                });
            }
        }
        let hidden = match again {
            Some(Again { number, is_root: true }) => {
                let hidden = hidden_name(name, number);
                make_again(above, &hidden, mode, true)?;
                hidden
            }
            // A later copy could not find a hidden name here: it is filled where it is to be.
            Some(_) => {
                make::directory(above, name, mode)?;
                let (dir, own) = open_new(above, name, true)?;
                return Ok(Self { dir, own, hidden_name: None, is_hidden: false, is_new: true });
            }
            None => with_hidden_name(name, |hidden| make::directory(above, hidden, mode))?.0,
        };
        let (dir, own) = open_new(above, &hidden, again.is_some())?;
        Ok(Self { dir, own, hidden_name: Some(hidden), is_hidden: true, is_new: true })
    }
}

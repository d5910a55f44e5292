//! The files to read: from a prepared list, or by walking.
//!
//! A list contains one path per entry, terminated by a newline or, if the file contains any NUL
//! byte, by a NUL. Relative paths start at the directory, absolute ones must be below it. Paths are
//! raw bytes, so names that are not UTF-8 work. A walk takes only regular files and does not follow
//! symbolic links. All paths are complete before the clock starts.

use crate::PeerError;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The walker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Walker {
    /// Crate `walkdir`, one thread.
    Walkdir,
    /// Crate `ignore` without its filters, with its default number of threads.
    Ignore,
}

/// Regular files below a directory, in reading order.
#[derive(Debug)]
pub struct FileList {
    dir: PathBuf,
    paths: Vec<PathBuf>,
    /// Length of the directory with its slash, which is the offset of the relative path.
    prefix: usize,
}

impl FileList {
    /// Reads a prepared list.
    ///
    /// # Errors
    /// The list cannot be read, is empty, or contains a path outside the directory.
    pub fn read(dir: &Path, list: &Path) -> Result<Self, PeerError> {
        let bytes = std::fs::read(list).map_err(PeerError::file("read the list", list))?;
        let refuse = |reason: String| PeerError::List { list: list.to_path_buf(), reason };
        let end = if bytes.contains(&0) { 0 } else { b'\n' };
        let mut files = Self::empty(dir);
        for entry in bytes.split(|b| *b == end).filter(|e| !e.is_empty()) {
            let path = dir.join(OsString::from_vec(entry.to_vec()));
            let inside = path
                .strip_prefix(dir)
                .is_ok_and(|rest| !rest.as_os_str().is_empty() && rest.components().all(is_plain));
            if !inside {
                let reason = format!("{} is not below {}", path.display(), dir.display());
                return Err(refuse(reason));
            }
            // Join again to make the relative part start at the same byte in every path.
            let relative = path.strip_prefix(dir).unwrap_or(&path);
            files.paths.push(files.dir.join(relative));
        }
        if files.paths.is_empty() {
            return Err(refuse("it names no file".to_owned()));
        }
        Ok(files)
    }

    /// Walks the directory. The order is the walker's, which is the file system's.
    ///
    /// # Errors
    /// A directory cannot be read, or there are no regular files.
    pub fn walk(dir: &Path, walker: Walker) -> Result<Self, PeerError> {
        let refuse = |reason: String| PeerError::Walk { dir: dir.to_path_buf(), reason };
        let mut files = Self::empty(dir);
        files.paths = match walker {
            Walker::Walkdir => walk_with_walkdir(&files.dir),
            Walker::Ignore => walk_with_ignore(&files.dir),
        }
        .map_err(refuse)?;
        if files.paths.is_empty() {
            return Err(refuse("there is no regular file below it".to_owned()));
        }
        Ok(files)
    }

    fn empty(dir: &Path) -> Self {
        let prefix =
            dir.as_os_str().len() + usize::from(!dir.as_os_str().as_bytes().ends_with(b"/"));
        Self { dir: dir.to_path_buf(), paths: Vec::new(), prefix }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the paths to open.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the path relative to the directory, which is part of the digest.
    pub fn relative<'a>(&self, path: &'a Path) -> &'a [u8] {
        &path.as_os_str().as_bytes()[self.prefix..]
    }
}

fn is_plain(component: std::path::Component<'_>) -> bool {
    matches!(component, std::path::Component::Normal(_))
}

fn walk_with_walkdir(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry.map_err(|e| e.to_string())?;
        if entry.file_type().is_file() {
            paths.push(entry.into_path());
        }
    }
    Ok(paths)
}

fn walk_with_ignore(dir: &Path) -> Result<Vec<PathBuf>, String> {
    use ignore::WalkState;
    let found = Mutex::new(Ok(Vec::new()));
    ignore::WalkBuilder::new(dir).standard_filters(false).build_parallel().run(|| {
        Box::new(|entry| {
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match (entry, found.as_mut()) {
                (Ok(entry), Ok(paths)) => {
                    if entry.file_type().is_some_and(|t| t.is_file()) {
                        paths.push(entry.into_path());
                    }
                    WalkState::Continue
                }
                (Err(e), _) => {
                    *found = Err(e.to_string());
                    WalkState::Quit
                }
                (Ok(_), Err(_)) => WalkState::Quit,
            }
        })
    });
    found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

//! The file that a trace is written to. It is created before the run, so that an unwritable path fails
//! before any work, and gets its name when it is complete.

use ioloom_failure::{Explained, Operation, quoted};
use ioloom_sys::new_file::NewFile;
use ioloom_trace::Trace;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace {}: {}", quoted(.path), Explained::new(Operation::Create, .source))]
pub struct TraceFileError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// A trace file under construction.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    new: NewFile,
}

impl TraceFile {
    /// Creates a temporary file in the directory of `path`. A pipe or device is opened instead.
    ///
    /// # Errors
    ///
    /// Fails if the directory is not writable or `path` is a directory.
    pub fn create(path: &Path) -> Result<Self, TraceFileError> {
        Self::create_unless(path, &|| false)
    }

    /// Like [`TraceFile::create`], but waits for the reader of a named pipe only until `is_cancelled` returns true.
    ///
    /// # Errors
    ///
    /// Also fails with [`io::ErrorKind::Interrupted`] if it was cancelled.
    pub fn create_unless(
        path: &Path,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, TraceFileError> {
        let path = path.to_owned();
        match NewFile::create_unless(&path, is_cancelled) {
            Ok(new) => Ok(Self { path, new }),
            Err(source) => Err(TraceFileError { path, source }),
        }
    }

    /// Writes the trace and renames the file to its final name.
    ///
    /// # Errors
    ///
    /// Returns the system's error. A file of that name is then unchanged.
    pub fn write(self, trace: &Trace) -> Result<(), TraceFileError> {
        let Self { path, new } = self;
        let bytes = ioloom_trace::file::write(trace);
        let written = new.file().write_all(&bytes).and_then(|()| new.sync());
        written.and_then(|()| new.finish()).map_err(|source| TraceFileError { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_unfinished_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ioloom");
        drop(TraceFile::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        TraceFile::create(&path).unwrap().write(&Trace::default()).unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(names[0].path(), path);
        let error = TraceFile::create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("directory"), "{error}");
    }

    #[test]
    fn links_and_pipes_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let whole = ioloom_trace::file::write(&Trace::default());
        std::fs::write(at("file"), "old").unwrap();
        symlink("file", at("link")).unwrap();
        TraceFile::create(&at("link")).unwrap().write(&Trace::default()).unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(std::fs::read(at("file")).unwrap(), whole);
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.unwrap().success());
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        TraceFile::create(&at("pipe")).unwrap().write(&Trace::default()).unwrap();
        assert!(!std::fs::metadata(at("pipe")).unwrap().is_file());
        assert_eq!(reader.join().unwrap(), whole);
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("other"), "precious").unwrap();
        symlink("other", at(&format!(".t.ioloom.{}", std::process::id()))).unwrap();
        TraceFile::create(&at("t.ioloom")).unwrap().write(&Trace::default()).unwrap();
        assert_eq!(std::fs::read(at("other")).unwrap(), b"precious");
        assert!(!at("t.ioloom").is_symlink());
    }
}

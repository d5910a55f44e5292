//! The file that a trace is written to. It is created before the run, so that an unwritable path fails
//! before any work, and gets its name when it is complete.

use ioloom_failure::{Explained, Operation, quoted};
use ioloom_trace::Trace;
use std::fs::File;
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
    unfinished: PathBuf,
    file: File,
}

impl TraceFile {
    /// Creates a temporary file in the directory of `path`.
    ///
    /// # Errors
    ///
    /// Fails if the directory is not writable or `path` is a directory.
    pub fn create(path: &Path) -> Result<Self, TraceFileError> {
        let fail = |source| TraceFileError { path: path.to_owned(), source };
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
        };
        let mut unfinished = std::ffi::OsString::from(".");
        unfinished.push(name);
        unfinished.push(format!(".{}", std::process::id()));
        let unfinished = path.with_file_name(unfinished);
        let file = File::create(&unfinished).map_err(fail)?;
        Ok(Self { path: path.to_owned(), unfinished, file })
    }

    /// Writes the trace and renames the file to its final name.
    ///
    /// # Errors
    ///
    /// Returns the system's error. A file of that name is then unchanged.
    pub fn write(mut self, trace: &Trace) -> Result<(), TraceFileError> {
        let bytes = ioloom_trace::file::write(trace);
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_all());
        let named = written.and_then(|()| std::fs::rename(&self.unfinished, &self.path));
        named.map_err(|source| TraceFileError { path: self.path.clone(), source })
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // The rename has removed this name.
        let _ = std::fs::remove_file(&self.unfinished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

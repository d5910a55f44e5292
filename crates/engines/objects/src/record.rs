//! Records of uploads in parts, so that the next run aborts what a kill left.
//!
//! A record is a file with the URL and the ID of the upload, synced before the first part is sent and
//! removed after the upload was completed or aborted. Its lock is held while the upload runs.

use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::call;
use md5::{Digest, Md5};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// End of the name of a record.
const SUFFIX: &str = ".upload";

/// What to do if a record cannot be written.
const ADVICE: &str = "uploads in parts are recorded there: set XDG_STATE_HOME to a writable directory \
                      on a file system with locks";

/// Returns the digits of a sum.
pub(crate) fn digits(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The record of a running upload.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
    path: PathBuf,
}

impl Record {
    /// Writes and syncs the record of an upload of `url` to the server `endpoint`.
    ///
    /// # Errors
    /// Returns the message. Nothing remains in the directory.
    pub(crate) fn create(directory: &Path, of: (&str, &str, &str)) -> Result<Self, String> {
        Self::written(directory, of).map_err(|error| format!("{error}; {ADVICE}"))
    }

    fn written(
        directory: &Path,
        (endpoint, url, id): (&str, &str, &str),
    ) -> Result<Self, PathError> {
        call("make-directory", || std::fs::create_dir_all(directory))
            .map_err(PathError::on(Operation::CreateDir, directory))?;
        let name = digits(&Md5::digest(format!("{endpoint}\n{url}\n{id}")));
        let path = directory.join(name + SUFFIX);
        let mut file =
            call("create", || OpenOptions::new().write(true).create_new(true).open(&path))
                .map_err(PathError::on(Operation::Create, &path))?;
        let text = format!("{endpoint}\n{url}\n{id}\n");
        // Another process skips a record whose lock is held, or which is not complete.
        let locked = call("lock", || file.lock()).map_err(PathError::on(Operation::Lock, &path));
        let written = locked.and_then(|()| {
            let written = call("write", || {
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                File::open(directory)?.sync_all()
            });
            written.map_err(PathError::on(Operation::Write, &path))
        });
        match written {
            Ok(()) => Ok(Self { file, path }),
            Err(error) => {
                let _ = call("unlink", || std::fs::remove_file(&path));
                Err(error)
            }
        }
    }

    /// Removes the record of an upload that has ended.
    pub(crate) fn remove(self) {
        let _ = call("unlink", || std::fs::remove_file(&self.path));
        drop(self.file);
    }
}

/// Returns whether a URL is `root` or below it.
fn is_below(url: &str, root: &str) -> bool {
    let root = root.trim_end_matches('/');
    url.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the records of uploads to `root` or URLs below it, which no process runs any more: locked
/// records, their URLs and IDs.
pub(crate) fn left(directory: &Path, endpoint: &str, root: &str) -> Vec<(Record, String, String)> {
    let Ok(entries) = call("list", || std::fs::read_dir(directory)) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes()) {
            continue;
        }
        // Over NFS an exclusive lock needs a file that is open for writing.
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let Ok(mut file) = call("open", open) else { continue };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            // Without locks it is unknown whether its process runs, which would lose its parts. New
            // uploads report that there are no locks.
            Err(TryLockError::Error(_)) => continue,
        }
        let mut text = String::new();
        if file.read_to_string(&mut text).is_err() {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        if let [found, url, id] = lines.as_slice()
            && text.ends_with('\n')
            && *found == endpoint
            && is_below(url, root)
        {
            let (url, id) = ((*url).to_owned(), (*id).to_owned());
            all.push((Record { file, path }, url, id));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_that_of_path_components() {
        for (root, below, other) in [
            ("s3://b/to", ["s3://b/to", "s3://b/to/x"], "s3://b/to2"),
            ("s3://b/to/", ["s3://b/to/x", "s3://b/to/y/z"], "s3://b/to2/x"),
            ("s3://b/", ["s3://b/x", "s3://b/to/x"], "s3://b2/x"),
        ] {
            assert!(below.iter().all(|url| is_below(url, root)), "{root}");
            assert!(!is_below(other, root), "{root}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_written_has_advice() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = Record::create(&dir.path().join("file"), ("e", "u", "i")).unwrap_err();
        assert!(error.contains("cannot create directory") && error.contains("XDG_STATE_HOME"));
    }

    #[test]
    fn only_records_without_a_process_are_left() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("a/b");
        let record = Record::create(&directory, ("http://h", "s3://b/k", "id")).unwrap();
        assert!(left(&directory, "http://h", "s3://b/").is_empty(), "its lock is held");
        drop(record);
        for (endpoint, root, count) in
            [("http://h", "s3://b/", 1), ("http://i", "s3://b/", 0), ("http://h", "s3://c/", 0)]
        {
            assert_eq!(left(&directory, endpoint, root).len(), count, "{endpoint} {root}");
        }
        for (root, count) in [("s3://b", 1), ("s3://b/k", 1), ("s3://b/k/", 1), ("s3://b/k/x", 0)] {
            assert_eq!(left(&directory, "http://h", root).len(), count, "{root}");
        }
        let (record, url, id) = left(&directory, "http://h", "s3://b/k").remove(0);
        assert_eq!((&*url, &*id), ("s3://b/k", "id"));
        record.remove();
        std::fs::write(directory.join("torn.upload"), "http://h\ns3://b/k\ni").unwrap();
        assert!(left(&directory, "http://h", "s3://b/").is_empty(), "not complete");
    }
}

//! Atomic file creation: a file gets its name only when it is complete. What is not a file, such as
//! `/dev/stdout`, is written as it is: root could replace a device.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::new_file::NewFile;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Refuses `-` as the file of a flag that does not write to standard output.
///
/// # Errors
/// The path is `-`.
pub(crate) fn refuse_dash(flag: &str, path: Option<&Path>) -> Result<(), Failure> {
    if path.is_some_and(|path| path.as_os_str() == "-") {
        return Err(Failure::usage(format!(
            "{flag} does not write to standard output; for a file of this name, use './-'"
        )));
    }
    Ok(())
}

/// Returns the path without links of an output file, or `None` for what is not a file, such as a device.
pub(crate) fn place(file: &Path) -> Option<PathBuf> {
    if file.as_os_str() == "-" {
        return None;
    }
    if let Ok(place) = file.canonicalize() {
        return place.is_file().then_some(place);
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some(parent.unwrap_or(Path::new(".")).canonicalize().ok()?.join(file.file_name()?))
}

/// Writes `bytes` to `path`, whose directory must exist.
///
/// # Errors
/// The file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    write_with(path, |out| out.write_all(bytes.as_ref()))
}

/// Like [`write`], for files of the store: creates missing parent directories.
///
/// # Errors
/// A directory or the file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write_with_parents(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    if let Some(parent) = parent_of(path) {
        std::fs::create_dir_all(parent)
            .map_err(PathError::on(Operation::CreateDir, parent))
            .map_err(Failure::failed)?;
    }
    write(path, bytes)
}

/// Returns the directory of a path, unless it is the current one.
fn parent_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Writes the output of `fill` to `path` through a temporary file in the same directory.
///
/// # Errors
/// The file cannot be written; the old file, if any, is unchanged.
pub(crate) fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    begin(path)?.finish(fill)
}

/// A file that is open for its contents and has no name yet.
pub(crate) struct Begun {
    new: NewFile,
    /// For errors.
    path: PathBuf,
}

/// Opens a file for contents that exist later, so that a path that cannot be written is an error before
/// the work. An existing file is unchanged until [`Begun::finish`].
///
/// # Errors
/// The file cannot be written. The error names a missing directory.
pub(crate) fn begin(path: &Path) -> Result<Begun, Failure> {
    let new = NewFile::create(path).map_err(|error| not_begun(path, error))?;
    Ok(Begun { new, path: path.to_owned() })
}

fn not_begun(path: &Path, error: io::Error) -> Failure {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let failure = failed(path)(error);
    match parent_of(path).filter(|parent| is_missing && !parent.exists()) {
        Some(parent) => {
            let advice = format!("create the directory {} first", quoted(parent));
            Failure { message: format!("{}; {advice}", failure.message), ..failure }
        }
        None => failure,
    }
}

impl Begun {
    /// Returns whether there is a temporary file, which a scan of the directory would find.
    pub(crate) fn is_temporary(&self) -> bool {
        self.new.is_temporary()
    }

    /// Writes the output of `fill` and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written; the old file, if any, is unchanged.
    pub(crate) fn finish(
        self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Self { new, path } = self;
        let mut out = BufWriter::new(new.file());
        let filled = fill(&mut out).and_then(|()| out.flush());
        // What a failed write left in the buffer must not be written on drop.
        drop(out.into_parts());
        filled.and_then(|()| new.finish()).map_err(failed(&path))
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    let on = PathError::on(Operation::Write, path);
    move |error| Failure::failed(on(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/report");
        write_with_parents(&path, "old").unwrap();
        let failed = write_with(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("stopped"))
        });
        assert!(failed.unwrap_err().message.ends_with("stopped"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_not_finished_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        write(&path, "old").unwrap();
        drop(begin(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let begun = begin(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        begun.finish(|out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(begin(&dir.path().join("missing/history")).is_err());
    }

    #[test]
    fn a_missing_directory_is_named_and_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("new");
        let message = write(&parent.join("report"), "text").unwrap_err().message;
        let advice = format!("; create the directory '{}' first", parent.display());
        assert!(message.ends_with(&advice), "{message}");
        assert!(!parent.exists());
    }

    #[test]
    fn a_file_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("private");
        write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn the_longest_name_and_an_open_descriptor_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("ü".repeat(127));
        write(&long, "text").unwrap();
        assert_eq!(std::fs::read(&long).unwrap(), b"text");
        let path = dir.path().join("open");
        let open = File::create(&path).unwrap();
        (&open).write_all(b"first, ").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        write(Path::new(&format!("/dev/fd/{number}")), "second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first, second");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), open.metadata().unwrap().ino());
    }

    #[test]
    fn a_file_is_not_open_to_more_users_than_before() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("private");
        write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let acl = |path: &Path, flags: &[&str]| {
            let set = std::process::Command::new("setfacl").args(flags).arg(path).status();
            set.is_ok_and(|status| status.success())
        };
        if !acl(&path, &["-m", "u:65534:rw"]) {
            return crate::stderr::message("skipped: no setfacl, or no lists in this file system");
        }
        let listed = |path: &Path| {
            let got = std::process::Command::new("getfacl").arg("-cp").arg(path).output().unwrap();
            String::from_utf8(got.stdout).unwrap()
        };
        let before = listed(&path);
        write(&path, "new").unwrap();
        assert_eq!(listed(&path), before);
        // The list of the directory is not for a file that had none.
        assert!(acl(&path, &["-b"]) && acl(dir.path(), &["-d", "-m", "u:65534:rw"]));
        let before = listed(&path);
        write(&path, "newer").unwrap();
        assert_eq!(listed(&path), before);
    }

    #[test]
    fn links_and_pipes_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write(&at("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        write(&at("link"), "new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"new");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let pipe = at("pipe");
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        write(&at("pipe"), "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(!std::fs::metadata(at("pipe")).unwrap().is_file());
        let refused = write(dir.path(), "onto a directory").unwrap_err();
        assert!(refused.message.ends_with("Is a directory"), "{}", refused.message);
    }
}

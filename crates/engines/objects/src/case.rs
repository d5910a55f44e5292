//! Targets that ignore case, where objects whose keys differ only in case would be one file.
//!
//! The files of a run are remembered only in such directories: 16 bytes and the overhead of a set for each. In
//! others a name is a file of its own, and no memory is needed. Names that are equal by other rules, such as
//! different encodings of the same accents, are not found.

use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::call;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// How a file got its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// It has the name.
    Done,
    /// Another file of the run has the name.
    Taken,
}

/// Device and inode of the files of a run that are in directories which ignore case.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<HashSet<(u64, u64)>>);

impl Published {
    /// Renames a file to `path`, where it replaces a file unless that is one of this run. `folds` is the result
    /// of [`folds_case`].
    pub(crate) fn rename(&self, from: &Path, path: &Path, folds: bool) -> Result<Named, PathError> {
        let rename = || {
            call("rename", || std::fs::rename(from, path))
                .map_err(PathError::on(Operation::Publish, path))
        };
        if !folds {
            return rename().map(|()| Named::Done);
        }
        // Held during the rename: two threads can have files with the same name.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if identity(path).is_some_and(|found| all.contains(&found)) {
            return Ok(Named::Taken);
        }
        let own = identity(from);
        rename()?;
        all.extend(own);
        Ok(Named::Done)
    }
}

/// Returns whether the directory of a file with letters in its name ignores case.
pub(crate) fn folds_case(file: &Path) -> bool {
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return false };
    let upper = identity(&file.with_file_name(name.to_ascii_uppercase()));
    upper.is_some() && upper == identity(file)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = call("stat", || std::fs::symlink_metadata(path)).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A hard link is the same file under another name, as another case is in a directory that ignores it.
    #[test]
    fn files_of_a_run_are_not_replaced_where_case_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let published = Published::default();
        let copy = |contents: &str, name: &str, folds| {
            fs::write(at("hidden"), contents).unwrap();
            published.rename(&at("hidden"), &at(name), folds).unwrap()
        };
        fs::write(at("key"), "before the run").unwrap();
        assert_eq!(copy("one", "key", true), Named::Done, "older files are replaced");
        fs::hard_link(at("key"), at("KEY")).unwrap();
        assert_eq!(copy("two", "KEY", true), Named::Taken);
        assert_eq!(fs::read_to_string(at("key")).unwrap(), "one");
        assert_eq!(copy("three", "other", true), Named::Done);
        assert_eq!(copy("four", "KEY", false), Named::Done);
        assert_eq!(fs::read_to_string(at("KEY")).unwrap(), "four");
        assert_eq!(fs::read_to_string(at("key")).unwrap(), "one");
    }

    #[test]
    fn a_directory_ignores_case_if_a_file_has_its_name_in_capitals() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at(".name-1f"), "").unwrap();
        assert!(!folds_case(&at(".name-1f")));
        fs::write(at(".NAME-1F"), "").unwrap();
        assert!(!folds_case(&at(".name-1f")), "another file");
        fs::remove_file(at(".NAME-1F")).unwrap();
        fs::hard_link(at(".name-1f"), at(".NAME-1F")).unwrap();
        assert!(folds_case(&at(".name-1f")));
    }
}

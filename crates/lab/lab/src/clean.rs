//! Removes file sets and images created by ioloom.

use crate::boot_note::forget_use;
use crate::files::SET_MANIFEST;
use crate::media::{IMAGE_MANIFEST, remove_image};
use crate::subject::{Removed, Sets};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::units::{format_counted, format_size};
use std::io;
use std::path::{Path, PathBuf};

/// Result of [`clean`] for one set or image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// Its directory.
    pub dir: PathBuf,
    /// Files removed.
    pub files: u64,
    /// Bytes freed.
    pub bytes: u64,
    /// Reason why it could not be removed, or not completely.
    pub failed: Option<String>,
}

/// Removes the sets and images that ioloom created below a work directory, and what a killed run
/// left in it. Directories in `sets/` or `images/` without a manifest are left alone, as are all
/// other user files. Does not follow symbolic links.
///
/// # Errors
/// The work directory cannot be listed. Errors for single sets are in their entries.
pub fn clean(work_dir: &Path, sets: &dyn Sets) -> io::Result<Vec<Cleaned>> {
    let mut all = Vec::new();
    for (kind, manifest) in [("sets", SET_MANIFEST), ("images", IMAGE_MANIFEST)] {
        let parent = work_dir.join(kind);
        let entries = match std::fs::read_dir(&parent) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => {
                let text = PathError::new(Operation::ReadDir, &parent, e).to_string();
                return Err(io::Error::other(text));
            }
        };
        let mut dirs = Vec::new();
        for entry in entries {
            let entry = entry?;
            let dir = entry.path();
            let ours = std::fs::symlink_metadata(dir.join(manifest)).is_ok_and(|m| m.is_file());
            if entry.file_type()?.is_dir() && ours {
                dirs.push(dir);
            }
        }
        dirs.sort();
        for dir in dirs {
            let removed = match kind {
                "sets" => sets.remove(&dir),
                _ => remove_image(&dir)
                    .map(|(files, bytes)| Removed { files, bytes, left: None })
                    .map_err(|e| PathError::new(Operation::Remove, &dir, e).to_string()),
            };
            all.push(match removed {
                Ok(removed) => {
                    // Files of the user around a set that is gone are not its remains.
                    let is_kept = std::fs::symlink_metadata(dir.join(manifest)).is_ok();
                    if !is_kept {
                        forget_use(&dir);
                    }
                    let failed = removed.left.as_deref().filter(|_| is_kept);
                    let failed = failed.map(|left| remains(&dir, &removed, left));
                    Cleaned { dir, files: removed.files, bytes: removed.bytes, failed }
                }
                Err(reason) => Cleaned { dir, files: 0, bytes: 0, failed: Some(reason) },
            });
        }
        // This fails if the user has put files into it.
        let _ = std::fs::remove_dir(&parent);
    }
    all.extend(sets.remove_left(work_dir).map(|(dir, removed)| match removed {
        Ok(Removed { files, bytes, .. }) => Cleaned { dir, files, bytes, failed: None },
        Err(reason) => Cleaned { dir, files: 0, bytes: 0, failed: Some(reason) },
    }));
    Ok(all)
}

/// Describes a set whose removal was not completed.
fn remains(dir: &Path, removed: &Removed, left: &Path) -> String {
    format!(
        "removed {} of {} ({}), but not {}: it contains other files",
        format_counted(removed.files, "file", "files"),
        quoted(dir),
        format_size(removed.bytes),
        quoted(left),
    )
}

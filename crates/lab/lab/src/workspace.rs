//! Directories in which studies create their file sets.
//!
//! A set is stored in `sets/NAME-HASH` below the directory of its medium, where later studies with
//! the same specification can reuse it. Results are stored elsewhere.

use ioloom_failure::{quoted, reason};
use ioloom_model::FileSetSpec;
use ioloom_model::fileset::Medium;
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Default number of bytes to leave free on a file system. For a small file system, the reserve is
/// a tenth of its size.
pub const RESERVE_BYTES: u64 = 1 << 30;

/// A study medium: its name in tables and a directory on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Facts about the medium, including its name in tables.
    pub medium: Medium,
    /// Directory for sets.
    pub dir: PathBuf,
}

impl Workspace {
    /// Returns a workspace named `work` without facts about its medium.
    pub fn work(dir: &Path) -> Self {
        let medium = Medium { name: "work".to_owned(), ..Medium::default() };
        Self { medium, dir: dir.to_owned() }
    }

    /// Returns a workspace with a name for tables and the facts reported by the system.
    pub fn describe(name: &str, dir: &Path) -> Self {
        let mut place = Self::work(dir);
        place.medium.name = name.to_owned();
        if let Ok(found) = ioloom_sys::mount::medium(nearest(dir)) {
            let (major, minor) = found.mount.device;
            place.medium.device = format!("{major}:{minor}");
            place.medium.file_system.clone_from(&found.mount.file_system);
            place.medium.block_device = found.block_device;
            place.medium.scheduler = found.scheduler;
            place.medium.rotational = found.rotational;
            place.medium.read_ahead_kib = found.read_ahead_kib;
        }
        place
    }

    /// Returns the directory of a set.
    pub fn set_dir(&self, name: &str, spec: &FileSetSpec) -> PathBuf {
        // Serializing to memory cannot fail; an empty string would only change the name.
        let text = serde_json::to_vec(spec).unwrap_or_default();
        self.dir.join("sets").join(format!("{name}-{:08x}", xxh3_64(&text) as u32))
    }
}

/// Returns the bytes that must stay free on the file system of `dir`, and the bytes currently free.
/// The former is the user's request, limited to a tenth of the file system. For a missing
/// directory, uses its nearest existing ancestor.
pub(crate) fn reserve_and_free(dir: &Path, reserve_bytes: u64) -> io::Result<(u64, u64)> {
    let found = ioloom_sys::mount::space(nearest(dir)).map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("cannot read the free space of {}: {}", quoted(dir), reason(&e)),
        )
    })?;
    Ok((reserve_bytes.min(found.total_bytes / 10), found.available_bytes))
}

/// Returns the directory or its nearest existing ancestor.
fn nearest(dir: &Path) -> &Path {
    let found = dir.ancestors().find(|d| d.as_os_str().is_empty() || d.exists());
    found.filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

//! Directories in which a study makes its file sets.

use ioloom_model::FileSetSpec;
use ioloom_model::fileset::Medium;
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// What stays free on a file system unless the user says otherwise, bytes. A small file system
/// keeps a tenth of its size instead.
pub const RESERVE_BYTES: u64 = 1 << 30;

/// A medium of a study: a word for tables and a directory on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// What is known of it; the name is the word in tables.
    pub medium: Medium,
    /// Directory for sets.
    pub dir: PathBuf,
}

impl Workspace {
    /// The place with the word `work` in a directory of which nothing else is known.
    pub fn work(dir: &Path) -> Self {
        let medium = Medium { name: "work".to_owned(), ..Medium::default() };
        Self { medium, dir: dir.to_owned() }
    }

    /// A place under a word for tables, with what the system tells of the medium.
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

    /// Where a set lies on it.
    pub fn set_dir(&self, name: &str, spec: &FileSetSpec) -> PathBuf {
        // Made from text, so it cannot fail; an empty text would only give another name.
        let text = serde_json::to_vec(spec).unwrap_or_default();
        self.dir.join("sets").join(format!("{name}-{:08x}", xxh3_64(&text) as u32))
    }
}

/// What stays free on the file system of `dir`: what the user asked for, but on a small file
/// system not more than a tenth of it. The other number is what is free now. A directory that is
/// not there yet is judged by its nearest ancestor.
pub(crate) fn reserve_and_free(dir: &Path, reserve_bytes: u64) -> io::Result<(u64, u64)> {
    let found = ioloom_sys::mount::space(nearest(dir)).map_err(|e| {
        io::Error::new(e.kind(), format!("ask the free space of {}: {e}", dir.display()))
    })?;
    Ok((reserve_bytes.min(found.total_bytes / 10), found.available_bytes))
}

/// The directory itself, or its nearest ancestor that exists.
fn nearest(dir: &Path) -> &Path {
    let found = dir.ancestors().find(|d| d.as_os_str().is_empty() || d.exists());
    found.filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

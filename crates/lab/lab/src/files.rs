//! The file list of a set, for establishing and proving conditions.
//!
//! The list is packed, with names in one arena and sizes in one vector: a million files take tens
//! of megabytes without per-file allocations. It is sorted bytewise by path below the root, the
//! order in which a run processes files, so "the first N" means the same in both places.
//! [`FileList::each`] is a simple multithreaded pass that opens each file once. It evicts, reads
//! and queries files and is never used for measurements.

use ioloom_failure::{Operation, PathError};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Name of the manifest that identifies a set created by ioloom. It is not part of the set.
pub const SET_MANIFEST: &str = ".ioloom-set.json";

/// The regular files below a root, sorted bytewise by path.
#[derive(Debug, Clone)]
pub struct FileList {
    root: PathBuf,
    arena: Vec<u8>,
    items: Vec<Item>,
}

/// A file of the list.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// Where its path is in the arena.
    start: usize,
    end: usize,
    /// Its size in bytes.
    bytes: u64,
    /// Bytes that a device must deliver for it if nothing is in memory.
    stored: u64,
}

/// Returns the whole pages of a file, or what is allocated to it if that is less: holes are not stored, and
/// neither are files within their inodes.
fn stored_bytes(meta: &Metadata) -> u64 {
    const SECTOR_BYTES: u64 = 512;
    let pages = meta.len().next_multiple_of(ioloom_sys::proc::page_bytes());
    pages.min(meta.blocks() * SECTOR_BYTES)
}

impl FileList {
    /// Lists every regular file below `root`. Does not follow symbolic links.
    ///
    /// # Errors
    /// The first directory that cannot be read.
    pub fn below(root: &Path) -> Result<Self, PathError> {
        Self::list(root, |_| true)
    }

    /// Lists the files of a set, whose manifest may be in `root` and is not one of them.
    ///
    /// # Errors
    /// The first directory that cannot be read.
    pub(crate) fn of_set(root: &Path) -> Result<Self, PathError> {
        Self::list(root, |name| name != Path::new(SET_MANIFEST))
    }

    /// Lists the regular files below `root` whose path relative to it is `wanted`.
    fn list(root: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Self, PathError> {
        let mut list = Self::none(root);
        // Device and inode of those with several names.
        let mut linked: HashMap<usize, (u64, u64)> = HashMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(relative) = open.pop() {
            let dir = root.join(&relative);
            let fail = PathError::on(Operation::ReadDir, &dir);
            for entry in std::fs::read_dir(&dir).map_err(&fail)? {
                let entry = entry.map_err(&fail)?;
                let kind = entry.file_type().map_err(&fail)?;
                let name = relative.join(entry.file_name());
                if kind.is_dir() {
                    open.push(name);
                } else if kind.is_file() && wanted(&name) {
                    let start = list.arena.len();
                    list.arena.extend_from_slice(name.as_os_str().as_bytes());
                    let meta = match entry.metadata() {
                        Ok(meta) => meta,
                        Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                        Err(source) => {
                            let path = dir.join(entry.file_name());
                            return Err(PathError::new(Operation::Stat, path, source));
                        }
                    };
                    let (bytes, stored) = (meta.len(), stored_bytes(&meta));
                    list.items.push(Item { start, end: list.arena.len(), bytes, stored });
                    if meta.nlink() > 1 {
                        linked.insert(start, (meta.dev(), meta.ino()));
                    }
                }
            }
        }
        let arena = &list.arena;
        list.items.sort_unstable_by(|a, b| arena[a.start..a.end].cmp(&arena[b.start..b.end]));
        // A device delivers a file with several names once.
        let mut seen = HashSet::new();
        for item in list.items.iter_mut().filter(|_| !linked.is_empty()) {
            if linked.get(&item.start).is_some_and(|file| !seen.insert(*file)) {
                item.stored = 0;
            }
        }
        Ok(list)
    }

    /// Returns an empty list, for a study without sets.
    pub fn none(root: &Path) -> Self {
        Self { root: root.to_owned(), arena: Vec::new(), items: Vec::new() }
    }

    /// Truncates the list to `max` files if a limit is specified.
    #[must_use]
    pub fn first(mut self, max: Option<u64>) -> Self {
        if let Some(max) = max {
            self.items.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        }
        self
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the total size of the first `max` files in bytes.
    pub fn bytes(&self, max: Option<u64>) -> u64 {
        self.items[..self.count(max)].iter().map(|item| item.bytes).sum()
    }

    /// Returns the bytes that a device must deliver for the first `max` files if nothing of them is in
    /// memory: whole pages, without holes, and once for each file with several names.
    pub fn stored_bytes(&self, max: Option<u64>) -> u64 {
        self.items[..self.count(max)].iter().map(|item| item.stored).sum()
    }

    /// Returns the number of files, at most `max`.
    pub fn count(&self, max: Option<u64>) -> usize {
        max.map_or(self.len(), |m| self.len().min(usize::try_from(m).unwrap_or(usize::MAX)))
    }

    /// Returns the size of a file in bytes at the time of listing.
    pub fn size(&self, index: usize) -> u64 {
        self.items[index].bytes
    }

    /// Returns the directory that contains the files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the full path of a file.
    pub fn path(&self, index: usize) -> PathBuf {
        let Item { start, end, .. } = self.items[index];
        self.root.join(OsStr::from_bytes(&self.arena[start..end]))
    }

    /// Opens each chosen file once using `threads` threads and calls `f` with the file and its
    /// size. Stops early when `stop` is set. Skips files that no longer exist.
    ///
    /// # Errors
    /// The first failure; the pass stops soon after it.
    pub fn each<F>(
        &self,
        chosen: &[usize],
        threads: usize,
        stop: &AtomicBool,
        operation: Operation,
        f: F,
    ) -> Result<(), PathError>
    where
        F: Fn(&File, u64) -> io::Result<()> + Sync,
    {
        const BATCH: usize = 64;
        debug_assert!(chosen.iter().all(|i| *i < self.len()), "chosen index out of range");
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<PathError>> = Mutex::new(None);
        let work = || {
            loop {
                let start = next.fetch_add(BATCH, Ordering::Relaxed);
                if start >= chosen.len() || stop.load(Ordering::Relaxed) {
                    return;
                }
                for &index in &chosen[start..chosen.len().min(start + BATCH)] {
                    let path = self.path(index);
                    let done = match File::open(&path) {
                        Ok(file) => f(&file, self.size(index)),
                        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                        Err(e) => Err(e),
                    };
                    if let Err(source) = done {
                        let mut slot = failed.lock().unwrap_or_else(|e| e.into_inner());
                        slot.get_or_insert(PathError { operation, path, source });
                        next.store(chosen.len(), Ordering::Relaxed);
                        return;
                    }
                }
            }
        };
        let threads = threads.clamp(1, chosen.len().div_ceil(BATCH).max(1));
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        for (name, size) in [("b/x", 3), ("a", 1), ("b.c", 2), (SET_MANIFEST, 50)] {
            std::fs::write(dir.path().join(name), vec![7u8; size]).unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        dir
    }

    #[test]
    fn a_manifest_in_a_directory_of_the_user_is_a_file_like_any_other() {
        let dir = tree();
        std::fs::write(dir.path().join("b").join(SET_MANIFEST), "of a set below").unwrap();
        assert_eq!(FileList::below(dir.path()).unwrap().len(), 5);
        assert_eq!(FileList::of_set(dir.path()).unwrap().len(), 4);
    }

    #[test]
    fn files_are_listed_bytewise_without_links_and_manifest() {
        let dir = tree();
        let list = FileList::of_set(dir.path()).unwrap();
        let names: Vec<_> = (0..list.len()).map(|i| list.path(i)).collect();
        assert_eq!(names, ["a", "b.c", "b/x"].map(|n| dir.path().join(n)));
        assert_eq!(list.bytes(None), 6);
        assert_eq!(list.bytes(Some(2)), 3);
        assert_eq!(list.first(Some(2)).len(), 2);
    }

    #[test]
    fn a_device_delivers_whole_pages_no_holes_and_each_file_once() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let at = |name: &str| dir.path().join(name);
        let page = ioloom_sys::proc::page_bytes();
        std::fs::write(at("a"), vec![7; 200]).unwrap();
        std::fs::hard_link(at("a"), at("b")).unwrap();
        File::create(at("c")).unwrap().set_len(100 * page).unwrap();
        File::open(at("a")).unwrap().sync_all().unwrap();
        let list = FileList::below(dir.path()).unwrap();
        let small = std::fs::metadata(at("a")).unwrap().blocks() * 512;
        assert_eq!(list.bytes(None), 400 + 100 * page);
        assert_eq!(list.stored_bytes(Some(1)), page.min(small));
        assert_eq!(
            list.stored_bytes(None),
            page.min(small),
            "neither the second name nor the hole"
        );
    }

    #[test]
    fn a_pass_sees_each_chosen_file_once_and_names_the_one_that_fails() {
        let dir = tree();
        let list = FileList::of_set(dir.path()).unwrap();
        let stop = AtomicBool::new(false);
        let seen = AtomicU64::new(0);
        let count = |_: &File, size: u64| {
            seen.fetch_add(size, Ordering::Relaxed);
            Ok(())
        };
        list.each(&[0, 2], 4, &stop, Operation::Residency, count).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 4);
        let error = list
            .each(&[0, 1, 2], 2, &stop, Operation::Residency, |_, size| {
                if size == 2 { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
            })
            .unwrap_err();
        assert!(error.to_string().contains("b.c"), "{error}");
    }
}

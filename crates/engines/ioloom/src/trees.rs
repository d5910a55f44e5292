//! The entry points for trees.

use crate::error::{FileError, Operation};
use crate::files::Files;
use crate::input::Input;
use crate::tree::{Links, TreeEntry, TreeOptions, Walked, Walking};
use ioloom_walk::PathList;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Why a setting of a walk is refused.
const WALKED: &str = "known_paths() has walked the tree; call it after all settings of the walk";

/// Marks [`Files`] that are found by a walk.
#[derive(Debug)]
pub enum Tree {}

/// What [`Files::walk`] found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TreeList {
    /// The files, sorted by the bytes of their paths, as `LC_ALL=C sort` does.
    pub files: PathList,
    /// What could not be walked.
    pub errors: Vec<FileError>,
    /// What was visited and skipped.
    pub walked: Walked,
    /// Whether the walk was cancelled ([`Files::cancel`](crate::Files::cancel)), so that files may be
    /// missing.
    pub cancelled: bool,
}

/// Takes all regular files below a directory, or a single file. The tree is walked while files are
/// processed, and their order is that of the walk; see [`Files::sorted`]. Entries that are neither
/// files nor directories are skipped and counted in [`Run::walked`](crate::Run::walked).
///
/// A directory that cannot be read is a failure with [`Cause::Walk`](crate::Cause::Walk), under the
/// same policy as a file that cannot be read.
///
/// ```
/// let run = ioloom::tree("src").skip_hidden(true).map(|f| f.len()).run()?;
/// assert!(run.value.len() > 5);
/// assert_eq!(run.walked.unwrap().hidden, 0);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn tree<'a>(root: impl AsRef<Path>) -> Files<'a, Tree> {
    trees([root])
}

/// Takes all regular files below several directories. A file below two of them is processed twice.
///
/// ```
/// let files = ioloom::trees(["src", "tests"]).map(|f| f.len()).run()?.value.len();
/// assert!(files > 10);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn trees<'a, P: AsRef<Path>>(roots: impl IntoIterator<Item = P>) -> Files<'a, Tree> {
    let roots = roots.into_iter().map(|root| root.as_ref().to_owned()).collect();
    Files::new(Input::Tree(TreeOptions { roots, ..TreeOptions::default() }))
}

impl<'a> Files<'a, Tree> {
    fn with(mut self, change: impl FnOnce(&mut TreeOptions)) -> Self {
        match &mut self.input {
            Input::Tree(options) => change(options),
            _ => self.refused = Some(WALKED),
        }
        self
    }

    /// Adds a root.
    pub fn root(self, root: impl AsRef<Path>) -> Self {
        self.with(|tree| tree.roots.push(root.as_ref().to_owned()))
    }

    /// Sets whether entries whose names begin with a dot are skipped (default: no). Roots are not.
    pub fn skip_hidden(self, yes: bool) -> Self {
        self.with(|tree| tree.skip_hidden = yes)
    }

    /// Sets whether `.gitignore` and `.ignore` files are obeyed (default: no): those of the walked
    /// directories, and those above the root up to a directory with a `.git`. `.ignore` prevails
    /// over `.gitignore` in the same directory, and a deeper file prevails over one above it. Rules of
    /// `.gitignore` end at a directory with a `.git` below them. Patterns match as in git. An ignore file
    /// that cannot be read counts as a failure.
    ///
    /// ```
    /// let dir = tempfile::tempdir().unwrap();
    /// std::fs::write(dir.path().join(".gitignore"), "*.log\n").unwrap();
    /// std::fs::write(dir.path().join("a.log"), "x").unwrap();
    /// std::fs::write(dir.path().join("a.txt"), "x").unwrap();
    /// let run = ioloom::tree(dir.path())
    ///     .ignore_files(true)
    ///     .skip_hidden(true)
    ///     .map(|f| f.path().to_owned())
    ///     .run()?;
    /// assert_eq!(run.value, [dir.path().join("a.txt")]);
    /// let walked = run.walked.unwrap();
    /// assert_eq!((walked.ignored, walked.hidden), (1, 1));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn ignore_files(self, yes: bool) -> Self {
        self.with(|tree| tree.ignore_files = yes)
    }

    /// Sets a filter for entries: what it rejects is skipped, a directory with everything below it.
    /// Roots are not filtered. Threads of the walk call it concurrently.
    ///
    /// ```
    /// let run = ioloom::tree(".")
    ///     .filter_entry(|e| !e.is_dir() && e.file_name() == "Cargo.toml")
    ///     .map(|f| f.len())
    ///     .run()?;
    /// assert_eq!(run.value.len(), 1);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn filter_entry(
        self,
        filter: impl Fn(&TreeEntry<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|tree| tree.filter = Some(Arc::new(filter)))
    }

    /// Skips what is deeper: 1 is what the roots contain (default: no limit).
    pub fn max_depth(self, depth: usize) -> Self {
        self.with(|tree| tree.max_depth = Some(depth))
    }

    /// Sets whether directories on other file systems than their root are skipped (default: no).
    pub fn same_file_system(self, yes: bool) -> Self {
        self.with(|tree| tree.same_file_system = yes)
    }

    /// Sets which symbolic links are followed (default: [`Links::Skip`]).
    pub fn links(self, links: Links) -> Self {
        self.with(|tree| tree.links = links)
    }

    /// Walks the trees and reads no file. The list may then be given to
    /// [`Files::from`](crate::Files), and its length is known.
    ///
    /// ```
    /// let found = ioloom::tree("src").walk();
    /// assert!(found.errors.is_empty());
    /// assert_eq!(found.files.len() as u64, found.walked.files);
    /// let bytes: u64 = ioloom::Files::from(found.files).map(|f| f.len()).sum()?;
    /// assert!(bytes > 10_000);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn walk(self) -> TreeList {
        if let (Some(reason), Input::Begun(_, _, root)) = (self.refused, &self.input) {
            let errors = vec![FileError::rejected(0, root, Operation::Walk, reason)];
            return TreeList { errors, ..TreeList::default() };
        }
        let cancel = self.cancel.clone();
        let (found, tally) = match self.input {
            Input::Tree(options) => {
                let (walking, tally) = Walking::new(options);
                (walking.sorted(&self.cancel), Some(tally))
            }
            other => {
                let (opened, tally) = other.open(false, &self.cancel);
                (opened.found(&self.cancel), tally)
            }
        };
        if let Some(tally) = &tally {
            // A walk that was cancelled may still run.
            tally.finish();
        }
        let cancelled = cancel.is_cancelled() || tally.as_ref().is_some_and(|tally| tally.is_cut());
        let walked = tally.map(|tally| tally.walked()).unwrap_or_default();
        let mut files = found.list;
        if let Some(max) = self.files_max.filter(|max| *max < files.len() as u64) {
            let all = std::mem::take(&mut files);
            files.append_range(&all, 0..max as usize);
        }
        TreeList { files, errors: found.failed, walked, cancelled }
    }

    /// Walks for up to `time` before the first file is read (default: not at all), and finds at most
    /// 65,536 files in it. If the walk ends within `time`, the number of files is known from the start,
    /// and threads divide the list without a lock. Otherwise the rest is read while the walk goes on.
    /// Files are read in the order of inode numbers in both cases.
    ///
    /// ```
    /// use std::time::Duration;
    /// let run = ioloom::tree("src").walk_ahead(Duration::from_millis(50)).map(|f| f.len()).run()?;
    /// assert_eq!(run.value.len() as u64, run.walked.unwrap().files);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn walk_ahead(self, time: Duration) -> Self {
        self.with(|tree| tree.ahead = time)
    }

    /// Sets whether files are sorted by the bytes of their paths, as `LC_ALL=C sort` does (default: no).
    /// [`Path`] compares components: `a/x` is less than `a-b/x` there, but greater by bytes. The whole
    /// tree is then walked before the first file is read, and its paths are in memory.
    /// [`progress`](Self::progress) reports nothing until then.
    ///
    /// ```
    /// let names = ioloom::tree("src").sorted(true).map(|f| f.path().to_owned()).collect()?;
    /// assert!(names.is_sorted_by_key(|name| name.as_os_str()));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn sorted(self, yes: bool) -> Self {
        self.with(|tree| tree.sorted = yes)
    }
}

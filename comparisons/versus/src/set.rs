//! The file set, read once by the runner to determine the expected results of every arm.

use anyhow::{Context, Result, bail};
use ioloom_peers::{FileList, Totals, Walker, digest::mix};
use ioloom_versus::order::Draws;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

/// Every regular file below a directory with its size, and the digests of the whole set.
pub(crate) struct FileSet {
    files: FileList,
    sizes: Vec<u64>,
    pub(crate) totals: Totals,
    /// XXH3-64 over the sorted lines `HEX  PATH`, paths relative to the directory.
    pub(crate) combined: String,
    /// The same with absolute paths.
    pub(crate) combined_absolute: String,
    lists: TempDir,
}

impl FileSet {
    /// Reads all files of `dir`, which must not change afterwards.
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        let files = FileList::walk(dir, Walker::Walkdir)?;
        let mut totals = Totals::default();
        let (mut relative, mut absolute) = (Vec::new(), Vec::new());
        let mut sizes = Vec::with_capacity(files.len());
        for path in files.paths() {
            let bytes =
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let hash = xxh3_64(&bytes);
            let name = files.relative(path);
            totals.add(bytes.len() as u64, mix(hash, name));
            sizes.push(bytes.len() as u64);
            relative.push(line(hash, name));
            absolute.push(line(hash, path.as_os_str().as_bytes()));
        }
        let lists =
            TempDir::with_prefix("versus-").context("cannot create a temporary directory")?;
        for (name, end) in [("list", b'\n'), ("list0", 0)] {
            let mut text = Vec::new();
            for path in files.paths() {
                text.extend(path.as_os_str().as_bytes());
                text.push(end);
            }
            std::fs::write(lists.path().join(name), text).context("cannot write the list")?;
        }
        Ok(Self {
            files,
            sizes,
            totals,
            combined: digest_of_lines(relative),
            combined_absolute: digest_of_lines(absolute),
            lists,
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.files.dir()
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        self.files.paths()
    }

    pub(crate) fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Returns the list with newlines; fails if a name contains one.
    pub(crate) fn list(&self) -> Result<PathBuf> {
        if self.paths().iter().any(|p| p.as_os_str().as_bytes().contains(&b'\n')) {
            bail!("a name contains a newline; use the list with NULs (list0)");
        }
        Ok(self.lists.path().join("list"))
    }

    /// Returns the list with NULs.
    pub(crate) fn list0(&self) -> PathBuf {
        self.lists.path().join("list0")
    }

    /// Returns a sample of files with their sizes that depends only on the seed.
    pub(crate) fn sample(&self, seed: u64, count: usize) -> Vec<(&Path, u64)> {
        let chosen = Draws::new(seed, 2).sample(self.sizes.len(), count);
        chosen.into_iter().map(|i| (self.paths()[i].as_path(), self.sizes[i])).collect()
    }
}

fn line(hash: u64, path: &[u8]) -> Vec<u8> {
    let mut hex = String::with_capacity(18);
    // Writing to a string does not fail.
    let _ = write!(hex, "{hash:016x}  ");
    let mut line = hex.into_bytes();
    line.extend(path);
    line.push(b'\n');
    line
}

fn digest_of_lines(mut lines: Vec<Vec<u8>>) -> String {
    lines.sort_unstable();
    format!("{:016x}", xxh3_64(&lines.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_xxhsum_sorted_bytewise() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("d")).expect("makes a directory");
        for (name, text) in [("b", "hello\n"), ("d/a", ""), ("c", "x")] {
            std::fs::write(dir.path().join(name), text).expect("writes");
        }
        let set = FileSet::prepare(dir.path()).expect("reads the set");
        assert_eq!((set.totals.files, set.totals.bytes), (3, 7));
        let mut lines: Vec<String> = [("b", "hello\n"), ("d/a", ""), ("c", "x")]
            .iter()
            .map(|(name, text)| format!("{:016x}  {name}\n", xxh3_64(text.as_bytes())))
            .collect();
        lines.sort();
        assert!(
            lines.iter().any(|l| l == "2d06800538d394c2  d/a\n"),
            "the hash of nothing is known"
        );
        assert_eq!(set.combined, format!("{:016x}", xxh3_64(lines.concat().as_bytes())));
        assert_ne!(set.combined, set.combined_absolute);
    }
}

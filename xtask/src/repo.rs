//! The repository: where it is, which files it has, what cargo says about it.

use crate::guard;
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Directories that hold nothing written by hand.
const SKIPPED_DIRS: [&str; 8] = [
    ".git",
    "target",
    "node_modules",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/target",
    "comparisons/target",
    "results",
];

/// A checkout of this repository.
#[derive(Debug, Clone)]
pub(crate) struct Repo {
    /// Its root directory.
    pub(crate) root: PathBuf,
}

impl Repo {
    /// Finds the checkout that cargo runs in, else the one around the current directory.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let here = match std::env::var_os("CARGO_MANIFEST_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => std::env::current_dir().context("current directory")?,
        };
        for dir in here.ancestors() {
            if dir.join("xtask/Cargo.toml").is_file() && dir.join("crates").is_dir() {
                return Ok(Self { root: dir.to_owned() });
            }
        }
        bail!("{}: no checkout of ioloom here or above", here.display())
    }

    /// A file's text; bytes that are not UTF-8 are replaced.
    pub(crate) fn read(&self, file: &Path) -> anyhow::Result<String> {
        let path = self.root.join(file);
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Every file that people write, relative to the root, sorted.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut open = vec![PathBuf::new()];
        while let Some(dir) = open.pop() {
            let path = self.root.join(&dir);
            let entries =
                std::fs::read_dir(&path).with_context(|| format!("list {}", path.display()))?;
            for entry in entries {
                let entry = entry.with_context(|| format!("list {}", path.display()))?;
                let file = dir.join(entry.file_name());
                let kind = entry.file_type().with_context(|| format!("{}", file.display()))?;
                // In a further working tree of git `.git` is a file.
                if kind.is_file() && file != Path::new(".git") {
                    found.push(file);
                } else if kind.is_dir() && !is_skipped(&file) {
                    open.push(file);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the folders of the crates, relative to the root: `crates/FLOOR/NAME`, and `xtask`.
    pub(crate) fn crates(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut found = vec![PathBuf::from("xtask")];
        for floor in self.folders(Path::new("crates"))? {
            for dir in self.folders(&floor)? {
                if self.root.join(&dir).join("Cargo.toml").is_file() {
                    found.push(dir);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the folders in `dir`, relative to the root.
    fn folders(&self, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let path = self.root.join(dir);
        let list = || format!("list {}", path.display());
        for entry in std::fs::read_dir(&path).with_context(list)? {
            let entry = entry.with_context(list)?;
            if entry.path().is_dir() {
                found.push(dir.join(entry.file_name()));
            }
        }
        Ok(found)
    }

    /// What `cargo metadata` says about the members of the workspace alone.
    pub(crate) fn metadata_of_members(&self) -> anyhow::Result<Value> {
        self.metadata(&["--no-deps", "--offline"])
    }

    /// The same with all dependencies for this machine's system. Looks at the network only if
    /// something was never downloaded.
    pub(crate) fn metadata_of_all(&self) -> anyhow::Result<Value> {
        let host = rustc_host(&self.root)?;
        let args = ["--locked", "--filter-platform", host.as_str()];
        let offline = [&args[..], &["--offline"]].concat();
        self.metadata(&offline).or_else(|_| self.metadata(&args))
    }

    /// Where cargo builds.
    pub(crate) fn target_dir(&self) -> anyhow::Result<PathBuf> {
        let metadata = self.metadata_of_members()?;
        let dir = metadata["target_directory"].as_str().context("metadata names no target")?;
        Ok(PathBuf::from(dir))
    }

    fn metadata(&self, args: &[&str]) -> anyhow::Result<Value> {
        let args = [&["metadata", "--format-version", "1"], args].concat();
        let json = guard::ask("cargo", &args, &self.root)?;
        serde_json::from_str(&json).context("cargo metadata")
    }
}

fn is_skipped(dir: &Path) -> bool {
    // The published tables of a study are copied text.
    let is_data = dir.starts_with("studies") && dir.file_name().is_some_and(|n| n == "data");
    is_data
        || SKIPPED_DIRS.iter().any(|s| dir == Path::new(s))
        || dir.file_name().is_some_and(|n| n == "node_modules" || n == "target")
}

/// What `rustc --version` says.
pub(crate) fn rustc_version(root: &Path) -> anyhow::Result<String> {
    Ok(guard::ask("rustc", &["--version"], root)?.trim().to_owned())
}

fn rustc_host(root: &Path) -> anyhow::Result<String> {
    let text = guard::ask("rustc", &["-vV"], root)?;
    let host = text.lines().find_map(|l| l.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_sees_what_is_written_and_nothing_else() {
        let repo = Repo::find().unwrap();
        let files = repo.files().unwrap();
        assert!(files.contains(&PathBuf::from("xtask/src/repo.rs")));
        assert!(files.contains(&PathBuf::from("Cargo.toml")));
        assert!(!files.iter().any(|f| f.starts_with("target") || f.starts_with(".git")));
    }
}

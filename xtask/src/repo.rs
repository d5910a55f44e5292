//! The repository: its location, its files, and its cargo metadata.

use crate::guard;
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Directories without hand-written files.
const SKIPPED_DIRS: [&str; 9] = [
    ".git",
    "target",
    "node_modules",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/target",
    "comparisons/target",
    "guide/target",
    "results",
];

/// A checkout of this repository.
#[derive(Debug, Clone)]
pub(crate) struct Repo {
    /// Its root directory.
    pub(crate) root: PathBuf,
}

impl Repo {
    /// Returns the checkout that cargo runs in, or else the one that contains the current
    /// directory.
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
        bail!("{}: not inside a checkout of ioloom", here.display())
    }

    /// Reads a file; bytes that are not UTF-8 are replaced.
    pub(crate) fn read(&self, file: &Path) -> anyhow::Result<String> {
        let path = self.root.join(file);
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Lists every hand-written file, relative to the root, sorted.
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
                // In a linked working tree `.git` is a file.
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
    pub(crate) fn folders(&self, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
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

    /// Returns the cargo metadata of the workspace members.
    pub(crate) fn metadata_of_members(&self) -> anyhow::Result<Value> {
        self.metadata(&["--no-deps", "--offline"])
    }

    /// Returns the cargo metadata of the packages to publish: the members without `publish = false`.
    pub(crate) fn published(&self) -> anyhow::Result<Vec<Value>> {
        let mut metadata = self.metadata_of_members()?;
        let Value::Array(mut packages) = metadata["packages"].take() else {
            bail!("cargo metadata has no packages");
        };
        packages.retain(|package| package["publish"].is_null());
        Ok(packages)
    }

    /// Returns the directory that cargo builds in.
    pub(crate) fn target_dir(&self) -> anyhow::Result<PathBuf> {
        let metadata = self.metadata_of_members()?;
        let dir = metadata["target_directory"]
            .as_str()
            .context("cargo metadata has no target_directory")?;
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

/// Returns the output of `rustc --version`.
pub(crate) fn rustc_version(root: &Path) -> anyhow::Result<String> {
    Ok(guard::ask("rustc", &["--version"], root)?.trim().to_owned())
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

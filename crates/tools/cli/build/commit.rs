//! Finds the commit a program is built from and detects local changes.
//!
//! A digest of local changes in the version distinguishes two builds of the same commit. Only files
//! that are compiled in count; notes, results and tests do not. Ignored and untracked files count
//! only in source directories.
//!
//! Cargo reruns a build script and rebuilds the program when a file named by the script changes.
//! The files named here trigger a rebuild anyway, so this adds no rebuilds. Without git, or in a copy
//! of the source inside another repository, the version has no commit.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiled-in paths, in the root and in each directory below `crates`.
const OF_ROOT: [&str; 5] = [".cargo", "Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "studies"];
const OF_CRATE: [&str; 5] = ["Cargo.toml", "assets", "build", "build.rs", "src"];

/// The version of a program, and the files it depends on.
#[derive(Debug)]
pub(crate) struct Built {
    /// `0.1.0 (499dfe3589)`, `0.1.0 (499dfe3589, changed 1b2c3d4e)`, or `0.1.0`.
    pub(crate) version: String,
    /// Existing files and directories that affect the version.
    pub(crate) watched: Vec<PathBuf>,
}

/// Examines the source in `root`, the top level of a clone or linked worktree.
pub(crate) fn built(root: &Path, version: &str) -> Built {
    let without_commit = Built { version: version.to_owned(), watched: Vec::new() };
    let top = git(root, &["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    if top.and_then(|top| top.canonicalize().ok()) != root.canonicalize().ok() {
        return without_commit;
    }
    let Some(commit) = git(root, &["rev-parse", "--short=10", "HEAD"]) else {
        return without_commit;
    };
    let version = match changes(root) {
        Some(changes) if changes.is_empty() => format!("{version} ({commit})"),
        Some(changes) => format!("{version} ({commit}, changed {})", digest(root, &changes)),
        None => format!("{version} ({commit}, perhaps changed)"),
    };
    Built { version, watched: watched(root) }
}

/// Returns the program's source files that differ from the commit or are not in it.
fn changes(root: &Path) -> Option<BTreeSet<String>> {
    let mut places: Vec<String> = OF_ROOT.map(str::to_owned).to_vec();
    for place in OF_CRATE {
        places.extend([
            format!(":(glob)crates/*/*/{place}"),
            format!(":(glob)crates/*/*/{place}/**"),
        ]);
    }
    let list = |args: &[&str]| {
        let places = places.iter().map(String::as_str);
        git(root, &args.iter().copied().chain(["--"]).chain(places).collect::<Vec<_>>())
    };
    let tracked = list(&["diff", "--no-ext-diff", "--no-renames", "--name-only", "-z", "HEAD"])?;
    let others = list(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    let names = tracked.split('\0').chain(others.split('\0'));
    Some(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Returns a digest of the changes.
fn digest(root: &Path, changes: &BTreeSet<String>) -> String {
    let mut hasher = DefaultHasher::new();
    for name in changes {
        hasher.write(name.as_bytes());
        // Removing a file is a change too.
        match std::fs::read(root.join(name)) {
            Ok(bytes) => {
                hasher.write_usize(bytes.len());
                hasher.write(&bytes);
            }
            Err(_) => hasher.write_u8(0),
        }
    }
    format!("{:08x}", hasher.finish() as u32)
}

fn watched(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref()) {
        // In a linked worktree these files are in the main repository.
        let path = git(root, &["rev-parse", "--git-path", name]);
        all.extend(path.map(|path| root.join(path)));
    }
    all.extend(OF_ROOT.map(|name| root.join(name)));
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let floors = entries(root.join("crates"));
    let mut crates: Vec<PathBuf> =
        floors.flat_map(|floor| entries(floor.path())).map(|entry| entry.path()).collect();
    crates.sort();
    for dir in crates {
        all.extend(OF_CRATE.map(|name| dir.join(name)));
    }
    // Cargo treats a missing file as permanently changed.
    all.retain(|path| path.exists());
    all
}

/// Returns the output of git in `root`, independent of git's environment variables; `None` if it
/// fails.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(variable);
    }
    // Read-only calls must not wait for locks.
    let out = command.env("GIT_OPTIONAL_LOCKS", "0").current_dir(root).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

//! Which commit a program is built from, and whether what it is built from differs from it.
//!
//! A changed tree is marked with a digest of what changed, so that two programs of one commit are not
//! taken for the same. Only what goes into the program counts: notes, results and tests may change.
//! Of files that git ignores or was never told of only those in the places of sources count.
//!
//! Cargo runs a build script again when a file that it names changed, and then compiles the program
//! again. The files here are those of which a change compiles it again anyway, so nothing is built more
//! often than before. What cannot be found out is left out: without git, or in a copy of the source
//! inside another repository, the version stands alone.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What goes into the program: in the root, and in each folder of `crates`.
const OF_ROOT: [&str; 5] = [".cargo", "Cargo.lock", "Cargo.toml", "rust-toolchain.toml", "studies"];
const OF_CRATE: [&str; 5] = ["Cargo.toml", "assets", "build", "build.rs", "src"];

/// What is told of a program, and what it rests on.
#[derive(Debug)]
pub(crate) struct Built {
    /// `0.1.0 (499dfe3589)`, `0.1.0 (499dfe3589, changed 1b2c3d4e)`, or `0.1.0`.
    pub(crate) version: String,
    /// Files and directories of which a change may change it; each of them is there.
    pub(crate) watched: Vec<PathBuf>,
}

/// Looks at the source in `root`, the top of a clone or of one of its further working trees.
pub(crate) fn built(root: &Path, version: &str) -> Built {
    let alone = Built { version: version.to_owned(), watched: Vec::new() };
    let top = git(root, &["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    if top.and_then(|top| top.canonicalize().ok()) != root.canonicalize().ok() {
        return alone;
    }
    let Some(commit) = git(root, &["rev-parse", "--short=10", "HEAD"]) else { return alone };
    let version = match changes(root) {
        Some(changes) if changes.is_empty() => format!("{version} ({commit})"),
        Some(changes) => format!("{version} ({commit}, changed {})", digest(root, &changes)),
        None => format!("{version} ({commit}, perhaps changed)"),
    };
    Built { version, watched: watched(root) }
}

/// Files of the program that are not as in the commit, or not in it.
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

/// The same for the same changes.
fn digest(root: &Path, changes: &BTreeSet<String>) -> String {
    let mut hasher = DefaultHasher::new();
    for name in changes {
        hasher.write(name.as_bytes());
        // A file that is gone is a change as well.
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
        // In a further working tree of a clone these lie elsewhere.
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
    // What is not there would count as changed each time.
    all.retain(|path| path.exists());
    all
}

/// What git says, in this directory and whatever it was told of others; `None` if it fails.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    for told in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(told);
    }
    // It looks and changes nothing, so it waits for nobody.
    let out = command.env("GIT_OPTIONAL_LOCKS", "0").current_dir(root).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

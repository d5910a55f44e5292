//! The version computed by the build script: in a clone, in a linked worktree, and outside git.

#[path = "../../build/commit.rs"]
mod commit;

use commit::built;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Runs git with a fixed identity.
fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(variable);
    }
    let own = ["-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false"];
    let out = command.current_dir(dir).args(own).args(args).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Creates a source tree with the layout of this repository.
fn source(root: &Path) {
    for name in ["Cargo.toml", "README.md", "crates/f/a/src/lib.rs", "crates/f/a/tests/a.rs"] {
        write(root, name, "first\n");
    }
}

fn commit_all(root: &Path) {
    git(root, &["init", "--quiet"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "-m", "all"]);
}

/// Returns the version with commit and digest replaced by words. Asserts that every watched path
/// exists.
fn said(root: &Path) -> String {
    let built = built(root, "0.1.0");
    assert!(built.watched.iter().all(|path| path.exists()), "{built:?}");
    let hex = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
    let words: Vec<&str> = built.version.split(' ').collect();
    match words[..] {
        ["0.1.0", commit] if hex(&commit[1..commit.len() - 1], 10) => "COMMIT".to_owned(),
        ["0.1.0", commit, "changed", changes] => {
            let digest = changes.strip_suffix(')').unwrap();
            assert!(commit.ends_with(',') && hex(digest, 8), "{built:?}");
            format!("changed {digest}")
        }
        _ => built.version,
    }
}

#[test]
fn a_changed_tree_differs_from_its_commit_and_from_other_changes() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    source(root);
    commit_all(root);
    assert_eq!(said(root), "COMMIT");
    let log = built(root, "0.1.0").watched.contains(&root.join(".git/logs/HEAD"));
    assert!(log, "a commit changes the version");
    // Changes to files that are not compiled in do not count.
    write(root, "README.md", "second\n");
    write(root, "results/new/raw.jsonl", "{}\n");
    write(root, "crates/f/a/tests/a.rs", "second\n");
    write(root, "crates/f/a/.tmp1/left", "by a test\n");
    assert_eq!(said(root), "COMMIT");
    let mut all = Vec::new();
    let mut changed = || {
        let said = said(root);
        assert!(said.starts_with("changed ") && !all.contains(&said), "{said} {all:?}");
        all.push(said.clone());
        said
    };
    write(root, "crates/f/a/src/lib.rs", "second\n");
    let second = changed();
    write(root, "crates/f/a/src/lib.rs", "third\n");
    changed();
    git(root, &["add", "crates/f/a/src/lib.rs"]);
    write(root, "crates/f/a/src/new.rs", "a new file\n");
    changed();
    fs::remove_file(root.join("crates/f/a/src/new.rs")).unwrap();
    fs::remove_file(root.join("Cargo.toml")).unwrap();
    changed();
    write(root, "Cargo.toml", "first\n");
    write(root, "crates/f/a/src/lib.rs", "second\n");
    assert_eq!(said(root), second, "the same changes give the same version");
    write(root, "crates/f/a/src/lib.rs", "first\n");
    assert_eq!(said(root), "COMMIT");
}

#[test]
fn a_linked_worktree_has_its_own_commit_and_changes() {
    let dir = TempDir::new().unwrap();
    let (root, other) = (dir.path().join("clone"), dir.path().join("other"));
    source(&root);
    commit_all(&root);
    git(&root, &["worktree", "add", "--quiet", "-b", "side", "../other"]);
    write(&root, "crates/f/a/src/lib.rs", "second\n");
    assert!(said(&root).starts_with("changed "));
    assert_eq!(said(&other), "COMMIT");
    write(&other, "crates/f/a/src/lib.rs", "third\n");
    assert!(said(&other).starts_with("changed "));
    git(&other, &["add", "."]);
    git(&other, &["commit", "--quiet", "-m", "side"]);
    assert_eq!(said(&other), "COMMIT");
    let version = |root| built(root, "0.1.0").version;
    let [of_clone, of_other] = [&root, &other].map(|root| version(root)[7..17].to_owned());
    assert_ne!(of_clone, of_other);
    let watched = built(&other, "0.1.0").watched;
    assert!(watched.iter().any(|path| path.ends_with("worktrees/other/HEAD")), "{watched:?}");
}

#[test]
fn outside_a_clone_the_version_has_no_commit() {
    let dir = TempDir::new().unwrap();
    let (outside, inside) = (dir.path().join("outside"), dir.path().join("other/vendor/ioloom"));
    source(&outside);
    source(&inside);
    commit_all(&dir.path().join("other"));
    for root in [&outside, &inside] {
        let built = built(root, "0.1.0");
        assert_eq!((built.version.as_str(), built.watched.len()), ("0.1.0", 0));
    }
    // There is no commit yet.
    git(&outside, &["init", "--quiet"]);
    assert_eq!(built(&outside, "0.1.0").version, "0.1.0");
}

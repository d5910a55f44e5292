//! Counters of the JSON document.

use crate::{cp, place, said};
use std::fs;
use std::os::unix::fs::symlink;

/// Goal: each entry is counted by what was made of it. Method: a tree of three files, a symlink and two directories.
#[test]
fn links_and_attributes_are_counted_as_what_they_are() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    for name in ["src/a", "src/b", "src/sub/c"] {
        fs::write(at(name), name).unwrap();
    }
    symlink("a", at("src/link")).unwrap();
    let source = at("src").display().to_string();
    for (flags, files, hard_links, symlinks) in [
        (&["-r"][..], 3, 0, 1),
        (&["-rs"], 0, 0, 4),
        (&["-rl"], 0, 4, 0),
        (&["-r", "--attributes-only"], 3, 0, 1),
    ] {
        let args = [flags, &["--json", "-T", source.as_str(), "copy"]].concat();
        let output = cp(dir.path(), &args);
        assert!(output.status.success(), "{flags:?}: {}", said(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = |field: &str| document[field].as_u64().unwrap();
        let counts = ["files", "hard_links", "symlinks", "directories"].map(count);
        assert_eq!(counts, [files, hard_links, symlinks, 2], "{flags:?}");
        fs::remove_dir_all(at("copy")).unwrap();
    }
}

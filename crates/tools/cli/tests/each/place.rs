//! A directory with files of every kind, and `ioloom each` in it.

pub(crate) use ioloom_testbed::{ProcessOutput, Workspace, fed};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ioloom");

/// A directory of a test.
pub(crate) fn fresh() -> Workspace {
    Workspace::new(PROGRAM)
}

/// Operations of these tests on such a directory.
pub(crate) trait Each {
    /// Runs `each` in this directory.
    fn each<S: AsRef<OsStr>>(&self, args: &[S]) -> ProcessOutput;

    /// Runs `each` with input on its standard input.
    fn each_of<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> ProcessOutput;
}

impl Each for Workspace {
    fn each<S: AsRef<OsStr>>(&self, args: &[S]) -> ProcessOutput {
        self.ours(&["each"]).args(args).output().unwrap().into()
    }

    fn each_of<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> ProcessOutput {
        fed(self.ours(&["each"]).args(args), input)
    }
}

/// Returns every regular file below a directory, relative to it; a file returns itself.
pub(crate) fn regular_files(root: &Path) -> Vec<OsString> {
    fn below(dir: &Path, prefix: &[u8], found: &mut Vec<OsString>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let name = [prefix, entry.file_name().as_bytes()].concat();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                below(&entry.path(), &[&name[..], b"/"].concat(), found);
            } else if kind.is_file() {
                found.push(OsString::from_vec(name));
            }
        }
    }
    let mut found = Vec::new();
    below(root, b"", &mut found);
    found
}

/// Returns the combined digest by its definition, from names as shown and paths.
pub(crate) fn digest_of(files: &[(Vec<u8>, PathBuf)]) -> String {
    let mut lines: Vec<Vec<u8>> = files
        .iter()
        .map(|(name, path)| {
            let hash = format!("{:016x}  ", xxh3_64(&fs::read(path).unwrap()));
            [hash.as_bytes(), name, b"\n"].concat()
        })
        .collect();
    lines.sort();
    format!("{:016x}", xxh3_64(&lines.concat()))
}

/// Returns the digest of one directory.
pub(crate) fn digest_of_tree(root: &Path) -> String {
    let files: Vec<_> = regular_files(root)
        .into_iter()
        .map(|name| (name.as_bytes().to_vec(), root.join(&name)))
        .collect();
    digest_of(&files)
}

/// Returns whether a program is installed.
pub(crate) fn there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: no {program} here");
    }
    there
}

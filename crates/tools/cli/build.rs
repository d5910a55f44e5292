//! Adds the commit, and a mark for local changes, to the program version. Every record contains this
//! version and so identifies the source it measured.

#![allow(clippy::print_stdout, reason = "cargo reads the output of build scripts")]

#[path = "build/commit.rs"]
mod commit;

use std::path::Path;

fn main() {
    let built = commit::built(Path::new("../../.."), env!("CARGO_PKG_VERSION"));
    for path in &built.watched {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/commit.rs");
    println!("cargo::rustc-env=IOLOOM_VERSION={}", built.version);
}

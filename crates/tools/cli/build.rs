//! Gives the program its version with the commit it was built from, and a mark if its source was
//! changed since, so that every record says which source measured it.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

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

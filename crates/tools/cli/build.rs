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
    if has_fixed_address() {
        println!("cargo::rustc-link-arg-bin=ioloom=-no-pie");
    }
}

/// Reports whether the program is linked for a fixed address. The dynamic linker would otherwise correct
/// some 45,000 addresses at each start, which takes longer than copying a few files
/// (docs/decisions/055.md).
fn has_fixed_address() -> bool {
    let is = |name: &str, values: &[&str]| {
        let value = std::env::var(name).unwrap_or_default();
        values.contains(&value.as_str())
    };
    is("CARGO_CFG_TARGET_OS", &["linux"])
        && is("CARGO_CFG_TARGET_ENV", &["gnu"])
        && is("CARGO_CFG_TARGET_ARCH", &["x86_64", "aarch64"])
}

//! Passes the optimisation level to the crate, which reports it.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo:rustc-env=IOLOOM_OPT_LEVEL={level}");
}

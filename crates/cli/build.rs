//! Gives the program its version with the commit it was built from, so that every record says
//! which source measured it. Without git, or outside a clone, the version stands alone.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new("../..");
    for name in ["HEAD", "logs/HEAD"] {
        // In a second working tree of a clone these lie elsewhere.
        let path = git(&["rev-parse", "--git-path", name]).map(PathBuf::from);
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    // A copy of the source inside another repository has no commit of its own.
    let top = git(&["rev-parse", "--show-toplevel"]).map(PathBuf::from);
    let ours = top.and_then(|top| top.canonicalize().ok()) == root.canonicalize().ok();
    let version = match git(&["rev-parse", "--short=10", "HEAD"]) {
        Some(commit) if ours => format!("{version} ({commit})"),
        _ => version.to_owned(),
    };
    println!("cargo::rustc-env=IOLOOM_VERSION={version}");
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| out.status.success() && !text.is_empty())
}

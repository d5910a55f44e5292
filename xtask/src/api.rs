//! The public interface of the library: `cargo xtask api` compares it with a committed list, and
//! `cargo xtask semver` with an earlier version.
//!
//! The list has one line per public item with its signature, from `cargo public-api`, which reads the
//! JSON of nightly rustdoc. So a change of the interface is a line in the diff of its commit. Both
//! tools are skipped where they are not installed: they take minutes to build.

use crate::guard::{self, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;
use std::collections::BTreeSet;

/// The committed list.
const FILE: &str = "crates/engines/ioloom/public-api.txt";
const INSTALL: &str = "cargo install cargo-public-api --locked --debug";
/// Lists the items that the library itself declares, without what the compiler or derives add.
const LIST: &str = "public-api -p ioloom --simplified --simplified --simplified --color never";
/// Differences that are printed.
const SHOWN_MAX: usize = 40;

/// Compares the interface with the list, or writes the list.
pub(crate) fn run(repo: &Repo, bless: bool) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(repo) {
        return Ok(Outcome::Skipped(missing));
    }
    let words: Vec<&str> = LIST.split(' ').collect();
    let now = match guard::ask("cargo", &words, &repo.root) {
        Ok(text) => lines(&text),
        // The format of the JSON changes with nightly, and the tool follows.
        Err(error) if format!("{error:#}").contains("format version") => {
            let text =
                "the installed cargo-public-api does not fit the installed nightly".to_owned();
            return Ok(Outcome::Skipped(text));
        }
        Err(error) => return Ok(Outcome::Failed(format!("{error:#}"))),
    };
    let path = repo.root.join(FILE);
    if bless {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).with_context(|| format!("write {FILE}"))?;
        return Ok(Outcome::Passed(format!("{} items written", now.len())));
    }
    let kept = std::fs::read_to_string(&path).with_context(|| format!("read {FILE}"))?;
    let differences = differences(&lines(&kept), &now);
    for line in differences.iter().take(SHOWN_MAX) {
        println!("{line}");
    }
    Ok(match differences.len() {
        0 => Outcome::Passed(format!("{} items", now.len())),
        n => Outcome::Failed(format!(
            "{n} lines differ from {FILE}; if intended, run `cargo xtask api --bless`"
        )),
    })
}

/// Looks for changes since a tag or commit that the version number does not permit.
pub(crate) fn semver(repo: &Repo, since: &str) -> anyhow::Result<Outcome> {
    if guard::ask("cargo", &["semver-checks", "--version"], &repo.root).is_err() {
        let install = "cargo install cargo-semver-checks --locked";
        return Ok(Outcome::Skipped(format!("cargo-semver-checks is missing; run: {install}")));
    }
    let args = ["semver-checks", "-p", "ioloom", "--baseline-rev", since];
    let ended = Job::new("cargo", &args, &repo.root, 1800).run()?;
    Ok(if ended.fine() { Outcome::Passed(String::new()) } else { Outcome::Failed(ended.word()) })
}

/// Returns what is missing to list the interface.
fn missing(repo: &Repo) -> Option<String> {
    let works = |args: &[&str]| guard::ask("cargo", args, &repo.root).is_ok();
    if !works(&["+nightly", "--version"]) {
        Some("nightly is missing; run: rustup toolchain install nightly".to_owned())
    } else if !works(&["public-api", "--version"]) {
        Some(format!("cargo-public-api is missing; run: {INSTALL}"))
    } else {
        None
    }
}

/// Returns the items, sorted.
fn lines(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// Returns the lines that were removed and added.
fn differences(kept: &BTreeSet<String>, now: &BTreeSet<String>) -> Vec<String> {
    let removed = kept.difference(now).map(|line| format!("- {line}"));
    removed.chain(now.difference(kept).map(|line| format!("+ {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_added_and_changed_items_differ() {
        let kept = lines("pub fn a::f()\n\npub fn a::g(u8)\n");
        assert!(differences(&kept, &lines("pub fn a::g(u8)\npub fn a::f()")).is_empty());
        let found = differences(&kept, &lines("pub fn a::g(u16)\npub mod a::b\npub fn a::f()"));
        assert_eq!(found, ["- pub fn a::g(u8)", "+ pub fn a::g(u16)", "+ pub mod a::b"]);
    }
}

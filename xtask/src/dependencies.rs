//! Dependency rules, checked by cargo-deny using `deny.toml`: licences, bans and sources, and known
//! vulnerabilities if the advisory database is reachable.
//!
//! If cargo-deny is missing, cargo installs it in a single attempt, which takes about a minute,
//! once per machine.

use crate::guard::{Background, Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;

/// Installs the tool without optimization, which halves the build time, and without features that
/// need a C library.
const INSTALL: &str = "install cargo-deny --locked --debug --no-default-features";

/// Starts to install the tool in the background if it is missing.
pub(crate) fn install(repo: &Repo) -> anyhow::Result<Option<Background>> {
    if is_installed(repo)? {
        return Ok(None);
    }
    let args: Vec<&str> = INSTALL.split(' ').collect();
    Ok(Some(Job::new("cargo", &args, &repo.root, 1200).in_background()))
}

/// Checks licences, bans and sources, after the installation has ended.
pub(crate) fn check(repo: &Repo, installing: Option<Background>) -> anyhow::Result<Outcome> {
    if let Some(installing) = installing {
        installing.join()?;
        if !is_installed(repo)? {
            return Ok(Outcome::Skipped(format!("cargo-deny is missing; run: cargo {INSTALL}")));
        }
    }
    let ended = cargo(repo, "deny check licenses bans sources", 300)?;
    Ok(if ended.fine() { Outcome::Passed(String::new()) } else { Outcome::Failed(ended.word()) })
}

/// Checks for known vulnerabilities; skipped if the database cannot be fetched.
pub(crate) fn advisories(repo: &Repo) -> anyhow::Result<Outcome> {
    if !is_installed(repo)? {
        return Ok(Outcome::Skipped("cargo-deny is missing".to_owned()));
    }
    Ok(judge(&cargo(repo, "deny check advisories", 300)?))
}

fn judge(ended: &Ended) -> Outcome {
    if ended.fine() {
        return Outcome::Passed(String::new());
    }
    let unreachable = |line: &String| line.contains("failed to fetch advisory database");
    match ended.lines.iter().any(unreachable) {
        true => Outcome::Skipped("the advisory database cannot be fetched".to_owned()),
        false => Outcome::Failed(ended.word()),
    }
}

/// Prints every licence with the crates that use it.
pub(crate) fn list(repo: &Repo) -> anyhow::Result<bool> {
    Ok(cargo(repo, "deny list", 300)?.fine())
}

fn is_installed(repo: &Repo) -> anyhow::Result<bool> {
    Ok(cargo(repo, "deny --version", 60)?.fine())
}

fn cargo(repo: &Repo, line: &str, limit_s: u64) -> anyhow::Result<Ended> {
    let args: Vec<&str> = line.split(' ').collect();
    Job::new("cargo", &args, &repo.root, limit_s).run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Tests;

    fn ended(code: i32, line: &str) -> Ended {
        Ended { code, killed: None, lines: [line.to_owned()].into(), tests: Tests::default() }
    }

    #[test]
    fn only_a_missing_database_is_skipped() {
        assert!(matches!(judge(&ended(0, "advisories ok")), Outcome::Passed(_)));
        let offline = "[ERROR] failed to fetch advisory database https://x.invalid/db with cli";
        assert!(matches!(judge(&ended(1, offline)), Outcome::Skipped(_)));
        assert!(matches!(judge(&ended(1, "advisories FAILED")), Outcome::Failed(_)));
    }
}

//! `cargo xtask soak`: repeats test suites for a given time.
//!
//! Some bugs appear once in a thousand runs: a thread interleaving, an unlucky property test case,
//! a kill at the wrong time. So the suites with threads, randomness or kills run repeatedly, and
//! the first failure stops the run and reports the round number and the test names. Property tests
//! draw new cases in each round. The number of passes is printed; time only decides when to stop,
//! never whether a test passes.

use crate::guard::Job;
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::ensure;
use std::time::{Duration, Instant};

/// Default number of minutes.
pub(crate) const MINUTES: u64 = 10;
/// Time limit in seconds for one round of one suite.
const LIMIT_S: u64 = 900;

/// Packages whose tests use threads, randomness or kills.
const SUITES: [&str; 7] = [
    "ioloom",
    "ioloom-budget",
    "ioloom-control",
    "ioloom-walk",
    "ioloom-fileset",
    "ioloom-lab",
    "ioloom-claims",
];

/// Repeats the specified suites (default: [`SUITES`]) until the time is up.
pub(crate) fn run(repo: &Repo, minutes: u64, named: &[&str]) -> anyhow::Result<Outcome> {
    let suites = if named.is_empty() { &SUITES[..] } else { named };
    let known = packages(repo)?;
    for suite in suites {
        ensure!(
            known.iter().any(|name| name == suite),
            "no package '{suite}'; known: {}",
            known.join(", ")
        );
    }
    let limit = Duration::from_secs(60 * minutes);
    let start = Instant::now();
    let mut passed = 0;
    let mut rounds = 0u64;
    loop {
        for suite in suites {
            let ended = Job::new("cargo", &arguments(suite), &repo.root, LIMIT_S).run()?;
            passed += ended.tests.passed;
            if !ended.fine() {
                let failed = ended.tests.failed.join(", ");
                let word = ended.word();
                return Ok(Outcome::Failed(format!("{suite}, round {rounds}: {word} {failed}")));
            }
            if start.elapsed() >= limit && rounds > 0 {
                break;
            }
        }
        rounds += 1;
        if start.elapsed() >= limit {
            return Ok(Outcome::Passed(format!("{rounds} rounds, {passed} tests passed")));
        }
    }
}

/// The tests of a package. Doctests are excluded because they are compiled in each round.
fn arguments(suite: &str) -> [&str; 6] {
    ["test", "--locked", "--package", suite, "--lib", "--tests"]
}

fn packages(repo: &Repo) -> anyhow::Result<Vec<String>> {
    let metadata = repo.metadata_of_members()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages.filter_map(|p| Some(p["name"].as_str()?.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_are_packages() {
        let known = packages(&Repo::find().unwrap()).unwrap();
        for suite in SUITES {
            assert!(known.iter().any(|name| name == suite), "{suite}");
        }
    }

    #[test]
    fn an_unknown_suite_is_named_with_the_known_ones() {
        let error = run(&Repo::find().unwrap(), 0, &["nothing"]).unwrap_err().to_string();
        assert!(error.contains("'nothing'") && error.contains("ioloom-lab"), "{error}");
    }
}

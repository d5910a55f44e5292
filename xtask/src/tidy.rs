//! `cargo xtask tidy`: the rules of this repository that no compiler checks.
//!
//! Each rule is a function from the files to findings; the same functions run as a test of this
//! crate, so `cargo test` refuses what tidy refuses. Rules read text, not types: a little lexer
//! takes comments and strings out where that matters.

mod arrows;
mod documents;
mod links;
mod purity;
mod rust_source;
mod sizes;
mod words;

use crate::licence;
use crate::repo::Repo;
use crate::steps::Outcome;
use std::path::{Path, PathBuf};

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where: `file:line`, a crate or a dependency.
    place: String,
    /// What is wrong, and what to do.
    text: String,
    /// Printed, but no failure.
    warning: bool,
}

impl Finding {
    fn refuse(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into(), warning: false }
    }

    fn warn(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into(), warning: true }
    }

    fn at(file: &Path, line: usize, text: impl Into<String>) -> Self {
        Self::refuse(format!("{}:{line}", file.display()), text)
    }
}

/// A text file of the repository.
#[derive(Debug, Clone)]
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|e| e == extension)
    }

    fn is_under(&self, dir: &str) -> bool {
        self.path.starts_with(dir)
    }
}

/// Kinds of files that people write and that are therefore read.
const TEXT_KINDS: [&str; 12] =
    ["rs", "ts", "mjs", "toml", "md", "html", "css", "json", "sh", "yml", "lock", "svg"];

fn sources(repo: &Repo) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    for path in repo.files()? {
        let kind = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if TEXT_KINDS.contains(&kind.as_str()) || path.starts_with(".ci") {
            found.push(Source { text: repo.read(&path)?, path });
        }
    }
    Ok(found)
}

/// Everything that is wrong, refusals first.
pub(crate) fn check(repo: &Repo) -> anyhow::Result<Vec<Finding>> {
    let sources = sources(repo)?;
    let mut findings = arrows::check(repo)?;
    findings.extend(purity::check(&sources));
    findings.extend(sizes::check(&sources));
    findings.extend(words::check(&sources));
    findings.extend(links::check(repo, &sources));
    findings.extend(documents::check(repo, &sources)?);
    let (licences, _) = licence::check(&repo.metadata_of_all()?)?;
    findings.extend(licences.into_iter().map(|text| Finding::refuse("dependencies", text)));
    findings.sort_by_key(|f| f.warning);
    Ok(findings)
}

/// Prints the findings and says how many there are.
pub(crate) fn outcome(findings: &[Finding]) -> Outcome {
    for finding in findings {
        let word = if finding.warning { "warning: " } else { "" };
        println!("{}: {word}{}", finding.place, finding.text);
    }
    let refused = findings.iter().filter(|f| !f.warning).count();
    let warned = findings.len() - refused;
    if refused == 0 {
        Outcome::Passed(format!("{warned} warnings"))
    } else {
        Outcome::Failed(format!("{refused} findings, {warned} warnings"))
    }
}

/// The command.
pub(crate) fn run(repo: &Repo) -> anyhow::Result<bool> {
    Ok(outcome(&check(repo)?).print_alone("tidy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The repository itself obeys.
    #[test]
    fn this_repository_is_tidy() {
        let findings = check(&Repo::find().unwrap()).unwrap();
        let refused: Vec<String> = findings
            .iter()
            .filter(|f| !f.warning)
            .map(|f| format!("{}: {}", f.place, f.text))
            .collect();
        assert!(refused.is_empty(), "\n{}", refused.join("\n"));
    }

    #[test]
    fn warnings_do_not_fail() {
        assert!(matches!(outcome(&[Finding::warn("a", "b")]), Outcome::Passed(_)));
        assert!(matches!(outcome(&[Finding::refuse("a", "b")]), Outcome::Failed(_)));
    }
}

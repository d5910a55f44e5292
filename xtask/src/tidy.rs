//! `cargo xtask tidy`: checks repository rules that the compiler does not.
//!
//! Each rule is a function from files to findings. The same functions run as a test of this crate,
//! so `cargo test` rejects everything that tidy rejects. Rules read text, not types: if necessary,
//! a small lexer removes comments and strings.

mod arrows;
mod circles;
mod dialect;
mod documents;
mod finding;
mod lab;
pub(crate) mod links;
mod packages;
mod purity;
mod results;
mod rust_source;
mod sizes;
mod words;

use crate::repo::Repo;
use crate::steps::Outcome;
use finding::{Finding, Source};

/// Kinds of hand-written files.
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

/// The findings, and a line of figures for each rule that counts something.
#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
    figures: Vec<String>,
}

/// Applies every rule; refusals are listed first.
pub(crate) fn check(repo: &Repo) -> anyhow::Result<Report> {
    let sources = sources(repo)?;
    let (mut findings, arrows) = arrows::check(repo)?;
    let crates = repo.crates()?;
    let circles = circles::check(&crates, &sources);
    let (dialect, rates) = dialect::check(&sources);
    let figures = vec![
        format!(
            "arrows: {arrows} between crates, each listed in ARCHITECTURE.md or reported above"
        ),
        format!("circles of files: {} in {} crates", circles.len(), crates.len()),
        format!("words: {} hits; {rates}", dialect.len()),
    ];
    findings.extend(circles);
    findings.extend(dialect);
    findings.extend(purity::check(&sources));
    findings.extend(lab::check(&sources));
    findings.extend(sizes::check(&sources));
    findings.extend(words::check(&sources));
    findings.extend(links::check(repo, &sources));
    findings.extend(documents::check(repo, &sources)?);
    findings.extend(packages::check(repo)?);
    findings.extend(results::check(repo)?);
    findings.sort_by_key(|f| f.warning);
    Ok(Report { findings, figures })
}

/// Prints the findings and figures and counts the refusals.
pub(crate) fn outcome(report: &Report) -> Outcome {
    let findings = &report.findings;
    for finding in findings {
        let word = if finding.warning { "warning: " } else { "" };
        println!("{}: {word}{}", finding.place, finding.text);
    }
    for line in &report.figures {
        println!("{line}");
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

    /// The repository follows its own rules.
    #[test]
    fn this_repository_is_tidy() {
        let report = check(&Repo::find().unwrap()).unwrap();
        let refused: Vec<String> = report
            .findings
            .iter()
            .filter(|f| !f.warning)
            .map(|f| format!("{}: {}", f.place, f.text))
            .collect();
        assert!(refused.is_empty(), "\n{}", refused.join("\n"));
    }

    #[test]
    fn warnings_do_not_fail() {
        let of = |finding| outcome(&Report { findings: vec![finding], figures: Vec::new() });
        assert!(matches!(of(Finding::warn("a", "b")), Outcome::Passed(_)));
        assert!(matches!(of(Finding::refuse("a", "b")), Outcome::Failed(_)));
    }
}

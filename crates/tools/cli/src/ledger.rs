//! The claims, built in or read from a directory, and the rule for judging them by stored runs.

use crate::exit::Failure;
use ioloom_claims::{Claim, ClaimVerdict, Rule};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_lab::Session;
use ioloom_lab::definition::keep_built_in;
use ioloom_lab::sequential;
use ioloom_model::RunRecord;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum size of a ledger file, bytes.
const FILE_MAX: u64 = 8 << 20;

/// The claims that a command uses.
pub(crate) struct Ledger(Cow<'static, [Claim]>);

impl Ledger {
    /// Reads the ledger in a directory (`*.toml` and `*/claims.toml`), or the built-in one.
    pub(crate) fn read(dir: Option<&Path>) -> Result<Self, Failure> {
        let Some(dir) = dir else { return Ok(Self(Cow::Borrowed(ioloom_claims::ledger()))) };
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |e| Failure::failed(PathError::new(Operation::Read, path.as_path(), e))
        };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(fail(dir))? {
            let path = entry.map_err(fail(dir))?.path();
            let inside = path.join("claims.toml");
            if path.extension().is_some_and(|e| e == "toml") {
                paths.push(path);
            } else if inside.is_file() {
                paths.push(inside);
            }
        }
        paths.sort();
        if paths.is_empty() {
            return Err(Failure::failed(format!(
                "cannot read claims from {}: no *.toml in it",
                quoted(dir)
            )));
        }
        let mut files = Vec::new();
        for path in paths {
            if std::fs::metadata(&path).map_err(fail(&path))?.len() > FILE_MAX {
                let reason = "not a claims file: larger than 8 MiB";
                return Err(Failure::failed(format!("cannot read {}: {reason}", quoted(&path))));
            }
            let text = std::fs::read_to_string(&path).map_err(fail(&path))?;
            files.push((path.display().to_string(), text));
        }
        let texts = files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let claims = ioloom_claims::load(texts).map_err(|e| Failure::usage(one_line(&e)))?;
        Ok(Self(Cow::Owned(claims)))
    }

    /// Returns a ledger without claims.
    pub(crate) fn empty() -> Self {
        Self(Cow::Owned(Vec::new()))
    }

    /// Returns whether these are the built-in claims, which runs of edited studies never decide.
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self.0, Cow::Borrowed(_))
    }

    /// Returns all claims in ledger order.
    pub(crate) fn all(&self) -> &[Claim] {
        &self.0
    }

    /// Returns the claims that a study tests: those with a contrast in it, and those of the same seeds
    /// that are recomputed from published numbers or not tested by any study.
    pub(crate) fn of_study(&self, study: &str) -> Vec<&Claim> {
        let places = |c: &Claim| -> Vec<String> {
            let contrasts = c.contrasts.iter().flat_map(|contrast| contrast.locations());
            contrasts.map(|place| place.study.clone()).collect()
        };
        let tested = |c: &Claim| places(c).iter().any(|name| name == study);
        let seeds: Vec<u32> = self.0.iter().filter(|c| tested(c)).map(|c| c.source).collect();
        let belongs = |c: &&Claim| tested(c) || (places(c).is_empty() && seeds.contains(&c.source));
        self.0.iter().filter(belongs).collect()
    }
}

/// Joins the first line (the position) and the last line (the reason) of a multi-line error.
fn one_line(error: &ioloom_claims::ClaimsError) -> String {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] | [_] => text.trim().to_owned(),
        [first, .., last] => format!("{first}: {last}"),
    }
}

/// Runs that can decide claims.
pub(crate) struct Evidence {
    /// The runs.
    pub(crate) records: Vec<RunRecord>,
    /// Fingerprints of the tests that each session stored before its first run.
    registered: BTreeMap<String, BTreeMap<String, String>>,
    /// Sessions that were judged several times.
    pub(crate) sequential: BTreeSet<String>,
    /// Number of runs left out of each session because they belong to an edited study.
    pub(crate) edited: BTreeMap<String, usize>,
    /// Sessions that have not ended and are not judged at fixed numbers of blocks.
    pub(crate) unfinished: Vec<String>,
}

impl Ledger {
    /// Returns the runs of sessions that may decide claims of this ledger. Runs of an edited study
    /// never decide a built-in claim, nor do those of a session that still grows: judging it again and again
    /// until it decides would find too much. Runs that a finished session lacks count as failed.
    pub(crate) fn evidence(&self, mut sessions: Vec<Session>) -> Evidence {
        for session in &mut sessions {
            let lost = session.lost_runs();
            session.runs.extend(lost);
        }
        let edited =
            if self.is_built_in() { keep_built_in(&mut sessions) } else { BTreeMap::new() };
        let grows = |s: &Session| s.end.is_none() && s.header.sequential.is_none();
        let unfinished: Vec<Session> = sessions.extract_if(.., |s| grows(s)).collect();
        let unfinished = unfinished.into_iter().filter(|s| !s.runs.is_empty());
        let unfinished = unfinished.map(|s| s.header.session).collect();
        sessions.iter_mut().for_each(sequential::at_looks);
        let several = sessions.iter().filter(|s| s.header.sequential.is_some());
        let sequential = several.map(|s| s.header.session.clone()).collect();
        let registered =
            sessions.iter().map(|s| (s.header.session.clone(), s.header.claims.clone())).collect();
        let records = sessions.into_iter().flat_map(|s| s.runs).collect();
        Evidence { records, registered, sequential, edited, unfinished }
    }

    /// Judges claims of this ledger together.
    pub(crate) fn judge(&self, claims: &[&Claim], evidence: &Evidence) -> Vec<ClaimVerdict> {
        let Evidence { records, sequential, .. } = evidence;
        let mut verdicts =
            ioloom_claims::verdicts_at_looks(claims, records, Rule::STANDARD, sequential);
        for (verdict, claim) in verdicts.iter_mut().zip(claims) {
            verdict.register(&evidence.registered, &claim.earlier_definitions);
        }
        verdicts
    }

    /// Judges claims of this ledger together from the runs of one machine alone.
    pub(crate) fn judge_on(
        &self,
        machine: &str,
        claims: &[&Claim],
        evidence: &Evidence,
    ) -> Vec<ClaimVerdict> {
        let own = evidence.records.iter().filter(|record| record.machine == machine);
        let own: Vec<RunRecord> = own.cloned().collect();
        ioloom_claims::verdicts_at_looks(claims, &own, Rule::STANDARD, &evidence.sequential)
    }

    /// Returns the fingerprints of the tests of the claims that a study decides.
    pub(crate) fn definitions(&self, study: &str) -> BTreeMap<String, String> {
        let claims = self.of_study(study).into_iter();
        claims.map(|claim| (claim.id.clone(), claim.definition.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_of_a_study_are_those_it_tests_and_their_seeds() {
        let ledger = Ledger::read(None).unwrap();
        let of = ledger.of_study("pipeline");
        assert!(of.iter().any(|c| c.id == "000-P01") && of.iter().any(|c| c.id == "000-S1"));
        assert!(ledger.of_study("nothing").is_empty());
    }

    #[test]
    fn a_wrong_ledger_is_one_line_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.toml"), "[[claim]]\nid = \"000-X\"\nseed = \"a\"\n")
            .unwrap();
        let failure = Ledger::read(Some(dir.path())).err().unwrap();
        assert!(!failure.message.contains('\n'), "{}", failure.message);
        assert!(failure.message.contains("x.toml") && failure.message.contains("line 3"));
    }
}

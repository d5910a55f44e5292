//! Judges the claims of a sequential session after a look.
//!
//! A claim is decided if its verdict is, and given up if its arms are refused, or if it would stay undecided
//! even with the largest number of blocks, all like those seen so far. The other claims are open, and so
//! are the arms of their undecided contrasts. Contrasts in other studies are ignored: their runs are made
//! elsewhere.

use super::bench::Bench;
use crate::ledger::{Evidence, Ledger};
use ioloom_claims::{
    Claim, ClaimVerdict, Contrast, Rule, Verdict, forecast, pattern, verdicts_at_looks,
};
use ioloom_lab::expand::AGAIN;
use ioloom_lab::selection::Selection;
use ioloom_lab::sequential::{Looks, Needed};
use ioloom_lab::{Comparison, Session};
use ioloom_model::RunRecord;
use std::collections::BTreeSet;

/// Judges the claims of one session.
pub(super) struct Judge<'a> {
    ledger: &'a Ledger,
    claims: BTreeSet<&'a str>,
    /// Stored runs of the study on this machine: earlier sessions use a part of the error rate.
    stored: Vec<&'a RunRecord>,
    /// Sessions among them that were judged several times.
    sequential: BTreeSet<String>,
}

impl<'a> Judge<'a> {
    /// Returns a judge of the claims with these identifiers. `evidence` must include all sessions that ended before.
    pub(super) fn new(
        bench: &Bench<'a>,
        evidence: &'a Evidence,
        study: &str,
        claims: &'a [String],
    ) -> Self {
        let machine = &bench.machine.fingerprint;
        let own = |r: &&RunRecord| r.key.study == study && r.machine == *machine;
        Self {
            ledger: bench.request.ledger,
            claims: claims.iter().map(String::as_str).collect(),
            stored: evidence.records.iter().filter(own).collect(),
            sequential: evidence.sequential.clone(),
        }
    }
}

/// Reports whether more runs could decide a claim or contrast with this verdict.
fn is_open(verdict: Verdict) -> bool {
    verdict == Verdict::Undecided
}

/// Returns the claims of a ledger without contrasts in other studies.
fn within(ledger: &Ledger, study: &str) -> Vec<Claim> {
    let here = |contrast: &Contrast| contrast.locations().iter().all(|at| at.study == study);
    let mut claims: Vec<Claim> = ledger.all().to_vec();
    for claim in &mut claims {
        claim.contrasts.retain(|test| here(&test.contrast));
        claim.notes.clear();
    }
    claims.retain(|claim| !claim.contrasts.is_empty());
    claims
}

impl Looks for Judge<'_> {
    fn look(&self, session: &Session) -> Needed {
        let claims = within(self.ledger, &session.header.study);
        let all: Vec<&Claim> = claims.iter().collect();
        let name = &session.header.session;
        let mut several = self.sequential.clone();
        several.insert(name.clone());
        let judge = |own: &[RunRecord], rule| {
            let earlier = self.stored.iter().filter(|r| r.key.session != *name);
            let records: Vec<RunRecord> = earlier.copied().chain(own).cloned().collect();
            verdicts_at_looks(&all, &records, rule, &several)
        };
        let now = judge(&session.runs, Rule::STANDARD);
        let last = Rule::LOOKS.last().copied().unwrap_or(0);
        let repeated = forecast::repeated(&session.runs, last);
        let later = judge(&repeated, forecast::rule(Rule::STANDARD));
        let mut needed = Needed::default();
        let (mut decided, mut given_up, mut open) = (0, 0, 0);
        for ((claim, now), later) in claims.iter().zip(&now).zip(&later) {
            if !self.claims.contains(claim.id.as_str()) {
                continue;
            }
            if now.verdict == Verdict::NotTestableHere {
                given_up += 1;
            } else if !is_open(now.verdict) {
                decided += 1;
            } else if is_open(later.verdict) {
                given_up += 1;
            } else {
                open += 1;
                add_arms(&mut needed.arms, claim, now, &session.header.comparisons);
            }
        }
        needed.words = format!("{decided} claims decided, {given_up} given up, {open} open");
        needed
    }
}

/// Adds the arms of the undecided contrasts of a claim.
fn add_arms(
    into: &mut Selection,
    claim: &Claim,
    verdict: &ClaimVerdict,
    comparisons: &[Comparison],
) {
    for (test, part) in claim.contrasts.iter().zip(&verdict.parts) {
        if is_open(part.verdict) {
            for (comparison, arm) in arms(&test.contrast, comparisons).unwrap_or_default() {
                into.add(&comparison.place(), &comparison.arms[arm].name);
            }
        }
    }
}

/// Returns the arms that a contrast needs, as comparisons and indices.
///
/// # Errors
/// The arm or family that no comparison contains.
pub(crate) fn arms<'c>(
    contrast: &Contrast,
    comparisons: &'c [Comparison],
) -> Result<Vec<(&'c Comparison, usize)>, String> {
    let mut all = Vec::new();
    for (at, patterns) in contrast.needs() {
        for pattern in patterns {
            let before = all.len();
            for comparison in comparisons {
                let place = comparison.place();
                for (index, arm) in comparison.arms.iter().enumerate() {
                    let here =
                        at.covers(place.experiment, &arm.set, place.condition, place.compute);
                    let own = pattern::matches(pattern, &arm.name, &arm.factors)
                        && contrast.uses(&arm.factors, place.compute);
                    if here && own && !arm.name.ends_with(AGAIN) {
                        all.push((comparison, index));
                    }
                }
            }
            if all.len() == before {
                return Err(pattern.to_owned());
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_lab::expand::expand;
    use ioloom_lab::{Mode, Overrides};

    #[test]
    fn only_the_levels_that_a_contrast_uses_are_selected() {
        let spec = ioloom_lab::spec::load("pipeline", None).unwrap();
        let comparisons = expand(&spec, Mode::Full, &Overrides::default(), 2).unwrap();
        let count = |id: &str| {
            let claim = ioloom_claims::ledger().iter().find(|claim| claim.id == id).unwrap();
            arms(&claim.contrasts[0].contrast, &comparisons).unwrap().len()
        };
        assert_eq!(count("000-P45"), 5, "of eight sizes, 4 KiB to 1 MiB");
        assert_eq!(count("000-P08a"), 4, "two plans at two of five sizes");
        assert_eq!(count("000-P09"), 4, "two plans at two of seven compute times");
        assert_eq!(count("000-P12"), 11, "all sizes");
    }
}

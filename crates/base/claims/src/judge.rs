//! Derives verdicts from stored runs.
//!
//! Every contrast is one statistic over blocks. Its 95 % interval comes from resampling whole
//! blocks, which keeps the runs of a block together. Verdicts depend only on stored runs and on
//! recomputed published numbers. If these cannot answer the question, the verdict is `undecided`
//! and names what is missing.

use crate::claim::{Claim, Combine};
use crate::contrast::Contrast;
use crate::contrast::kind::Context;
use crate::evaluation::gap::Gap;
use crate::evaluation::{disturbed, doubts};
use crate::rule::Rule;
use crate::verdict::{ClaimVerdict, Evidence, Part, PublishedValue};
use ioloom_model::{Doubt, RunRecord, Verdict};
use std::collections::BTreeSet;

/// The result of one contrast.
struct Judged {
    part: Part,
    /// Whether it is undecided for lack of stored runs.
    without_runs: bool,
}

/// Judges a claim from stored runs.
pub fn verdict(claim: &Claim, records: &[RunRecord], rule: Rule) -> ClaimVerdict {
    let context = &Context { records: records.iter().collect(), rule };
    let judged: Vec<Judged> = claim.contrasts.iter().map(|c| judge(context, c, false)).collect();
    let notes = claim.notes.iter().map(|contrast| judge(context, contrast, true).part);
    let (verdict, deciding) = combine(&judged, claim.combine);
    let sentence = sentence(&judged, &deciding);
    let parts: Vec<Part> = judged.into_iter().map(|j| j.part).collect();
    let chief = deciding.first().and_then(|i| parts.get(*i)).or(parts.first());
    let doubts: BTreeSet<Doubt> =
        deciding.iter().flat_map(|i| parts[*i].doubts.iter().copied()).collect();
    let published = claim.published.iter().map(|p| PublishedValue {
        what: p.what.clone(),
        value: p.value().unwrap_or(f64::NAN),
        unit: p.unit.clone(),
    });
    ClaimVerdict {
        id: claim.id.clone(),
        source: claim.source,
        statement: claim.statement.clone(),
        published: published.collect(),
        scope: claim.scope.clone(),
        verdict,
        sentence,
        evidence: chief.map_or_else(Evidence::default, |part| part.evidence.clone()),
        doubts: doubts.into_iter().collect(),
        parts: parts.into_iter().chain(notes).collect(),
    }
}

/// Combines the results of all contrasts into one verdict. Returns the verdict and the indices of
/// the contrasts that decided it.
fn combine(judged: &[Judged], how: Combine) -> (Verdict, Vec<usize>) {
    let part = |i: &usize| &judged[*i].part;
    let which = |wanted: &dyn Fn(&Part) -> bool| -> Vec<usize> {
        (0..judged.len()).filter(|i| wanted(part(i))).collect()
    };
    let all = which(&|_| true);
    let held = which(&|p| p.holds == Some(true));
    let failed = which(&|p| p.holds == Some(false));
    let unlimited = |of: &[usize]| of.iter().any(|i| part(i).verdict != Verdict::Scope);
    let open = which(&|p| p.holds.is_none() && p.verdict != Verdict::NotTestableHere);
    let decided = |verdict, of: Vec<usize>| {
        let verdict = if unlimited(&of) { verdict } else { Verdict::Scope };
        (verdict, of)
    };
    match how {
        Combine::All if !failed.is_empty() => decided(Verdict::Refuted, failed),
        // If all must hold, one contrast with limited scope limits the whole claim.
        Combine::All if held.len() == judged.len() => {
            let limited = judged.iter().any(|j| j.part.verdict == Verdict::Scope);
            (if limited { Verdict::Scope } else { Verdict::Confirmed }, held)
        }
        Combine::All if open.is_empty() => {
            (Verdict::NotTestableHere, which(&|p| p.verdict == Verdict::NotTestableHere))
        }
        Combine::All => (Verdict::Undecided, open),
        Combine::Places if !held.is_empty() && !failed.is_empty() => {
            (Verdict::Scope, which(&|p| p.holds.is_some()))
        }
        Combine::Places if !held.is_empty() => decided(Verdict::Confirmed, held),
        Combine::Places if !failed.is_empty() => decided(Verdict::Refuted, failed),
        Combine::Places if open.is_empty() => (Verdict::NotTestableHere, all),
        Combine::Places => (Verdict::Undecided, open),
    }
}

/// Returns the sentences of the deciding contrasts and the number of undecided ones. Of several
/// contrasts without runs, only the first is given in full, and only if it comes first.
fn sentence(judged: &[Judged], deciding: &[usize]) -> String {
    let mut sentences = Vec::new();
    let mut without_runs = 0;
    for Judged { part, without_runs: no_runs } in deciding.iter().map(|i| &judged[*i]) {
        let words = match part.holds {
            None => part.sentence.clone(),
            Some(true) => format!("holds at {}: {}", part.place, part.sentence),
            Some(false) => format!("does not hold at {}: {}", part.place, part.sentence),
        };
        if *no_runs && !sentences.is_empty() {
            without_runs += 1;
        } else if !sentences.contains(&words) {
            sentences.push(words);
        }
    }
    if without_runs > 0 {
        sentences.push(format!("{without_runs} more contrasts have no stored runs"));
    }
    let open = judged.iter().filter(|j| j.part.holds.is_none()).count();
    if deciding.iter().any(|i| judged[*i].part.holds.is_some()) && open > 0 {
        sentences.push(format!("{open} of {} contrasts are undecided", judged.len()));
    }
    sentences.join("; ")
}

/// Evaluates one contrast.
fn judge(context: &Context<'_>, contrast: &Contrast, note: bool) -> Judged {
    let kind = contrast.as_kind();
    let blank = |verdict, sentence| Part {
        kind: contrast.kind().to_owned(),
        place: kind.place(),
        verdict,
        holds: None,
        sentence,
        note,
        evidence: Evidence::default(),
        doubts: Vec::new(),
    };
    let finding = match kind.evaluate(context) {
        Ok(finding) => disturbed::withhold(context, kind, finding),
        Err(gap) => {
            let without_runs = matches!(gap, Gap::Missing(_));
            let mut sentence = gap.to_string();
            if without_runs && kind.skipped_by_quick() {
                sentence.push_str(" (quick mode does not run them)");
            }
            return Judged { part: blank(gap.verdict(), sentence), without_runs };
        }
    };
    let doubts = doubts::of(&finding);
    let limits = finding.limits(doubts.contains(&Doubt::Oversubscribed));
    let verdict = match finding.holds {
        None => Verdict::Undecided,
        Some(_) if !limits.is_empty() => Verdict::Scope,
        Some(true) => Verdict::Confirmed,
        Some(false) => Verdict::Refuted,
    };
    let mut sentence = finding.words;
    if finding.holds.is_some() {
        limits.iter().for_each(|limit| sentence.push_str(limit.words()));
    }
    let part = Part {
        holds: finding.holds,
        evidence: finding.evidence,
        doubts,
        ..blank(verdict, sentence)
    };
    Judged { part, without_runs: false }
}

//! The results of one contrast in the sessions of a machine, and which of them decides.

use crate::evaluation::disturbed::Few;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::at_location;
use crate::location::Location;
use crate::rule::Rule;
use crate::verdict::SessionEffect;
use ioloom_model::RunRecord;
use std::collections::{BTreeMap, BTreeSet};

/// The runs of one session.
pub(crate) struct SessionRuns<'a> {
    pub(crate) name: &'a str,
    pub(crate) machine: &'a str,
    /// When its last run before its first judgement started.
    pub(crate) started: u64,
    pub(crate) records: Vec<&'a RunRecord>,
}

impl SessionRuns<'_> {
    /// Returns the number of blocks that the session has begun at every location.
    pub(crate) fn blocks(&self, locations: &[&Location]) -> u32 {
        let begun = |at: &&Location| {
            let runs = at_location(&self.records, at);
            runs.iter().map(|run| run.key.block + 1).max().unwrap_or(0)
        };
        locations.iter().map(begun).min().unwrap_or(0)
    }
}

/// Returns the runs of each session, from old to new. The place of a `sequential` session does not change when it
/// is extended after its first look.
pub(crate) fn by_session<'a>(
    records: &'a [RunRecord],
    sequential: &BTreeSet<String>,
) -> Vec<SessionRuns<'a>> {
    let mut sessions: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for record in records {
        sessions.entry(&record.key.session).or_default().push(record);
    }
    let mut sessions: Vec<SessionRuns<'_>> = sessions
        .into_iter()
        .map(|(name, records)| {
            let is_later =
                |r: &RunRecord| sequential.contains(name) && r.key.block >= Rule::LOOKS[0];
            let first = records.iter().filter(|r| !is_later(r));
            let started = first.map(|r| r.started_unix_ms).max().unwrap_or(0);
            let machine = records.first().map_or("", |r| r.machine.as_str());
            SessionRuns { name, machine, started, records }
        })
        .collect();
    sessions.sort_by_key(|session| (session.started, session.name));
    sessions
}

/// A contrast evaluated in one session.
pub(crate) struct InSession<'a> {
    /// Name of the session; empty if none ran the contrast.
    pub(crate) name: &'a str,
    machine: &'a str,
    /// When its last run before its first judgement started.
    pub(crate) started: u64,
    /// The result, without an answer that was withheld.
    pub(crate) result: Result<Finding<'a>, Gap>,
    /// What too few blocks show, which decides nothing; empty otherwise.
    pub(crate) few: Few,
    /// The answer of its runs, before other sessions and contrasts are considered.
    answer: Option<bool>,
    /// Whether a set was smaller than the published one.
    scaled: bool,
    /// Which session with a result it is, from 1.
    number: u32,
    /// The p-value corrected for all contrasts of the session.
    pub(crate) adjusted: Option<f64>,
}

impl<'a> InSession<'a> {
    pub(crate) fn new(
        of: &SessionRuns<'a>,
        result: Result<Finding<'a>, Gap>,
        (scaled, number): (bool, u32),
    ) -> Self {
        let answer = result.as_ref().ok().and_then(|finding| finding.holds);
        let SessionRuns { name, machine, started, .. } = *of;
        let few = Few::default();
        Self { name, machine, started, result, few, answer, scaled, number, adjusted: None }
    }

    /// Returns the p-value times the looks at this session and its share of the error rate; `None` without
    /// a p-value.
    pub(crate) fn spent(&self, rule: Rule, sequential: &BTreeSet<String>) -> Option<f64> {
        let p = self.result.as_ref().ok()?.p?;
        let several = sequential.contains(self.name);
        let looks = if several { rule.sequential().looks } else { rule.looks };
        Some((p * (f64::from(looks.max(1)) * Rule::spending(self.number))).min(1.0))
    }

    /// Returns the effect in this session.
    pub(crate) fn effect(&self) -> Option<SessionEffect> {
        let finding = self.result.as_ref().ok().filter(|_| !self.name.is_empty())?;
        Some(SessionEffect {
            session: self.name.to_owned(),
            machine: self.machine.to_owned(),
            effect: finding.evidence.effect,
            lo: finding.evidence.lo,
            hi: finding.evidence.hi,
            blocks: finding.evidence.blocks,
            holds: self.answer,
            p: finding.p,
            p_adjusted: self.adjusted,
        })
    }
}

/// Withholds each answer that another session of the same machine, program and files contradicts.
pub(crate) fn withhold_disputed(found: &mut [InSession<'_>]) {
    let all: &[InSession<'_>] = found;
    let words: Vec<Option<String>> = all.iter().map(|one| dispute(one, all)).collect();
    for (one, words) in found.iter_mut().zip(words) {
        if let (Some(words), Ok(finding)) = (words, &mut one.result) {
            finding.holds = None;
            finding.p = finding.p.map(|_| 1.0);
            finding.words = words;
        }
    }
}

/// Returns the reason to withhold an answer if another session contradicts it.
fn dispute(one: &InSession<'_>, all: &[InSession<'_>]) -> Option<String> {
    let finding = one.result.as_ref().ok()?;
    let contrary = !one.answer?;
    let same = |other: &Finding<'_>| match (finding.used.first(), other.used.first()) {
        (Some(a), Some(b)) => {
            (&a.machine, &a.version, &a.key.medium, &a.set.hash)
                == (&b.machine, &b.version, &b.key.medium, &b.set.hash)
        }
        _ => false,
    };
    all.iter().filter(|other| other.answer == Some(contrary)).find_map(|other| {
        let found = other.result.as_ref().ok().filter(|found| same(found))?;
        Some(format!(
            "withheld because session {} shows the opposite: {} (here: {})",
            other.name, found.words, finding.words
        ))
    })
}

/// Returns the index of the session that decides: the earliest whose answer `survives` the corrections, until a
/// later one gives the opposite answer; then the earliest after it, from that one on. Without one, it is the
/// newest with a result. Sessions with sets of the published size take precedence, unless they
/// leave the contrast open and one with smaller sets does not. The newest counterexample to a statement about
/// `every` run decides at once. `found` must not be empty.
pub(crate) fn deciding(
    found: &[InSession<'_>],
    every: bool,
    survives: impl Fn(&InSession<'_>) -> bool,
) -> usize {
    let kept = |scaled: bool| {
        let mut kept: Option<usize> = None;
        for (at, one) in found.iter().enumerate().filter(|(_, one)| one.scaled == scaled) {
            let before = kept.and_then(|at| found[at].answer);
            if one.answer.is_some() && one.answer != before {
                let decides = one.result.as_ref().is_ok_and(|f| f.holds.is_some()) && survives(one);
                kept = decides.then_some(at);
            }
        }
        kept
    };
    let newest =
        |scaled: bool| found.iter().rposition(|one| one.result.is_ok() && one.scaled == scaled);
    let without = || {
        let rank = |one: &InSession<'_>| match &one.result {
            Err(Gap::Missing(_)) => (0, false),
            _ => (1, !one.scaled),
        };
        (0..found.len()).max_by_key(|at| (rank(&found[*at]), *at))
    };
    let counterexample = found.iter().rposition(|one| every && one.answer == Some(false));
    counterexample
        .or_else(|| kept(false))
        .or_else(|| kept(true))
        .or_else(|| newest(false))
        .or_else(|| newest(true))
        .or_else(without)
        .unwrap_or(0)
}

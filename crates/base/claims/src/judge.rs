//! Derives verdicts from stored runs.
//!
//! 1. Each contrast is evaluated in each session separately. The newest session with a result
//!    decides; the others are shown apart. Sessions with sets of the published size take precedence, unless they
//!    leave the contrast open and one with smaller sets does not. If two sessions of the same machine, program and files
//!    give opposite answers, neither counts. One machine decides all contrasts of a claim: the one
//!    with results for most of them, then the one that ran last. The others are shown apart. Only a
//!    counterexample to a statement about every run counts wherever it was found.
//! 2. An answer is withheld if it depends on disturbed blocks or if neighbouring blocks are alike.
//! 3. The p-values of all contrasts that the same session decides are corrected together, so that
//!    the expected share of false answers stays below the rule's rate. A contrast that several
//!    claims use is counted once. Results that are only shown apart are not counted: they decide
//!    nothing. Each session with a result is one more look at the contrast, so its p-value is first
//!    multiplied by [`Rule::spending`].
//! 4. All contrasts of a claim decide it together. Published numbers alone never confirm or refute
//!    a claim: their outcome is `recomputed`.
//!
//! Verdicts depend only on stored runs and on published numbers. If these cannot answer the
//! question, the verdict is `undecided` and names what is missing.

use crate::claim::{Claim, Test};
use crate::combine::{Judged, combine};
use crate::contrast::Contrast;
use crate::contrast::kind::{Context, Kind};
use crate::contrast::ladder::Shape;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::at_location;
use crate::evaluation::{dependent, disturbed, doubts};
use crate::rule::Rule;
use crate::verdict::{
    Agreement, ClaimVerdict, Effect, Evidence, Part, PublishedValue, SessionEffect,
};
use ioloom_model::{Doubt, RunRecord, Verdict};
use ioloom_stats::{Claimed, benjamini_hochberg};
use std::collections::{BTreeMap, BTreeSet};

/// A contrast with its result on one machine.
struct Assessed<'a, 'c> {
    machine: &'a str,
    contrast: &'c Contrast,
    /// When the newest run of the deciding session started.
    started: u64,
    /// Number of sessions with a result up to the one that decides.
    sessions: u32,
    result: Result<Finding<'a>, Gap>,
    apart: Vec<SessionEffect>,
    /// The p-value corrected for all contrasts of the session.
    adjusted: Option<f64>,
}

/// Judges claims together from stored runs. The more contrasts a session decides, the smaller the
/// p-value that each needs, so pass all claims that the runs were made to test.
pub fn verdicts(claims: &[&Claim], records: &[RunRecord], rule: Rule) -> Vec<ClaimVerdict> {
    verdicts_at_looks(claims, records, rule, &BTreeSet::new())
}

/// Judges claims as [`verdicts`] does, but by the sequential rule in the named sessions, which are
/// judged after each of [`Rule::LOOKS`].
pub fn verdicts_at_looks(
    claims: &[&Claim],
    records: &[RunRecord],
    rule: Rule,
    sequential: &BTreeSet<String>,
) -> Vec<ClaimVerdict> {
    let mut assessed: Vec<Assessed<'_, '_>> = Vec::new();
    let mut machines: BTreeMap<&str, Vec<SessionRuns<'_>>> = BTreeMap::new();
    for session in by_session(records) {
        machines.entry(session.machine).or_default().push(session);
    }
    if machines.is_empty() {
        machines.insert("", Vec::new());
    }
    for (machine, sessions) in &machines {
        let before = assessed.len();
        for test in claims.iter().flat_map(|c| c.contrasts.iter().chain(&c.notes)) {
            if !assessed[before..].iter().any(|known| *known.contrast == test.contrast) {
                assessed.push(assess((machine, sessions), &test.contrast, rule, sequential));
            }
        }
    }
    let deciding = deciding(claims, &assessed);
    correct(&mut assessed, &deciding, rule, sequential);
    claims.iter().map(|claim| of_claim(claim, &assessed, rule)).collect()
}

/// Judges a single claim. Its contrasts are corrected only for each other.
pub fn verdict(claim: &Claim, records: &[RunRecord], rule: Rule) -> ClaimVerdict {
    verdicts(&[claim], records, rule).remove(0)
}

/// The runs of one session.
pub(crate) struct SessionRuns<'a> {
    name: &'a str,
    pub(crate) machine: &'a str,
    started: u64,
    pub(crate) records: Vec<&'a RunRecord>,
}

/// Returns the runs of each session, from old to new.
pub(crate) fn by_session(records: &[RunRecord]) -> Vec<SessionRuns<'_>> {
    let mut sessions: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for record in records {
        sessions.entry(&record.key.session).or_default().push(record);
    }
    let mut sessions: Vec<SessionRuns<'_>> = sessions
        .into_iter()
        .map(|(name, records)| {
            let started = records.iter().map(|r| r.started_unix_ms).max().unwrap_or(0);
            let machine = records.first().map_or("", |r| r.machine.as_str());
            SessionRuns { name, machine, started, records }
        })
        .collect();
    sessions.sort_by_key(|session| (session.started, session.name));
    sessions
}

/// A contrast evaluated in one session.
struct InSession<'a, 's> {
    session: &'s SessionRuns<'a>,
    result: Result<Finding<'a>, Gap>,
    scaled: bool,
}

/// Evaluates a contrast in each session of a machine and selects the one that decides.
fn assess<'a, 'c>(
    (machine, sessions): (&'a str, &[SessionRuns<'a>]),
    contrast: &'c Contrast,
    rule: Rule,
    sequential: &BTreeSet<String>,
) -> Assessed<'a, 'c> {
    let kind = contrast.as_kind();
    let evaluate = |records: &[&'a RunRecord]| {
        let context = &Context { records: records.to_vec(), rule };
        let mut found = kind.evaluate(context)?;
        found.partial |= kind.families().iter().any(|family| family.lacks(records));
        let medium = medium_words(&found, kind, records);
        found.words.push_str(&medium);
        if kind.is_about_every_run() {
            return Ok(found);
        }
        let finding = disturbed::withhold(context, kind, found);
        Ok(if rule.dependence { dependent::withhold(finding) } else { finding })
    };
    let locations = kind.locations();
    let mut found: Vec<InSession<'a, '_>> = Vec::new();
    // A contrast without locations needs no runs, so no session measured it.
    for session in sessions.iter().filter(|_| !locations.is_empty()) {
        if locations.iter().all(|at| !at_location(&session.records, at).is_empty()) {
            let used = locations.iter().flat_map(|at| at_location(&session.records, at));
            let scaled = used.into_iter().any(|r| r.doubts.contains(&Doubt::Scaled));
            found.push(InSession { session, result: evaluate(&session.records), scaled });
        }
    }
    let every = kind.is_about_every_run();
    let refutes = |s: &InSession<'_, '_>| s.result.as_ref().is_ok_and(|f| f.holds == Some(false));
    let counterexample = found.iter().rposition(|s| every && refutes(s));
    let chosen = counterexample.or_else(|| newest(&found, rule, sequential));
    let none = |result| Assessed {
        machine,
        contrast,
        started: 0,
        sessions: 1,
        result,
        apart: Vec::new(),
        adjusted: None,
    };
    let Some(chosen) = chosen else { return none(evaluate(&[])) };
    let earlier = found[..chosen].iter().filter(|s| s.result.is_ok()).count() as u32;
    let deciding = found.remove(chosen);
    let apart = found.iter().filter_map(effect).collect();
    let result = match every {
        // One counterexample is enough, whatever other sessions saw.
        true => deciding.result,
        false => deciding.result.map(|finding| disputed(finding, &found)),
    };
    Assessed { started: deciding.session.started, sessions: earlier + 1, apart, ..none(result) }
}

/// Names the medium of the runs if others could have been used.
fn medium_words(finding: &Finding<'_>, kind: &dyn Kind, records: &[&RunRecord]) -> String {
    let of = |runs: &[&RunRecord]| -> BTreeSet<String> {
        runs.iter().map(|run| run.key.medium.clone()).collect()
    };
    let free = kind.locations().into_iter().filter(|at| at.medium.is_none());
    let several = free.map(|at| of(&at_location(records, at))).any(|media| media.len() > 1);
    let used: Vec<String> = of(&finding.used).into_iter().collect();
    match used.as_slice() {
        [medium] if several => format!(" (medium {medium})"),
        _ => String::new(),
    }
}

/// Returns how often a session is judged.
fn looks<'s>(
    sessions: impl IntoIterator<Item = &'s str>,
    rule: Rule,
    sequential: &BTreeSet<String>,
) -> f64 {
    let several = sessions.into_iter().any(|session| sequential.contains(session));
    let looks = if several { rule.sequential().looks } else { rule.looks };
    f64::from(looks.max(1))
}

/// Returns the session that decides: the newest with a result. One of the published size takes precedence
/// unless only one of another size has an answer.
fn newest(found: &[InSession<'_, '_>], rule: Rule, sequential: &BTreeSet<String>) -> Option<usize> {
    let last = |is: &dyn Fn(&InSession<'_, '_>) -> bool| found.iter().rposition(is);
    let full = last(&|s| s.result.is_ok() && !s.scaled);
    let scaled = last(&|s| s.result.is_ok() && s.scaled);
    // The correction for other contrasts of the session is not known yet.
    let answers = |at: usize| {
        let earlier = found[..at].iter().filter(|s| s.result.is_ok()).count() as u32;
        let spent = looks([found[at].session.name], rule, sequential) * Rule::spending(earlier + 1);
        let survives = |p: f64| p * spent <= rule.false_rate;
        let finding = found[at].result.as_ref().ok();
        finding.is_some_and(|f| f.holds.is_some() && f.p.is_none_or(survives))
    };
    let without = || {
        let rank = |s: &InSession<'_, '_>| match &s.result {
            Err(Gap::Missing(_)) => (0, false),
            _ => (1, !s.scaled),
        };
        (0..found.len()).max_by_key(|i| (rank(&found[*i]), *i))
    };
    match (full, scaled) {
        (Some(full), Some(scaled)) if !answers(full) && answers(scaled) => Some(scaled),
        (Some(full), _) => Some(full),
        (None, Some(scaled)) => Some(scaled),
        (None, None) => without(),
    }
}

/// Returns the effect in a session.
fn effect(of: &InSession<'_, '_>) -> Option<SessionEffect> {
    let finding = of.result.as_ref().ok()?;
    Some(SessionEffect {
        session: of.session.name.to_owned(),
        machine: of.session.machine.to_owned(),
        effect: finding.evidence.effect,
        lo: finding.evidence.lo,
        hi: finding.evidence.hi,
        blocks: finding.evidence.blocks,
        holds: finding.holds,
    })
}

/// Withholds the answer if another session of the same machine, program and files contradicts it.
fn disputed<'a>(finding: Finding<'a>, others: &[InSession<'a, '_>]) -> Finding<'a> {
    let same = |a: &Finding<'_>, b: &Finding<'_>| match (a.used.first(), b.used.first()) {
        (Some(a), Some(b)) => {
            (&a.machine, &a.version, &a.key.medium, &a.set.hash)
                == (&b.machine, &b.version, &b.key.medium, &b.set.hash)
        }
        _ => false,
    };
    let contrary = others.iter().find(|other| {
        let Ok(other) = &other.result else { return false };
        other.holds.is_some_and(|h| finding.holds == Some(!h)) && same(&finding, other)
    });
    let Some(InSession { session, result: Ok(other), .. }) = contrary else { return finding };
    let words = format!(
        "withheld because session {} shows the opposite: {} (here: {})",
        session.name, other.words, finding.words
    );
    Finding { holds: None, p: finding.p.map(|_| 1.0), words, ..finding }
}

/// Returns the indices of the results that decide a contrast of a claim. Notes decide nothing, and
/// neither do machines whose results are shown apart.
fn deciding(claims: &[&Claim], assessed: &[Assessed<'_, '_>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for claim in claims {
        let machine = machine_of(claim, assessed);
        let result = |test: &Test| result_for(claim, test, assessed, machine);
        let used: Vec<&Assessed<'_, '_>> = claim.contrasts.iter().filter_map(result).collect();
        let is_used = |at: &usize| used.iter().any(|one| std::ptr::eq(*one, &assessed[*at]));
        found.extend((0..assessed.len()).filter(is_used));
    }
    found
}

/// Corrects the p-values of the contrasts that each session decides, and withholds answers that do
/// not survive.
fn correct(
    assessed: &mut [Assessed<'_, '_>],
    deciding: &BTreeSet<usize>,
    rule: Rule,
    sequential: &BTreeSet<String>,
) {
    let mut families: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
    for (at, one) in assessed.iter().enumerate() {
        let Ok(finding) = &one.result else { continue };
        if finding.p.is_some() && deciding.contains(&at) {
            families.entry(finding.evidence.sessions.clone()).or_default().push(at);
        }
    }
    for (sessions, members) in families {
        let p = |at: &usize| assessed[*at].result.as_ref().ok().and_then(|f| f.p).unwrap_or(1.0);
        let looks = looks(sessions.iter().map(String::as_str), rule, sequential);
        let spent = |at: &usize| looks * Rule::spending(assessed[*at].sessions);
        let all: Vec<f64> = members.iter().map(|at| (p(at) * spent(at)).min(1.0)).collect();
        let adjusted = benjamini_hochberg(&all);
        for (at, adjusted) in members.iter().zip(adjusted) {
            let one = &mut assessed[*at];
            one.adjusted = Some(adjusted);
            let Ok(finding) = &mut one.result else { continue };
            if finding.holds.is_some() && adjusted > rule.false_rate {
                finding.holds = None;
                finding.words.push_str(&format!(
                    "; not decided, because p = {} is {} after correction for the {} contrasts of \
                     this session, above {}",
                    rounded(finding.p.unwrap_or(1.0)),
                    rounded(adjusted),
                    members.len(),
                    rule.false_rate,
                ));
            }
        }
    }
}

/// Formats a p-value with two significant digits.
fn rounded(p: f64) -> String {
    if p >= 0.01 { format!("{p:.2}") } else { format!("{p:.1e}") }
}

fn of_claim(claim: &Claim, assessed: &[Assessed<'_, '_>], rule: Rule) -> ClaimVerdict {
    let machine = machine_of(claim, assessed);
    let find = |test: &Test| result_for(claim, test, assessed, machine);
    let judge = |test: &Test, note: bool| {
        let found = find(test)?;
        let mut judged = judged(found, test, note, rule);
        let others =
            assessed.iter().filter(|a| a.machine != found.machine && *a.contrast == test.contrast);
        judged.part.apart.extend(others.flat_map(elsewhere));
        Some(judged)
    };
    let judged: Vec<Judged> = claim.contrasts.iter().filter_map(|t| judge(t, false)).collect();
    let notes = claim.notes.iter().filter_map(|t| judge(t, true)).map(|j| j.part);
    let (verdict, deciding, sentence) = combine(&judged, claim.combine);
    let own: Vec<&Assessed<'_, '_>> = claim.contrasts.iter().filter_map(find).collect();
    let (verdict, sentence) = on_hardware(claim, &own, verdict, sentence);
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
        same_as: claim.same_as.clone(),
        definition: claim.definition.clone(),
        registered: None,
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

/// Returns the machine that decides all contrasts of a claim: the one with runs for most of them, then
/// the one that ran last. It does not depend on what the runs show.
fn machine_of<'a>(claim: &Claim, assessed: &[Assessed<'a, '_>]) -> &'a str {
    let own = |one: &&Assessed<'_, '_>| claim.contrasts.iter().any(|t| t.contrast == *one.contrast);
    let mut found: BTreeMap<&str, (usize, usize, u64)> = BTreeMap::new();
    for one in assessed.iter().filter(own) {
        let (results, ran, newest) = found.entry(one.machine).or_default();
        *results += usize::from(one.result.is_ok());
        *ran += usize::from(!matches!(one.result, Err(Gap::Missing(_))));
        *newest = one.started.max(*newest);
    }
    found.into_iter().max_by_key(|(_, rank)| *rank).map_or("", |(machine, _)| machine)
}

/// Returns the result that decides a contrast: that of the machine, unless another machine has a
/// counterexample to a statement about every run.
fn result_for<'s, 'a, 'c>(
    claim: &Claim,
    test: &Test,
    assessed: &'s [Assessed<'a, 'c>],
    machine: &str,
) -> Option<&'s Assessed<'a, 'c>> {
    let wanted = &test.contrast;
    let same = || assessed.iter().filter(move |one| *one.contrast == *wanted);
    let counterexample = |one: &&Assessed<'_, '_>| {
        let Ok(finding) = &one.result else { return false };
        let about = |record: &&RunRecord| claim.hardware.as_ref().is_none_or(|h| h.is_of(record));
        finding.holds == Some(false) && finding.used.iter().all(about)
    };
    let here = same().find(|one| one.machine == machine);
    if !test.contrast.as_kind().is_about_every_run() || here.as_ref().is_some_and(counterexample) {
        return here;
    }
    same().find(counterexample).or(here)
}

/// Returns the effects of a contrast on a machine that does not decide it, from old to new.
fn elsewhere(one: &Assessed<'_, '_>) -> Vec<SessionEffect> {
    let mut all = one.apart.clone();
    let Ok(finding) = &one.result else { return all };
    all.extend(finding.evidence.sessions.first().map(|session| SessionEffect {
        session: session.clone(),
        machine: one.machine.to_owned(),
        effect: finding.evidence.effect,
        lo: finding.evidence.lo,
        hi: finding.evidence.hi,
        blocks: finding.evidence.blocks,
        holds: finding.holds,
    }));
    all
}

/// Limits a verdict about other hardware than that of the runs: it is neither confirmed nor refuted.
fn on_hardware(
    claim: &Claim,
    assessed: &[&Assessed<'_, '_>],
    verdict: Verdict,
    sentence: String,
) -> (Verdict, String) {
    let Some(hardware) = claim.hardware.as_ref() else { return (verdict, sentence) };
    let own =
        |one: &&&Assessed<'_, '_>| claim.contrasts.iter().any(|t| t.contrast == *one.contrast);
    let findings = assessed.iter().filter(own).filter_map(|one| one.result.as_ref().ok());
    let here = findings.flat_map(|finding| &finding.used).all(|record| hardware.is_of(record));
    match verdict {
        Verdict::Confirmed | Verdict::Refuted if !here => {
            let words =
                format!("{sentence}; the claim is about {}, not this hardware", hardware.name);
            (Verdict::Scope, words)
        }
        _ => (verdict, sentence),
    }
}

/// Converts the result of a contrast to a part of the verdict.
fn judged(assessed: &Assessed<'_, '_>, test: &Test, note: bool, rule: Rule) -> Judged {
    let contrast = assessed.contrast;
    let kind = contrast.as_kind();
    let recomputed = matches!(contrast, Contrast::Published(_));
    let blank = Part {
        kind: contrast.kind().to_owned(),
        place: kind.place(),
        verdict: Verdict::Undecided,
        holds: None,
        sentence: String::new(),
        note,
        p: None,
        p_adjusted: None,
        published_size: test.published_size().ok().flatten(),
        agreement: None,
        apart: assessed.apart.clone(),
        evidence: Evidence::default(),
        doubts: Vec::new(),
    };
    let finding = match &assessed.result {
        Ok(finding) => finding,
        Err(gap) => {
            let without_runs = matches!(gap, Gap::Missing(_));
            let mut sentence = gap.to_string();
            if without_runs && kind.skipped_by_quick() {
                sentence.push_str(" (quick mode does not run them)");
            }
            let part = Part { verdict: gap.verdict(), sentence, ..blank };
            return Judged { part, without_runs, recomputed };
        }
    };
    let doubts = doubts::of(finding, rule);
    let limits = finding.limits(doubts.contains(&Doubt::Oversubscribed));
    let verdict = match finding.holds {
        None => Verdict::Undecided,
        Some(true) if recomputed => Verdict::Consistent,
        Some(false) if recomputed => Verdict::Inconsistent,
        Some(_) if !limits.is_empty() => Verdict::Scope,
        Some(true) => Verdict::Confirmed,
        Some(false) => Verdict::Refuted,
    };
    let mut sentence = finding.words.clone();
    if finding.holds.is_some() {
        limits.iter().for_each(|limit| sentence.push_str(limit.words()));
    }
    let agreement = blank.published_size.and_then(|size| {
        let is_same = is_equality_of_both(contrast, finding, size, rule);
        if is_same { Some(Agreement::Size) } else { agreement(&finding.evidence, size) }
    });
    if let (Some(agreement), Some(size)) = (agreement, blank.published_size) {
        sentence.push_str(&format!("; published {size:.3}: {}", agreement.words()));
    }
    let part = Part {
        verdict,
        holds: finding.holds,
        sentence,
        p: finding.p,
        p_adjusted: assessed.adjusted,
        agreement,
        evidence: finding.evidence.clone(),
        doubts,
        ..blank
    };
    Judged { part, without_runs: false, recomputed }
}

/// Reports whether a contrast claims equality, and both the runs and the published numbers show it.
fn is_equality_of_both(contrast: &Contrast, finding: &Finding<'_>, size: f64, rule: Rule) -> bool {
    let margin = match contrast {
        Contrast::Ratio(c) if c.claim == Claimed::Equal => c.margin,
        Contrast::RatioOfBest(c) if c.claim == Claimed::Equal => c.margin,
        Contrast::Ladder(c) if c.shape == Shape::Flat => c.margin,
        _ => return false,
    };
    finding.holds == Some(true) && size.ln().abs() <= margin.unwrap_or(rule.margin).ln_1p()
}

/// Compares the measured effect with the published one.
fn agreement(evidence: &Evidence, size: f64) -> Option<Agreement> {
    let measured = [evidence.lo?, evidence.effect?, evidence.hi?];
    Some(match evidence.effect_is {
        // No effect is a ratio of 1, and half is as far from it as double.
        Effect::Ratio | Effect::Times => Agreement::of(measured.map(f64::ln), size.ln()),
        _ => Agreement::of(measured, size),
    })
}

//! Derives verdicts from stored runs.
//!
//! 1. Each contrast is evaluated in each session separately, and one session decides it ([`sessions::deciding`]);
//!    the others are shown apart. If two sessions of the same machine, program and files
//!    give opposite answers, neither counts. One machine decides all contrasts of a claim: the one
//!    with results for most of them, then the one that ran last. The others are shown apart. Only a
//!    counterexample to a statement about every run counts wherever it was found.
//! 2. An answer is withheld if it depends on disturbed blocks or if neighbouring blocks are alike.
//! 3. The p-values of all contrasts of claims that a session measured are corrected together, so that
//!    the expected share of false answers stays below the rule's rate. A contrast that several
//!    claims use is counted once. Results on machines that do not decide the claim are not counted.
//!    Each session with a result is one more look at the contrast, so its p-value is first
//!    multiplied by [`Rule::spending`]. The factors bound the probability that any session ever gives a
//!    false answer, so an answer remains when later sessions agree with it or give none.
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
use crate::evaluation::disturbed::Few;
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::at_location;
use crate::evaluation::{dependent, disturbed, doubts};
use crate::needs;
use crate::rule::Rule;
use crate::sessions::{self, InSession, SessionRuns, by_session};
use crate::verdict::{
    Agreement, ClaimVerdict, Effect, Evidence, Part, PublishedValue, SessionEffect,
};
use ioloom_model::{Doubt, RunRecord, Verdict};
use ioloom_stats::{Claimed, INTERVAL_MIN, benjamini_hochberg};
use std::collections::{BTreeMap, BTreeSet};

/// A contrast with its results on one machine.
struct Assessed<'a, 'c> {
    machine: &'a str,
    contrast: &'c Contrast,
    /// The results in the sessions that ran it, from old to new; without such a session, one of no runs.
    found: Vec<InSession<'a>>,
    /// Index of the one that decides.
    chosen: usize,
}

impl<'a> Assessed<'a, '_> {
    /// Selects the session that decides.
    fn choose(&mut self, rule: Rule, sequential: &BTreeSet<String>) {
        let every = self.contrast.as_kind().is_about_every_run();
        self.chosen = sessions::deciding(&self.found, every, |one| {
            one.adjusted
                .or_else(|| one.spent(rule, sequential))
                .is_none_or(|p| p <= rule.false_rate)
        });
    }

    fn deciding(&self) -> &InSession<'a> {
        &self.found[self.chosen]
    }

    fn result(&self) -> &Result<Finding<'a>, Gap> {
        &self.deciding().result
    }

    /// Returns the effects in the sessions that do not decide.
    fn apart(&self) -> Vec<SessionEffect> {
        let others = self.found.iter().enumerate().filter(|(at, _)| *at != self.chosen);
        others.filter_map(|(_, one)| one.effect()).collect()
    }

    /// Returns when the newest session with a result could first be judged; without one, any session.
    fn newest(&self) -> u64 {
        let results = self.found.iter().filter(|one| one.result.is_ok());
        let newest = results.map(|one| one.started).max();
        newest.or_else(|| self.found.iter().map(|one| one.started).max()).unwrap_or(0)
    }
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
    for session in by_session(records, sequential) {
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
    assessed.iter_mut().for_each(|one| one.choose(rule, sequential));
    claims.iter().map(|claim| of_claim(claim, &assessed, rule)).collect()
}

/// Judges a single claim. Its contrasts are corrected only for each other.
pub fn verdict(claim: &Claim, records: &[RunRecord], rule: Rule) -> ClaimVerdict {
    verdicts(&[claim], records, rule).remove(0)
}

/// Evaluates a contrast in each session of a machine.
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
    let mut found: Vec<InSession<'a>> = Vec::new();
    // A contrast without locations needs no runs, so no session measured it.
    for session in sessions.iter().filter(|_| !locations.is_empty()) {
        if locations.iter().all(|at| !at_location(&session.records, at).is_empty()) {
            let used = locations.iter().flat_map(|at| at_location(&session.records, at));
            let scaled = used.into_iter().any(|r| r.doubts.contains(&Doubt::Scaled));
            let number = 1 + found.iter().filter(|one| one.result.is_ok()).count() as u32;
            let mut result = evaluate(&session.records);
            if sequential.contains(session.name) {
                result = from_first_look(result, session.blocks(&locations));
            }
            let few = of_few_blocks(&result, session, kind, rule);
            let mut one = InSession::new(session, result, (scaled, number));
            one.few = few;
            found.push(one);
        }
    }
    if found.is_empty() {
        let none = SessionRuns { name: "", machine, started: 0, records: Vec::new() };
        found.push(InSession::new(&none, evaluate(&[]), (false, 1)));
    }
    // One counterexample is enough, whatever other sessions saw.
    if !kind.is_about_every_run() {
        sessions::withhold_disputed(&mut found);
    }
    let mut assessed = Assessed { machine, contrast, found, chosen: 0 };
    assessed.choose(rule, sequential);
    assessed
}

/// Returns what the blocks of a session show that are too few for a verdict: an effect if they have an interval.
fn of_few_blocks(
    result: &Result<Finding<'_>, Gap>,
    session: &SessionRuns<'_>,
    kind: &dyn Kind,
    rule: Rule,
) -> Few {
    let Err(Gap::FewBlocks { have, .. }) = result else { return Few::default() };
    let rule = Rule { blocks_min: INTERVAL_MIN, ..rule };
    let context = Context { records: session.records.clone(), rule };
    match kind.evaluate(&context) {
        Ok(finding) => Few::of(&context, kind, finding),
        Err(_) => {
            let sessions = vec![session.name.to_owned()];
            let evidence = Evidence { blocks: *have, sessions, ..Evidence::default() };
            Few { evidence, ..Few::default() }
        }
    }
}

/// Withholds what a sequential session shows before its first look, even a counterexample. The reason why arms
/// have no numbers is kept.
fn from_first_look(result: Result<Finding<'_>, Gap>, blocks: u32) -> Result<Finding<'_>, Gap> {
    let first = Rule::LOOKS[0];
    match result {
        Ok(_) | Err(Gap::FewBlocks { .. } | Gap::Undefined(_)) if blocks < first => {
            Err(Gap::BeforeFirstLook { have: blocks, first })
        }
        result => result,
    }
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

/// Corrects the p-values of the contrasts of claims that each session measured, and withholds answers that
/// do not survive.
fn correct(
    assessed: &mut [Assessed<'_, '_>],
    deciding: &BTreeSet<usize>,
    rule: Rule,
    sequential: &BTreeSet<String>,
) {
    let mut families: BTreeMap<&str, Vec<(usize, usize, f64)>> = BTreeMap::new();
    for at in deciding {
        for (nth, one) in assessed[*at].found.iter().enumerate() {
            if let Some(p) = one.spent(rule, sequential) {
                families.entry(one.name).or_default().push((*at, nth, p));
            }
        }
    }
    for members in families.into_values() {
        let all: Vec<f64> = members.iter().map(|(.., p)| *p).collect();
        let adjusted = benjamini_hochberg(&all);
        for ((at, nth, _), adjusted) in members.iter().zip(adjusted) {
            let one = &mut assessed[*at].found[*nth];
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
        let effects = others.flat_map(|a| a.found.iter().filter_map(InSession::effect));
        judged.part.apart.extend(effects);
        Some(judged)
    };
    let judged: Vec<Judged> = claim.contrasts.iter().filter_map(|t| judge(t, false)).collect();
    let notes = claim.notes.iter().filter_map(|t| judge(t, true)).map(|j| j.part);
    let (verdict, deciding, sentence) = combine(&judged, claim.combine);
    let own: Vec<&Assessed<'_, '_>> = claim.contrasts.iter().filter_map(find).collect();
    let (verdict, sentence) = on_hardware(claim, &own, verdict, sentence);
    let needs = open_needs(verdict, &own);
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
        caveat: claim.caveat.clone(),
        verdict,
        sentence,
        needs,
        evidence: chief.map_or_else(Evidence::default, |part| part.evidence.clone()),
        doubts: doubts.into_iter().collect(),
        parts: parts.into_iter().chain(notes).collect(),
    }
}

/// Says what would decide the open contrasts of an open claim.
fn open_needs(verdict: Verdict, assessed: &[&Assessed<'_, '_>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    if !matches!(verdict, Verdict::Undecided | Verdict::NotTestableHere) {
        return all;
    }
    for one in assessed {
        let results = one.found.iter().filter(|found| found.result.is_ok()).count() as u32;
        let words = needs::words(one.contrast, one.result(), results + 1);
        let words = words.filter(|words| !all.contains(words));
        all.extend(words);
    }
    all
}

/// Returns the machine that decides all contrasts of a claim: the one with runs for most of them, then
/// the one that ran last. It does not depend on what the runs show.
fn machine_of<'a>(claim: &Claim, assessed: &[Assessed<'a, '_>]) -> &'a str {
    let own = |one: &&Assessed<'_, '_>| claim.contrasts.iter().any(|t| t.contrast == *one.contrast);
    let mut found: BTreeMap<&str, (usize, usize, u64)> = BTreeMap::new();
    for one in assessed.iter().filter(own) {
        let (results, ran, newest) = found.entry(one.machine).or_default();
        let ran_here = |of: &InSession<'_>| !matches!(of.result, Err(Gap::Missing(_)));
        *results += usize::from(one.found.iter().any(|of| of.result.is_ok()));
        *ran += usize::from(one.found.iter().any(ran_here));
        *newest = one.newest().max(*newest);
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
        let Ok(finding) = one.result() else { return false };
        let about = |record: &&RunRecord| claim.hardware.as_ref().is_none_or(|h| h.is_of(record));
        finding.holds == Some(false) && finding.used.iter().all(about)
    };
    let here = same().find(|one| one.machine == machine);
    if !test.contrast.as_kind().is_about_every_run() || here.as_ref().is_some_and(counterexample) {
        return here;
    }
    same().find(counterexample).or(here)
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
    let findings = assessed.iter().filter(own).filter_map(|one| one.result().as_ref().ok());
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
        apart: assessed.apart(),
        evidence: Evidence::default(),
        doubts: Vec::new(),
    };
    let finding = match assessed.result() {
        Ok(finding) => finding,
        Err(gap) => {
            let without_runs = matches!(gap, Gap::Missing(_));
            let mut sentence = gap.to_string();
            if without_runs && kind.skipped_by_quick() {
                sentence.push_str(" (quick mode does not run them)");
            }
            let few = &assessed.deciding().few;
            sentence.push_str(&few.words);
            let evidence = few.evidence.clone();
            let part = Part { verdict: gap.verdict(), sentence, evidence, ..blank };
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
        p_adjusted: assessed.deciding().adjusted,
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
    match evidence.effect_is {
        // No effect is a ratio of 1, and half is as far from it as double.
        Effect::Ratio | Effect::Times => Agreement::of(measured.map(f64::ln), size.ln()),
        _ => Agreement::of(measured, size),
    }
}

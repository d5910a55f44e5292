//! From stored runs to a verdict.
//!
//! Every contrast becomes one statistic over blocks; its 95 % interval comes from drawing blocks
//! again, so that runs of one block stay together. A verdict never comes from anything else than
//! stored runs and published numbers recomputed by code. What cannot be told is `undecided` with
//! the missing thing named, never a guess.

mod compare;
mod curve;
mod disturbed;
mod doubts;
mod levels;
mod optimum;
mod published;
pub(crate) mod runs;

use crate::claim::{Claim, Combine, Contrast, Place};
use crate::verdict::{ClaimVerdict, Evidence, Part, PublishedValue};
use ioloom_model::{Doubt, RunRecord, Verdict};
use ioloom_stats::{Bootstrap, Interval};
use runs::{Arm, Gap, Runs};
use std::collections::BTreeSet;

/// Blocks that a full study must have; fewer are a quick one.
const BLOCKS_FULL: usize = 12;

/// The numbers of the verdict rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Fewest blocks for a verdict other than undecided.
    pub blocks_min: usize,
    /// Smallest share that counts as a difference; 0.05 is a factor of 1.05 either way.
    pub margin: f64,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Rule {
    /// 8 blocks, 5 %.
    pub const QUICK: Self = Self { blocks_min: 8, margin: 0.05, seed: 1 };
    /// 12 blocks, 5 %.
    pub const FULL: Self = Self { blocks_min: BLOCKS_FULL, margin: 0.05, seed: 1 };

    fn stats(&self, margin: Option<f64>) -> ioloom_stats::Rule {
        ioloom_stats::Rule { margin: margin.unwrap_or(self.margin), blocks_min: self.blocks_min }
    }

    /// Interval of a statistic over the indices of blocks.
    fn over_blocks(
        &self,
        blocks: usize,
        statistic: impl Fn(&[usize]) -> Option<f64>,
    ) -> Result<Interval, Gap> {
        let indices: Vec<f64> = (0..blocks).map(|i| i as f64).collect();
        Bootstrap::new(self.seed)
            .of(&indices, |drawn| {
                let drawn: Vec<usize> = drawn.iter().map(|i| *i as usize).collect();
                statistic(&drawn).unwrap_or(f64::NAN)
            })
            .map_err(|e| Gap::Undefined(e.to_string()))
    }
}

/// How the sentence of a contrast without runs begins.
const NO_RUNS: &str = "no stored runs of";

/// What limits a finding, in words.
const SLEEPS: &str = " (sleep stands for the compute, as if there were a core for each thread)";
const CROWDED: &str = " (with more threads computing than there are cores)";
const PARTIAL: &str = " (only a part of the arms of the study ran)";

/// What a contrast found.
#[derive(Debug, Default)]
struct Finding<'a> {
    /// Whether the statement holds; `None` when the numbers allow both.
    holds: Option<bool>,
    /// Why, without the place.
    words: String,
    evidence: Evidence,
    /// The effect block by block, for the tests of series.
    series: Vec<f64>,
    /// Runs that it rests on.
    used: Vec<&'a RunRecord>,
    /// Whether sleep stood for cores.
    sleeps: bool,
    /// Whether only a part of a family ran, so that its best is not known.
    partial: bool,
    /// Whether the effect is not above the noise of a plan against itself.
    below_noise: bool,
    /// Whether its answer was taken away because disturbed blocks decided it.
    withheld: bool,
}

impl<'a> Finding<'a> {
    fn new(holds: Option<bool>, effect_is: &str, interval: &Interval, words: String) -> Self {
        let evidence = Evidence {
            effect: Some(interval.estimate),
            lo: Some(interval.lo),
            hi: Some(interval.hi),
            effect_is: effect_is.to_owned(),
            ..Evidence::default()
        };
        Self { holds, words, evidence, ..Self::default() }
    }

    fn of_arms(mut self, arms: &[&Arm<'a>], runs: &Runs<'a>, columns: &runs::Columns) -> Self {
        self.evidence.arms = arms.iter().map(|a| a.name.clone()).collect();
        self.evidence.blocks = columns.values.first().map_or(0, Vec::len);
        self.evidence.sessions.clone_from(&columns.sessions);
        self.used = arms.iter().flat_map(|a| a.records()).collect();
        self.sleeps = runs.sleeps;
        self
    }

    /// Tells what a plan differs by from itself, where that is known.
    fn noise(self, floor: Option<f64>) -> Self {
        match floor {
            Some(floor) => self.number("noise_floor", floor),
            None => self,
        }
    }

    fn number(mut self, name: &str, value: f64) -> Self {
        self.evidence.numbers.insert(name.to_owned(), value);
        self
    }
}

/// The runs of a contrast and the rule, for the evaluators.
#[derive(Clone)]
struct Bench<'a> {
    records: Vec<&'a RunRecord>,
    rule: Rule,
}

impl<'a> Bench<'a> {
    fn runs(&self, at: &Place, contrast: &Contrast) -> Runs<'a> {
        let by_compute = contrast.axis() == Some("compute");
        Runs::of(&self.records, at, &contrast.patterns(), by_compute, self.rule.blocks_min)
    }
}

/// Judges a claim by stored runs.
pub fn verdict(claim: &Claim, records: &[RunRecord], rule: Rule) -> ClaimVerdict {
    let bench = &Bench { records: records.iter().collect(), rule };
    let judged = |note: bool| move |contrast: &Contrast| part(bench, contrast, note);
    let parts: Vec<Part> = claim.contrasts.iter().map(judged(false)).collect();
    let (verdict, deciding) = combine(&parts, claim.combine);
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
        seed: claim.seed,
        statement: claim.statement.clone(),
        published: published.collect(),
        scope: claim.scope.clone(),
        verdict,
        sentence: sentence(&parts, &deciding),
        evidence: chief.map_or_else(Evidence::default, |part| part.evidence.clone()),
        doubts: doubts.into_iter().collect(),
        parts: parts.iter().cloned().chain(claim.notes.iter().map(judged(true))).collect(),
    }
}

/// One verdict of several parts, and which of them decided it.
fn combine(parts: &[Part], how: Combine) -> (Verdict, Vec<usize>) {
    let which = |wanted: &dyn Fn(&Part) -> bool| -> Vec<usize> {
        (0..parts.len()).filter(|i| wanted(&parts[*i])).collect()
    };
    let all = which(&|_| true);
    let held = which(&|p| p.holds == Some(true));
    let failed = which(&|p| p.holds == Some(false));
    let plain = |of: &[usize]| of.iter().any(|i| parts[*i].verdict != Verdict::Scope);
    let open = which(&|p| p.holds.is_none() && p.verdict != Verdict::NotTestableHere);
    let told = |verdict, of: Vec<usize>| {
        let verdict = if plain(&of) { verdict } else { Verdict::Scope };
        (verdict, of)
    };
    match how {
        Combine::All if !failed.is_empty() => told(Verdict::Refuted, failed),
        // Of parts that belong together each must be shown plainly, or the whole is not.
        Combine::All if held.len() == parts.len() => {
            let limited = parts.iter().any(|p| p.verdict == Verdict::Scope);
            (if limited { Verdict::Scope } else { Verdict::Confirmed }, held)
        }
        Combine::All if open.is_empty() => {
            (Verdict::NotTestableHere, which(&|p| p.verdict == Verdict::NotTestableHere))
        }
        Combine::All => (Verdict::Undecided, open),
        Combine::Places if !held.is_empty() && !failed.is_empty() => {
            (Verdict::Scope, which(&|p| p.holds.is_some()))
        }
        Combine::Places if !held.is_empty() => told(Verdict::Confirmed, held),
        Combine::Places if !failed.is_empty() => told(Verdict::Refuted, failed),
        Combine::Places if open.is_empty() => (Verdict::NotTestableHere, all),
        Combine::Places => (Verdict::Undecided, open),
    }
}

/// The sentences of the parts that decided, and how many others are open. Only the first part
/// without runs is told in full.
fn sentence(parts: &[Part], deciding: &[usize]) -> String {
    let mut said = Vec::new();
    let mut without_runs = 0;
    for part in deciding.iter().map(|i| &parts[*i]) {
        let words = match part.holds {
            None => part.sentence.clone(),
            Some(true) => format!("holds at {}: {}", part.place, part.sentence),
            Some(false) => format!("does not hold at {}: {}", part.place, part.sentence),
        };
        if part.holds.is_none() && part.sentence.contains(NO_RUNS) && !said.is_empty() {
            without_runs += 1;
        } else if !said.contains(&words) {
            said.push(words);
        }
    }
    if without_runs > 0 {
        said.push(format!("{without_runs} more contrasts have no stored runs"));
    }
    let open = parts.iter().filter(|p| p.holds.is_none()).count();
    if deciding.iter().any(|i| parts[*i].holds.is_some()) && open > 0 {
        said.push(format!("{open} of {} contrasts could not be told", parts.len()));
    }
    said.join("; ")
}

fn part(bench: &Bench<'_>, contrast: &Contrast, note: bool) -> Part {
    let place = contrast.places().iter().map(|p| place_words(p)).collect::<Vec<_>>().join(" / ");
    let blank = |verdict, sentence| Part {
        kind: kind(contrast).to_owned(),
        place: if place.is_empty() { "published numbers".to_owned() } else { place.clone() },
        verdict,
        holds: None,
        sentence,
        note,
        evidence: Evidence::default(),
        doubts: Vec::new(),
    };
    if let Contrast::Untested { needs } = contrast {
        let mut part =
            blank(Verdict::Undecided, format!("not tested by this version: needs {needs}"));
        part.place = "nowhere".to_owned();
        return part;
    }
    match evaluate(bench, contrast) {
        Err(gap) => {
            let (verdict, sentence) = gap_words(&gap, not_in_quick(contrast));
            blank(verdict, sentence)
        }
        Ok(finding) => {
            let finding = disturbed::withhold(bench, contrast, finding);
            let doubts = doubts::of(&finding);
            let crowded = doubts.contains(&Doubt::Oversubscribed);
            let limited = finding.sleeps || finding.partial || crowded;
            let verdict = match finding.holds {
                None => Verdict::Undecided,
                Some(_) if limited => Verdict::Scope,
                Some(true) => Verdict::Confirmed,
                Some(false) => Verdict::Refuted,
            };
            let mut why = String::new();
            for (applies, words) in [
                (finding.sleeps, SLEEPS),
                (!finding.sleeps && crowded, CROWDED),
                (finding.partial, PARTIAL),
            ] {
                if applies && finding.holds.is_some() {
                    why.push_str(words);
                }
            }
            Part {
                holds: finding.holds,
                evidence: finding.evidence,
                doubts,
                ..blank(verdict, format!("{}{why}", finding.words))
            }
        }
    }
}

fn evaluate<'a>(bench: &Bench<'a>, contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    match contrast {
        Contrast::Ratio { .. } => compare::ratio(bench, contrast),
        Contrast::RatioOfBest { .. } => compare::ratio_of_best(bench, contrast),
        Contrast::Share { .. } => compare::share(bench, contrast),
        Contrast::Optimum { .. } => optimum::optimum(bench, contrast),
        Contrast::Media { .. } => compare::media(bench, contrast),
        Contrast::Ladder { .. } => levels::ladder(bench, contrast),
        Contrast::Linear { .. } => levels::linear(bench, contrast),
        Contrast::Crossing { .. } => levels::crossing(bench, contrast),
        Contrast::Gain { .. } => levels::gain(bench, contrast),
        Contrast::Correlation { .. } => levels::correlation(bench, contrast),
        Contrast::Curve { .. } => curve::curve(bench, contrast),
        Contrast::Published { .. } => published::recompute(contrast),
        Contrast::Untested { .. } => Err(Gap::Undefined("it is not tested".to_owned())),
    }
}

/// Word of the kind, as in the ledger.
const fn kind(contrast: &Contrast) -> &'static str {
    match contrast {
        Contrast::Ratio { .. } => "ratio",
        Contrast::RatioOfBest { .. } => "ratio-of-best",
        Contrast::Share { .. } => "share",
        Contrast::Optimum { .. } => "optimum",
        Contrast::Media { .. } => "media",
        Contrast::Ladder { .. } => "ladder",
        Contrast::Linear { .. } => "linear",
        Contrast::Crossing { .. } => "crossing",
        Contrast::Gain { .. } => "gain",
        Contrast::Correlation { .. } => "correlation",
        Contrast::Curve { .. } => "curve",
        Contrast::Published { .. } => "published",
        Contrast::Untested { .. } => "untested",
    }
}

fn place_words(place: &Place) -> String {
    let mut words = vec![place.experiment.clone(), format!("set {}", place.set)];
    words.extend(place.condition.map(|c| c.name().to_owned()));
    words.extend(place.compute.as_ref().map(ToString::to_string));
    words.join(", ")
}

/// Whether quick mode leaves out an arm that a contrast cannot do without.
fn not_in_quick(contrast: &Contrast) -> bool {
    let lone = |place: &Place, patterns: &[&str]| {
        crate::family::count(place, patterns).is_some_and(|(all, quick)| all > 0 && quick == 0)
    };
    contrast.places().iter().any(|place| match contrast {
        Contrast::RatioOfBest { a, b, .. } => [a, b]
            .iter()
            .any(|family| lone(place, &family.iter().map(String::as_str).collect::<Vec<_>>())),
        _ => contrast.patterns().iter().any(|pattern| lone(place, &[pattern])),
    })
}

fn gap_words(gap: &Gap, not_in_quick: bool) -> (Verdict, String) {
    match gap {
        Gap::Missing(arms) => {
            let quick = if not_in_quick { "not run in quick: " } else { "" };
            (Verdict::Undecided, format!("{quick}{NO_RUNS} {}", arms.join(", ")))
        }
        Gap::Refused { arm, reason } => {
            (Verdict::NotTestableHere, format!("{arm} cannot run here: {reason}"))
        }
        Gap::Failed { arm, reason } => {
            (Verdict::Undecided, format!("{arm} did not end well: {reason}"))
        }
        Gap::NoNumber { arm, name } => (
            Verdict::NotTestableHere,
            format!("the runs of {arm} do not hold {name}, which this machine cannot tell"),
        ),
        Gap::NotTimed { arm } => (
            Verdict::NotTestableHere,
            format!(
                "the runs of {arm} queue reads and hand them over with the wait for completions, \
                 so the read call itself was not timed"
            ),
        ),
        Gap::FewBlocks { have, need } => {
            let remedy = format!("repeat the study with --blocks {need}");
            (Verdict::Undecided, format!("too few blocks: {have}, and {need} are needed; {remedy}"))
        }
        Gap::Undefined(reason) => (Verdict::Undecided, reason.clone()),
    }
}

//! How many blocks a contrast needs, from the noise of stored runs.
//!
//! The stored blocks of a contrast are drawn with replacement to sessions of 12 to 96 blocks, and each is
//! judged. The power is the share of sessions that decide, if the truth is what the stored runs show. A
//! session of up to 30 blocks is judged by the sequential rule, and as one more session after those with a
//! result. The correction for the other contrasts
//! of a session is not known in advance; the p-value has to be half the rate of the rule, as if half of
//! the contrasts were decided. Dependence between blocks is not tested, because drawn blocks are in
//! random order.
//!
//! Without enough stored blocks, the number of blocks of a ratio follows from its published size and
//! the typical noise of the study: the difference between two runs of one plan in a block.

use crate::claim::Test;
use crate::contrast::Contrast;
use crate::contrast::kind::Context;
use crate::contrast::ratio::Ratio;
use crate::contrast::ratio_of_best::RatioOfBest;
use crate::evaluation::disturbed;
use crate::evaluation::finding::Finding;
use crate::evaluation::runs::at_location;
use crate::pattern;
use crate::rule::Rule;
use crate::sessions::{SessionRuns, by_session};
use crate::verdict::Effect;
use ioloom_model::RunRecord;
use ioloom_model::study::AGAIN;
use ioloom_stats::tails::normal_quantile;
use ioloom_stats::{Claimed, INTERVAL_MIN, median};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of blocks whose power is computed. Up to 30 come from a sequential session, more from a
/// study with that number of blocks.
pub const BLOCKS: [u32; 6] = [12, 18, 24, 30, 48, 96];
/// Required power.
pub const POWER: f64 = 0.8;
/// Number of simulated sessions.
const SESSIONS: u32 = 40;
/// Assumed share of contrasts of a session that are decided.
const DECIDED: f64 = 0.5;
/// Efficiency of signed ranks relative to a test of means, for normal noise.
const SIGNED_RANK_EFFICIENCY: f64 = 0.955;

/// Scatter of the duration below which the duration of a plan is fixed and shows no noise.
const FIXED: f64 = 1e-3;

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The runs of the contrast.
    Runs,
    /// Repeated runs of plans of the same study.
    Study,
    /// The publication.
    Published,
    /// Nothing.
    Unknown,
}

/// What is known about the blocks that a contrast needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Need {
    /// Kind of contrast.
    pub kind: String,
    /// Source of its numbers: experiment, file set, condition, compute.
    pub place: String,
    /// Number of stored blocks with every arm, if they are enough to show noise.
    pub seen: usize,
    /// Which session of the machine with a result the next one will be, from 1: each spends part of the error rate.
    pub session: u32,
    /// Standard deviation of the effect between blocks, in its unit; of a ratio, of its logarithm.
    pub noise: Option<f64>,
    /// Where the noise comes from.
    pub noise_from: Source,
    /// Effect that is assumed to be true.
    pub effect: Option<f64>,
    /// What it measures.
    pub effect_is: Effect,
    /// Where the effect comes from.
    pub effect_from: Source,
    /// Share of simulated sessions that decide it, by number of blocks.
    pub power: BTreeMap<u32, f64>,
    /// Smallest number of [`BLOCKS`] that decides it with [`POWER`]; `None` if there is none or if it
    /// is not known.
    pub blocks: Option<u32>,
}

/// Stored runs, and where the next session runs.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The runs of all machines.
    pub records: &'a [RunRecord],
    /// Names of the sessions that are judged after each of [`Rule::LOOKS`].
    pub sequential: &'a BTreeSet<String>,
    /// The machine of the next session.
    pub machine: &'a str,
}

/// Times of a plan and of its repeated run, by block.
type Pairs = BTreeMap<u32, [Option<f64>; 2]>;

/// Returns the required two-sided p-value in a session of this many blocks that is the `n`-th one with a result.
fn level(blocks: u32, n: u32) -> f64 {
    Rule::STANDARD.false_rate * DECIDED / factor(blocks, n)
}

/// Returns the factor of a p-value in a session of this many blocks that is the `n`-th one with a result.
fn factor(blocks: u32, n: u32) -> f64 {
    let last = Rule::LOOKS[Rule::LOOKS.len() - 1];
    let looks = if blocks <= last { Rule::STANDARD.sequential().looks } else { 1 };
    f64::from(looks) * Rule::spending(n)
}

/// Returns the typical noise of each study: the standard deviation of the logarithm of the ratio of two
/// runs of one plan in a block, as the median over plans. Plans of a fixed duration, such as load for
/// some seconds, are left out.
pub fn noise_of_studies(records: &[RunRecord]) -> BTreeMap<String, f64> {
    let mut pairs: BTreeMap<(&str, String), Pairs> = BTreeMap::new();
    for record in records {
        let (key, Some(measured)) = (&record.key, record.measured()) else { continue };
        let first = key.arm.strip_suffix(AGAIN);
        let arm = first.unwrap_or(&key.arm);
        let place = [&*key.session, &*key.experiment, &*key.set, &*key.medium, arm];
        let pair = format!("{place:?} {} {}", key.condition, key.compute);
        let block = pairs.entry((&key.study, pair)).or_default().entry(key.block).or_default();
        block[usize::from(first.is_some())] = Some(measured.elapsed_ns.max(1) as f64);
    }
    let mut of_studies: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for ((study, _), blocks) in pairs {
        let logs: Vec<f64> = blocks
            .values()
            .filter_map(|[a, b]| Some(a.as_ref()?.ln() - b.as_ref()?.ln()))
            .collect();
        if logs.len() >= INTERVAL_MIN {
            let noise = deviation(&logs).filter(|noise| *noise >= FIXED);
            of_studies.entry(study.to_owned()).or_default().extend(noise);
        }
    }
    of_studies.retain(|_, noise| !noise.is_empty());
    of_studies.into_iter().map(|(study, noise)| (study, median(&noise))).collect()
}

/// Returns the standard deviation of at least two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() >= 2).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Returns what a contrast needs on a machine; `None` if it needs no runs. `noise` is that of the studies.
/// The runs of other machines show noise and effect, but spend nothing of its error rate.
pub fn need(test: &Test, stored: Stored<'_>, noise: &BTreeMap<String, f64>) -> Option<Need> {
    let contrast = &test.contrast;
    let study = contrast.locations().first()?.study.clone();
    let published = test.published_size().ok().flatten();
    let mut need = Need {
        kind: contrast.kind().to_owned(),
        place: contrast.as_kind().place(),
        seen: 0,
        session: results(contrast, stored) + 1,
        noise: noise.get(&study).copied(),
        noise_from: noise.get(&study).map_or(Source::Unknown, |_| Source::Study),
        effect: published,
        effect_is: Effect::None,
        effect_from: published.map_or(Source::Unknown, |_| Source::Published),
        power: BTreeMap::new(),
        blocks: None,
    };
    if let Some((pilot, finding)) = pilot(contrast, stored.records) {
        need.seen = finding.evidence.blocks;
        need.noise = deviation(&finding.series).or_else(|| scatter(&finding));
        need.noise_from = Source::Runs;
        need.effect = finding.evidence.effect;
        need.effect_is = finding.evidence.effect_is.clone();
        need.effect_from = Source::Runs;
        for blocks in BLOCKS {
            let power = power(contrast, &pilot, (blocks, need.session));
            need.power.insert(blocks, power);
            if power >= POWER {
                need.blocks = Some(blocks);
                break;
            }
        }
    } else if let (
        Contrast::Ratio(Ratio { claim, margin, .. })
        | Contrast::RatioOfBest(RatioOfBest { claim, margin, .. }),
        Some(size),
        Some(noise),
    ) = (contrast, published, need.noise)
    {
        need.effect_is = Effect::Ratio;
        need.blocks = blocks_of_ratio(size / bound(*claim, *margin), noise, need.session);
    }
    Some(need)
}

/// Returns the smallest number of [`BLOCKS`] with which one more session of a machine could decide a contrast,
/// whatever it measures; `None` if there is none. The p-value of a resampled statistic has a lower limit, which
/// can be too large for the error rate that earlier sessions left.
pub fn least_blocks(contrast: &Contrast, stored: Stored<'_>) -> Option<u32> {
    if !contrast.as_kind().is_resampled() {
        return Some(BLOCKS[0]);
    }
    let session = results(contrast, stored) + 1;
    let least_p = |blocks| Rule::resampled_least_p(blocks) * factor(blocks, session);
    BLOCKS.into_iter().find(|blocks| least_p(*blocks) <= Rule::STANDARD.false_rate)
}

/// Returns the scatter between blocks that belongs to the width of an interval.
fn scatter(finding: &Finding<'_>) -> Option<f64> {
    let (lo, hi) = finding.evidence.lo.zip(finding.evidence.hi)?;
    Some((hi - lo) / 2.0 / -normal_quantile(0.025) * (finding.evidence.blocks as f64).sqrt())
}

/// Returns the ratio whose distance from the true one decides a claim without a factor: 1, or the largest one
/// that is claimed.
pub(crate) fn bound(claim: Claimed, margin: Option<f64>) -> f64 {
    match claim {
        Claimed::Less | Claimed::Greater | Claimed::Equal => 1.0,
        Claimed::AtMost => 1.0 + margin.unwrap_or(Rule::STANDARD.margin),
    }
}

/// Returns the smallest number of blocks that shows a ratio of this size.
pub(crate) fn blocks_of_ratio(size: f64, noise: f64, session: u32) -> Option<u32> {
    let away = size.ln().abs();
    if !away.is_finite() || away < (1.0 + Rule::STANDARD.margin).ln() {
        return None;
    }
    BLOCKS.into_iter().find(|blocks| {
        let z = -normal_quantile(level(*blocks, session) / 2.0) - normal_quantile(1.0 - POWER);
        let needed = (z * noise / away).powi(2) / SIGNED_RANK_EFFICIENCY;
        f64::from(*blocks) >= needed
    })
}

/// Returns the number of sessions of a machine with a result. A sequential one has none before its first look.
fn results(contrast: &Contrast, stored: Stored<'_>) -> u32 {
    let Stored { records, sequential, machine } = stored;
    let kind = contrast.as_kind();
    let locations = kind.locations();
    let has_result = |session: &SessionRuns<'_>| {
        if sequential.contains(session.name) && session.blocks(&locations) < Rule::LOOKS[0] {
            return false;
        }
        let context = Context { records: session.records.clone(), rule: Rule::STANDARD };
        kind.evaluate(&context).is_ok_and(|finding| finding.p.is_some())
    };
    let mut sessions = by_session(records, sequential);
    sessions.retain(|session| session.machine == machine && has_result(session));
    sessions.len() as u32
}

/// Returns the runs of the session that has the most blocks of a contrast, of these the newest, and
/// what they show.
fn pilot<'a>(
    contrast: &Contrast,
    records: &'a [RunRecord],
) -> Option<(Vec<&'a RunRecord>, Finding<'a>)> {
    let kind = contrast.as_kind();
    let rule = Rule { blocks_min: INTERVAL_MIN, dependence: false, ..Rule::STANDARD };
    let one = |all: &[&'a RunRecord]| {
        let records = needed(contrast, all);
        let finding = kind.evaluate(&Context { records: records.clone(), rule }).ok()?;
        finding.p.is_some().then_some((records, finding))
    };
    let sessions = by_session(records, &BTreeSet::new());
    sessions
        .iter()
        .filter_map(|session| one(&session.records))
        .max_by_key(|(_, finding)| finding.evidence.blocks)
}

/// Returns the runs that a contrast uses, with repeated runs of its places for the noise floor.
fn needed<'a>(contrast: &Contrast, records: &[&'a RunRecord]) -> Vec<&'a RunRecord> {
    let needs = contrast.needs();
    let own = |record: &RunRecord, patterns: &[&str]| {
        let arm = record.key.arm.strip_suffix(AGAIN).unwrap_or(&record.key.arm);
        arm != record.key.arm
            || patterns.iter().any(|p| pattern::matches(p, arm, &record.key.factors))
    };
    let mut all: Vec<&RunRecord> = Vec::new();
    for (at, patterns) in &needs {
        let here = at_location(records, at);
        all.extend(here.into_iter().filter(|record| own(record, patterns)));
    }
    all.sort_by_key(|record| std::ptr::from_ref::<RunRecord>(record));
    all.dedup_by(|a, b| std::ptr::eq(*a, *b));
    all
}

/// Returns the share of simulated sessions that decide a contrast.
fn power(contrast: &Contrast, pilot: &[&RunRecord], (blocks, session): (u32, u32)) -> f64 {
    let mut of_block: BTreeMap<u32, Vec<&RunRecord>> = BTreeMap::new();
    for record in pilot {
        of_block.entry(record.key.block).or_default().push(record);
    }
    let known: Vec<&Vec<&RunRecord>> = of_block.values().collect();
    let kind = contrast.as_kind();
    let rule = Rule { dependence: false, ..Rule::STANDARD };
    let mut state = u64::from(blocks);
    let mut decided = 0;
    for _ in 0..SESSIONS {
        let mut drawn = Vec::new();
        for block in 0..blocks {
            for record in known[draw(&mut state, known.len())] {
                let mut record = (*record).clone();
                record.key.block = block;
                drawn.push(record);
            }
        }
        let context = Context { records: drawn.iter().collect(), rule };
        let Ok(finding) = kind.evaluate(&context) else { continue };
        let finding = disturbed::withhold(&context, kind, finding);
        let shown = finding.p.is_some_and(|p| p <= level(blocks, session));
        decided += u32::from(finding.holds.is_some() && shown);
    }
    f64::from(decided) / f64::from(SESSIONS)
}

/// Returns a random index below `count` (splitmix64).
fn draw(state: &mut u64, count: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((u128::from(z ^ (z >> 31)) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_a_ratio_grow_with_noise() {
        assert_eq!(blocks_of_ratio(2.0, 0.1, 1), Some(12));
        assert_eq!(blocks_of_ratio(0.5, 0.1, 1), Some(12), "in either direction");
        let more = blocks_of_ratio(0.88, 0.2, 1).unwrap();
        assert!(more > 30, "{more}");
        let later = blocks_of_ratio(0.88, 0.15, 3).unwrap();
        assert!(later > blocks_of_ratio(0.88, 0.15, 1).unwrap(), "{later}");
        assert_eq!(blocks_of_ratio(0.88, 2.0, 1), None);
        assert_eq!(blocks_of_ratio(1.02, 0.001, 1), None, "within the margin");
    }

    #[test]
    fn the_bound_of_at_most_is_the_margin() {
        let near = |claim, margin, expected: f64| (bound(claim, margin) - expected).abs() < 1e-12;
        for claim in [Claimed::Less, Claimed::Greater, Claimed::Equal] {
            assert!(near(claim, Some(0.1), 1.0), "{claim:?}");
        }
        assert!(near(Claimed::AtMost, Some(0.25), 1.25) && near(Claimed::AtMost, None, 1.05));
        let equal_arms = 1.0 / bound(Claimed::AtMost, Some(0.25));
        assert_eq!(blocks_of_ratio(equal_arms, 0.1, 1), Some(12));
    }

    #[test]
    fn the_level_counts_looks_and_sessions() {
        assert!((level(30, 1) - 0.005).abs() < 1e-12 && (level(48, 1) - 0.02).abs() < 1e-12);
        assert!((level(48, 2) - 0.0025).abs() < 1e-12);
    }
}

//! Compares two sessions of a study: the arms in both, their ratios, and the differences beyond
//! noise.
//!
//! Runs are not paired across sessions: the ratio is a ratio of medians, and each sample is
//! resampled separately. A difference counts if its interval excludes 1 and the ratio exceeds the
//! margin of verdicts (5 %). Samples with too few values for an interval remain undecided. Samples with
//! zeros have no ratio; the exact intervals of their medians are compared with the same margin. If
//! machine, medium, files, compute time, plan or condition differ, the ratio does not measure a
//! change: it is shown with these differences and without a conclusion.

use crate::estimate::{Ends, Estimate, Ratio};
use crate::group::{ArmRuns, Group, groups};
use crate::input::Input;
use crate::quantity::Better;
use ioloom_model::condition::Metadata;
use ioloom_model::{Compute, RunRecord};
use ioloom_stats::Rule;
use std::collections::BTreeMap;

/// How an arm changed from the first session to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Better beyond noise.
    Better,
    /// Worse beyond noise.
    Worse,
    /// Different beyond noise, for a metric in which neither direction is better.
    Different,
    /// Unchanged: the interval is within the margin.
    Same,
    /// Inconclusive.
    Unclear,
    /// The sessions measured different things, so no change can be determined.
    NotComparable,
}

impl Change {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Different => "different",
            Self::Same => "same",
            Self::Unclear => "unclear",
            Self::NotComparable => "not comparable",
        }
    }

    /// Returns an icon that is distinct without colour.
    pub const fn icon(self) -> &'static str {
        match self {
            Self::Better => "▲",
            Self::Worse => "▼",
            Self::Different => "◆",
            Self::Same => "=",
            Self::Unclear => "?",
            Self::NotComparable => "≠",
        }
    }
}

/// An arm that is in both sessions.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// The comparison in the first session.
    pub group: Group<'a>,
    /// The arm in the first session.
    pub first: ArmRuns<'a>,
    /// The arm in the second session.
    pub second: ArmRuns<'a>,
    /// Ratio of second to first, whichever direction is better.
    pub ratio: Option<Ratio>,
    /// The conclusion.
    pub change: Change,
    /// Differences that prevent a conclusion.
    pub differs: Vec<String>,
}

impl Row<'_> {
    /// Returns the number of values in the smaller sample.
    pub fn n(&self) -> usize {
        let values = |arm: &ArmRuns<'_>| arm.estimate.as_ref().map_or(0, |e| e.values.len());
        values(&self.first).min(values(&self.second))
    }

    /// Returns the medians of both sessions.
    pub fn medians(&self) -> [Option<f64>; 2] {
        [&self.first, &self.second].map(|arm| arm.estimate.as_ref().map(|e| e.median))
    }

    /// Returns whether it has no ratio although there are enough values.
    fn has_zeros(&self) -> bool {
        self.ratio.is_none() && self.n() >= 2
    }

    /// Formats values that have no ratio: both medians (second / first) if their intervals decide, otherwise
    /// the reason.
    pub(crate) fn without_ratio(&self) -> String {
        match (self.change, self.medians()) {
            _ if !self.has_zeros() => "too few values".to_owned(),
            (
                Change::Better | Change::Worse | Change::Different | Change::Same,
                [Some(first), Some(second)],
            ) => {
                let unit = self.group.unit();
                format!("{} / {}", unit.format(second), unit.format(first))
            }
            _ => "contains zeros".to_owned(),
        }
    }
}

/// The meaning of rows without a ratio.
pub(crate) const ZEROS_NOTE: &str = "Samples with zeros have no ratio: the 95\u{A0}% intervals of their \
    medians are compared, and the medians are shown if these decide.";

/// Returns the session to compare a later one with, of candidates from the latest to the earliest, each
/// with whether it has ended: the latest one that has ended and covers at least half of the arms.
/// Without one, sessions that have ended are preferred to others, then those that cover more arms, then
/// later ones. Returns `None` if nothing is comparable.
pub fn earlier(candidates: impl IntoIterator<Item = (bool, Input)>, now: &Input) -> Option<Input> {
    let mut best: Option<((bool, usize), Input)> = None;
    let right = groups(now);
    let all =
        right.iter().flat_map(|group| &group.arms).filter(|arm| arm.estimate.is_some()).count();
    for (ended, before) in candidates {
        let compared = coverage(&before, now, &right);
        if compared == 0 {
            continue;
        }
        if ended && 2 * compared >= all {
            return Some(before);
        }
        let rank = (ended, compared);
        if best.as_ref().is_none_or(|(known, _)| rank > *known) {
            best = Some((rank, before));
        }
    }
    best.map(|(_, before)| before)
}

/// Returns the number of arms of a later session, with its comparisons, that are comparable with an
/// earlier one. Unlike [`matched`], it computes no ratios.
fn coverage(before: &Input, now: &Input, right: &[Group<'_>]) -> usize {
    let of_group = |group: &Group<'_>| {
        let other = right.iter().find(|g| same_place(group, g));
        let comparable = |arm: &&ArmRuns<'_>| {
            let twin = other.and_then(|g| twin(g, arm));
            let same = |twin: &ArmRuns<'_>| differences([before, now], [*arm, twin]).is_empty();
            arm.estimate.is_some() && twin.is_some_and(same)
        };
        group.arms.iter().filter(comparable).count()
    };
    groups(before).iter().map(of_group).sum()
}

/// Returns what changed beyond the noise within the sessions from an earlier session to a later one, in a
/// sentence. Arms that could not be judged are counted apart from those that are the same.
pub fn since(before: &Input, now: &Input) -> String {
    let matched = matched(before, now);
    let of = |change: Change| matched.rows.iter().filter(|row| row.change == change).count();
    let compared = matched.rows.len() - of(Change::NotComparable);
    let (same, unclear) = (of(Change::Same), of(Change::Unclear));
    let head = format!("Since {}: ", before.started());
    if compared == 0 {
        return format!("{head}nothing is comparable.");
    }
    let mut parts: Vec<String> = Vec::new();
    for (change, words) in [
        (Change::Better, "better"),
        (Change::Worse, "worse"),
        (Change::Different, "different"),
        (Change::Same, "the same within 5 %"),
    ] {
        // Noise between sessions is not known from two of them.
        let noise = match change {
            Change::Same => "",
            _ => " beyond the noise within the sessions",
        };
        match of(change) {
            0 => {}
            n if parts.is_empty() => parts.push(format!("{n} of {compared} arms {words}{noise}")),
            n => parts.push(format!("{n} {words}")),
        }
    }
    if parts.is_empty() {
        return format!(
            "{head}{unclear} of {compared} arms had too few blocks, killed runs or too wide an interval \
             to decide."
        );
    }
    if same == compared {
        return format!("{head}none of {compared} arms changed by more than 5 %.");
    }
    let largest = largest(&matched.rows);
    match (unclear, largest) {
        (0, _) => {}
        // The sentence has to fit on the first page.
        (_, Some(_)) => parts.push(format!("{unclear} undecided")),
        (_, None) => {
            parts.push(format!(
                "{unclear} undecided (too few blocks, killed runs or too wide an interval)"
            ));
        }
    }
    let most = largest.map_or_else(String::new, |(row, ratio)| {
        let text = crate::quantity::ratio_ends(ratio.value, ratio.ends);
        let (arm, experiment) = (row.first.name, &row.group.experiment.name);
        format!("; most: {arm} in {experiment}, {text} of the {} before", row.group.metric_name)
    });
    format!("{head}{}{most}.", parts.join(", "))
}

/// Returns the arm that changed most, and its ratio.
fn largest<'r, 'a>(rows: &'r [Row<'a>]) -> Option<(&'r Row<'a>, Ratio)> {
    let changed =
        |row: &&Row<'_>| matches!(row.change, Change::Better | Change::Worse | Change::Different);
    let rows = rows.iter().filter(changed).filter_map(|row| Some((row, row.ratio?)));
    rows.max_by(|(_, a), (_, b)| a.value.ln().abs().total_cmp(&b.value.ln().abs()))
}

/// Both sessions matched arm by arm.
#[derive(Debug, Clone)]
pub struct Matched<'a> {
    /// Arms of both sessions, in the order of the first.
    pub rows: Vec<Row<'a>>,
    /// Arms that are in only one session: session, comparison and name.
    pub alone: Vec<(String, String)>,
    /// Other differences, as sentences.
    pub remarks: Vec<String>,
}

impl Matched<'_> {
    /// Returns whether any conclusion is based on an interval, which may exclude 1 by chance.
    pub fn has_intervals(&self) -> bool {
        let mut compared = self.rows.iter().filter(|row| row.change != Change::NotComparable);
        // Without a ratio, only intervals decide.
        let by_medians = |row: &Row<'_>| row.change != Change::Unclear;
        compared.any(|row| row.ratio.map_or(by_medians(row), |r| r.ends.is_interval()))
    }

    /// Returns whether any row has no ratio because of zeros.
    pub fn has_zeros(&self) -> bool {
        self.rows.iter().any(Row::has_zeros)
    }

    /// Returns whether any ratio shows a minimum and maximum instead of an interval.
    pub fn has_too_few(&self) -> bool {
        self.rows.iter().filter_map(|row| row.ratio).any(|r| !r.ends.is_interval())
    }

    /// Returns the differences that prevent comparisons, each with its number of arms.
    pub fn refusals(&self) -> Vec<(&str, usize)> {
        let mut out: Vec<(&str, usize)> = Vec::new();
        for difference in self.rows.iter().flat_map(|row| &row.differs) {
            match out.iter_mut().find(|(text, _)| text == difference) {
                Some((_, count)) => *count += 1,
                None => out.push((difference, 1)),
            }
        }
        out
    }
}

/// Matches two sessions by experiment, file set, medium, condition, compute and arm.
pub fn matched<'a>(a: &'a Input, b: &'a Input) -> Matched<'a> {
    let (left, right) = (groups(a), groups(b));
    let mut rows = Vec::new();
    let mut alone = Vec::new();
    for group in &left {
        let other = right.iter().find(|g| same_place(group, g));
        for arm in group.arms.iter().filter(|x| x.estimate.is_some()) {
            let twin = other.and_then(|g| twin(g, arm));
            match twin {
                Some(twin) => {
                    let mut row = row(group, arm, twin, a.seed);
                    row.differs = differences([a, b], [arm, twin]);
                    if !row.differs.is_empty() {
                        row.change = Change::NotComparable;
                    }
                    rows.push(row);
                }
                None => alone.push((a.session.clone(), described(group, arm))),
            }
        }
    }
    for group in &right {
        let other = left.iter().find(|g| same_place(group, g));
        for arm in group.arms.iter().filter(|x| x.estimate.is_some()) {
            if other.and_then(|g| twin(g, arm)).is_none() {
                alone.push((b.session.clone(), described(group, arm)));
            }
        }
    }
    Matched { rows, alone, remarks: remarks(a, b) }
}

fn twin<'g, 'a>(group: &'g Group<'a>, arm: &ArmRuns<'_>) -> Option<&'g ArmRuns<'a>> {
    group.arms.iter().find(|t| t.name == arm.name && t.set == arm.set && t.estimate.is_some())
}

fn described(group: &Group<'_>, arm: &ArmRuns<'_>) -> String {
    format!("{}, {}: {}", group.experiment.name, group.place(), arm.name)
}

fn same_place(a: &Group<'_>, b: &Group<'_>) -> bool {
    a.experiment.name == b.experiment.name
        && a.experiment.metric == b.experiment.metric
        && a.set == b.set
        && a.medium == b.medium
        && a.condition == b.condition
        && a.compute == b.compute
}

fn row<'a>(group: &Group<'a>, first: &ArmRuns<'a>, second: &ArmRuns<'a>, seed: u64) -> Row<'a> {
    let values = |a: &ArmRuns<'_>| a.estimate.as_ref().map_or(Vec::new(), |e| e.values.clone());
    let ratio = Ratio::unpaired(&values(second), &values(first), seed);
    let change = match (ratio, &first.estimate, &second.estimate) {
        _ if first.is_cut_short() || second.is_cut_short() => Change::Unclear,
        (Some(ratio), ..) => judge(&ratio, group.better()),
        (None, Some(before), Some(now)) => judge_medians(before, now, group.better()),
        _ => Change::Unclear,
    };
    let (group, first, second) = (group.clone(), first.clone(), second.clone());
    Row { group, first, second, ratio, change, differs: Vec::new() }
}

/// Returns the differences between two arms that prevent a conclusion.
fn differences(inputs: [&Input; 2], arms: [&ArmRuns<'_>; 2]) -> Vec<String> {
    let mut out = Vec::new();
    let mut differ = |what: &str, [x, y]: [String; 2]| {
        if x != y {
            out.push(format!("{what}: {x} vs. {y}"));
        }
    };
    differ("machine", inputs.map(|i| i.machine.fingerprint.clone()));
    differ("medium", arms.map(medium));
    differ("file set", arms.map(|a| format!("{} {}", a.set, first(a, |r| r.set.hash.clone()))));
    differ("compute time", arms.map(|a| first(a, compute_of_set)));
    differ("plan", arms.map(|a| a.plan.to_string()));
    let work = arms.map(|a| a.work().unwrap_or_default());
    if arms.iter().all(|a| !a.plan.is_null()) {
        differ("work", work.map(|(files, bytes)| format!("{files} files, {bytes} bytes")));
    }
    differ("condition", arms.map(proved));
    out
}

fn first(arm: &ArmRuns<'_>, of: impl Fn(&RunRecord) -> String) -> String {
    arm.runs.first().map_or(String::new(), |r| of(r))
}

/// Returns the mean compute time per file if the file set defines it. The hash of the set does not
/// depend on it.
fn compute_of_set(record: &RunRecord) -> String {
    match (&record.key.compute, record.set.compute_ns_mean) {
        (Compute::Spin(None) | Compute::Sleep(None), Some(ns)) => format!("{ns:.0} ns per file"),
        _ => String::new(),
    }
}

/// Returns the medium of an arm. Loop device numbers are ignored because they are assigned
/// dynamically.
fn medium(arm: &ArmRuns<'_>) -> String {
    first(arm, |record| {
        let Some(m) = &record.set.medium else { return "unknown".to_owned() };
        let device = m.block_device.as_deref().unwrap_or("no device");
        let device = if device.starts_with("loop") { "loop" } else { device };
        format!("{} on {device}", m.file_system)
    })
}

/// Returns the requested condition, the state of names, and whether it was proved in most runs.
fn proved(arm: &ArmRuns<'_>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for proof in arm.runs.iter().filter_map(|r| r.proof.as_ref()) {
        let names = match proof.metadata {
            Metadata::Cold => "names cold",
            Metadata::Warm => "names warm",
            Metadata::Unknown => "names unknown",
        };
        let shown = if proof.proved == Some(true) { "proved" } else { "not proved" };
        *counts.entry(format!("{} ({names}) {shown}", proof.asked)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or_else(|| "no proof".to_owned(), |(words, _)| words)
}

fn judge(r: &Ratio, better: Better) -> Change {
    if !r.ends.is_interval() {
        return Change::Unclear;
    }
    let margin = 1.0 + Rule::FULL.margin;
    let Ends { low, high, .. } = r.ends;
    let (up, down) = (low > 1.0 && r.value > margin, high < 1.0 && r.value < 1.0 / margin);
    directed(up, down, better).unwrap_or(match low >= 1.0 / margin && high <= margin {
        true => Change::Same,
        false => Change::Unclear,
    })
}

/// Judges two samples without a ratio by the exact intervals of their medians. They are disjoint by
/// chance less often than an interval of a ratio excludes 1.
fn judge_medians(first: &Estimate, second: &Estimate, better: Better) -> Change {
    let both = first.ends.zip(second.ends);
    let Some((a, b)) = both.filter(|(a, b)| a.is_interval() && b.is_interval()) else {
        return Change::Unclear;
    };
    if first.values.iter().chain(&second.values).any(|v| *v < 0.0) {
        return Change::Unclear;
    }
    let margin = 1.0 + Rule::FULL.margin;
    let up = b.low > a.high && second.median > first.median * margin;
    let down = b.high < a.low && second.median * margin < first.median;
    let same = b.high <= a.low * margin && b.low * margin >= a.high;
    directed(up, down, better).unwrap_or(if same { Change::Same } else { Change::Unclear })
}

/// Returns the change of a value that is shown to be higher or lower.
fn directed(up: bool, down: bool, better: Better) -> Option<Change> {
    match (up, down, better) {
        (true, _, Better::Higher) | (_, true, Better::Lower) => Some(Change::Better),
        (true, _, Better::Lower) | (_, true, Better::Higher) => Some(Change::Worse),
        (true, _, Better::Neither) | (_, true, Better::Neither) => Some(Change::Different),
        _ => None,
    }
}

fn remarks(a: &Input, b: &Input) -> Vec<String> {
    let mut out = Vec::new();
    let mut differ = |what: &str, x: &str, y: &str| {
        if x != y {
            out.push(format!("{what}: {x} vs. {y}"));
        }
    };
    differ("study", &a.study.name, &b.study.name);
    differ("mode", a.mode.name(), b.mode.name());
    differ("machine", &a.machine.fingerprint, &b.machine.fingerprint);
    differ("version", &a.version, &b.version);
    differ("seed", &a.seed.to_string(), &b.seed.to_string());
    differ("definition", &a.spec_hash, &b.spec_hash);
    for record in &a.records {
        let twin = b
            .records
            .iter()
            .find(|r| r.key.set == record.key.set && r.key.medium == record.key.medium);
        if let Some(twin) = twin.filter(|t| t.set.hash != record.set.hash) {
            let line =
                format!("file set {}: {} vs. {}", record.key.set, record.set.hash, twin.set.hash);
            if !out.contains(&line) {
                out.push(line);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_needs_an_interval_and_a_margin() {
        let r = |value, low, high| {
            let ends = Ends::interval(low, high);
            Ratio { value, ends, n: 8, paired: false }
        };
        let few = |r: Ratio| Ratio { ends: Ends { confidence: 0.9, ..r.ends }, n: 4, ..r };
        for (ratio, better, change) in [
            (r(1.2, 1.1, 1.3), Better::Lower, Change::Worse),
            (r(1.2, 1.1, 1.3), Better::Higher, Change::Better),
            (r(0.8, 0.7, 0.9), Better::Lower, Change::Better),
            (r(0.8, 0.7, 0.9), Better::Neither, Change::Different),
            (r(1.02, 1.01, 1.03), Better::Lower, Change::Same),
            (r(1.2, 0.9, 1.5), Better::Lower, Change::Unclear),
            (r(1.04, 1.01, 1.2), Better::Lower, Change::Unclear),
            (few(r(0.8, 0.7, 0.9)), Better::Lower, Change::Unclear),
            (few(r(1.02, 1.01, 1.03)), Better::Lower, Change::Unclear),
        ] {
            assert_eq!(judge(&ratio, better), change, "{ratio:?} {better:?}");
        }
    }

    #[test]
    fn zeros_are_judged_by_their_medians() {
        let of = |values: &[f64]| Estimate::of(values.to_vec(), 1).expect("values");
        let (none, some, more) = (of(&[0.0; 12]), of(&[64.0; 12]), of(&[66.0; 12]));
        let (mut one, mut half) = ([64.0; 12], [0.0; 12]);
        one[5] = 0.0;
        half[6..].fill(64.0);
        let (one, half, few) = (of(&one), of(&half), of(&[0.0; 4]));
        for (first, second, better, change) in [
            (&none, &none, Better::Lower, Change::Same),
            (&none, &some, Better::Lower, Change::Worse),
            (&none, &some, Better::Higher, Change::Better),
            (&some, &none, Better::Lower, Change::Better),
            (&some, &none, Better::Neither, Change::Different),
            (&one, &some, Better::Lower, Change::Same),
            (&one, &more, Better::Lower, Change::Same),
            (&half, &some, Better::Lower, Change::Unclear),
            (&few, &some, Better::Lower, Change::Unclear),
        ] {
            assert_eq!(judge_medians(first, second, better), change, "{first:?} {second:?}");
        }
    }
}

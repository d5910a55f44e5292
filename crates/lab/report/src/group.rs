//! Groups records into comparisons of arms.
//!
//! A comparison is one experiment on one file set, medium, condition and compute. If the arms of an
//! experiment specify their own file sets (cost by size), these file sets are points of one
//! comparison. Arms are in study order; refused, failed and missing runs are retained with their
//! reasons.

use crate::estimate::{Estimate, Ratio};
use crate::input::Input;
use crate::metric::metric_name;
use crate::quantity::{Better, Unit};
use ioloom_model::study::{AGAIN, Arm, Experiment, Mode, fill};
use ioloom_model::units::{format_ns, spell_ns};
use ioloom_model::{
    AnyPlan, ColdBy, Compute, Condition, Distribution, Doubt, Measured, Outcome, RunRecord,
};
use std::collections::{BTreeMap, BTreeSet};

/// Reason why a run has no usable result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The plan cannot run here.
    Refused,
    /// The run failed.
    Failed,
    /// The run was stopped at its deadline.
    TimedOut,
    /// The bytes that the run read differ from those of the file set.
    WrongBytes,
}

impl Unusable {
    /// Returns the name for display and in the embedded data.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::WrongBytes => "wrong bytes",
        }
    }
}

/// One comparison.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// Short identifier on the page and in its data: `g0`, prefixed with the study on a page of several
    /// studies.
    pub id: String,
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Display name of the metric.
    pub metric_name: String,
    /// Name of the file set, or of the family of file sets.
    pub set: String,
    /// Whether its arms use different file sets.
    pub merges_sets: bool,
    /// Name of the medium.
    pub medium: &'a str,
    /// Requested condition.
    pub condition: Condition,
    /// The compute, with times in readable units.
    pub compute: String,
    /// Arms that have at least one record.
    pub arms: Vec<ArmRuns<'a>>,
}

/// The runs of one arm in one comparison.
#[derive(Debug, Clone)]
pub struct ArmRuns<'a> {
    /// Short identifier: `g0.a3`.
    pub id: String,
    /// Name with factors filled in.
    pub name: &'a str,
    /// Name of its line in a chart.
    pub family: String,
    /// Factors by name.
    pub factors: &'a BTreeMap<String, f64>,
    /// The plan that ran.
    pub plan: &'a AnyPlan,
    /// Name of its file set.
    pub set: &'a str,
    /// Finished runs in block order, except those that read wrong bytes.
    pub runs: Vec<&'a RunRecord>,
    /// The metric of the experiment over the finished runs.
    pub estimate: Option<Estimate>,
    /// Runs without a usable result: kind, reason in words, and number of runs.
    pub unusable: Vec<(Unusable, String, usize)>,
    /// Doubts about its runs.
    pub doubts: BTreeSet<Doubt>,
}

/// Reason why an arm of the study has no runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRunReason {
    /// Only a reboot can establish its condition.
    NeedsReboot,
    /// Quick mode omits it.
    Quick,
    /// The study ended before running it.
    Stopped,
}

impl NotRunReason {
    /// Returns the reason in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NeedsReboot => "needs a reboot, then --after-reboot",
            Self::Quick => "not run in quick mode",
            Self::Stopped => "not run: the study was stopped or out of time",
        }
    }
}

/// An arm of the study without any runs, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRun {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the arm with its braces.
    pub arm: String,
    /// The missing factor values in words.
    pub values: String,
    /// The reason.
    pub reason: NotRunReason,
}

impl<'a> ArmRuns<'a> {
    /// Returns whether it repeats another arm to measure noise; such an arm is not a candidate.
    pub fn is_again(&self) -> bool {
        self.name.ends_with(AGAIN)
    }

    /// Returns a metric of the finished runs with their blocks.
    pub fn blocks(&self, metric: &str) -> Vec<(u32, f64)> {
        self.runs
            .iter()
            .filter_map(|r| Some((r.key.block, r.measured()?.metric(metric)?)))
            .collect()
    }

    /// Returns whether at least half of its runs were stopped at their deadline. If so, the true
    /// median exceeds the deadline, and the median of the finished runs does not estimate it.
    pub fn is_stopped(&self) -> bool {
        let stopped = self.stopped();
        stopped > 0 && stopped >= self.runs.len()
    }

    /// Returns whether at least a quarter of its runs were stopped at their deadline. If so, the arm
    /// is not judged: the remaining runs are the faster ones.
    pub fn is_cut_short(&self) -> bool {
        let stopped = self.stopped();
        stopped > 0 && 4 * stopped >= self.runs.len() + stopped
    }

    /// Returns the number of runs that were stopped at their deadline.
    fn stopped(&self) -> usize {
        let stopped = self.unusable.iter().filter(|(why, ..)| *why == Unusable::TimedOut);
        stopped.map(|(.., times)| times).sum()
    }

    /// Returns the estimate of a metric over the finished runs; `None` if most runs were stopped.
    pub fn metric(&self, metric: &str, seed: u64) -> Option<Estimate> {
        if self.is_stopped() {
            return None;
        }
        Estimate::of(self.blocks(metric).into_iter().map(|(_, v)| v).collect(), seed)
    }

    /// Returns the measurements of the finished runs.
    pub fn measured(&self) -> impl Iterator<Item = &'a Measured> + '_ {
        self.runs.iter().filter_map(|r| r.measured())
    }

    /// Returns the finished run with the elapsed time closest to the median.
    pub fn typical(&self) -> Option<&'a Measured> {
        let middle =
            ioloom_stats::median(&self.measured().map(|m| m.elapsed_ns as f64).collect::<Vec<_>>());
        self.measured().min_by(|a, b| {
            let away = |m: &Measured| (m.elapsed_ns as f64 - middle).abs();
            away(a).total_cmp(&away(b))
        })
    }

    /// Returns the files and bytes of its runs: only arms with the same work are comparable.
    pub fn work(&self) -> Option<(u64, u64)> {
        let first = self.measured().next()?;
        Some((first.files, first.bytes))
    }

    /// Returns the plan's rank by simplicity: plain reads by one thread come first.
    pub fn simplicity(&self) -> (usize, u32, usize) {
        self.plan.simplicity()
    }
}

impl<'a> Group<'a> {
    /// Returns the unit of the metric.
    pub fn unit(&self) -> Unit {
        Unit::of(&self.experiment.metric)
    }

    /// Returns which direction of the metric is better.
    pub fn better(&self) -> Better {
        Better::of(&self.experiment.metric)
    }

    /// Returns whether the metric is the speed of a whole run.
    pub fn is_speed(&self) -> bool {
        matches!(self.experiment.metric.as_str(), "elapsed_ns" | "files_per_s" | "bytes_per_s")
    }

    /// Returns file set, condition and compute in a few words.
    pub fn work_place(&self) -> String {
        let set = if self.set.is_empty() { "no files" } else { &self.set };
        let mut out = format!("{set}, {}", self.condition);
        if self.compute != "none" {
            out.push_str(", ");
            out.push_str(&self.compute);
        }
        out
    }

    /// Returns file set, condition, compute and medium in a few words.
    pub fn place(&self) -> String {
        match self.elsewhere() {
            Some(medium) => format!("{}, on {medium}", self.work_place()),
            None => self.work_place(),
        }
    }

    /// Returns the medium unless it is the work directory's.
    pub fn elsewhere(&self) -> Option<&'a str> {
        (self.medium != "work").then_some(self.medium)
    }

    /// Returns the measured arms with the same work as the simplest one, simplest first. The null
    /// method is excluded because it reads nothing, and arms whose runs were killed because only their
    /// faster runs remain.
    pub fn comparable(&self) -> Vec<&ArmRuns<'a>> {
        let mut arms: Vec<_> = self
            .arms
            .iter()
            .filter(|a| a.estimate.is_some() && !a.plan.is_null() && !a.is_again())
            .filter(|a| !a.is_cut_short())
            .collect();
        arms.sort_by_key(|a| a.simplicity());
        if let Some(work) = arms.first().and_then(|a| a.work()) {
            arms.retain(|a| a.work() == Some(work));
        }
        arms
    }

    /// Returns the arms that are not judged because at least a quarter of their runs were killed.
    pub fn killed(&self) -> Vec<&ArmRuns<'a>> {
        let killed = |a: &&ArmRuns<'_>| a.is_cut_short() && !a.plan.is_null() && !a.is_again();
        self.arms.iter().filter(killed).collect()
    }

    /// Returns the same without those that did other work than `arm`, and so would not be compared
    /// with it anyway.
    pub fn killed_at_work_of(&self, arm: &ArmRuns<'_>) -> Vec<&ArmRuns<'a>> {
        let mut killed = self.killed();
        killed.retain(|k| k.work().zip(arm.work()).is_none_or(|(own, other)| own == other));
        killed
    }

    /// Returns the arm of the study that an arm of this comparison belongs to.
    pub fn spec(&self, arm: &ArmRuns<'_>) -> Option<&'a Arm> {
        self.experiment.arms.get(spec_index(self.experiment, arm.name, arm.factors))
    }

    /// Returns the arm with the best median among those with the same work.
    pub fn best(&self) -> Option<&ArmRuns<'a>> {
        let better = self.better();
        self.comparable().into_iter().reduce(|best, arm| match (&best.estimate, &arm.estimate) {
            (Some(b), Some(a)) if better.prefers(a.median, b.median) => arm,
            _ => best,
        })
    }

    /// Returns how many times as good `a` is as `b`: above 1 is better, for times and for rates.
    /// Returns `None` if runs of either were killed so often that it is not judged.
    pub fn gain(&self, a: &ArmRuns<'a>, b: &ArmRuns<'a>) -> Option<Ratio> {
        if a.is_cut_short() || b.is_cut_short() {
            return None;
        }
        let metric = &self.experiment.metric;
        let (a, b) = (a.blocks(metric), b.blocks(metric));
        if self.better() == Better::Higher { Ratio::paired(&a, &b) } else { Ratio::paired(&b, &a) }
    }

    /// Returns an arm that ran twice, and the ratio of its two series.
    pub fn noise(&self) -> Option<(&ArmRuns<'a>, Ratio)> {
        let again = self.arms.iter().find(|a| a.is_again())?;
        let name = again.name.strip_suffix(AGAIN)?;
        let first = self.arms.iter().find(|a| a.name == name && a.set == again.set)?;
        Some((first, self.gain(again, first)?))
    }

    /// Returns the doubts about its runs and its experiment.
    pub fn doubts(&self, input: &Input) -> BTreeSet<Doubt> {
        let own = input
            .doubts
            .iter()
            .filter(|d| d.experiment.as_deref() == Some(self.experiment.name.as_str()));
        self.arms
            .iter()
            .flat_map(|a| a.doubts.iter().copied())
            .chain(own.map(|d| d.doubt))
            .collect()
    }
}

/// Groups the records into comparisons, in study order.
pub fn groups(input: &Input) -> Vec<Group<'_>> {
    let mut out = Vec::new();
    for experiment in &input.study.experiments {
        let mut keys = Vec::new();
        let mut parts: BTreeMap<_, Vec<&RunRecord>> = BTreeMap::new();
        let merges = experiment.arms.iter().any(|a| a.set.is_some());
        let mut records: Vec<_> =
            input.records.iter().filter(|r| r.key.experiment == experiment.name).collect();
        records.sort_by_key(|r| (r.key.block, r.key.position));
        for record in records {
            let set = if merges { "" } else { record.key.set.as_str() };
            let key = (
                set.to_owned(),
                record.key.medium.as_str(),
                record.key.condition,
                compute_words(&record.key.compute),
            );
            if !parts.contains_key(&key) {
                keys.push(key.clone());
            }
            parts.entry(key).or_default().push(record);
        }
        keys.sort_by_key(|k| {
            let set = experiment.sets.iter().position(|s| *s == k.0).unwrap_or(usize::MAX);
            let condition = experiment.conditions.iter().position(|c| *c == k.2);
            let compute = experiment.computes.iter().position(|c| compute_words(c) == k.3);
            (set, k.1.to_owned(), condition, compute)
        });
        for key in keys {
            let records = parts.remove(&key).unwrap_or_default();
            let id = format!("{}g{}", input.prefix, out.len());
            let arms = arms_of(experiment, &records, &id, input.seed);
            let (set, medium, condition, compute) = key;
            let merged = merges.then(|| sets_words(&records));
            let set = merged.clone().unwrap_or(set);
            let merges_sets = merged.is_some();
            out.push(Group {
                id,
                experiment,
                metric_name: metric_name(&experiment.metric, &input.metric_names),
                set,
                merges_sets,
                medium,
                condition,
                compute,
                arms,
            });
        }
    }
    out
}

/// Returns the number of file sets of an experiment, with the names of the first and last.
fn sets_words(records: &[&RunRecord]) -> String {
    let mut sets: Vec<(&str, f64)> = Vec::new();
    for r in records {
        if !sets.iter().any(|(name, _)| *name == r.key.set) {
            sets.push((&r.key.set, r.set.bytes_mean));
        }
    }
    sets.sort_by(|a, b| a.1.total_cmp(&b.1));
    match sets.as_slice() {
        [] => "no file set".to_owned(),
        [(one, _)] => (*one).to_owned(),
        [(first, _), .., (last, _)] => format!("{} file sets, {first} to {last}", sets.len()),
    }
}

/// Formats a compute with readable times: `sleep:400us` instead of nanoseconds.
pub fn compute_words(compute: &Compute) -> String {
    match compute {
        Compute::Spin(Some(Distribution::Identical(ns))) => format!("spin:{}", spell_ns(*ns)),
        Compute::Sleep(Some(Distribution::Identical(ns))) => format!("sleep:{}", spell_ns(*ns)),
        other => other.to_string(),
    }
}

fn arms_of<'a>(
    experiment: &'a Experiment,
    records: &[&'a RunRecord],
    group: &str,
    seed: u64,
) -> Vec<ArmRuns<'a>> {
    let mut arms: Vec<ArmRuns<'a>> = Vec::new();
    for record in records {
        let at = arms.iter().position(|a| a.name == record.key.arm && a.set == record.key.set);
        let at = at.unwrap_or_else(|| {
            arms.push(ArmRuns {
                id: String::new(),
                name: &record.key.arm,
                family: family(experiment, record),
                factors: &record.key.factors,
                plan: &record.plan,
                set: &record.key.set,
                runs: Vec::new(),
                estimate: None,
                unusable: Vec::new(),
                doubts: BTreeSet::new(),
            });
            arms.len() - 1
        });
        let arm = &mut arms[at];
        arm.doubts.extend(record.doubts.iter().copied());
        let (why, reason) = match &record.outcome {
            // As for verdicts, the time of a run that read wrong bytes is meaningless.
            Outcome::Done { .. } if record.doubts.contains(&Doubt::WrongBytes) => {
                let reason =
                    "bytes or digest differ from the file set; excluded from all statistics";
                (Unusable::WrongBytes, reason.to_owned())
            }
            Outcome::Done { .. } => {
                arm.runs.push(record);
                continue;
            }
            Outcome::Refused { reason } => (Unusable::Refused, reason.clone()),
            Outcome::Failed { reason } => (Unusable::Failed, reason.clone()),
            Outcome::TimedOut { seconds } => (Unusable::TimedOut, at_deadline(*seconds)),
        };
        match arm.unusable.iter_mut().find(|(w, r, _)| *w == why && *r == reason) {
            Some((_, _, count)) => *count += 1,
            None => arm.unusable.push((why, reason, 1)),
        }
    }
    arms.sort_by(|a, b| {
        let place = |arm: &ArmRuns<'_>| spec_index(experiment, arm.name, arm.factors);
        let factors = |arm: &ArmRuns<'_>| arm.factors.values().copied().collect::<Vec<_>>();
        place(a)
            .cmp(&place(b))
            .then_with(|| factors(a).partial_cmp(&factors(b)).unwrap_or(std::cmp::Ordering::Equal))
            .then_with(|| a.name.len().cmp(&b.name.len()))
            .then_with(|| a.name.cmp(b.name))
    });
    for (i, arm) in arms.iter_mut().enumerate() {
        arm.id = format!("{group}.a{i}");
        arm.estimate = arm.metric(&experiment.metric, seed);
    }
    arms
}

/// Returns why a run without a result was stopped.
pub(crate) fn at_deadline(seconds: f64) -> String {
    format!("stopped at its deadline of {}", format_ns(seconds * 1e9))
}

/// Returns the scale of a factor and its unit: `kib` and `mib` are bytes.
pub fn factor_unit(factor: &str) -> (f64, Unit) {
    match factor {
        "kib" => (1024.0, Unit::Bytes),
        "mib" => (1_048_576.0, Unit::Bytes),
        other => (1.0, Unit::of(other)),
    }
}

fn factor_text(factor: &str, value: f64) -> String {
    let (one, unit) = factor_unit(factor);
    format!("{factor} = {}", unit.format_tick(value * one))
}

/// Returns the family of an arm with the values of its factors that are not on the axis.
fn family(experiment: &Experiment, record: &RunRecord) -> String {
    let spec = experiment.arms.get(spec_index(experiment, &record.key.arm, &record.key.factors));
    let mut name = spec.map_or_else(|| record.key.arm.clone(), Arm::family);
    let Some(axis) = experiment.axis.as_deref() else {
        return name;
    };
    for (factor, value) in &record.key.factors {
        if factor != axis && spec.is_some_and(|s| s.name.contains('{')) {
            name.push_str(&format!(", {}", factor_text(factor, *value)));
        }
    }
    name
}

fn spec_index(experiment: &Experiment, name: &str, factors: &BTreeMap<String, f64>) -> usize {
    let name = name.strip_suffix(AGAIN).unwrap_or(name);
    let exact =
        experiment.arms.iter().position(|a| fill(&a.name, factors).is_ok_and(|n| n == name));
    let loose = || experiment.arms.iter().position(|a| fits(&a.name, name));
    exact.or_else(loose).unwrap_or(usize::MAX)
}

/// Returns whether a name contains the literal parts of a template in order.
pub(crate) fn fits(template: &str, name: &str) -> bool {
    let mut at = 0;
    let mut fixed = template.split('{').map(|p| p.split_once('}').map_or(p, |(_, tail)| tail));
    let Some(first) = fixed.next() else { return false };
    if !name.starts_with(first) {
        return false;
    }
    at += first.len();
    for part in fixed {
        match name[at..].find(part) {
            Some(i) => at += i + part.len(),
            None => return false,
        }
    }
    template.ends_with('}') || at == name.len()
}

/// Returns the arms of the study that have no record, with the missing factor values.
pub fn not_run(input: &Input) -> Vec<NotRun> {
    let mut out = Vec::new();
    for experiment in &input.study.experiments {
        let ran: BTreeSet<String> = input
            .records
            .iter()
            .filter(|r| r.key.experiment == experiment.name)
            .map(|r| point(spec_index(experiment, &r.key.arm, &r.key.factors), &r.key.factors))
            .collect();
        for (i, arm) in experiment.arms.iter().enumerate() {
            let points = arm.points();
            let missing: Vec<_> = points.iter().filter(|p| !ran.contains(&point(i, p))).collect();
            if missing.is_empty() {
                continue;
            }
            let whole = missing.len() == points.len();
            let left_out = input.mode == Mode::Quick && missing.iter().all(|p| !arm.in_quick(p));
            let reason = match arm.cold_by {
                Some(ColdBy::Reboot) => NotRunReason::NeedsReboot,
                _ if left_out => NotRunReason::Quick,
                _ => NotRunReason::Stopped,
            };
            out.push(NotRun {
                experiment: experiment.name.clone(),
                arm: arm.name.clone(),
                values: if whole { "all".to_owned() } else { words(&missing) },
                reason,
            });
        }
    }
    out
}

fn point(arm: usize, factors: &BTreeMap<String, f64>) -> String {
    format!("{arm} {factors:?}")
}

fn words(points: &[&BTreeMap<String, f64>]) -> String {
    let mut by_factor: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for p in points {
        for (factor, value) in *p {
            let values = by_factor.entry(factor).or_default();
            if !values.contains(value) {
                values.push(*value);
            }
        }
    }
    let parts: Vec<_> = by_factor
        .iter()
        .map(|(factor, values)| {
            let unit = factor_unit(factor).1;
            let texts: Vec<_> =
                values.iter().map(|v| unit.format_tick(*v * factor_unit(factor).0)).collect();
            format!("{factor} = {}", texts.join(", "))
        })
        .collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_parts_of_a_template_are_found_in_a_name() {
        assert!(fits("size-{size}", "size-64KiB") && !fits("size-{size}", "other-4"));
        assert!(fits("plain", "plain") && !fits("plain", "plainer"));
    }
}

//! The first page: one line per question, with what to change.
//!
//! A study marks the experiments that answer a question of users (`topic`) and the arm that the tools
//! use by default (`usual`). The line compares the default with the best other arm. The arm that looks
//! best does so partly by luck, so it is compared in blocks that had no part in the choice
//! (`choice.rs`). The default is worth changing if the interval of the gain is entirely above the margin
//! of verdicts.

use crate::choice::Blocks;
use crate::estimate::Ratio;
use crate::fit::{NAME_MAX, clipped};
use crate::group::{ArmRuns, Group};
use crate::headline::Piece;
use crate::quantity::{Better, percent, ratio_ends};
use ioloom_model::study::fill;
use ioloom_model::{AnyPlan, Condition, Doubt, Method, Plan, Schedule};
use ioloom_stats::Rule;
use std::collections::{BTreeMap, BTreeSet};

/// One line of the first page.
#[derive(Debug, Clone)]
pub struct Advice<'g, 'a> {
    /// Identifier in the embedded data.
    pub id: String,
    /// The question in a few words.
    pub topic: &'a str,
    /// The comparison that answers it.
    pub group: &'g Group<'a>,
    /// The default, or the simplest arm if no arm is the default.
    pub usual: &'g ArmRuns<'a>,
    /// Whether `usual` is what the tools do by default.
    pub is_default: bool,
    /// The best of the other arms in the blocks that choose.
    pub best: &'g ArmRuns<'a>,
    /// Speed of the best other arm relative to `usual`, if they share blocks.
    pub ratio: Option<Ratio>,
    /// Doubts about at least half of the runs behind it.
    pub doubts: BTreeSet<Doubt>,
}

/// Returns the lines of a study: for each topic its first comparison with results, cold before warm
/// and the work directory before other media.
pub fn advice<'g, 'a>(groups: &'g [Group<'a>]) -> Vec<Advice<'g, 'a>> {
    let mut lines: Vec<Advice<'_, '_>> = Vec::new();
    let rank = |group: &Group<'_>| {
        let own = matches!(group.medium, "work" | "image");
        (own, group.condition == Condition::Cold)
    };
    for line in groups.iter().filter_map(of_group) {
        match lines.iter_mut().find(|known| known.topic == line.topic) {
            Some(known) if rank(line.group) > rank(known.group) => *known = line,
            Some(_) => {}
            None => lines.push(line),
        }
    }
    lines
}

fn of_group<'g, 'a>(group: &'g Group<'a>) -> Option<Advice<'g, 'a>> {
    let topic = group.experiment.topic.as_deref()?;
    if group.merges_sets || group.better() == Better::Neither {
        return None;
    }
    let mut arms = group.comparable();
    let named = group.experiment.usual.as_deref();
    let default = arms.iter().copied().find(|arm| Some(arm.name) == named);
    let usual = default.or_else(|| arms.first().copied())?;
    // Arms at another level of a factor of the default did other work.
    arms.retain(|arm| {
        let same = |(factor, level): (&String, &f64)| {
            arm.factors.get(factor).is_none_or(|other| other == level)
        };
        arm.id != usual.id && usual.factors.iter().all(same)
    });
    let all: Vec<_> = std::iter::once(usual).chain(arms.iter().copied()).collect();
    let blocks = Blocks::of(group, &all);
    let best = blocks.choose(group, &arms)?;
    let ratio = blocks.gain(group, best, usual);
    let mut doubts = frequent_doubts(&[usual, best]);
    if ratio.is_none() || usual.runs.len().min(best.runs.len()) < Rule::FULL.blocks_min {
        doubts.insert(Doubt::FewSamples);
    }
    let id = format!("{}.advice", group.id);
    Some(Advice { id, topic, group, usual, is_default: default.is_some(), best, ratio, doubts })
}

fn frequent_doubts(arms: &[&ArmRuns<'_>]) -> BTreeSet<Doubt> {
    let runs: Vec<_> = arms.iter().flat_map(|arm| &arm.runs).collect();
    let mut seen: BTreeMap<Doubt, usize> = BTreeMap::new();
    for doubt in runs.iter().flat_map(|run| &run.doubts) {
        *seen.entry(*doubt).or_default() += 1;
    }
    seen.into_iter().filter(|(_, n)| n * 2 >= runs.len()).map(|(doubt, _)| doubt).collect()
}

impl Advice<'_, '_> {
    /// Returns the line without its topic.
    pub fn pieces(&self) -> Vec<Piece> {
        let words = |text: &str| Piece::Words(text.to_owned());
        let number = |text: String, field| Piece::Number { text, of: self.id.clone(), field };
        let (best, usual) = (self.says(self.best), self.says(self.usual));
        let Some(r) = self.ratio else {
            return vec![words(&self.without_ratio(&usual, &best))];
        };
        let gain = || number(ratio_ends(r.value, r.ends), "ratio");
        let loss = || number(ratio_ends(1.0 / r.value, r.ends.inverse()), "slowdown");
        let margin = 1.0 + Rule::FULL.margin;
        if !r.ends.is_interval() {
            let blocks =
                if r.n == 1 { "1 block is".to_owned() } else { format!("{} blocks are", r.n) };
            return vec![
                words(&format!("{best}: ")),
                gain(),
                words(&format!(
                    " the speed of {}; {blocks} too few to decide.",
                    if self.is_default { "your default" } else { &usual }
                )),
            ];
        }
        if self.is_default && r.ends.low > margin {
            return vec![words(&format!("change to {best}: ")), gain(), words(" the speed.")];
        }
        if self.is_default && r.ends.high < 1.0 {
            let next = format!(" the speed of the next best ({best}).");
            return vec![
                words("your default is the fastest measured here: "),
                loss(),
                words(&next),
            ];
        }
        if self.is_default && r.ends.high <= margin {
            let most = percent((r.ends.high - 1.0).max(0.0));
            return vec![
                words("your default is at most "),
                number(most, "within"),
                words(&format!(" slower than the best measured here ({best}).")),
            ];
        }
        let usual = if self.is_default { "your default" } else { &usual };
        match r.is_clear() {
            true if r.value >= 1.0 => {
                vec![words(&format!("{best}: ")), gain(), words(&format!(" the speed of {usual}."))]
            }
            true => {
                vec![words(&format!("{usual}: ")), loss(), words(&format!(" the speed of {best}."))]
            }
            false => vec![
                words(&format!("no clear difference; {best}: ")),
                gain(),
                words(&format!(" the speed of {usual}.")),
            ],
        }
    }

    /// Returns the line if no ratio exists, which takes two blocks.
    fn without_ratio(&self, usual: &str, best: &str) -> String {
        let metric = &self.group.experiment.metric;
        let medians = self.best.estimate.as_ref().zip(self.usual.estimate.as_ref());
        let won = medians.is_none_or(|(b, u)| self.group.better().prefers(b.median, u.median));
        let usual = if self.is_default { "your default" } else { usual };
        match self.usual.blocks(metric).len() {
            1 => {
                let first = if won { best } else { usual };
                format!("only one block ran, which decides nothing; fastest in it: {first}.")
            }
            _ => format!(
                "{usual} and {best} have fewer than two blocks in common, so nothing is decided."
            ),
        }
    }

    /// Returns what a user would call an arm.
    pub fn says(&self, arm: &ArmRuns<'_>) -> String {
        let own = self.group.experiment.arms.iter().find_map(|spec| {
            let name = fill(&spec.name, arm.factors).ok()?;
            (name == arm.name).then_some(spec.says.as_deref())?
        });
        let own = own.and_then(|says| fill(says, arm.factors).ok());
        clipped(&own.unwrap_or_else(|| plan_words(arm.plan, arm.name)), NAME_MAX)
    }
}

/// Describes a plan without its spelling.
fn plan_words(plan: &AnyPlan, name: &str) -> String {
    let AnyPlan::Files(Plan { method, schedule, .. }) = plan else { return name.replace('-', " ") };
    let how = match method {
        Method::Read => "blocking reads".to_owned(),
        Method::Nowait => "non-blocking reads".to_owned(),
        other if other.to_string().starts_with("mmap") => "memory mapping".to_owned(),
        other if other.to_string().starts_with("direct") => "direct reads".to_owned(),
        other if other.to_string().starts_with("uring") => "io_uring".to_owned(),
        other => other.to_string(),
    };
    match schedule {
        Schedule::Threads { .. } if plan.threads() == 1 => format!("one thread, {how}"),
        Schedule::Threads { .. } => format!("{} threads, {how}", plan.threads()),
        Schedule::Roles { .. } => format!("separate readers and compute threads, {how}"),
        Schedule::Window { window: 1, .. } => format!("one request in flight, {how}"),
        Schedule::Window { window, .. } => format!("up to {window} requests in flight, {how}"),
    }
}

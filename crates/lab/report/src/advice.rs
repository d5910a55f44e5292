//! The first page: one line per question, with what to change.
//!
//! A study marks the experiments that answer a question of users (`topic`) and the arm that the tools
//! use by default (`usual`). The line compares the default with the best other arm. The arm that looks
//! best does so partly by luck, so it is compared in blocks that had no part in the choice
//! (`choice.rs`). The default is worth changing if the interval of the gain is entirely above the margin
//! of verdicts.

use crate::choice::Blocks;
use crate::estimate::Ratio;
use crate::fit::{NAME_MAX, capital, clipped};
use crate::group::{ArmRuns, Group, Unusable};
use crate::headline::Piece;
use crate::input::{DoubtRow, Input};
use crate::medium::short_names;
use crate::quantity::{Better, percent, ratio_ends, rounded_up};
use ioloom_model::study::fill;
use ioloom_model::{AnyPlan, Condition, Doubt, Method, Plan, Schedule};
use ioloom_stats::Rule;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One line of the first page.
#[derive(Debug, Clone)]
pub struct Advice<'g, 'a> {
    /// Identifier in the embedded data.
    pub id: String,
    /// The question in a few words.
    pub topic: &'a str,
    /// The comparison that answers it.
    pub group: &'g Group<'a>,
    /// The default, or the simplest arm if no arm is the default or it has no result. If runs of all arms
    /// were killed too often, the first arm.
    pub usual: &'g ArmRuns<'a>,
    /// Whether `usual` is the default of the tools.
    pub is_default: bool,
    /// Why the default has no result, if the study names one.
    pub missing: Option<String>,
    /// The best of the other arms in the blocks that choose; `usual` if nothing is compared with it.
    pub best: &'g ArmRuns<'a>,
    /// Speed of the best other arm relative to `usual`, if they share blocks.
    pub ratio: Option<Ratio>,
    /// The arms that were not chosen, the fastest first.
    pub others: Vec<Other<'g, 'a>>,
    /// Doubts about the runs behind it, and about its experiment, the most common first.
    pub doubts: Vec<Doubted>,
}

/// An arm that was not chosen.
#[derive(Debug, Clone, Copy)]
pub struct Other<'g, 'a> {
    /// The arm.
    pub arm: &'g ArmRuns<'a>,
    /// Its speed relative to `usual` in the blocks that compare, if they share blocks.
    pub ratio: Option<Ratio>,
    /// Whether its median is better.
    pub wins: bool,
}

impl Other<'_, '_> {
    /// Returns the largest speed that its runs leave possible. Infinite if unknown.
    fn high(&self) -> f64 {
        match self.ratio {
            Some(r) if r.ends.is_interval() || !self.wins => r.ends.high,
            None if !self.wins => 0.0,
            _ => f64::INFINITY,
        }
    }

    /// Returns the largest speed that its interval leaves possible. Infinite without an interval.
    fn end(&self) -> f64 {
        let interval = self.ratio.filter(|r| r.ends.is_interval());
        interval.map_or(f64::INFINITY, |r| r.ends.high)
    }
}

/// A doubt about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Doubted {
    /// How much of the answer it concerns.
    pub extent: Extent,
    /// The doubt.
    pub doubt: Doubt,
}

/// How much of an answer a doubt concerns, in the order in which doubts are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// At least half of the runs, or all of the comparison.
    Most,
    /// The experiment, perhaps with other arms, file sets or conditions.
    Experiment,
    /// Fewer than half of the runs: this many of this many.
    Few(Reverse<usize>, usize),
}

/// Returns the lines of a study: for each topic its first comparison with results, those that compare
/// plans before others, the work directory before other media, and cold before warm.
pub fn advice<'g, 'a>(input: &Input, groups: &'g [Group<'a>]) -> Vec<Advice<'g, 'a>> {
    let mut lines: Vec<Advice<'_, '_>> = Vec::new();
    let rank = |line: &Advice<'_, '_>| {
        let own = matches!(line.group.medium, "work" | "image");
        (line.best.id != line.usual.id, own, line.group.condition == Condition::Cold)
    };
    for line in groups.iter().filter_map(|group| of_group(input, group)) {
        match lines.iter_mut().find(|known| known.topic == line.topic) {
            Some(known) if rank(&line) > rank(known) => *known = line,
            Some(_) => {}
            None => lines.push(line),
        }
    }
    lines
}

fn of_group<'g, 'a>(input: &Input, group: &'g Group<'a>) -> Option<Advice<'g, 'a>> {
    let topic = group.experiment.topic.as_deref()?;
    if group.merges_sets || group.better() == Better::Neither {
        return None;
    }
    let mut arms = group.comparable();
    let named = group.experiment.usual.as_deref();
    let default = arms.iter().copied().find(|arm| Some(arm.name) == named);
    let first = || arms.first().copied().or_else(|| group.killed().first().copied());
    let usual = default.or_else(first)?;
    let missing = named.filter(|_| default.is_none()).map(|name| why_missing(group, name));
    arms.retain(|arm| arm.id != usual.id && is_at_level_of(usual, arm));
    let all: Vec<_> = std::iter::once(usual).chain(arms.iter().copied()).collect();
    let blocks = Blocks::of(group, &all);
    let best = match blocks.choose(group, &arms) {
        None if missing.is_some() || !killed(group, usual).is_empty() => usual,
        best => best?,
    };
    let ratio = (best.id != usual.id).then(|| blocks.gain(group, best, usual)).flatten();
    arms.retain(|arm| arm.id != best.id);
    let others = others(blocks, group, &arms, usual);
    let compared = if best.id == usual.id { vec![usual] } else { vec![usual, best] };
    let mut doubts = doubts(input, group, &compared);
    if ratio.is_none() || usual.runs.len().min(best.runs.len()) < Rule::FULL.blocks_min {
        doubts.retain(|known| known.doubt != Doubt::FewSamples);
        doubts.push(Doubted { extent: Extent::Most, doubt: Doubt::FewSamples });
        doubts.sort();
    }
    let id = format!("{}.advice", group.id);
    let is_default = default.is_some();
    Some(Advice { id, topic, group, usual, is_default, missing, best, ratio, others, doubts })
}

/// Returns whether an arm does the work of another by its factors. At another level of a factor it does
/// other work.
fn is_at_level_of(usual: &ArmRuns<'_>, arm: &ArmRuns<'_>) -> bool {
    let same = |(factor, level): (&String, &f64)| {
        arm.factors.get(factor).is_none_or(|other| other == level)
    };
    usual.factors.iter().all(same)
}

/// Returns the arms that would be compared if fewer of their runs had been killed.
fn killed<'g, 'a>(group: &'g Group<'a>, usual: &ArmRuns<'_>) -> Vec<&'g ArmRuns<'a>> {
    let mut killed = group.killed_at_work_of(usual);
    killed.retain(|arm| is_at_level_of(usual, arm));
    killed
}

/// Returns why an arm has no result that can be compared.
fn why_missing(group: &Group<'_>, name: &str) -> String {
    match group.arms.iter().find(|arm| arm.name == name) {
        None => "it did not run".to_owned(),
        Some(arm) if arm.estimate.is_some() && arm.is_cut_short() => {
            "at least a quarter of its runs were killed".to_owned()
        }
        Some(arm) if arm.estimate.is_some() => "its work differs".to_owned(),
        Some(arm) => match arm.unusable.first() {
            Some((Unusable::TimedOut, reason, _)) => clipped(reason, REASON_MAX),
            Some((why, reason, _)) => clipped(&format!("{}: {reason}", why.name()), REASON_MAX),
            None => "no usable values".to_owned(),
        },
    }
}

/// Returns the speed of arms relative to `usual` in the blocks that compare, the fastest first.
fn others<'g, 'a>(
    blocks: Blocks,
    group: &Group<'_>,
    arms: &[&'g ArmRuns<'a>],
    usual: &ArmRuns<'_>,
) -> Vec<Other<'g, 'a>> {
    let one = |arm: &&'g ArmRuns<'a>| {
        let ratio = blocks.gain(group, arm, usual);
        let medians = arm.estimate.as_ref().zip(usual.estimate.as_ref());
        let wins = medians.is_some_and(|(a, u)| group.better().prefers(a.median, u.median));
        Other { arm, ratio, wins: ratio.map_or(wins, |r| r.value > 1.0) }
    };
    let mut others: Vec<_> = arms.iter().map(one).collect();
    let speed = |other: &Other<'_, '_>| other.ratio.map_or(0.0, |r| r.value);
    others.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    others
}

/// Returns the doubts about the runs of arms and about the experiment.
fn doubts(input: &Input, group: &Group<'_>, arms: &[&ArmRuns<'_>]) -> Vec<Doubted> {
    let runs: Vec<_> = arms.iter().flat_map(|arm| &arm.runs).collect();
    let mut seen: BTreeMap<Doubt, usize> = BTreeMap::new();
    for doubt in runs.iter().flat_map(|run| &run.doubts) {
        *seen.entry(*doubt).or_default() += 1;
    }
    let own = |row: &&DoubtRow| {
        let of_arms = |name: &String| arms.iter().any(|arm| arm.name == name);
        row.experiment.as_ref() == Some(&group.experiment.name)
            && row.arm.as_ref().is_none_or(of_arms)
    };
    let extent = |n: usize| match n * 2 < runs.len() {
        true => Extent::Few(Reverse(n), runs.len()),
        false => Extent::Most,
    };
    let mut known: BTreeMap<Doubt, Extent> =
        seen.into_iter().map(|(doubt, n)| (doubt, extent(n))).collect();
    for row in input.doubts.iter().filter(own) {
        // What the runs themselves show is more exact.
        let of_row = if row.arm.is_some() { Extent::Most } else { Extent::Experiment };
        known.entry(row.doubt).or_insert(of_row);
    }
    let mut doubts: Vec<_> =
        known.into_iter().map(|(doubt, extent)| Doubted { extent, doubt }).collect();
    doubts.sort();
    doubts
}

/// Maximum number of characters of a reason in an answer.
const REASON_MAX: usize = 60;

fn words(text: &str) -> Piece {
    Piece::Words(text.to_owned())
}

impl Advice<'_, '_> {
    /// Returns the line without its topic.
    pub fn pieces(&self) -> Vec<Piece> {
        let mut out = self.judged();
        let mut killed = killed(self.group, self.usual);
        // The reason for a missing default is in the line.
        let named = self.group.experiment.usual.as_deref().filter(|_| self.missing.is_some());
        killed.retain(|arm| Some(arm.name) != named);
        if !killed.is_empty() {
            let names: Vec<&str> = killed.iter().map(|arm| arm.name).collect();
            let names = clipped(&names.join(", "), NAME_MAX);
            out.push(words(&format!(" Not judged, because many runs were killed: {names}.")));
        }
        out
    }

    /// Returns the comparison, and why the default has no part in it.
    fn judged(&self) -> Vec<Piece> {
        let Some(reason) = &self.missing else {
            let alone = self.best.id == self.usual.id;
            return if alone { vec![words("nothing is compared.")] } else { self.compared() };
        };
        let mut out = vec![words(&format!("your default was not measured ({reason})"))];
        if self.best.id == self.usual.id {
            out.push(words(", so nothing is compared."));
            return out;
        }
        out.push(words("; "));
        out.extend(self.compared());
        out
    }

    /// Returns the largest speed, relative to `usual`, that the intervals of the chosen arm and those
    /// with a better median leave possible. Infinite if unknown.
    pub fn bound(&self) -> f64 {
        let chosen = self.ratio.filter(|r| r.ends.is_interval());
        let first = chosen.map_or(f64::INFINITY, |r| r.ends.high);
        self.others.iter().filter(|o| o.wins).map(Other::high).fold(first, f64::max)
    }

    /// Names the fastest arm to which [`Advice::bound`] applies.
    fn bounded(&self) -> String {
        let limited = |arm: &ArmRuns<'_>| {
            let wins = self.others.iter().any(|o| o.wins && o.arm.id == arm.id);
            wins || arm.id == self.best.id
        };
        match self.next().filter(|(arm, _)| limited(arm)) {
            Some((arm, _)) => format!("the best measured here ({})", self.says(arm)),
            // A faster arm with a worse median than the default has no bound.
            None => self.says(self.best),
        }
    }

    /// Returns the fastest arm that was not chosen and is faster than `usual` by its interval.
    pub fn rival(&self) -> Option<(&ArmRuns<'_>, Ratio)> {
        let faster = |o: &Other<'_, '_>| o.ratio.filter(Ratio::is_gain).is_some();
        self.others.iter().find(|o| faster(o)).and_then(|o| Some((o.arm, o.ratio?)))
    }

    /// Returns the fastest other arm and its speed relative to `usual`.
    pub fn next(&self) -> Option<(&ArmRuns<'_>, Ratio)> {
        let other = self.others.first().and_then(|o| Some((o.arm, o.ratio?)));
        let chosen = self.ratio?;
        Some(other.filter(|(_, r)| r.value > chosen.value).unwrap_or((self.best, chosen)))
    }

    fn number(&self, text: String, field: &'static str) -> Piece {
        Piece::Number { text, of: self.id.clone(), field }
    }

    /// Returns the comparison of the best other arm with `usual`.
    fn compared(&self) -> Vec<Piece> {
        let (best, usual) = (self.says(self.best), self.says(self.usual));
        let Some(r) = self.ratio else {
            return vec![words(&self.without_ratio(&usual, &best))];
        };
        let gain = || self.number(ratio_ends(r.value, r.ends), "ratio");
        let loss = || self.number(ratio_ends(1.0 / r.value, r.ends.inverse()), "slowdown");
        let usual = if self.is_default { "your default" } else { &usual };
        if !r.ends.is_interval() {
            let blocks =
                if r.n == 1 { "1 block is".to_owned() } else { format!("{} blocks are", r.n) };
            let few = format!(" the speed of {usual}; {blocks} too few to decide.");
            return vec![words(&format!("{best}: ")), gain(), words(&few)];
        }
        if self.is_default {
            return self.of_default(r, &best);
        }
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

    /// Compares the default with all other arms. What is said of all of them holds for those with a
    /// better median too.
    fn of_default(&self, r: Ratio, best: &str) -> Vec<Piece> {
        let gain = || self.number(ratio_ends(r.value, r.ends), "ratio");
        let margin = 1.0 + Rule::FULL.margin;
        let bound = self.bound();
        if r.ends.low > margin {
            return vec![words(&format!("change to {best}: ")), gain(), words(" the speed.")];
        }
        let highest = self.others.iter().map(Other::end).fold(bound, f64::max);
        if let Some((arm, next)) = self.next().filter(|_| highest < 1.0 / margin) {
            let text = ratio_ends(1.0 / next.value, next.ends.inverse());
            return vec![
                words("your default is the fastest measured here: "),
                self.number(text, "next_slowdown"),
                words(&format!(" the speed of the next best ({}).", self.says(arm))),
            ];
        }
        if bound <= 1.0 && r.ends.low >= 1.0 / margin {
            return vec![words(&format!(
                "no difference above {} between your default and {best}; no plan is shown to be faster.",
                percent(Rule::FULL.margin)
            ))];
        }
        if bound <= 1.0 {
            return vec![
                words(&format!("no plan is shown to be faster than your default; {best}: ")),
                gain(),
                words(" its speed."),
            ];
        }
        if bound <= margin {
            return vec![
                words("your default is at most "),
                self.number(percent(rounded_up(bound - 1.0)), "within"),
                words(&format!(" slower than {}.", self.bounded())),
            ];
        }
        let mut out = if r.ends.high < 1.0 / margin {
            let end = format!(" the speed of {best}, the best in other blocks");
            let loss = self.number(ratio_ends(1.0 / r.value, r.ends.inverse()), "slowdown");
            vec![words("your default: "), loss, words(&end)]
        } else if r.is_clear() {
            vec![words(&format!("{best}: ")), gain(), words(" the speed of your default")]
        } else {
            let start = format!("no clear difference; {best}: ");
            vec![words(&start), gain(), words(" the speed of your default")]
        };
        self.end(&mut out, r);
        out
    }

    /// Ends a sentence with the arm that was not chosen but is faster than the default.
    fn end(&self, out: &mut Vec<Piece>, chosen: Ratio) {
        match self.rival() {
            Some((arm, ratio)) => {
                let arm = self.says(arm);
                let also = if chosen.is_gain() { "also " } else { "" };
                let (start, end) = match ratio.value > chosen.value {
                    true => (format!("; {arm} looks faster: "), "; repeat to decide."),
                    false => (format!("; {arm} is {also}faster than your default: "), "."),
                };
                out.push(words(&start));
                out.push(self.number(ratio_ends(ratio.value, ratio.ends), "rival_ratio"));
                out.push(words(end));
            }
            None if chosen.ends.high < 1.0 => out.push(words("; no plan is shown to be faster.")),
            None => out.push(words(".")),
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

    /// Returns the topic with the condition and the medium of the comparison, in at most this many
    /// characters.
    pub fn heading(&self, most: usize) -> String {
        let condition = match self.group.condition {
            Condition::AsIs => None,
            other => Some(other.name().to_owned()),
        };
        let elsewhere = self.group.elsewhere();
        let medium = elsewhere.map(|name| format!("on {}", short_names([name])[name]));
        let place: Vec<String> = condition.into_iter().chain(medium).collect();
        let place =
            if place.is_empty() { String::new() } else { format!(" ({})", place.join(", ")) };
        let room = most - place.chars().count().min(most / 2);
        clipped(&(clipped(&capital(self.topic), room) + &place), most)
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

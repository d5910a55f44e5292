//! The answer: the fastest plan for each file set, its gain, and its limit.
//!
//! Everything is computed from the records. A gain is the paired ratio over blocks to the simplest
//! plan or to the best plain-threads plan. If its interval contains 1, the sentence reports no
//! gain; if there are too few blocks for an interval, it says so. The best plan is chosen in other
//! blocks than those of the gain (`choice.rs`); the table shows how many plans it was chosen from.

use crate::choice::Blocks;
use crate::estimate::{Ends, Ratio};
use crate::fit::{NAME_MAX, clipped};
use crate::group::{ArmRuns, Group};
use crate::quantity::{Better, percent, ratio_ends};
use ioloom_model::units::format_size;
use ioloom_model::{Condition, Method, Plan, Schedule};
use std::collections::BTreeMap;

/// Part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Words(String),
    /// The name of a file set.
    Name(String),
    /// The spelling of a plan.
    Plan(String),
    /// A number with a reference to its data.
    Number {
        /// Formatted number.
        text: String,
        /// Identifier in the embedded data.
        of: String,
        /// Field in the embedded data.
        field: &'static str,
    },
}

/// The best arm of a comparison and its gains.
#[derive(Debug, Clone)]
pub struct Headline<'g, 'a> {
    /// The comparison.
    pub group: &'g Group<'a>,
    /// The best arm in the blocks that choose.
    pub best: &'g ArmRuns<'a>,
    /// Whether it is the simplest arm. If so, the gain is over the next best.
    pub is_simplest: bool,
    /// Number of arms it was chosen from.
    pub out_of: usize,
    /// Gains over simpler arms, or over the next best: identifier, arm, and the ratio if they share
    /// blocks.
    pub gains: Vec<(String, &'g ArmRuns<'a>, Option<Ratio>)>,
    /// The limit of more than half of the runs of the best arm, and its evidence from a typical run.
    pub limit: Option<(String, String)>,
}

impl Headline<'_, '_> {
    /// Returns whether it is shown to be faster than each arm that it is compared with.
    pub fn is_fastest(&self) -> bool {
        let gains = |r: &Option<Ratio>| r.as_ref().is_some_and(Ratio::is_gain);
        !self.gains.is_empty() && self.gains.iter().all(|(_, _, ratio)| gains(ratio))
    }

    /// Returns the ends of its median and of its gains.
    pub fn ends(&self) -> impl Iterator<Item = Ends> {
        let gains = self.gains.iter().filter_map(|(_, _, ratio)| ratio.map(|r| r.ends));
        self.best.estimate.as_ref().and_then(|e| e.ends).into_iter().chain(gains)
    }
}

/// Returns the headline of a comparison with at least two arms that did the same work.
pub fn headline<'g, 'a>(group: &'g Group<'a>) -> Option<Headline<'g, 'a>> {
    let arms = group.comparable();
    // Arms on different file sets are points of a curve, so there is no common winner.
    if group.merges_sets || arms.len() < 2 || group.better() == Better::Neither {
        return None;
    }
    let blocks = Blocks::of(group, &arms);
    let best = blocks.choose(group, &arms)?;
    let simplest = arms[0];
    let is_plain = |arm: &&ArmRuns<'_>| {
        let plain =
            |p: &Plan| p.method == Method::Read && matches!(p.schedule, Schedule::Threads { .. });
        arm.plan.files().is_some_and(plain)
    };
    let plain: Vec<_> = arms.iter().copied().filter(is_plain).collect();
    let mut others = vec![simplest];
    others.extend(blocks.choose(group, &plain));
    others.dedup_by(|a, b| a.id == b.id);
    others.retain(|o| o.id != best.id);
    if best.id == simplest.id {
        // No plan is simpler; comparing with the next best shows the cost of a more complex plan.
        let rest: Vec<_> = arms.iter().copied().filter(|arm| arm.id != best.id).collect();
        others = vec![blocks.choose(group, &rest)?];
    }
    let gains = others
        .into_iter()
        .enumerate()
        .map(|(i, o)| (format!("{}.r{i}", group.id), o, blocks.gain(group, best, o)))
        .collect();
    Some(Headline {
        group,
        best,
        is_simplest: best.id == simplest.id,
        out_of: arms.len(),
        gains,
        limit: limit(best),
    })
}

fn limit(arm: &ArmRuns<'_>) -> Option<(String, String)> {
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for m in arm.measured() {
        if let Some(b) = &m.bottleneck {
            *words.entry(b.word.as_str()).or_default() += 1;
        }
    }
    // Fewer do not show what limited the arm.
    let all: usize = words.values().sum();
    let (word, _) = words.into_iter().find(|(_, n)| *n * 2 > all)?;
    let typical = arm.typical().and_then(|m| m.bottleneck.as_ref()).filter(|b| b.word == word);
    let sentence = typical
        .or_else(|| arm.measured().filter_map(|m| m.bottleneck.as_ref()).find(|b| b.word == word));
    Some((word.to_owned(), sentence.map_or(String::new(), |b| b.sentence.clone())))
}

/// Returns the headlines of the answer: for each of the first three file sets, the first comparison
/// of whole runs, with the work directory before other media and cold before warm. A study lists
/// its main question first; selecting by result would be biased.
pub fn chosen<'h, 'g, 'a>(headlines: &'h [Headline<'g, 'a>]) -> Vec<&'h Headline<'g, 'a>> {
    let mut out: Vec<&Headline<'_, '_>> = Vec::new();
    let rank = |h: &Headline<'_, '_>| {
        (h.group.elsewhere().is_none(), h.group.condition == Condition::Cold)
    };
    for h in headlines.iter().filter(|h| h.group.is_speed()) {
        match out.iter_mut().find(|o| o.group.set == h.group.set) {
            Some(other) if rank(h) > rank(other) => *other = h,
            Some(_) => {}
            None => out.push(h),
        }
    }
    out.truncate(3);
    out
}

/// Returns the answer in two sentences, or in one if there is nothing to compare or the study
/// compares costs instead of whole runs. `headlines` are those of `groups`.
pub fn answer(headlines: &[Headline<'_, '_>], groups: &[Group<'_>]) -> [Vec<Piece>; 2] {
    let chosen = chosen(headlines);
    if chosen.is_empty() {
        let words = if headlines.is_empty() {
            unanswered(groups)
        } else {
            "This study measures costs and does not compare the speed of plans. Its chapter \
            contains the numbers, which determine the verdicts on the claims below."
                .to_owned()
        };
        return [vec![Piece::Words(words)], Vec::new()];
    }
    let mut first = Vec::new();
    for (i, h) in chosen.iter().enumerate() {
        words(&mut first, Separator::Semicolon.before(i, chosen.len()));
        clause(&mut first, h, i == 0);
        let killed = killed(h.group);
        if !killed.is_empty() {
            let names = names(&killed);
            words(&mut first, &format!(" (not judged, because many runs were killed: {names})"));
        }
    }
    words(&mut first, ".");
    (first, limits(&chosen)).into()
}

/// Returns why no arms are compared.
fn unanswered(groups: &[Group<'_>]) -> String {
    let compares = |g: &&Group<'_>| !g.merges_sets && g.better() != Better::Neither;
    let killed: Vec<_> = groups.iter().filter(compares).flat_map(killed).collect();
    let measured = |g: &Group<'_>| g.arms.iter().any(|arm| arm.estimate.is_some());
    if !groups.iter().any(|g| compares(&g)) && groups.iter().any(measured) {
        return "These experiments follow a factor, or a metric without better or worse, and do not \
            rank plans; the tables contain the numbers."
            .to_owned();
    }
    if killed.is_empty() {
        return "No two plans have finished the same work, so this report has no answer yet."
            .to_owned();
    }
    format!(
        "Many runs of {} were killed at their deadline, and no two other plans have finished the same \
         work, so this report has no answer yet.",
        names(&killed)
    )
}

/// Returns the arms that would be compared if fewer of their runs had been killed.
fn killed<'g, 'a>(group: &'g Group<'a>) -> Vec<&'g ArmRuns<'a>> {
    match group.comparable().first() {
        Some(arm) => group.killed_at_work_of(arm),
        None => group.killed(),
    }
}

/// Returns the names of arms, each once, shortened to the room in an answer.
fn names(arms: &[&ArmRuns<'_>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for arm in arms {
        if !names.contains(&arm.name) {
            names.push(arm.name);
        }
    }
    clipped(&names.join(", "), NAME_MAX)
}

/// Separator between the items of a list.
#[derive(Debug, Clone, Copy)]
enum Separator {
    Comma,
    Semicolon,
}

impl Separator {
    /// Returns the separator before item `i` of `count`.
    const fn before(self, i: usize, count: usize) -> &'static str {
        match self {
            _ if i == 0 => "",
            Self::Comma if i + 1 == count => " and ",
            Self::Comma => ", ",
            Self::Semicolon if i + 1 == count => "; and ",
            Self::Semicolon => "; ",
        }
    }
}

fn words(out: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        out.push(Piece::Words(text.to_owned()));
    }
}

/// Returns the file set size in words; without files, the work of a run. A run can read a part of the
/// set, or all of it several times.
fn size_words(arm: &ArmRuns<'_>) -> String {
    let set = arm.runs.first().map(|run| (run.set.files, run.set.bytes_total));
    set.filter(|(files, _)| *files > 0).or(arm.work()).map_or(String::new(), |(files, bytes)| {
        let word = if files == 1 { "file" } else { "files" };
        format!("{} {word}, {}", crate::quantity::count(files), format_size(bytes))
    })
}

fn clause(out: &mut Vec<Piece>, h: &Headline<'_, '_>, first: bool) {
    words(out, if first { "On " } else { "on " });
    out.push(Piece::Name(h.group.set.clone()));
    let medium = h.group.elsewhere().map_or(String::new(), |medium| format!(", on {medium}"));
    words(out, &format!(" ({}, {}{medium}) ", size_words(h.best), h.group.condition));
    let gains: Vec<_> =
        h.gains.iter().filter_map(|(id, o, r)| Some((id, o, r.as_ref()?))).collect();
    let clear = gains.iter().filter(|(_, _, r)| r.is_gain()).count();
    let few = gains.iter().find(|(_, _, r)| !r.ends.is_interval()).map(|(_, _, r)| r.n);
    let whose = if h.is_simplest { "the simplest plan, " } else { "" };
    if gains.is_empty() {
        words(out, whose);
        out.push(Piece::Plan(h.best.plan.to_string()));
        words(out, " has the best median; there are too few common blocks for a ratio");
        return;
    }
    let lead = match clear {
        0 if few.is_some() => "too few blocks ran to determine the fastest plan: ",
        0 if !h.is_simplest => "no plan is shown to be faster than the simpler ones: ",
        0 if gains.iter().all(|(.., ratio)| !ratio.is_clear()) => "no clear difference: ",
        _ => "",
    };
    words(out, &format!("{lead}{whose}"));
    out.push(Piece::Plan(h.best.plan.to_string()));
    let comma = if h.is_simplest { "," } else { "" };
    let has = if clear == gains.len() { "is faster: it has" } else { "has" };
    words(out, &format!("{comma} {has} "));
    let count = gains.len();
    for (i, (id, other, ratio)) in gains.into_iter().enumerate() {
        words(out, Separator::Comma.before(i, count));
        out.push(Piece::Number {
            text: ratio_ends(ratio.value, ratio.ends),
            of: id.clone(),
            field: "ratio",
        });
        words(out, if i == 0 { " the speed of " } else { " that of " });
        out.push(Piece::Plan(other.plan.to_string()));
    }
    if let Some(blocks) = few {
        words(out, &format!(" (minimum to maximum of {blocks} blocks)"));
    }
}

fn limits(chosen: &[&Headline<'_, '_>]) -> Vec<Piece> {
    let known: Vec<_> = chosen
        .iter()
        .filter_map(|h| Some((h, h.limit.as_ref().filter(|(w, _)| w != "unknown")?)))
        .collect();
    let mut out = Vec::new();
    if known.is_empty() {
        words(&mut out, "The evidence does not show what limited these plans.");
        return out;
    }
    for (i, (h, (word, _))) in known.iter().enumerate() {
        words(&mut out, Separator::Comma.before(i, known.len()));
        out.push(Piece::Plan(h.best.plan.to_string()));
        words(&mut out, if i == 0 { " was limited by " } else { " by " });
        words(&mut out, &format!("{} on ", limit_words(word)));
        out.push(Piece::Name(h.group.set.clone()));
        let busy: Vec<f64> = h.best.measured().filter_map(|m| m.device_busy).collect();
        if word == "device" && !busy.is_empty() {
            words(&mut out, " (busy ");
            out.push(Piece::Number {
                text: percent(ioloom_stats::median(&busy)),
                of: h.best.id.clone(),
                field: "device_busy",
            });
            words(&mut out, &format!(" of the time, n\u{A0}=\u{A0}{})", busy.len()));
        }
    }
    words(&mut out, ".");
    out
}

/// Returns the name of a bottleneck within a sentence.
pub fn limit_words(word: &str) -> &str {
    match word {
        "device" => "the device",
        "metadata" => "opening and metadata",
        "hand-over" => "the handover between threads",
        "memory" => "the memory budget",
        "input list" => "the input list",
        "processor quota" => "the processor quota",
        "function waits" => "waits inside the function",
        "output" => "waits for the reader of results",
        other => other,
    }
}

/// Returns a sentence as plain text, with no-break spaces inside numbers.
pub fn plain_text(pieces: &[Piece]) -> String {
    pieces
        .iter()
        .map(|p| match p {
            Piece::Words(t) | Piece::Name(t) | Piece::Plan(t) => t.clone(),
            Piece::Number { text, .. } => text.replace(' ', "\u{A0}"),
        })
        .collect()
}

/// Returns the headlines of all comparisons with at least two comparable arms.
pub fn headlines<'g, 'a>(groups: &'g [Group<'a>]) -> Vec<Headline<'g, 'a>> {
    groups.iter().filter_map(headline).collect()
}

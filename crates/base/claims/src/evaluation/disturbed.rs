//! Withholds verdicts that depend on disturbed blocks.
//!
//! A run next to a noisy neighbour carries that doubt, as does a run that missed its condition or
//! had failed files. If some of the runs behind a verdict carry such a doubt, their blocks are
//! excluded and the contrast is judged again from the quiet blocks of the same sessions and media. The
//! verdict is retained if the quiet blocks give the same one. Otherwise the disturbed blocks
//! decided it, and the verdict becomes undecided, with the reason and the remedy. Only whole blocks
//! are excluded, never single runs, because the arms of a block are compared with each other and
//! share the disturbance. If arms were chosen from a family, the runs of the whole family count.
//!
//! At least [`QUIET_MIN`] of the blocks required for a verdict must be quiet: three disturbed blocks
//! of twelve do not invalidate the verdict, four do. At the same threshold, a doubt about single
//! runs extends to the whole finding. This check can only withhold a verdict, never
//! reverse it: choosing blocks after seeing them must not create a finding.
//!
//! If a session has too few blocks for a verdict, its disturbed blocks are excluded from the effect that is shown.
//! This cannot create a finding, because no effect of so few blocks decides anything.

use super::finding::Finding;
use super::gap::Gap;
use crate::contrast::kind::{Context, Kind};
use crate::rule::Rule;
use crate::verdict::Evidence;
use ioloom_model::units::format_counted;
use ioloom_model::{Doubt, RunRecord};
use ioloom_stats::INTERVAL_MIN;
use std::collections::BTreeSet;

/// Minimum share of quiet blocks among those required for a verdict.
const QUIET_MIN: f64 = 0.75;

/// A block of one comparison: a disturbance affects all its arms. The file set is not part of the
/// key because the arms of one comparison can use different file sets.
type Block<'a> = (&'a str, &'a str, &'a str, String, u32);

fn block(record: &RunRecord) -> Block<'_> {
    let key = &record.key;
    let place = format!("{} {}", key.condition, key.compute);
    (&key.session, &key.experiment, &key.medium, place, key.block)
}

/// A doubt about single runs that excludes their blocks.
struct Excluding {
    doubt: Doubt,
    /// Why, with `{}` for the number of blocks.
    cause: &'static str,
    /// What to do.
    remedy: &'static str,
    /// What the runs of blocks that would decide have to have.
    wanted: &'static str,
}

/// The run shared the machine with other programs, missed the condition of the claim, or skipped files. Such a run
/// does not measure what the claim is about.
const EXCLUDING: [Excluding; 4] = [
    Excluding {
        doubt: Doubt::NoisyNeighbour,
        cause: "other programs disturbed {}",
        remedy: "repeat on an idle machine",
        wanted: "on an idle machine",
    },
    Excluding {
        doubt: Doubt::NotCold,
        cause: "data were already cached in {}",
        remedy: "run as root with --drop-caches, or use a larger file set",
        wanted: "with data that are not cached",
    },
    Excluding {
        doubt: Doubt::NotWarm,
        cause: "data were not cached in {}",
        remedy: "use a smaller file set",
        wanted: "with cached data",
    },
    Excluding {
        doubt: Doubt::Errors,
        cause: "files failed in {}",
        remedy: "check which files of the set failed",
        wanted: "without failed files",
    },
];

/// Reports whether a doubt excludes the blocks of the runs that carry it.
pub(crate) fn excludes(doubt: Doubt) -> bool {
    EXCLUDING.iter().any(|excluding| excluding.doubt == doubt)
}

/// Returns the causes, each with its number of blocks, and the remedies.
fn causes(used: &[&RunRecord], of: usize) -> (String, String) {
    let (mut causes, mut remedies) = (Vec::new(), Vec::new());
    for Excluding { doubt, cause, remedy, .. } in EXCLUDING {
        let marked = used.iter().filter(|r| r.doubts.contains(&doubt));
        let blocks: BTreeSet<Block<'_>> = marked.map(|r| block(r)).collect();
        if !blocks.is_empty() {
            causes.push(cause.replace("{}", &format!("{} of {of} blocks", blocks.len())));
            remedies.push(remedy);
        }
    }
    (causes.join(" and "), remedies.join("; "))
}

/// Returns the condition for the blocks of another session, if the answer of a finding was withheld or more than a
/// quarter of its blocks were disturbed. Empty otherwise.
pub(crate) fn wanted(finding: &Finding<'_>) -> String {
    let behind = finding.behind();
    let all: BTreeSet<Block<'_>> = behind.iter().map(|r| block(r)).collect();
    let quiet = all.len() - disturbed_blocks(&behind).len();
    if !finding.withheld && quiet as f64 >= QUIET_MIN * all.len() as f64 {
        return String::new();
    }
    let is_found = |of: &&Excluding| behind.iter().any(|r| r.doubts.contains(&of.doubt));
    let words: Vec<&str> = EXCLUDING.iter().filter(is_found).map(|of| of.wanted).collect();
    words.join(" and ")
}

/// Returns the blocks in which one of the runs was disturbed.
fn disturbed_blocks<'a>(behind: &[&'a RunRecord]) -> BTreeSet<Block<'a>> {
    let marked = behind.iter().filter(|r| r.doubts.iter().any(|doubt| excludes(*doubt)));
    marked.map(|r| block(r)).collect()
}

/// Returns the other blocks of the sessions and media of a finding, of which `need` are required.
fn quiet_blocks<'a>(
    context: &Context<'a>,
    kind: &dyn Kind,
    finding: &Finding<'a>,
    disturbed: &BTreeSet<Block<'a>>,
    need: usize,
) -> Context<'a> {
    let sessions = &finding.evidence.sessions;
    // Undisturbed runs on another medium do not show what this one would.
    let behind = finding.behind();
    let media: BTreeSet<&str> = behind.iter().map(|r| r.key.medium.as_str()).collect();
    let several = kind.on_several_media();
    Context {
        rule: Rule { blocks_min: need, ..context.rule },
        records: context
            .records
            .iter()
            .copied()
            .filter(|r| sessions.contains(&r.key.session) && !disturbed.contains(&block(r)))
            .filter(|r| several || media.contains(r.key.medium.as_str()))
            .collect(),
    }
}

/// Returns the finding, without its answer if it depends on the disturbed blocks.
pub(crate) fn withhold<'a>(
    context: &Context<'a>,
    kind: &dyn Kind,
    finding: Finding<'a>,
) -> Finding<'a> {
    let behind = finding.behind();
    let disturbed = disturbed_blocks(&behind);
    let Some(answer) = finding.holds.filter(|_| !disturbed.is_empty()) else { return finding };
    let all: BTreeSet<Block<'_>> = behind.iter().map(|r| block(r)).collect();
    let need = (context.rule.blocks_min as f64 * QUIET_MIN).ceil() as usize;
    let quiet = kind.evaluate(&quiet_blocks(context, kind, &finding, &disturbed, need));
    let (causes, remedies) = causes(&behind, all.len());
    let finding = finding.number("disturbed_blocks", disturbed.len() as f64);
    let without = match quiet {
        Ok(quiet) if quiet.holds == Some(answer) => return finding,
        Ok(quiet) if quiet.holds.is_some() => {
            format!("the other blocks show the opposite: {}", quiet.words)
        }
        Ok(quiet) => format!("the other blocks do not decide it: {}", quiet.words),
        Err(_) => format!("too few other blocks remain; at least {need} are needed"),
    };
    let words = format!(
        "withheld because {causes}, and {without}; {remedies} (with all blocks: {})",
        finding.words
    );
    Finding { holds: None, p: finding.p.map(|_| 1.0), words, withheld: true, ..finding }
}

/// What blocks show that are too few for a verdict.
#[derive(Debug, Default)]
pub(crate) struct Few {
    /// The effect, without disturbed blocks.
    pub(crate) evidence: Evidence,
    /// Words about the disturbed blocks; empty without any.
    pub(crate) words: String,
}

impl Few {
    /// Returns what these blocks show. Statements about every run use all of them.
    pub(crate) fn of<'a>(context: &Context<'a>, kind: &dyn Kind, finding: Finding<'a>) -> Self {
        let behind = finding.behind();
        let disturbed = disturbed_blocks(&behind);
        if disturbed.is_empty() || kind.is_about_every_run() {
            return Self { evidence: finding.evidence, words: String::new() };
        }
        let all: BTreeSet<Block<'_>> = behind.iter().map(|r| block(r)).collect();
        let quiet = kind.evaluate(&quiet_blocks(context, kind, &finding, &disturbed, INTERVAL_MIN));
        let mut evidence = match quiet {
            Ok(quiet) => quiet.evidence,
            Err(gap) => {
                let blocks = if let Gap::FewBlocks { have, .. } = gap { have } else { 0 };
                let sessions = finding.evidence.sessions;
                Evidence { blocks, sessions, ..Evidence::default() }
            }
        };
        evidence.numbers.insert("disturbed_blocks".to_owned(), disturbed.len() as f64);
        let (causes, remedies) = causes(&behind, all.len());
        let others = format_counted(evidence.blocks as u64, "other block", "other blocks");
        let rest = match evidence.effect {
            Some(_) => format!("the effect is that of {others}"),
            None => "too few other blocks remain to show an effect".to_owned(),
        };
        Self { evidence, words: format!("; {causes}, so {rest}; {remedies}") }
    }
}

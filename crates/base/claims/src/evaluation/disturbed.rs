//! Withholds verdicts that depend on disturbed blocks.
//!
//! A run next to a noisy neighbour carries that doubt, and so does a run that missed its condition or
//! in which files failed. If some of the runs behind a verdict carry one of these doubts, their blocks
//! are left out and the contrast is judged again by the quiet blocks of the same sessions. The verdict
//! counts if the quiet blocks give the same one. Otherwise the disturbed blocks decided it, and it is
//! undecided, with the reason and the remedy. Whole blocks are left out, never single runs, because
//! the arms of a block are compared with each other and share the disturbance.
//!
//! At least [`QUIET_MIN`] of the blocks that a verdict needs must be quiet: one disturbed block in a
//! quick study of eight does not cost the verdict, three do. From the same quarter on, a doubt of
//! single runs marks the whole finding. The interval of six or seven blocks is their full range, so
//! all of them must agree. This only ever takes a verdict away and never reverses it: choosing blocks
//! after seeing them must not create a finding.

use super::finding::Finding;
use crate::contrast::kind::{Context, Kind};
use crate::rule::Rule;
use ioloom_model::{Doubt, RunRecord};
use std::collections::BTreeSet;

/// Share of the blocks needed for a verdict that must be quiet.
const QUIET_MIN: f64 = 0.75;

/// A block of one comparison: a disturbance in it affects all its arms. The file set is left out,
/// because the arms of one comparison can use different file sets.
type Block<'a> = (&'a str, &'a str, &'a str, String, u32);

fn block(record: &RunRecord) -> Block<'_> {
    let key = &record.key;
    let place = format!("{} {}", key.condition, key.compute);
    (&key.session, &key.experiment, &key.medium, place, key.block)
}

/// Doubts of single runs that exclude their blocks, each with its cause (`{}` is the number of blocks)
/// and its remedy: the run shared the machine with other programs, missed the condition of the claim,
/// or skipped files. None of these runs measures what the claim is about.
const EXCLUDING: [(Doubt, &str, &str); 4] = [
    (Doubt::NoisyNeighbour, "other programs disturbed {}", "repeat on an idle machine"),
    (
        Doubt::NotCold,
        "data were already cached in {}",
        "run as root with --drop-caches, or use a larger file set",
    ),
    (Doubt::NotWarm, "data were not cached in {}", "use a smaller file set"),
    (Doubt::Errors, "files failed in {}", "check which files of the set failed"),
];

/// Returns whether a doubt excludes the blocks of the runs that carry it.
pub(super) fn excludes(doubt: Doubt) -> bool {
    EXCLUDING.iter().any(|(excluding, ..)| *excluding == doubt)
}

/// Returns the causes, with the number of blocks, and the remedies.
fn causes(used: &[&RunRecord], of: usize) -> (String, String) {
    let (mut causes, mut remedies) = (Vec::new(), Vec::new());
    for (doubt, cause, remedy) in EXCLUDING {
        let marked = used.iter().filter(|r| r.doubts.contains(&doubt));
        let blocks: BTreeSet<Block<'_>> = marked.map(|r| block(r)).collect();
        if !blocks.is_empty() {
            causes.push(cause.replace("{}", &format!("{} of {of} blocks", blocks.len())));
            remedies.push(remedy);
        }
    }
    (causes.join(" and "), remedies.join("; "))
}

/// Returns the finding, without its answer if the disturbed blocks decided it.
pub(crate) fn withhold<'a>(
    context: &Context<'a>,
    kind: &dyn Kind,
    finding: Finding<'a>,
) -> Finding<'a> {
    let marked = |r: &&&RunRecord| r.doubts.iter().any(|doubt| excludes(*doubt));
    let disturbed: BTreeSet<Block<'_>> =
        finding.used.iter().filter(marked).map(|r| block(r)).collect();
    let Some(answer) = finding.holds.filter(|_| !disturbed.is_empty()) else { return finding };
    let all: BTreeSet<Block<'_>> = finding.used.iter().map(|r| block(r)).collect();
    let need = (context.rule.blocks_min as f64 * QUIET_MIN).ceil() as usize;
    let sessions = &finding.evidence.sessions;
    let quiet = Context {
        rule: Rule { blocks_min: need, ..context.rule },
        records: context
            .records
            .iter()
            .copied()
            .filter(|r| sessions.contains(&r.key.session) && !disturbed.contains(&block(r)))
            .collect(),
    };
    let quiet = kind.evaluate(&quiet);
    let (causes, remedies) = causes(&finding.used, all.len());
    let finding = finding.number("disturbed_blocks", disturbed.len() as f64);
    let without = match quiet {
        Ok(quiet) if quiet.holds == Some(answer) => return finding,
        Ok(quiet) if quiet.holds.is_some() => {
            format!("the other blocks show the opposite: {}", quiet.words)
        }
        Ok(quiet) => format!("the other blocks do not decide it: {}", quiet.words),
        Err(_) => format!("too few other blocks are left, at least {need} are needed"),
    };
    let words = format!(
        "withheld because {causes}, and {without}; {remedies} (with all blocks: {})",
        finding.words
    );
    Finding { holds: None, words, withheld: true, ..finding }
}

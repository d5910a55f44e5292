//! Verdicts that only disturbed blocks give are withheld.
//!
//! A run beside a noisy neighbour carries that doubt, and so does one that was not in the condition
//! asked for, or in which files failed. When some of the runs behind a verdict carry one of these,
//! their blocks are left out and the contrast is judged again by the quiet blocks of the same
//! sessions. The verdict stands when these say the same; else the disturbed blocks decided it, and
//! it is undecided, with the reason and the remedy. Whole blocks are left out, never single runs,
//! because the arms of a block are compared with each other and share what disturbed them.
//!
//! The quiet blocks must be at least [`QUIET_MIN`] of what a verdict needs: one disturbed block in
//! a quick study of eight does not cost the verdict, three do. This is the same quarter from which
//! on a doubt of single runs marks the whole. Six or seven quiet blocks have least to most as their
//! interval, so all of them must say it. A verdict is only ever taken away here, never turned
//! round: choosing blocks after having seen them must not make a finding.

use super::{Bench, Finding, Rule, evaluate};
use crate::claim::Contrast;
use ioloom_model::{Doubt, RunRecord};
use std::collections::BTreeSet;

/// Share of the blocks that a verdict needs which must be quiet.
const QUIET_MIN: f64 = 0.75;

/// A block of one comparison: what happens in it happens to all its arms. The set is left out,
/// because arms of one comparison may lie on sets of their own.
type Block<'a> = (&'a str, &'a str, &'a str, String, u32);

fn block(record: &RunRecord) -> Block<'_> {
    let key = &record.key;
    let place = format!("{} {}", key.condition, key.compute);
    (&key.session, &key.experiment, &key.medium, place, key.block)
}

/// Doubts of single runs that take their blocks out, with what happened in so many of so many blocks,
/// and what to do: a run beside other programs, one that was not in the condition that the claim is
/// about, one that left files out. None of them did what it was to be compared for.
const BARRING: [(Doubt, &str, &str); 4] = [
    (Doubt::NoisyNeighbour, "other programs disturbed {}", "repeat on a quiet machine"),
    (
        Doubt::NotCold,
        "data were in memory in {}",
        "as root give --drop-caches, or use a larger set",
    ),
    (Doubt::NotWarm, "data were not in memory in {}", "use a smaller set"),
    (Doubt::Errors, "files failed in {}", "see which files of the set failed"),
];

/// Whether a doubt takes the blocks out in which a run carries it.
pub(super) fn bars(doubt: Doubt) -> bool {
    BARRING.iter().any(|(barring, ..)| *barring == doubt)
}

/// What happened, with the number of blocks, and what to do about it.
fn causes(used: &[&RunRecord], of: usize) -> (String, String) {
    let (mut causes, mut remedies) = (Vec::new(), Vec::new());
    for (doubt, cause, remedy) in BARRING {
        let marked = used.iter().filter(|r| r.doubts.contains(&doubt));
        let blocks: BTreeSet<Block<'_>> = marked.map(|r| block(r)).collect();
        if !blocks.is_empty() {
            causes.push(cause.replace("{}", &format!("{} of {of} blocks", blocks.len())));
            remedies.push(remedy);
        }
    }
    (causes.join(" and "), remedies.join("; "))
}

/// The finding itself, or without its answer when the disturbed blocks decided it.
pub(super) fn withhold<'a>(
    bench: &Bench<'a>,
    contrast: &Contrast,
    finding: Finding<'a>,
) -> Finding<'a> {
    let barred = |r: &&&RunRecord| r.doubts.iter().any(|doubt| bars(*doubt));
    let disturbed: BTreeSet<Block<'_>> =
        finding.used.iter().filter(barred).map(|r| block(r)).collect();
    let Some(answer) = finding.holds.filter(|_| !disturbed.is_empty()) else { return finding };
    let all: BTreeSet<Block<'_>> = finding.used.iter().map(|r| block(r)).collect();
    let need = (bench.rule.blocks_min as f64 * QUIET_MIN).ceil() as usize;
    let sessions = &finding.evidence.sessions;
    let quiet = Bench {
        rule: Rule { blocks_min: need, ..bench.rule },
        records: bench
            .records
            .iter()
            .copied()
            .filter(|r| sessions.contains(&r.key.session) && !disturbed.contains(&block(r)))
            .collect(),
    };
    let told = evaluate(&quiet, contrast);
    let (causes, remedies) = causes(&finding.used, all.len());
    let finding = finding.number("disturbed_blocks", disturbed.len() as f64);
    let without = match told {
        Ok(quiet) if quiet.holds == Some(answer) => return finding,
        Ok(quiet) if quiet.holds.is_some() => {
            format!("the others say the contrary: {}", quiet.words)
        }
        Ok(quiet) => format!("the others do not decide it: {}", quiet.words),
        Err(_) => format!("the others are too few, {need} are needed"),
    };
    let words = format!(
        "withheld, because {causes}, and {without}; {remedies} (with all blocks: {})",
        finding.words
    );
    Finding { holds: None, words, withheld: true, ..finding }
}

//! Verdicts that only disturbed blocks give are withheld.
//!
//! A run beside a noisy neighbour carries that doubt. When some of the runs behind a verdict carry
//! it, their blocks are left out and the contrast is judged again by the quiet blocks of the same
//! sessions. The verdict stands when these say the same; else the disturbed blocks decided it, and
//! it is undecided, with the reason and the remedy. Whole blocks are left out, never single runs,
//! because the arms of a block are compared with each other and share what disturbed them.
//!
//! The quiet blocks must be at least [`QUIET_MIN`] of what a verdict needs: one disturbed block in
//! a quick study of eight does not cost the verdict, three do. This is the same quarter from which
//! on a doubt of single runs marks the whole. A verdict is only ever taken away here, never turned
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

/// The finding itself, or without its answer when the disturbed blocks decided it.
pub(super) fn withhold<'a>(
    bench: &Bench<'a>,
    contrast: &Contrast,
    finding: Finding<'a>,
) -> Finding<'a> {
    let noisy = |r: &&&RunRecord| r.doubts.contains(&Doubt::NoisyNeighbour);
    let disturbed: BTreeSet<Block<'_>> =
        finding.used.iter().filter(noisy).map(|r| block(r)).collect();
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
    let (count, of) = (disturbed.len(), all.len());
    let finding = finding.number("disturbed_blocks", count as f64);
    let without = match told {
        Ok(quiet) if quiet.holds == Some(answer) => return finding,
        Ok(quiet) if quiet.holds.is_some() => {
            format!("the others say the contrary: {}", quiet.words)
        }
        Ok(quiet) => format!("the others do not decide it: {}", quiet.words),
        Err(_) => format!("the others are too few, {need} are needed"),
    };
    let words = format!(
        "withheld, because other programs disturbed {count} of {of} blocks, and {without}; repeat \
         on a quiet machine (with all blocks: {})",
        finding.words
    );
    Finding { holds: None, words, withheld: true, ..finding }
}

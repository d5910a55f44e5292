//! Sessions that end when their claims are decided.
//!
//! The list of runs is drawn for the largest number of blocks and stored first. After certain numbers
//! of blocks (looks), [`Looks`] judges the stored runs and returns the arms that are still needed; the
//! other arms are left out from then on. A session that was killed
//! judges the runs before each look again when it is resumed. The list of runs is the same, but the arms left out can
//! differ if the other stored runs that [`Looks`] considers have changed. The number of looks does not.
//!
//! Claims may be judged only at looks, because the correction for judging several times counts them.
//! [`at_looks`] removes later runs before the session is judged.

use crate::selection::Selection;
use crate::store::Session;
use std::collections::{BTreeMap, BTreeSet};

/// Decides which arms of a sequential session need more blocks.
pub trait Looks: Sync {
    /// Judges a session that contains only the runs of the blocks before a look.
    fn look(&self, session: &Session) -> Needed;
}

/// The decision of a look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needed {
    /// The arms that need more blocks; the session ends if there are none.
    pub arms: Selection,
    /// The state of the claims in a sentence.
    pub words: String,
}

/// Returns the arms of a session, to plan it again.
pub fn selection(session: &crate::store::SessionHeader) -> Selection {
    let mut select = Selection::default();
    for comparison in &session.comparisons {
        for arm in &comparison.arms {
            select.add(&comparison.place(), &arm.name);
        }
    }
    select
}

/// Removes the runs of a sequential session after the last look that each comparison reached. Before
/// the first look, the runs of complete blocks are kept: they are too few for a verdict.
pub fn at_looks(session: &mut Session) {
    let Some(rule) = session.header.sequential.clone() else { return };
    let order = &session.header.order;
    let comparison = |position: u32| order.get(position as usize).map(|slot| slot.0);
    let mut arms: BTreeMap<Option<u32>, BTreeMap<u32, BTreeSet<&str>>> = BTreeMap::new();
    for run in &session.runs {
        let blocks = arms.entry(comparison(run.key.position)).or_default();
        blocks.entry(run.key.block).or_default().insert(&run.key.arm);
    }
    let limits: BTreeMap<Option<u32>, u32> = arms
        .into_iter()
        .map(|(of, blocks)| {
            let complete = complete(&blocks);
            let look = rule.looks.iter().copied().filter(|look| *look <= complete).max();
            (of, look.unwrap_or(complete))
        })
        .collect();
    let order = session.header.order.clone();
    session.runs.retain(|run| {
        let of = order.get(run.key.position as usize).map(|slot| slot.0);
        limits.get(&of).is_none_or(|look| run.key.block < *look)
    });
}

/// Returns the number of complete blocks. All but the last are complete, and the last is if it has
/// the arms of the one before: arms are left out only after a look.
fn complete(blocks: &BTreeMap<u32, BTreeSet<&str>>) -> u32 {
    let mut newest = blocks.iter().rev();
    let (Some((last, arms)), before) = (newest.next(), newest.next()) else { return 0 };
    let whole = before.is_none_or(|(_, before)| before == arms);
    if whole { last + 1 } else { *last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_counts_if_it_has_every_arm() {
        let of = |blocks: &[(u32, &[&'static str])]| {
            let one = |(block, arms): &(u32, &[&'static str])| {
                (*block, arms.iter().copied().collect::<BTreeSet<&str>>())
            };
            complete(&blocks.iter().map(one).collect())
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(0, &["a", "b"]), (1, &["a", "b"])]), 2);
        assert_eq!(of(&[(0, &["a", "b"]), (1, &["b"])]), 1);
    }
}

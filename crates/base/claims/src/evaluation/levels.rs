//! Arms grouped by factor level: one family on the blocks that all levels share, or two families on
//! their common levels.

use super::finding::Finding;
use super::gap::Gap;
use super::runs::{Arm, Columns, Runs, columns};
use crate::rule::Rule;
use ioloom_stats::{Ratio, median};

/// A factor and its relevant levels: all of them without a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis<'m> {
    pub(crate) name: &'m str,
    pub(crate) range: Option<[f64; 2]>,
}

/// A family grouped by level, on the blocks that all levels share.
pub(crate) struct Levels<'r, 'a> {
    /// Levels in ascending order.
    pub(crate) x: Vec<f64>,
    /// The arm of each level.
    pub(crate) arms: Vec<&'r Arm<'a>>,
    table: Columns,
    /// Number of levels that could not run.
    lost: usize,
}

impl<'r, 'a> Levels<'r, 'a> {
    /// Groups the arms of `pattern` by level; fails if fewer than `least` levels ran.
    pub(crate) fn new(
        rule: &Rule,
        runs: &'r Runs<'a>,
        (pattern, axis): (&str, Axis<'_>),
        metric: &str,
        least: usize,
    ) -> Result<Self, Gap> {
        let levels = runs.levels(pattern, axis.name, axis.range)?;
        let all = levels.len();
        let gap = levels.iter().find_map(|(_, arm)| arm.gap());
        let ran: Vec<_> = levels.into_iter().filter(|(_, arm)| arm.gap().is_none()).collect();
        // The others can show the shape, but not where a missing one would lie: see `finish`.
        if ran.len() < least {
            return Err(gap.unwrap_or_else(|| {
                Gap::Missing(vec![format!("{pattern} on {least} levels ({} ran)", ran.len())])
            }));
        }
        let (x, arms): (Vec<f64>, Vec<&Arm<'a>>) = ran.into_iter().unzip();
        let wanted: Vec<_> = arms.iter().map(|arm| (*arm, metric)).collect();
        let table = columns(&wanted, rule.blocks_min)?;
        Ok(Self { lost: all - x.len(), x, arms, table })
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.table.values[0].len()
    }

    /// Returns the median of each level over the specified blocks.
    pub(crate) fn medians(&self, drawn: &[usize]) -> Vec<f64> {
        self.table.values.iter().map(|column| median_of(column, drawn)).collect()
    }

    /// Returns the median of each level over all blocks.
    pub(crate) fn all_medians(&self) -> Vec<f64> {
        self.medians(&(0..self.blocks()).collect::<Vec<_>>())
    }

    /// Returns the ratio of level `a` to level `b`, both as indices.
    pub(crate) fn ratio(&self, a: usize, b: usize) -> Result<Ratio, Gap> {
        Ratio::of(&self.table.values[a], &self.table.values[b]).map_err(Gap::undefined)
    }

    /// Returns the logarithm of level `a` over level `b` in each block.
    pub(crate) fn series(&self, a: usize, b: usize) -> Vec<f64> {
        let pairs = self.table.values[a].iter().zip(&self.table.values[b]);
        pairs.map(|(a, b)| (a / b).ln()).collect()
    }

    /// Adds the arms, the median of each level, and a note about levels that could not run.
    pub(crate) fn finish(&self, finding: Finding<'a>, runs: &Runs<'a>, axis: &str) -> Finding<'a> {
        let finding = finding.without(self.lost, ["level", "levels"]);
        let mut finding = finding.of_arms(&self.arms, runs, &self.table);
        for (x, y) in self.x.iter().zip(self.all_medians()) {
            finding = finding.number(&format!("median_at_{axis}_{x}"), y);
        }
        finding
    }
}

/// Returns the median of a column over the specified blocks.
pub(crate) fn median_of(column: &[f64], drawn: &[usize]) -> f64 {
    median(&drawn.iter().map(|i| column[*i]).collect::<Vec<_>>())
}

/// Returns the column with the lowest median, ignoring one block; `without` may be out of range.
pub(crate) fn best_without(columns: &[Vec<f64>], without: usize) -> usize {
    let middle = |column: &Vec<f64>| {
        let kept = column.iter().enumerate().filter(|(block, _)| *block != without);
        median(&kept.map(|(_, value)| *value).collect::<Vec<_>>())
    };
    let medians: Vec<f64> = columns.iter().map(middle).collect();
    (0..medians.len()).min_by(|i, j| medians[*i].total_cmp(&medians[*j])).unwrap_or(0)
}

/// The arms of two families at their common levels.
pub(crate) struct Pairs<'r, 'a> {
    /// The levels at which both ran, in ascending order.
    pub(crate) ran: Vec<(f64, [&'r Arm<'a>; 2])>,
    /// Number of levels at which one could not run.
    pub(crate) lost: usize,
    /// Why the highest level could not run, if so.
    pub(crate) top: Option<Gap>,
}

/// Pairs the arms of two families by level; fails if both ran on fewer than two levels.
pub(crate) fn pair_up<'r, 'a>(
    runs: &'r Runs<'a>,
    a: &str,
    b: &str,
    axis: &str,
) -> Result<Pairs<'r, 'a>, Gap> {
    let right = runs.levels(b, axis, None)?;
    let all: Vec<(f64, [&'r Arm<'a>; 2])> = runs
        .levels(a, axis, None)?
        .into_iter()
        .filter_map(|(x, arm)| {
            let (_, other) = right.iter().find(|(y, _)| *y == x)?;
            Some((x, [arm, *other]))
        })
        .collect();
    let gap = |arms: &[&Arm<'_>; 2]| arms.iter().find_map(|arm| arm.gap());
    let top = all.last().and_then(|(_, arms)| gap(arms));
    let count = all.len();
    let ran: Vec<_> = all.into_iter().filter(|(_, arms)| gap(arms).is_none()).collect();
    if ran.len() < 2 {
        return Err(Gap::Missing(vec![format!("both {a} and {b} on two levels of {axis}")]));
    }
    Ok(Pairs { lost: count - ran.len(), ran, top })
}

//! Detects memory hierarchy levels in a curve of access time over working-set size.
//!
//! Known cache sizes are not an input. Levels are determined from the curve alone, and the
//! advertised capacities are compared with them afterwards ([`Levels::compare`]).
//!
//! 1. *Envelope from the right.* A larger set cannot be cheaper and noise only adds time, so each
//!    time is lowered to the minimum of the times at larger sizes. Points moved by more than 10 %
//!    were disturbed and are listed.
//! 2. *Optimal partition* (dynamic programming, as in Bellman, 1961) of the points into plateaus
//!    and ramps over the logarithms of both axes. A plateau costs its squared error and a fixed
//!    price, a ramp costs a price per point. Physically indexed caches cause ramps, not steps.
//!    Points that are closer together than usual have less weight, so additional points on a ramp
//!    do not turn it into a plateau.
//! 3. *Merging* of plateaus that differ by less than a factor of 1.35.
//! 4. Each level gets a time (the median of its plateau) and a **bracket** for its capacity: the
//!    last size within 15 % of the plateau, and the first size above the geometric mean of this
//!    plateau and the next. The curve does not determine a single number.
//!
//! A curve with too many levels, or with too many points moved by the envelope, is not interpreted;
//! [`Levels::unclear`] then contains the reason. Cost: quadratic in the number of points.

use crate::StatsError;
use crate::error::{check_pairs, check_positive};
use crate::summary::median;
use serde::{Deserialize, Serialize};

/// Fixed price of a plateau, in squared powers of two.
const PLATEAU_PRICE: f64 = 0.05;
/// Price per point on a ramp.
const RAMP_PRICE: f64 = 0.03;
/// Minimum weight of a plateau, and of a plateau at the end of the curve. Slightly below a whole
/// number because sizes are rounded.
const PLATEAU_POINTS: f64 = 2.9;
const LAST_POINTS: f64 = 1.9;
/// Plateaus closer than this factor are merged.
const SAME: f64 = 1.35;
/// Maximum factor by which a time in a plateau can exceed its level.
const INSIDE: f64 = 1.15;
/// Maximum factor by which the envelope can move a point before it counts as disturbed.
const DISTURBED: f64 = 1.10;
/// Maximum number of levels in a curve, including memory: slightly more than any known hierarchy
/// has.
const LEVELS_MAX: usize = 6;
/// Maximum share of disturbed points in a curve that is still interpreted.
const DISTURBED_MAX: f64 = 0.34;

/// A level: a plateau of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Access time, in the unit of the curve.
    pub time: f64,
    /// Capacity range: above the first size, up to the second. `None` for the last level, whose end
    /// is not on the curve.
    pub bracket: Option<(f64, f64)>,
    /// First and last size of its plateau.
    pub plateau: (f64, f64),
}

/// The levels of a curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Levels {
    /// Levels from fastest to slowest.
    pub levels: Vec<Level>,
    /// Indices of points that the envelope moved by more than 10 %.
    pub disturbed: Vec<usize>,
    /// The envelope.
    pub envelope: Vec<f64>,
    /// Why the levels should not be trusted; `None` if they can be trusted.
    pub unclear: Option<String>,
}

/// Result of comparing an advertised capacity with the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// Inside the bracket.
    Confirmed,
    /// The level ends before the advertised size.
    Smaller,
    /// The level extends beyond the advertised size.
    Larger,
    /// The curve has a level that is not advertised.
    Extra,
    /// The last level: memory, whose capacity the curve does not show.
    Memory,
}

impl Agreement {
    /// Returns the text for tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Smaller => "smaller than advertised",
            Self::Larger => "larger than advertised",
            Self::Extra => "extra: no cache of this size is advertised",
            Self::Memory => "memory",
        }
    }
}

/// Finds the levels of a curve of at least 6 points, with ascending sizes and all values above
/// zero.
///
/// # Errors
/// Fails if lengths differ, there are too few points, a value is not finite and above zero, or
/// sizes are not ascending.
pub fn levels(sizes: &[f64], times: &[f64]) -> Result<Levels, StatsError> {
    let what = "levels";
    check_pairs(what, sizes, times, 6)?;
    check_positive(what, sizes)?;
    check_positive(what, times)?;
    if let Some(step) = sizes.windows(2).find(|w| w[1] <= w[0]) {
        return Err(StatsError::OutOfRange {
            what: "size of a curve",
            value: step[1],
            accepted: "above the size before it",
        });
    }
    let mut envelope = times.to_vec();
    for i in (0..envelope.len() - 1).rev() {
        envelope[i] = envelope[i].min(envelope[i + 1]);
    }
    let disturbed: Vec<usize> =
        (0..times.len()).filter(|&i| times[i] > DISTURBED * envelope[i]).collect();
    let logs: Vec<f64> = envelope.iter().map(|t| t.log2()).collect();
    let plateaus = merged(&partition(&logs, &weights(sizes)), &envelope);
    let levels = bracketed(&plateaus, sizes, &envelope);
    let unclear = doubt(&levels, disturbed.len(), times.len());
    Ok(Levels { levels, disturbed, envelope, unclear })
}

fn doubt(levels: &[Level], disturbed: usize, points: usize) -> Option<String> {
    if levels.is_empty() {
        return Some("the curve rises throughout, without a plateau".to_owned());
    }
    if levels.len() > LEVELS_MAX {
        return Some(format!("{} plateaus, more than any memory hierarchy has", levels.len()));
    }
    let share = disturbed as f64 / points as f64;
    (share > DISTURBED_MAX)
        .then(|| format!("too noisy: {disturbed} of {points} points were faster at a larger size"))
}

/// Returns the weight of each point: the part of the axis that it represents relative to the usual
/// distance, at most 1.
fn weights(sizes: &[f64]) -> Vec<f64> {
    let gaps: Vec<f64> = sizes.windows(2).map(|w| (w[1] / w[0]).ln()).collect();
    let usual = median(&gaps);
    let at = |i: usize| gaps.get(i).copied();
    (0..sizes.len())
        .map(|i| {
            let left = i.checked_sub(1).and_then(at).or_else(|| at(i)).unwrap_or(usual);
            let right = at(i).unwrap_or(left);
            ((left + right) / 2.0 / usual).min(1.0)
        })
        .collect()
}

/// Returns the plateaus of the cheapest partition, as half-open ranges of points.
fn partition(logs: &[f64], weights: &[f64]) -> Vec<(usize, usize)> {
    let n = logs.len();
    // Prefix sums of weights, weighted values and weighted squares.
    let mut sums = vec![(0.0, 0.0, 0.0); n + 1];
    for i in 0..n {
        let ((w, s, q), weight, y) = (sums[i], weights[i], logs[i]);
        sums[i + 1] = (w + weight, s + weight * y, q + weight * y * y);
    }
    let weight = |from: usize, to: usize| sums[to].0 - sums[from].0;
    let error = |from: usize, to: usize| {
        let s = sums[to].1 - sums[from].1;
        (sums[to].2 - sums[from].2 - s * s / weight(from, to)).max(0.0)
    };
    // best[i]: price of the first i points, and the start of the plateau that ends there.
    let mut best = vec![(0.0, None); n + 1];
    for to in 1..=n {
        let mut choice = (best[to - 1].0 + RAMP_PRICE * weights[to - 1], None);
        let need = if to == n { LAST_POINTS } else { PLATEAU_POINTS };
        for from in (0..to).take_while(|from| weight(*from, to) >= need) {
            let price = best[from].0 + error(from, to) + PLATEAU_PRICE;
            if price < choice.0 {
                choice = (price, Some(from));
            }
        }
        best[to] = choice;
    }
    let mut found = Vec::new();
    let mut to = n;
    while to > 0 {
        match best[to].1 {
            Some(from) => {
                found.push((from, to));
                to = from;
            }
            None => to -= 1,
        }
    }
    found.reverse();
    found
}

/// Merges plateaus of similar height. Points between two merged plateaus become part of the result.
fn merged(plateaus: &[(usize, usize)], envelope: &[f64]) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for &(from, to) in plateaus {
        match out.last_mut() {
            Some(last)
                if median(&envelope[from..to]) < SAME * median(&envelope[last.0..last.1]) =>
            {
                last.1 = to;
            }
            _ => out.push((from, to)),
        }
    }
    out
}

fn bracketed(plateaus: &[(usize, usize)], sizes: &[f64], envelope: &[f64]) -> Vec<Level> {
    let times: Vec<f64> = plateaus.iter().map(|(from, to)| median(&envelope[*from..*to])).collect();
    (0..plateaus.len())
        .map(|i| {
            let (from, to) = plateaus[i];
            let bracket = times.get(i + 1).map(|next| {
                let middle = (times[i] * next).sqrt();
                let inside = (from..sizes.len()).rfind(|&k| envelope[k] <= INSIDE * times[i]);
                let above = (from..sizes.len()).find(|&k| envelope[k] > middle);
                let low = inside.unwrap_or(from);
                // The next plateau is above the middle, so a point is always found.
                (sizes[low], sizes[above.unwrap_or(sizes.len() - 1).max(low + 1)])
            });
            Level { time: times[i], bracket, plateau: (sizes[from], sizes[to - 1]) }
        })
        .collect()
}

/// Largest factor between an advertised capacity and the end of its level. The part of a shared
/// cache that a virtual machine gets can be an eighth of it.
const NEAR: f64 = 8.0;

impl Levels {
    /// Compares the levels with advertised capacities in ascending order. Returns for each level
    /// the index of its capacity, if any, and the result. A capacity belongs to the level whose
    /// bracket contains it. Each remaining capacity belongs to the nearest remaining level, at most
    /// a factor of `NEAR` away and in the same order. A level without a capacity is extra, whatever
    /// its rank: not every step of a curve is the end of a cache.
    pub fn compare(&self, advertised: &[f64]) -> Vec<(Option<usize>, Agreement)> {
        let mut of_level: Vec<Option<usize>> = vec![None; self.levels.len()];
        // The distance of each capacity from each bracket, zero inside, closest first.
        let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
        for (level, found) in self.levels.iter().enumerate() {
            let Some((low, high)) = found.bracket else { continue };
            for (index, size) in advertised.iter().enumerate() {
                let away = (low / size).ln().max((size / high).ln()).max(0.0);
                if away <= NEAR.ln() {
                    pairs.push((away, level, index));
                }
            }
        }
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        for (_, level, index) in pairs {
            let in_order = of_level.iter().enumerate().all(|(other, taken)| match taken {
                Some(taken) => *taken != index && (other < level) == (*taken < index),
                None => true,
            });
            if of_level[level].is_none() && in_order {
                of_level[level] = Some(index);
            }
        }
        let agreement = |(level, index): (&Level, &Option<usize>)| {
            let Some((low, high)) = level.bracket else { return (None, Agreement::Memory) };
            let Some(size) = index.and_then(|i| advertised.get(i)) else {
                return (None, Agreement::Extra);
            };
            let how = match size {
                size if *size > high => Agreement::Smaller,
                size if *size < low => Agreement::Larger,
                _ => Agreement::Confirmed,
            };
            (*index, how)
        };
        self.levels.iter().zip(&of_level).map(agreement).collect()
    }

    /// Returns the indices of advertised capacities without a level.
    pub fn not_visible(&self, advertised: &[f64]) -> Vec<usize> {
        let seen = self.compare(advertised);
        (0..advertised.len()).filter(|i| seen.iter().all(|(index, _)| *index != Some(*i))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: f64 = 1024.0;

    /// Converts sizes in units of `unit` bytes, and times.
    fn curve(text: &str, unit: f64) -> (Vec<f64>, Vec<f64>) {
        text.lines()
            .skip(1)
            .map(|line| line.split_once(',').unwrap())
            .map(|(size, ns)| (size.parse::<f64>().unwrap() * unit, ns.parse::<f64>().unwrap()))
            .unzip()
    }

    fn published() -> (Vec<f64>, Vec<f64>) {
        curve(include_str!("../tests/stats/fixtures/source002_ladder.csv"), KIB)
    }

    /// Measured on a virtual machine with busy neighbours, with additional points around the knees.
    /// The advertised capacities are 48 KiB, 1 MiB and 32 MiB.
    #[test]
    fn a_busy_machine_with_more_points_shows_three_caches() {
        let (sizes, times) = curve(include_str!("../tests/stats/fixtures/ladder_busy.csv"), 1.0);
        let found = levels(&sizes, &times).unwrap();
        let advertised = [48.0 * KIB, 1024.0 * KIB, 32.0 * 1024.0 * KIB];
        let verdicts: Vec<_> = found.compare(&advertised).into_iter().map(|(_, how)| how).collect();
        use Agreement::{Confirmed, Memory, Smaller};
        assert_eq!(verdicts, [Confirmed, Confirmed, Smaller, Memory], "{:?}", found.levels);
        assert!(!found.disturbed.is_empty());
        assert_eq!(found.unclear, None);
    }

    #[test]
    fn the_published_table_shows_three_caches() {
        let (sizes, times) = published();
        let found = levels(&sizes, &times).unwrap();
        let brackets: Vec<_> = found.levels.iter().filter_map(|l| l.bracket).collect();
        assert_eq!(
            brackets,
            [(32.0 * KIB, 64.0 * KIB), (256.0 * KIB, 1024.0 * KIB), (4096.0 * KIB, 8192.0 * KIB)]
        );
        assert_eq!(found.levels.len(), 4);
        let advertised = [48.0 * KIB, 512.0 * KIB, 6144.0 * KIB];
        let verdicts: Vec<_> = found.compare(&advertised).into_iter().map(|(_, how)| how).collect();
        let all = Agreement::Confirmed;
        assert_eq!(verdicts, [all, all, all, Agreement::Memory]);
        assert_eq!(found.unclear, None);
        assert!(found.not_visible(&advertised).is_empty());
    }

    /// Four points per doubling from 4 KiB to 64 MiB.
    fn sizes() -> Vec<f64> {
        (0..57).map(|i| 4.0 * KIB * (f64::from(i) / 4.0).exp2()).collect()
    }

    /// Times with random replacement: a set larger than the cache hits with the share that fits.
    fn ramp(sizes: &[f64], caches: &[(f64, f64)], memory: f64) -> Vec<f64> {
        sizes
            .iter()
            .map(|size| {
                let mut left = 1.0;
                let mut time = 0.0;
                for (capacity, cost) in caches {
                    let hit = (capacity / size).min(1.0);
                    time += left * hit * cost;
                    left *= 1.0 - hit;
                }
                time + left * memory
            })
            .collect()
    }

    /// Times with least-recently-used replacement: either all accesses hit, or none.
    fn steps(sizes: &[f64], caches: &[(f64, f64)], memory: f64) -> Vec<f64> {
        let cost = |size: &f64| caches.iter().find(|(c, _)| size <= c).map_or(memory, |(_, t)| *t);
        sizes.iter().map(cost).collect()
    }

    const CACHES: [(f64, f64); 3] = [(48.0 * KIB, 1.04), (1024.0 * KIB, 3.6), (6144.0 * KIB, 12.0)];

    #[test]
    fn steps_give_brackets_around_the_truth() {
        let found = levels(&sizes(), &steps(&sizes(), &CACHES, 140.0)).unwrap();
        assert_eq!(found.levels.len(), 4);
        for (level, (capacity, time)) in found.levels.iter().zip(CACHES) {
            let (low, high) = level.bracket.unwrap();
            assert!(low <= capacity && capacity <= high && high / low < 1.2, "{low} {high}");
            assert!((level.time / time - 1.0).abs() < 1e-9);
        }
        let advertised = [48.0 * KIB, 1024.0 * KIB, 32.0 * 1024.0 * KIB];
        let verdicts: Vec<_> = found.compare(&advertised).into_iter().map(|(_, how)| how).collect();
        use Agreement::{Confirmed, Memory, Smaller};
        assert_eq!(verdicts, [Confirmed, Confirmed, Smaller, Memory]);
    }

    #[test]
    fn ramps_give_wider_brackets_and_the_first_two_levels() {
        let found = levels(&sizes(), &ramp(&sizes(), &CACHES, 140.0)).unwrap();
        for (level, (capacity, _)) in found.levels.iter().zip(CACHES).take(2) {
            let (low, high) = level.bracket.unwrap();
            assert!(low <= capacity * 1.2 && capacity <= high, "{low} {capacity} {high}");
        }
    }

    #[test]
    fn more_points_on_a_ramp_do_not_make_a_plateau() {
        let usual = levels(&sizes(), &ramp(&sizes(), &CACHES, 140.0)).unwrap();
        let mut closer = sizes();
        for (low, high) in usual.levels.iter().filter_map(|l| l.bracket) {
            closer.extend([0.1, 0.25, 0.4, 0.6, 0.75, 0.9].map(|p| low * (high / low).powf(p)));
        }
        closer.sort_by(f64::total_cmp);
        closer.dedup();
        let found = levels(&closer, &ramp(&closer, &CACHES, 140.0)).unwrap();
        assert_eq!(found.levels.len(), usual.levels.len(), "{:?}", found.levels);
    }

    #[test]
    fn extra_levels_and_invisible_capacities_are_found() {
        let found = levels(&sizes(), &steps(&sizes(), &CACHES, 140.0)).unwrap();
        let advertised = [48.0 * KIB, 1024.0 * KIB];
        let verdicts = found.compare(&advertised);
        assert_eq!(verdicts[2], (None, Agreement::Extra));
        let two = levels(&sizes(), &steps(&sizes(), &CACHES[..1], 140.0)).unwrap();
        assert_eq!(two.compare(&advertised)[0], (Some(0), Agreement::Confirmed));
        assert_eq!(two.not_visible(&advertised), [1]);
    }

    #[test]
    fn noise_is_removed_and_listed() {
        let mut times = steps(&sizes(), &CACHES, 140.0);
        for i in [3, 20, 31] {
            times[i] *= 3.0;
        }
        let found = levels(&sizes(), &times).unwrap();
        assert_eq!(found.levels.len(), 4);
        assert_eq!(found.disturbed, [3, 20, 31]);
        assert_eq!(found.unclear, None);
    }

    #[test]
    fn an_uninterpretable_curve_is_unclear() {
        // Each point is several times higher or lower than its neighbour.
        let times: Vec<f64> =
            (0..57u32).map(|i| 1.0 + f64::from(i.wrapping_mul(2_654_435_761) >> 24)).collect();
        assert!(levels(&sizes(), &times).unwrap().unclear.is_some());
        let rising: Vec<f64> = sizes().iter().map(|s| s * s).collect();
        assert!(levels(&sizes(), &rising).unwrap().unclear.is_some());
        let flat = levels(&sizes(), &vec![2.0; 57]).unwrap();
        assert_eq!((flat.levels.len(), flat.levels[0].bracket), (1, None));
    }

    #[test]
    fn invalid_input_is_refused() {
        assert!(levels(&[1.0; 3], &[1.0; 3]).is_err());
        assert!(levels(&[1.0; 8], &[1.0; 8]).is_err());
        let rising: Vec<f64> = (1..9).map(f64::from).collect();
        assert!(levels(&rising, &[1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]).is_err());
    }
}

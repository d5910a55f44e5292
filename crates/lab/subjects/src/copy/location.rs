//! Disk locations of copies, and whether the time of a copy depends on its location.
//!
//! The file system is queried after each copy, outside the measured time, and nothing is flushed
//! for the query. If part of a copy has no blocks yet, as after a buffered copy, its location is
//! unknown. A growing file may begin in a small gap and continue elsewhere, so a location consists
//! of all extents. Two copies are in the same place if they share at least half of their blocks.
//! The position of a copy is the midpoint of its bytes.

use ioloom_stats::{Alternation, Correlation};
use ioloom_sys::extents::{self, Extent};
use std::os::fd::AsFd;

/// The extents of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// Start and end of each extent in bytes from the start of the file system, sorted.
    pieces: Vec<(u64, u64)>,
}

impl Location {
    /// Queries the location of a copy; `None` if it is unknown or not allocated yet.
    pub(super) fn of(copy: impl AsFd) -> Option<Self> {
        let extents = extents::of_file(copy).ok()??;
        let piece = |e: &Extent| e.start.map(|start| (start, start + e.bytes));
        let mut pieces: Vec<_> = extents.iter().map(piece).collect::<Option<_>>()?;
        pieces.sort_unstable();
        (!pieces.is_empty()).then_some(Self { pieces })
    }

    /// Returns the number of extents.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the position that has half of the bytes before it, from the start of the file
    /// system.
    pub(super) fn middle(&self) -> u64 {
        let mut left = self.bytes() / 2;
        for (start, end) in &self.pieces {
            if left < end - start {
                return start + left;
            }
            left -= end - start;
        }
        self.pieces.last().map_or(0, |(_, end)| *end)
    }

    /// Returns whether each shares at least half of its bytes with the other.
    fn meets(&self, other: &Self) -> bool {
        let (mut both, mut i, mut j) = (0, 0, 0);
        while let (Some((a, a_end)), Some((b, b_end))) = (self.pieces.get(i), other.pieces.get(j)) {
            both += a_end.min(b_end).saturating_sub(*a.max(b));
            if a_end < b_end {
                i += 1;
            } else {
                j += 1;
            }
        }
        2 * both >= self.bytes().max(other.bytes())
    }
}

/// Numbers the places of copies from 0 in order of first use.
pub(super) fn which(places: &[Option<Location>]) -> Vec<Option<usize>> {
    let mut apart: Vec<&Location> = Vec::new();
    let mut number = |location| {
        let known = apart.iter().position(|other: &&Location| other.meets(location));
        known.unwrap_or_else(|| {
            apart.push(location);
            apart.len() - 1
        })
    };
    places.iter().map(|location| location.as_ref().map(&mut number)).collect()
}

/// Returns metrics about the locations of a series of copies, given the time of each in ns. Shares
/// are over consecutive copies with known locations. A copy alternates (`place_turned_share`) if it
/// is less than half as far from the copy before the previous one as from the previous one.
pub(super) fn numbers(places: &[Option<Location>], times: &[f64]) -> Vec<(&'static str, f64)> {
    let known =
        places.iter().zip(times).filter_map(|(location, ns)| Some((location.as_ref()?, *ns)));
    let of: Vec<(&Location, f64)> = known.collect();
    let mut all = vec![("places_known", of.len() as f64)];
    let apart = which(places).into_iter().flatten().max().map_or(0, |last| last + 1);
    all.push(("places", apart as f64));
    let neighbours = places.windows(2).filter_map(|w| Some(w[0].as_ref()?.meets(w[1].as_ref()?)));
    all.extend(share(neighbours).map(|share| ("place_stayed_share", share)));
    let middle = |location: &Option<Location>| location.as_ref().map(Location::middle);
    let turned = places.windows(3).filter_map(|w| {
        let [a, b, c] = [middle(&w[0])?, middle(&w[1])?, middle(&w[2])?];
        Some(2 * c.abs_diff(a) < c.abs_diff(b))
    });
    all.extend(share(turned).map(|share| ("place_turned_share", share)));
    all.extend(of.iter().map(|(p, _)| p.pieces()).max().map(|most| ("pieces_most", most as f64)));
    let middles: Vec<f64> = of.iter().map(|(place, _)| place.middle() as f64).collect();
    let took: Vec<f64> = of.iter().map(|(_, ns)| *ns).collect();
    // If the locations do not vary, there is no correlation.
    if let (true, Ok(found)) = (apart > 1, Correlation::spearman(&middles, &took)) {
        all.extend([("place_time_rho", found.rho), ("place_time_p", found.p)]);
    }
    if let (true, Ok(found)) = (apart > 1, Alternation::test(&middles)) {
        all.push(("place_lag1", found.lag1));
    }
    all
}

fn share(all: impl Iterator<Item = bool>) -> Option<f64> {
    let (mut yes, mut n) = (0_u32, 0_u32);
    for one in all {
        yes += u32::from(one);
        n += 1;
    }
    (n > 0).then(|| f64::from(yes) / f64::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MIB: u64 = 1 << 20;

    /// Returns extents with start and length in MiB.
    fn at(pieces: &[(u64, u64)]) -> Location {
        let mut pieces: Vec<_> =
            pieces.iter().map(|(start, len)| (start * MIB, (start + len) * MIB)).collect();
        pieces.sort_unstable();
        Location { pieces }
    }

    #[test]
    fn a_location_is_that_of_most_bytes() {
        let gap = at(&[(900, 1), (100, 60), (200, 3)]);
        assert_eq!((gap.bytes(), gap.pieces()), (64 * MIB, 3));
        assert_eq!(gap.middle(), 132 * MIB);
        // The same blocks except for the first extent; a file that shares a third of them; and one
        // that shares none.
        assert!(gap.meets(&at(&[(500, 4), (100, 60)])));
        assert!(!gap.meets(&at(&[(900, 1), (140, 63)])) && !gap.meets(&at(&[(300, 64)])));
        assert!(!at(&[(0, 200)]).meets(&gap), "half of each must be shared");
    }

    fn numbers_of(starts_mib: &[Option<u64>], times: &[f64]) -> BTreeMap<&'static str, f64> {
        let at_mib = |mib: u64| at(&[(mib, 8)]);
        let places: Vec<_> = starts_mib.iter().map(|mib| mib.map(at_mib)).collect();
        numbers(&places, times).into_iter().collect()
    }

    #[test]
    fn two_places_by_turns_with_their_times_are_seen() {
        let starts: Vec<_> =
            (0..12).map(|i| Some(if i % 2 == 0 { 100 } else { 900 + i / 3 })).collect();
        let times: Vec<_> = (0..12).map(|i| f64::from(5 + i % 2) + f64::from(i) * 0.01).collect();
        let found = numbers_of(&starts, &times);
        assert_eq!(
            (found["places_known"], found["places"]),
            (12.0, 2.0),
            "900 to 903 should be \
            one place"
        );
        assert_eq!(found["place_stayed_share"], 0.0);
        let at_mib = |mib: u64| Some(at(&[(mib, 1)]));
        let places = [at_mib(9), None, at_mib(3), at_mib(9)];
        assert_eq!(which(&places), [Some(0), None, Some(1), Some(0)]);
        assert!(found["place_turned_share"] > 0.8, "{found:?}");
        assert!(found["place_lag1"] < -0.8, "{found:?}");
        assert!(found["place_time_rho"] > 0.8 && found["place_time_p"] < 0.01, "{found:?}");
    }

    #[test]
    fn a_copy_that_stays_has_no_relation_to_its_place() {
        // The second shares half of its blocks with the first.
        let found =
            numbers_of(&[Some(100), Some(104), Some(100), Some(100)], &[1.0, 2.0, 1.0, 2.0]);
        assert_eq!((found["places"], found["place_stayed_share"]), (1.0, 1.0));
        assert_eq!(found["place_turned_share"], 0.5, "only moving back counts");
        assert!(!found.contains_key("place_time_rho") && !found.contains_key("place_lag1"));
    }

    #[test]
    fn regions_take_turns_without_a_block_in_common_and_a_walk_does_not() {
        let regions: Vec<_> = (0..12).map(|i| Some(8 * i + 10_000 * (i % 2))).collect();
        let found = numbers_of(&regions, &[1.0; 12]);
        assert_eq!((found["places"], found["place_turned_share"]), (12.0, 1.0));
        let walk: Vec<_> = (0..12).map(|i| Some(8 * i)).collect();
        assert_eq!(numbers_of(&walk, &[1.0; 12])["place_turned_share"], 0.0);
    }

    #[test]
    fn a_location_without_blocks_is_unknown() {
        let found = numbers_of(&[None, Some(1), None, None], &[1.0; 4]);
        assert_eq!((found["places_known"], found["places"]), (1.0, 1.0));
        assert!(!found.contains_key("place_stayed_share"), "{found:?}");
        assert_eq!(numbers_of(&[None; 3], &[1.0; 3])["places"], 0.0);
    }
}

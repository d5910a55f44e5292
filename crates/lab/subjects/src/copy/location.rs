//! Where on the disk copies lie, and whether the time of a copy goes with its place.
//!
//! Asked of the file system after each copy, outside of what is timed, and nothing is written for the
//! answer: a copy of which a part has no place yet, as after a buffered copy, is unknown here. A file
//! that grows may begin in a small gap and go on far away, so its place is that of all of its pieces:
//! two copies lie in the same one if half of the bytes of either lie on blocks that the other has too,
//! and where a copy lies is told by the middle of its bytes.

use ioloom_stats::{Alternation, Correlation};
use ioloom_sys::extents;
use std::os::fd::AsFd;

/// Where a copy lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// Where each piece begins and ends, bytes from the start of the file system, in that order.
    pieces: Vec<(u64, u64)>,
}

impl Location {
    /// Asks it of a copy; `None` where the file system does not tell, or has not chosen yet.
    pub(super) fn of(copy: impl AsFd) -> Option<Self> {
        let told = extents::of_file(copy).ok()??;
        let piece = |e: &extents::Extent| e.start.map(|start| (start, start + e.bytes));
        let mut pieces: Vec<_> = told.iter().map(piece).collect::<Option<_>>()?;
        pieces.sort_unstable();
        (!pieces.is_empty()).then_some(Self { pieces })
    }

    /// Pieces that it lies in.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(start, end)| end - start).sum()
    }

    /// Where half of its bytes lie before, bytes from the start of the file system.
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

    /// Whether half of the bytes of either are those of the other too.
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

/// Which place each copy lies in, as a number from 0 in the order in which they were first taken.
pub(super) fn which(places: &[Option<Location>]) -> Vec<Option<usize>> {
    let mut apart: Vec<&Location> = Vec::new();
    let mut number = |lies| {
        let known = apart.iter().position(|other: &&Location| other.meets(lies));
        known.unwrap_or_else(|| {
            apart.push(lies);
            apart.len() - 1
        })
    };
    places.iter().map(|lies| lies.as_ref().map(&mut number)).collect()
}

/// Numbers on the places of copies in a row, with the time of each, ns. Shares are of the neighbours
/// whose places are known. A place is taken by turns where a copy lies less than half as far from the
/// copy before the last as from the last one: in the same region of the disk, if not on the same blocks.
pub(super) fn numbers(places: &[Option<Location>], times: &[f64]) -> Vec<(&'static str, f64)> {
    let known = places.iter().zip(times).filter_map(|(lies, ns)| Some((lies.as_ref()?, *ns)));
    let of: Vec<(&Location, f64)> = known.collect();
    let mut all = vec![("places_known", of.len() as f64)];
    let apart = which(places).into_iter().flatten().max().map_or(0, |last| last + 1);
    all.push(("places", apart as f64));
    let neighbours = places.windows(2).filter_map(|w| Some(w[0].as_ref()?.meets(w[1].as_ref()?)));
    all.extend(share(neighbours).map(|share| ("place_stayed_share", share)));
    let middle = |lies: &Option<Location>| lies.as_ref().map(Location::middle);
    let turned = places.windows(3).filter_map(|w| {
        let [a, b, c] = [middle(&w[0])?, middle(&w[1])?, middle(&w[2])?];
        Some(2 * c.abs_diff(a) < c.abs_diff(b))
    });
    all.extend(share(turned).map(|share| ("place_turned_share", share)));
    all.extend(of.iter().map(|(p, _)| p.pieces()).max().map(|most| ("pieces_most", most as f64)));
    let middles: Vec<f64> = of.iter().map(|(place, _)| place.middle() as f64).collect();
    let took: Vec<f64> = of.iter().map(|(_, ns)| *ns).collect();
    // Of places that do not vary there is nothing to tell.
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

    /// Pieces by start and length, MiB.
    fn at(pieces: &[(u64, u64)]) -> Location {
        let mut pieces: Vec<_> =
            pieces.iter().map(|(start, len)| (start * MIB, (start + len) * MIB)).collect();
        pieces.sort_unstable();
        Location { pieces }
    }

    #[test]
    fn a_place_is_that_of_most_bytes() {
        let gap = at(&[(900, 1), (100, 60), (200, 3)]);
        assert_eq!((gap.bytes(), gap.pieces()), (64 * MIB, 3));
        assert_eq!(gap.middle(), 132 * MIB);
        // The same blocks but for the first piece; another file with a third of them; none.
        assert!(gap.meets(&at(&[(500, 4), (100, 60)])));
        assert!(!gap.meets(&at(&[(900, 1), (140, 63)])) && !gap.meets(&at(&[(300, 64)])));
        assert!(!at(&[(0, 200)]).meets(&gap), "half of either");
    }

    fn told(starts_mib: &[Option<u64>], times: &[f64]) -> BTreeMap<&'static str, f64> {
        let lies = |mib: u64| at(&[(mib, 8)]);
        let places: Vec<_> = starts_mib.iter().map(|mib| mib.map(lies)).collect();
        numbers(&places, times).into_iter().collect()
    }

    #[test]
    fn two_places_by_turns_with_their_times_are_seen() {
        let starts: Vec<_> =
            (0..12).map(|i| Some(if i % 2 == 0 { 100 } else { 900 + i / 3 })).collect();
        let times: Vec<_> = (0..12).map(|i| f64::from(5 + i % 2) + f64::from(i) * 0.01).collect();
        let found = told(&starts, &times);
        assert_eq!((found["places_known"], found["places"]), (12.0, 2.0), "900 to 903 is one");
        assert_eq!(found["place_stayed_share"], 0.0);
        let lies = |mib: u64| Some(at(&[(mib, 1)]));
        let places = [lies(9), None, lies(3), lies(9)];
        assert_eq!(which(&places), [Some(0), None, Some(1), Some(0)]);
        assert!(found["place_turned_share"] > 0.8, "{found:?}");
        assert!(found["place_lag1"] < -0.8, "{found:?}");
        assert!(found["place_time_rho"] > 0.8 && found["place_time_p"] < 0.01, "{found:?}");
    }

    #[test]
    fn a_copy_that_stays_has_no_relation_to_its_place() {
        // The second has half of the first.
        let found = told(&[Some(100), Some(104), Some(100), Some(100)], &[1.0, 2.0, 1.0, 2.0]);
        assert_eq!((found["places"], found["place_stayed_share"]), (1.0, 1.0));
        assert_eq!(found["place_turned_share"], 0.5, "half a place on, and back");
        assert!(!found.contains_key("place_time_rho") && !found.contains_key("place_lag1"));
    }

    #[test]
    fn regions_take_turns_without_a_block_in_common_and_a_walk_does_not() {
        let regions: Vec<_> = (0..12).map(|i| Some(8 * i + 10_000 * (i % 2))).collect();
        let found = told(&regions, &[1.0; 12]);
        assert_eq!((found["places"], found["place_turned_share"]), (12.0, 1.0));
        let walk: Vec<_> = (0..12).map(|i| Some(8 * i)).collect();
        assert_eq!(told(&walk, &[1.0; 12])["place_turned_share"], 0.0);
    }

    #[test]
    fn what_has_no_place_is_unknown() {
        let found = told(&[None, Some(1), None, None], &[1.0; 4]);
        assert_eq!((found["places_known"], found["places"]), (1.0, 1.0));
        assert!(!found.contains_key("place_stayed_share"), "{found:?}");
        assert_eq!(told(&[None; 3], &[1.0; 3])["places"], 0.0);
    }
}

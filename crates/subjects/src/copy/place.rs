//! Where on the disk copies lie, and whether the time of a copy goes with its place.
//!
//! Asked of the file system after each copy, outside of what is timed, and nothing is written for the
//! answer: a copy whose pages have no place yet, as after a buffered copy, has none that could have
//! made it slow, and is unknown here. Two copies lie in the same place if their first pieces have a
//! byte of the disk in common, so a file that is laid a few blocks beside the last one stays there.

use ioloom_stats::{Alternation, Correlation};
use ioloom_sys::extents;
use std::os::fd::AsFd;

/// Where a copy lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lies {
    /// Where its first piece begins, bytes from the start of the file system.
    pub(super) start: u64,
    /// Length of that piece.
    bytes: u64,
    /// Pieces of the whole copy.
    pub(super) pieces: u64,
}

impl Lies {
    /// Asks it of a copy; `None` where the file system does not tell, or has not chosen yet.
    pub(super) fn of(copy: impl AsFd) -> Option<Self> {
        let pieces = extents::of_file(copy).ok()??;
        let first = pieces.first()?;
        Some(Self { start: first.start?, bytes: first.bytes, pieces: pieces.len() as u64 })
    }

    fn meets(&self, other: &Self) -> bool {
        self.start < other.start + other.bytes && other.start < self.start + self.bytes
    }
}

/// Numbers on the places of copies in a row, with the time of each, ns. Shares are of the neighbours
/// whose places are known.
pub(super) fn numbers(places: &[Option<Lies>], times: &[f64]) -> Vec<(&'static str, f64)> {
    let known = |i: &usize| Some((places[*i]?, times[*i]));
    let of: Vec<(Lies, f64)> = (0..places.len()).filter_map(|i| known(&i)).collect();
    let mut all = vec![("places_known", of.len() as f64)];
    let mut apart: Vec<Lies> = Vec::new();
    for (place, _) in &of {
        if !apart.iter().any(|other| other.meets(place)) {
            apart.push(*place);
        }
    }
    all.push(("places", apart.len() as f64));
    let neighbours = places.windows(2).filter_map(|w| Some(w[0]?.meets(&w[1]?)));
    all.extend(share(neighbours).map(|share| ("place_stayed_share", share)));
    let threes = places.windows(3).filter_map(|w| Some((w[0]?, w[1]?, w[2]?)));
    let turned = threes.map(|(a, b, c)| a.meets(&c) && !b.meets(&c));
    all.extend(share(turned).map(|share| ("place_turned_share", share)));
    all.extend(of.iter().map(|(p, _)| p.pieces).max().map(|most| ("pieces_most", most as f64)));
    let starts: Vec<f64> = of.iter().map(|(place, _)| place.start as f64).collect();
    let took: Vec<f64> = of.iter().map(|(_, ns)| *ns).collect();
    // Of places that do not vary there is nothing to tell.
    if let (true, Ok(found)) = (apart.len() > 1, Correlation::spearman(&starts, &took)) {
        all.extend([("place_time_rho", found.rho), ("place_time_p", found.p)]);
    }
    if let (true, Ok(found)) = (apart.len() > 1, Alternation::test(&starts)) {
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

    fn told(starts_mib: &[Option<u64>], times: &[f64]) -> BTreeMap<&'static str, f64> {
        let lies = |mib: u64| Lies { start: mib * MIB, bytes: 8 * MIB, pieces: 1 };
        let places: Vec<_> = starts_mib.iter().map(|mib| mib.map(lies)).collect();
        numbers(&places, times).into_iter().collect()
    }

    #[test]
    fn two_places_by_turns_with_their_times_are_seen() {
        let starts: Vec<_> =
            (0..12).map(|i| Some(if i % 2 == 0 { 100 } else { 900 + i })).collect();
        let times: Vec<_> = (0..12).map(|i| f64::from(5 + i % 2) + f64::from(i) * 0.01).collect();
        let found = told(&starts, &times);
        assert_eq!((found["places_known"], found["places"]), (12.0, 3.0), "900 to 911 are two");
        assert_eq!(found["place_stayed_share"], 0.0);
        assert!(found["place_turned_share"] > 0.8, "{found:?}");
        assert!(found["place_lag1"] < -0.8, "{found:?}");
        assert!(found["place_time_rho"] > 0.8 && found["place_time_p"] < 0.01, "{found:?}");
    }

    #[test]
    fn a_copy_that_stays_has_no_relation_to_its_place() {
        // The second begins within the first.
        let found = told(&[Some(100), Some(104), Some(100), Some(100)], &[1.0, 2.0, 1.0, 2.0]);
        assert_eq!((found["places"], found["place_stayed_share"]), (1.0, 1.0));
        assert_eq!(found["place_turned_share"], 0.0);
        assert!(!found.contains_key("place_time_rho") && !found.contains_key("place_lag1"));
    }

    #[test]
    fn what_has_no_place_is_unknown() {
        let found = told(&[None, Some(1), None, None], &[1.0; 4]);
        assert_eq!((found["places_known"], found["places"]), (1.0, 1.0));
        assert!(!found.contains_key("place_stayed_share"), "{found:?}");
        assert_eq!(told(&[None; 3], &[1.0; 3])["places"], 0.0);
    }
}

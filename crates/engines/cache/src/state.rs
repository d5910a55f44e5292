//! The state of one open file in the page cache, and how it was determined.

use ioloom_sys::cache;
use ioloom_sys::file::{Nowait, read_at, read_nowait_at};
use ioloom_sys::make;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;

/// Maximum number of one-byte reads that sample a file. A file with no more pages than this is
/// queried page by page.
pub const SAMPLES_MAX: u64 = 256;

/// How a state was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// cachestat(2): exact and without side effects.
    Cachestat,
    /// Every page was tested with a read that must not wait.
    Pages,
    /// A sample of the pages was tested with such reads; the resident pages are an estimate.
    Sampled,
    /// It cannot be determined.
    Unknown,
}

impl Source {
    /// Returns the word for output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cachestat => "cachestat",
            Self::Pages => "pages",
            Self::Sampled => "sampled",
            Self::Unknown => "unknown",
        }
    }
}

/// Pages of a file by state; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// In memory. cachestat counts readahead in progress; samples do not.
    pub resident: Option<u64>,
    /// Dirty.
    pub dirty: Option<u64>,
    /// Under writeback.
    pub writeback: Option<u64>,
    /// Reclaimed.
    pub evicted: Option<u64>,
    /// Reclaimed so recently that it indicates memory pressure.
    pub recently_evicted: Option<u64>,
}

/// The page cache state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Number of pages of the file.
    pub total: u64,
    /// Pages by state.
    pub pages: Pages,
    /// The 95 % confidence interval of the resident pages, if they are an estimate.
    pub resident_between: Option<(u64, u64)>,
    /// How it was determined.
    pub source: Source,
}

impl State {
    const fn unknown(total: u64) -> Self {
        let pages = Pages {
            resident: None,
            dirty: None,
            writeback: None,
            evicted: None,
            recently_evicted: None,
        };
        Self { total, pages, resident_between: None, source: Source::Unknown }
    }

    /// Reports whether no page is known to be in memory.
    pub fn is_cold(&self) -> bool {
        self.pages.resident == Some(0) && self.source != Source::Sampled
    }

    /// Reports whether every page is known to be in memory.
    pub fn is_warm(&self) -> bool {
        self.pages.resident.is_some_and(|n| n >= self.total) && self.source != Source::Sampled
    }
}

/// Returns the number of pages of a file of `bytes`.
pub(crate) fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(ioloom_sys::proc::page_bytes())
}

/// Queries the page cache state of an open file of `bytes`. The descriptor must not be shared: for
/// samples its readahead is turned off, so that a miss loads only the page itself.
///
/// # Errors
/// Returns the error of a system call, except those that mean "unsupported" or "not permitted".
pub fn residency(file: impl AsFd, bytes: u64) -> io::Result<State> {
    residency_with_seed(file, bytes, make::random_number())
}

/// Does the same; if pages are sampled, `seed` selects them.
pub(crate) fn residency_with_seed(file: impl AsFd, bytes: u64, seed: u64) -> io::Result<State> {
    let total = pages_of(bytes);
    if let Some(found) = cache::state(&file, 0, 0)? {
        let pages = Pages {
            resident: Some(found.resident),
            dirty: Some(found.dirty),
            writeback: Some(found.writeback),
            evicted: Some(found.evicted),
            recently_evicted: Some(found.recently_evicted),
        };
        return Ok(State { total, pages, resident_between: None, source: Source::Cachestat });
    }
    if total == 0 {
        let pages = Pages { resident: Some(0), ..Pages::default() };
        return Ok(State { total, pages, resident_between: None, source: Source::Pages });
    }
    sample(file, total, seed)
}

/// Waits for the pages that a query with `seed` loaded: they cannot be evicted while reads are in
/// flight.
pub(crate) fn wait_for_samples(file: impl AsFd, bytes: u64, seed: u64) -> io::Result<()> {
    let total = pages_of(bytes);
    let asked = total.min(SAMPLES_MAX);
    for i in 0..asked {
        let page = page_of_sample(seed, i, asked, total);
        read_at(&file, &mut [0], page * ioloom_sys::proc::page_bytes())?;
    }
    Ok(())
}

/// Samples one page in each stretch of the file with one-byte reads that must not wait.
fn sample(file: impl AsFd, total: u64, seed: u64) -> io::Result<State> {
    cache::advise_random(&file)?;
    let asked = total.min(SAMPLES_MAX);
    let page_bytes = ioloom_sys::proc::page_bytes();
    let mut hits = 0;
    for i in 0..asked {
        let page = page_of_sample(seed, i, asked, total);
        match read_nowait_at(&file, &mut [0], page * page_bytes)? {
            Nowait::Hit(_) => hits += 1,
            Nowait::Miss => {}
            Nowait::Unsupported => return Ok(State::unknown(total)),
        }
    }
    if asked == total {
        let pages = Pages { resident: Some(hits), ..Pages::default() };
        return Ok(State { total, pages, resident_between: None, source: Source::Pages });
    }
    let (resident, between) = estimate(hits, asked, total);
    let pages = Pages { resident: Some(resident), ..Pages::default() };
    Ok(State { total, pages, resident_between: Some(between), source: Source::Sampled })
}

/// Returns the page of sample `i` of `asked`: one in its stretch that depends on `seed`. Sampling
/// the same pages twice would find those that the first query loaded.
fn page_of_sample(seed: u64, i: u64, asked: u64, total: u64) -> u64 {
    let (start, end) = stretch(i, asked, total);
    let mut mixed = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    start + (mixed ^ (mixed >> 31)) % (end - start).max(1)
}

/// Returns stretch `i` of `parts` of `total` pages. It is not empty if there are at least as many
/// pages as parts.
pub(crate) fn stretch(i: u64, parts: u64, total: u64) -> (u64, u64) {
    let at = |i: u64| (u128::from(total) * u128::from(i) / u128::from(parts)) as u64;
    (at(i), at(i + 1))
}

/// Returns the estimate and its Wilson interval (95 %), pages. Stratified sampling makes the real
/// interval narrower.
fn estimate(hits: u64, asked: u64, total: u64) -> (u64, (u64, u64)) {
    const Z: f64 = 1.96;
    let (n, share) = (asked as f64, hits as f64 / asked as f64);
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / (1.0 + Z * Z / n);
    let pages = |share: f64| (share.clamp(0.0, 1.0) * total as f64).round() as u64;
    (pages(share), (pages(middle - half), pages(middle + half)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn samples_are_in_the_file_and_distinct(total in 1u64..1 << 50, seed: u64) {
            let asked = total.min(SAMPLES_MAX);
            let mut last = None;
            for i in 0..asked {
                let page = page_of_sample(seed, i, asked, total);
                prop_assert!(page < total);
                prop_assert!(last.is_none_or(|last| page > last));
                last = Some(page);
            }
        }

        #[test]
        fn the_interval_contains_the_estimate(hits in 0u64..=256, total in 257u64..1 << 40) {
            let (resident, (low, high)) = estimate(hits, 256, total);
            prop_assert!(low <= resident && resident <= high && high <= total);
            prop_assert!(high > low);
        }
    }

    #[test]
    fn the_interval_matches_published_values() {
        // 50 of 100: Wilson gives 0.4038 to 0.5962.
        assert_eq!(estimate(50, 100, 10_000), (5000, (4038, 5962)));
    }
}

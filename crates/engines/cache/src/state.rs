//! The page cache state of one open file, and how it was determined.

use crate::holes::Holes;
use ioloom_sys::cache;
use ioloom_sys::file::read_at;
use ioloom_sys::make;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;

/// Maximum number of one-byte reads used to sample a file. Files with no more pages than this are
/// tested page by page.
pub const SAMPLES_MAX: u64 = 256;

/// How a state was determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// cachestat(2): exact and without side effects.
    Cachestat,
    /// Every page was tested with a non-blocking read.
    Pages,
    /// A sample of the pages was tested with non-blocking reads, or some are in holes, where they show nothing; the
    /// resident count is an estimate without pages in holes.
    Sampled,
    /// The state cannot be determined.
    Unknown,
}

impl Source {
    /// Returns true if the query loads each page that it finds missing.
    pub(crate) const fn loads_pages(self) -> bool {
        matches!(self, Self::Pages | Self::Sampled)
    }

    /// Returns the name used in output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cachestat => "cachestat",
            Self::Pages => "pages",
            Self::Sampled => "sampled",
            Self::Unknown => "unknown",
        }
    }
}

/// Page counts by state; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// Resident pages. cachestat includes readahead in progress; sampling does not.
    pub resident: Option<u64>,
    /// Dirty pages.
    pub dirty: Option<u64>,
    /// Pages under writeback.
    pub writeback: Option<u64>,
    /// Pages evicted from the cache.
    pub evicted: Option<u64>,
    /// Pages evicted so recently that this indicates memory pressure.
    pub recently_evicted: Option<u64>,
}

/// The page cache state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Number of pages in the file.
    pub total: u64,
    /// Page counts by state.
    pub pages: Pages,
    /// 95 % confidence interval of the resident count, if it is an estimate.
    pub resident_between: Option<(u64, u64)>,
    /// How the state was determined.
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

    /// Returns true if no page is known to be resident.
    pub fn is_cold(&self) -> bool {
        self.pages.resident == Some(0) && self.source != Source::Sampled
    }

    /// Returns true if every page is known to be resident.
    pub fn is_warm(&self) -> bool {
        self.pages.resident.is_some_and(|n| n >= self.total) && self.source != Source::Sampled
    }
}

/// Returns the number of pages in a file of `bytes`.
pub(crate) fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(ioloom_sys::proc::page_bytes())
}

/// Queries the page cache state of an open file of `bytes`. The descriptor must not be shared:
/// sampling turns off its readahead to ensure that a miss loads only that page.
///
/// # Errors
/// Returns any system call error other than "unsupported" and "not permitted".
pub fn residency(file: impl AsFd, bytes: u64) -> io::Result<State> {
    residency_with_seed(file, bytes, make::random_number())
}

/// Like [`residency`], but uses `seed` to choose the pages to sample.
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

/// Waits for the pages loaded by a query with `seed`. Pages cannot be evicted while their reads are
/// in flight.
pub(crate) fn wait_for_samples(file: impl AsFd, bytes: u64, seed: u64) -> io::Result<()> {
    let total = pages_of(bytes);
    let asked = total.min(SAMPLES_MAX);
    for i in 0..asked {
        let page = page_of_sample(seed, i, asked, total);
        read_at(&file, &mut [0], page * ioloom_sys::proc::page_bytes())?;
    }
    Ok(())
}

/// Samples one page in each stretch of the file with non-blocking one-byte reads.
fn sample(file: impl AsFd, total: u64, seed: u64) -> io::Result<State> {
    cache::advise_random(&file)?;
    let asked = total.min(SAMPLES_MAX);
    let page_bytes = ioloom_sys::proc::page_bytes();
    let (mut hits, mut unknown, mut holes) = (0, 0, Holes::default());
    for i in 0..asked {
        let page = page_of_sample(seed, i, asked, total);
        match cache::read_if_resident(&file, page * page_bytes, &mut [0])? {
            Some(true) if holes.contain(&file, page) => unknown += 1,
            Some(hit) => hits += u64::from(hit),
            None => return Ok(State::unknown(total)),
        }
    }
    Ok(sampled((hits, unknown), asked, total))
}

/// Returns the state of a file of which `asked` pages were tested: `hits` are resident, and `unknown` may be.
fn sampled((hits, unknown): (u64, u64), asked: u64, total: u64) -> State {
    let state = |resident, resident_between, source| {
        let pages = Pages { resident: Some(resident), ..Pages::default() };
        State { total, pages, resident_between, source }
    };
    if asked < total {
        let (resident, (low, _)) = estimate(hits, asked, total);
        let (_, (_, high)) = estimate(hits + unknown, asked, total);
        state(resident, Some((low, high)), Source::Sampled)
    } else if unknown > 0 {
        state(hits, Some((hits, hits + unknown)), Source::Sampled)
    } else {
        state(hits, None, Source::Pages)
    }
}

/// Returns the page for sample `i` of `asked`: a page in its stretch, chosen by `seed`. A second
/// query of the same pages would find those that the first one loaded.
fn page_of_sample(seed: u64, i: u64, asked: u64, total: u64) -> u64 {
    let (start, end) = stretch(i, asked, total);
    let mut mixed = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    start + (mixed ^ (mixed >> 31)) % (end - start).max(1)
}

/// Returns stretch `i` when `total` pages are split into `parts`. No stretch is empty if there are
/// at least as many pages as parts.
pub(crate) fn stretch(i: u64, parts: u64, total: u64) -> (u64, u64) {
    let at = |i: u64| (u128::from(total) * u128::from(i) / u128::from(parts)) as u64;
    (at(i), at(i + 1))
}

/// Returns the estimate and its 95 % Wilson interval in pages. Stratified sampling makes the true
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
    fn pages_in_holes_are_not_taken_for_resident() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(1 << 20).unwrap();
        let total = pages_of(1 << 20);
        if Holes::default().contain(&file, 0) {
            let state = sample(&file, total, 7).unwrap();
            assert_eq!(state.pages.resident.unwrap_or(0), 0, "{state:?}");
            // Where such a read does not fill the page, it is a miss, and the file is cold.
            assert!(!state.is_warm(), "{state:?}");
        }
        let known = |counts, asked| {
            let state = sampled(counts, asked, 200);
            (state.pages.resident, state.resident_between, state.source)
        };
        assert_eq!(known((7, 0), 200), (Some(7), None, Source::Pages));
        assert_eq!(known((7, 5), 200), (Some(7), Some((7, 12)), Source::Sampled));
        let (resident, between, source) = known((50, 50), 100);
        assert_eq!((resident, source), (Some(100), Source::Sampled));
        assert_eq!(between, Some((estimate(50, 100, 200).1.0, 200)));
    }

    #[test]
    fn the_interval_matches_published_values() {
        // 50 of 100: Wilson gives 0.4038 to 0.5962.
        assert_eq!(estimate(50, 100, 10_000), (5000, (4038, 5962)));
    }
}

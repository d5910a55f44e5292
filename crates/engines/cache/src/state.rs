//! The state of one open file in the page cache, and how it is known.

use ioloom_sys::cache;
use ioloom_sys::file::{Nowait, read_at, read_nowait_at};
use ioloom_sys::make;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;

/// Reads of one byte with which a file is sampled at most. A file of up to so many pages is asked
/// page by page.
pub const SAMPLES_MAX: u64 = 256;

/// How a state is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// cachestat(2): exact, nothing was touched.
    Cachestat,
    /// Every page was asked by a read that must not wait.
    Pages,
    /// A sample of the pages was asked so; what is resident is an estimate.
    Sampled,
    /// Nobody can tell.
    Unknown,
}

impl Source {
    /// The word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cachestat => "cachestat",
            Self::Pages => "pages",
            Self::Sampled => "sampled",
            Self::Unknown => "unknown",
        }
    }
}

/// Pages of a file by state. What is not known is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages {
    /// In memory. Read-ahead that is still under way counts for cachestat, and not for samples.
    pub resident: Option<u64>,
    /// Changed and not yet written.
    pub dirty: Option<u64>,
    /// On their way to the device.
    pub writeback: Option<u64>,
    /// Once in memory, since reclaimed.
    pub evicted: Option<u64>,
    /// Reclaimed so recently that it shows pressure on memory.
    pub recently_evicted: Option<u64>,
}

/// A file in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Pages that the file has.
    pub total: u64,
    /// Pages by state.
    pub pages: Pages,
    /// The 95 % interval of the resident pages, where they are an estimate.
    pub resident_between: Option<(u64, u64)>,
    /// How it is known.
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

    /// Whether it is known that no page is in memory.
    pub fn is_cold(&self) -> bool {
        self.pages.resident == Some(0) && self.source != Source::Sampled
    }

    /// Whether it is known that every page is in memory.
    pub fn is_warm(&self) -> bool {
        self.pages.resident.is_some_and(|n| n >= self.total) && self.source != Source::Sampled
    }
}

/// Pages of a file of `bytes`.
pub(crate) fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(ioloom_sys::proc::page_bytes())
}

/// Asks about an open file of `bytes`. The descriptor must be of our own: for samples its
/// read-ahead is turned off, so that a page that misses brings in itself and no more.
///
/// # Errors
/// Whatever the calls report beside "cannot tell".
pub fn residency(file: impl AsFd, bytes: u64) -> io::Result<State> {
    residency_with_seed(file, bytes, make::random_number())
}

/// The same; where pages are sampled, `seed` tells which.
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

/// Waits for the pages that a look at `seed` brought in: as long as they are on their way they cannot be
/// put out.
pub(crate) fn wait_for_samples(file: impl AsFd, bytes: u64, seed: u64) -> io::Result<()> {
    let total = pages_of(bytes);
    let asked = total.min(SAMPLES_MAX);
    for i in 0..asked {
        let page = page_of_sample(seed, i, asked, total);
        read_at(&file, &mut [0], page * ioloom_sys::proc::page_bytes())?;
    }
    Ok(())
}

/// By reads of one byte that must not wait, one in each stretch of the file.
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

/// The page that sample `i` of `asked` asks: a place in its stretch, another one for each `seed`. A look
/// that asked the pages of an earlier one would find those that the earlier one brought in.
fn page_of_sample(seed: u64, i: u64, asked: u64, total: u64) -> u64 {
    let (start, end) = stretch(i, asked, total);
    let mut mixed = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    start + (mixed ^ (mixed >> 31)) % (end - start).max(1)
}

/// Stretch `i` of `parts` of `total` pages; never empty while there are as many pages as parts.
pub(crate) fn stretch(i: u64, parts: u64, total: u64) -> (u64, u64) {
    let at = |i: u64| (u128::from(total) * u128::from(i) / u128::from(parts)) as u64;
    (at(i), at(i + 1))
}

/// The estimate and its interval (Wilson, 95 %), pages. Stretches make it narrower than it says.
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
        fn samples_lie_in_the_file_and_apart(total in 1u64..1 << 50, seed: u64) {
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
        fn the_interval_holds_the_estimate(hits in 0u64..=256, total in 257u64..1 << 40) {
            let (resident, (low, high)) = estimate(hits, 256, total);
            prop_assert!(low <= resident && resident <= high && high <= total);
            prop_assert!(high > low);
        }
    }

    #[test]
    fn the_interval_is_that_of_the_books() {
        // 50 of 100: Wilson gives 0.4038 to 0.5962.
        assert_eq!(estimate(50, 100, 10_000), (5000, (4038, 5962)));
    }
}

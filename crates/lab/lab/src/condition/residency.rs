//! Queries the page cache for a seeded sample of files.
//!
//! Uses cachestat, or non-blocking reads if it is unavailable. Querying all files of a large set
//! would take longer than reading them, so a sample has at most [`SAMPLE_MAX`] files plus up to
//! [`LARGE_MAX`] large ones: a 1 GiB file outweighs all others together. A query opens the file.

use super::error::ConditionError;
use crate::files::FileList;
use ioloom_failure::Operation;
use ioloom_model::distribution::stream;
use ioloom_sys::cache;
use rand::RngExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of files in a sample, not counting large files.
pub const SAMPLE_MAX: usize = 256;
/// Minimum size in bytes of files that are always in the sample.
pub const LARGE_BYTES: u64 = 4 << 20;
/// Maximum number of large files in a sample; more would make querying as slow as reading.
const LARGE_MAX: usize = 4096;

/// Returns the indices of the files to query: a seeded sample and the large files.
pub(super) fn sample(list: &FileList, files_max: Option<u64>, seed: u64) -> Vec<usize> {
    let count = list.count(files_max);
    if count <= SAMPLE_MAX {
        return (0..count).collect();
    }
    let mut rng = stream(seed, 0xCACE);
    let mut chosen: Vec<usize> = (0..SAMPLE_MAX).map(|_| rng.random_range(0..count)).collect();
    chosen.extend((0..count).filter(|i| list.size(*i) >= LARGE_BYTES).take(LARGE_MAX));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Returns the share of the chosen files' pages that is resident; `None` if it cannot be
/// determined.
pub(super) fn resident_share(
    list: &FileList,
    chosen: &[usize],
    stop: &AtomicBool,
) -> Result<Option<f64>, ConditionError> {
    let page = ioloom_sys::proc::page_bytes();
    let (resident, pages) = (AtomicU64::new(0), AtomicU64::new(0));
    let unknown = AtomicBool::new(false);
    list.each(chosen, 4, stop, Operation::Residency, |file, size| {
        match cache::resident_pages(file, size)? {
            Some(n) => {
                let all = size.div_ceil(page);
                resident.fetch_add(n.min(all), Ordering::Relaxed);
                pages.fetch_add(all, Ordering::Relaxed);
            }
            None => unknown.store(true, Ordering::Relaxed),
        }
        Ok(())
    })?;
    let pages = pages.into_inner();
    if unknown.into_inner() || pages == 0 {
        return Ok(None);
    }
    Ok(Some(resident.into_inner() as f64 / pages as f64))
}

/// Returns the share of the chosen files' bytes that non-blocking reads return. This can prove warm
/// if cachestat is unavailable. A miss starts readahead, so it can never prove cold. `None` if the
/// file system does not support such reads.
pub(super) fn readable_share(
    list: &FileList,
    chosen: &[usize],
    stop: &AtomicBool,
) -> Result<Option<f64>, ConditionError> {
    let (found, wanted) = (AtomicU64::new(0), AtomicU64::new(0));
    let unknown = AtomicBool::new(false);
    list.each(chosen, 4, stop, Operation::Residency, |file, size| {
        let mut buffer = vec![0u8; 256 << 10];
        let mut at = 0;
        while at < size {
            let piece = (size - at).min(buffer.len() as u64);
            match cache::read_if_resident(file, at, &mut buffer[..piece as usize])? {
                Some(true) => found.fetch_add(piece, Ordering::Relaxed),
                Some(false) => 0,
                None => {
                    unknown.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            };
            wanted.fetch_add(piece, Ordering::Relaxed);
            at += piece;
        }
        Ok(())
    })?;
    let wanted = wanted.into_inner();
    if unknown.into_inner() || wanted == 0 {
        return Ok(None);
    }
    Ok(Some(found.into_inner() as f64 / wanted as f64))
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests {
    use super::super::tests::{MAKER, set};
    use super::*;
    use ioloom_model::Condition;
    use std::fs::File;

    #[test]
    fn reads_that_must_not_wait_prove_warm_and_agree_with_the_pages() {
        let (_dir, list) = set(20, 700_000);
        let stop = AtomicBool::new(false);
        let all: Vec<usize> = (0..list.len()).collect();
        let warm_share = || {
            MAKER.make(Condition::Warm, &list, None, 1, &stop).unwrap();
            readable_share(&list, &all, &stop).unwrap()
        };
        if warm_share().is_none() {
            println!("skipped: no RWF_NOWAIT on this file system");
            return;
        }
        // The kernel can evict a page between these steps.
        assert!((0..20).any(|_| warm_share() == Some(1.0)));
        if !cache::is_memory_backed(list.root()).unwrap() {
            MAKER.make(Condition::Cold, &list, None, 1, &stop).unwrap();
            assert!(readable_share(&list, &all, &stop).unwrap().unwrap() < 1.0);
        }
    }

    #[test]
    fn samples_depend_on_the_seed_and_hold_the_large_files() {
        let (dir, _) = set(400, 1);
        let large = File::create(dir.path().join("zzz")).unwrap();
        large.set_len(LARGE_BYTES).unwrap();
        let list = FileList::below(dir.path()).unwrap();
        let one = sample(&list, None, 1);
        assert_eq!(one, sample(&list, None, 1));
        assert_ne!(one, sample(&list, None, 2));
        assert!(one.len() <= SAMPLE_MAX + 1 && one.contains(&400));
        assert!(!sample(&list, Some(400), 1).contains(&400));
    }
}

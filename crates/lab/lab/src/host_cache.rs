//! Detects caches below this kernel, such as the page cache of a hypervisor.
//!
//! Evicting a file removes it from this kernel's memory only. If a layer below keeps the data, a cold
//! run reads from that layer's memory. The probe evicts a sample of a set and reads it, twice. The
//! second read is faster if the first one brought the data into a cache below. A ratio near 1 shows no
//! such cache, or one that held the data before both reads; the probe cannot distinguish these. Both
//! reads must come from the device, as its counter shows; otherwise the eviction failed and there is
//! no result.
//!
//! One disturbed read must not look like a cache, so two disjoint samples are read, one after the
//! other, and the ratio closer to 1 counts.
//!
//! Cost: two reads of two samples of at most [`FILES_MAX`] files or [`BYTES_MAX`] bytes, once per set of
//! a session.

use crate::files::FileList;
use ioloom_failure::Operation;
use ioloom_sys::cache;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of files in a sample.
const FILES_MAX: usize = 256;
/// Maximum bytes read of a sample in one pass.
const BYTES_MAX: u64 = 16 << 20;
/// Minimum bytes of a sample; less takes too little time to compare.
const BYTES_MIN: u64 = 1 << 20;
/// Maximum duration of one pass.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Minimum share of the bytes that must come from the device in each pass.
const DEVICE_MIN: f64 = 0.95;

/// Files and bytes of a pass, and how long it took.
#[derive(Debug, Clone, Copy)]
struct Pass {
    files: usize,
    bytes: u64,
    elapsed: Duration,
}

/// Returns the time of a second cold read of a sample relative to the first; `None` if the files are
/// too small or too few, or their device cannot be observed.
pub(crate) fn second_read(list: &FileList, stop: &AtomicBool) -> Option<f64> {
    let chosen = spread(list.len(), 2 * FILES_MAX);
    // Halves, not alternate files: a layer below may read ahead into the neighbouring file.
    let (one, other) = chosen.split_at(chosen.len() / 2);
    [one, other].into_iter().filter_map(|files| share(list, files, stop)).reduce(f64::max)
}

/// Returns the time of the second of two cold reads of the files relative to the first.
fn share(list: &FileList, chosen: &[usize], stop: &AtomicBool) -> Option<f64> {
    let first = cold_pass(list, chosen, stop)?;
    // The first pass may have ended early; the second reads the same files.
    let second = cold_pass(list, &chosen[..first.files], stop)?;
    let same = (second.files, second.bytes) == (first.files, first.bytes);
    (same && first.bytes >= BYTES_MIN)
        .then(|| second.elapsed.as_secs_f64() / first.elapsed.as_secs_f64().max(1e-9))
}

/// Returns the indices of at most `max` of `count` files, evenly spread.
fn spread(count: usize, max: usize) -> Vec<usize> {
    let all = count.min(max);
    (0..all).map(|i| i * count / all).collect()
}

/// Evicts the files and reads them in order. Returns `None` if they did not come from the device.
fn cold_pass(list: &FileList, chosen: &[usize], stop: &AtomicBool) -> Option<Pass> {
    let root = File::open(list.root()).ok()?;
    cache::flush_file_system(&root).ok()?;
    list.each(chosen, 4, stop, Operation::Evict, |file, size| {
        if size == 0 { Ok(()) } else { cache::evict_file(file) }
    })
    .ok()?;
    let before = cache::device_read_bytes(&root)?;
    let mut buffer = vec![0_u8; 256 << 10];
    let mut pass = Pass { files: 0, bytes: 0, elapsed: Duration::ZERO };
    let since = Instant::now();
    for index in chosen {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if pass.bytes >= BYTES_MAX || since.elapsed() > TIME_MAX {
            break;
        }
        let file = File::open(list.path(*index)).ok()?;
        let mut file = file.take(BYTES_MAX - pass.bytes);
        loop {
            match file.read(&mut buffer).ok()? {
                0 => break,
                n => pass.bytes += n as u64,
            }
        }
        pass.files += 1;
    }
    pass.elapsed = since.elapsed();
    let device = cache::device_read_bytes(&root)?.saturating_sub(before);
    (device as f64 >= DEVICE_MIN * pass.bytes as f64).then_some(pass)
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_spread_over_the_set() {
        assert_eq!(spread(0, 256), Vec::<usize>::new());
        assert_eq!(spread(3, 256), [0, 1, 2]);
        let many = spread(25_600, 256);
        assert_eq!((many.len(), many[0], many[1], many[255]), (256, 0, 100, 25_500));
    }

    #[test]
    fn both_reads_come_from_the_device_or_there_is_no_result() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for i in 0..4 {
            std::fs::write(dir.path().join(i.to_string()), vec![i as u8; 512 << 10]).unwrap();
        }
        let list = FileList::below(dir.path()).unwrap();
        let stop = AtomicBool::new(false);
        match second_read(&list, &stop) {
            Some(ratio) => assert!(ratio > 0.0 && ratio.is_finite(), "{ratio}"),
            None => println!("skipped: the device of the source tree cannot be observed"),
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(second_read(&list, &stop), None, "an interrupted probe has no result");
        let small = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(small.path().join("x"), [1; 4096]).unwrap();
        let list = FileList::below(small.path()).unwrap();
        assert_eq!(second_read(&list, &AtomicBool::new(false)), None, "too few bytes");
    }
}

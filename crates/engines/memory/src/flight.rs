//! Requests in flight, measured twice: by our clock and by the device.
//!
//! By Little's law, the mean number of requests in flight is the sum of all request durations
//! divided by the elapsed time, no matter where they are measured. This module measures the calls;
//! the kernel measures the requests to its device. If the two differ, the wait times and queue
//! lengths reported by the device cannot be trusted: it counts other requests, splits ours, or
//! serves them from elsewhere. The measurement takes 0.2 seconds and reads the read buffer file
//! with direct I/O.

use crate::threads::spawn;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::parse::{grown_ms, parse_disk_counters};
use ioloom_sys::proc::{DiskCounters, ProcFile};
use ioloom_sys::{cache, file};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Number of requests to keep in flight.
const ASKED: [usize; 2] = [1, 4];
/// Request size in bytes; most devices do not split it.
const BLOCK_BYTES: usize = 64 << 10;
/// Duration of each measurement; device counters have millisecond resolution.
const TIME_NS: u64 = 100_000_000;

/// The mean number of requests in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Flight {
    /// Number of requests to keep in flight.
    pub(crate) asked: usize,
    /// According to the durations of our calls.
    pub(crate) by_calls: f64,
    /// According to the device.
    pub(crate) by_device: f64,
}

/// Measures with the file of `bytes` at `path`, or returns the reason why this is impossible.
pub(crate) fn count(path: &Path, bytes: usize) -> Result<[Flight; 2], &'static str> {
    let how = file::OpenHow { direct: true, ..file::OpenHow::default() };
    let open = file::open(path, how).map_err(|_| "cannot open the file for direct I/O")?;
    match file::direct_alignment_of(&open) {
        Ok(Some(needed)) if BLOCK_BYTES.is_multiple_of(needed.offset as usize) => {}
        _ => return Err("the file system does not report direct I/O support"),
    }
    let device = file::identity(&open).map_err(|_| "the file's device is unknown")?;
    let (major, minor) = device.device;
    let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    let mut stat = ProcFile::open(&stat, 512).map_err(|_| "the file is not on a block device")?;
    cache::write_back(&open).map_err(|_| "cannot write back the file")?;
    let blocks = bytes / BLOCK_BYTES;
    let mut flights = ASKED.map(|asked| Flight { asked, by_calls: 0.0, by_device: 0.0 });
    for flight in &mut flights {
        let before = counters(&mut stat)?;
        let start = monotonic_ns();
        let waited_ns = read(&open, blocks, flight.asked)?;
        let elapsed_ns = (monotonic_ns() - start) as f64;
        let after = counters(&mut stat)?;
        flight.by_calls = waited_ns as f64 / elapsed_ns;
        let counted_ms = grown_ms(before.request_ms[0], after.request_ms[0]);
        flight.by_device = counted_ms as f64 * 1e6 / elapsed_ns;
    }
    Ok(flights)
}

fn counters(stat: &mut ProcFile) -> Result<DiskCounters, &'static str> {
    let text = stat.read().ok();
    text.and_then(parse_disk_counters).ok_or("cannot read the device counters")
}

/// Reads blocks with `asked` threads, each reading one block at a time, until the time is over.
/// Returns the sum of all call durations in nanoseconds.
fn read(open: impl AsFd + Sync, blocks: usize, asked: usize) -> Result<u64, &'static str> {
    assert!(blocks > 0 && asked > 0, "without blocks or threads, nothing would be in flight");
    let end = monotonic_ns() + TIME_NS;
    let reader = |first: usize| -> Option<u64> {
        let mut buffer = Buffer::new(BLOCK_BYTES);
        let (mut at, mut sum) = (first, 0);
        // At least one, however late the thread starts.
        loop {
            let offset = (at % blocks * BLOCK_BYTES) as u64;
            let start = monotonic_ns();
            let read = file::read_at(&open, buffer.whole_mut(), offset).ok()?;
            sum += monotonic_ns() - start;
            if read == 0 {
                return None;
            }
            at += asked;
            if monotonic_ns() >= end {
                return Some(sum);
            }
        }
    };
    std::thread::scope(|scope| {
        let reader = &reader;
        let start = |i| spawn(scope, format!("flight-{i}"), move || reader(i)).ok();
        let started: Option<Vec<_>> = (0..asked).map(start).collect();
        let waited = started.ok_or("a thread could not be started")?.into_iter();
        let sum: Option<u64> = waited.map(|thread| thread.join().ok().flatten()).sum();
        sum.ok_or("a direct read failed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_or_the_reason_is_given() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".flight-test");
        std::fs::write(&path, vec![1; 4 * BLOCK_BYTES]).unwrap();
        let counted = count(&path, 4 * BLOCK_BYTES);
        std::fs::remove_file(&path).unwrap();
        match counted {
            Ok(flights) => {
                assert_eq!(flights.map(|f| f.asked), ASKED);
                // One thread has at most one request in flight, and four threads have at most four.
                assert!(flights.iter().all(|f| f.by_calls > 0.0 && f.by_calls <= f.asked as f64));
            }
            Err(why) => assert!(!why.is_empty()),
        }
        assert!(count(Path::new("/no/such/file"), 1).is_err());
    }
}

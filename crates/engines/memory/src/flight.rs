//! Requests in flight, counted twice: by our clock and by the device.
//!
//! Little's law says that the mean number in flight is the rate times the time of one, so the sum of
//! the times of all requests over the elapsed time must be the same whoever takes the times. We take
//! those of the calls, the kernel those of the requests of its device. Where the two differ, figures
//! of waiting and of requests in flight of that device are not to be believed: it counts others,
//! splits what it is asked for, or answers from somewhere else. Costs two tenths of a second, and reads
//! past the page cache what the read buffers were measured with.

use crate::threads::spawn;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::parse::parse_disk_counters;
use ioloom_sys::proc::{DiskCounters, ProcFile};
use ioloom_sys::{cache, file};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Requests asked for at a time.
const ASKED: [usize; 2] = [1, 4];
/// Bytes of a request: one that no usual device splits.
const BLOCK_BYTES: usize = 64 << 10;
/// Time of each of both: the device counts in milliseconds.
const TIME_NS: u64 = 100_000_000;

/// Requests in flight on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Flight {
    /// How many were asked for at a time.
    pub(crate) asked: usize,
    /// By the times of our calls.
    pub(crate) ours: f64,
    /// By the times that the device counted.
    pub(crate) device: f64,
}

/// Counts with a file of `bytes` bytes at `path`, or says why that cannot be.
pub(crate) fn count(path: &Path, bytes: usize) -> Result<[Flight; 2], &'static str> {
    let how = file::OpenHow { direct: true, ..file::OpenHow::default() };
    let open = file::open(path, how).map_err(|_| "the file does not open past the page cache")?;
    match file::direct_alignment_of(&open) {
        Ok(Some(needed)) if BLOCK_BYTES.is_multiple_of(needed.offset as usize) => {}
        _ => return Err("the file system does not say that it reads past the page cache"),
    }
    let device = file::identity(&open).map_err(|_| "nobody tells which device the file is on")?;
    let (major, minor) = device.device;
    let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    let mut stat = ProcFile::open(&stat, 512).map_err(|_| "no block device has the file alone")?;
    cache::write_back(&open).map_err(|_| "the file cannot be written out")?;
    let blocks = bytes / BLOCK_BYTES;
    let mut flights = ASKED.map(|asked| Flight { asked, ours: 0.0, device: 0.0 });
    for flight in &mut flights {
        let before = counters(&mut stat)?;
        let start = monotonic_ns();
        let waited_ns = read(&open, blocks, flight.asked).ok_or("a read past the cache failed")?;
        let elapsed_ns = (monotonic_ns() - start) as f64;
        let after = counters(&mut stat)?;
        flight.ours = waited_ns as f64 / elapsed_ns;
        let counted_ms = after.request_ms[0].saturating_sub(before.request_ms[0]);
        flight.device = counted_ms as f64 * 1e6 / elapsed_ns;
    }
    Ok(flights)
}

fn counters(stat: &mut ProcFile) -> Result<DiskCounters, &'static str> {
    let text = stat.read().ok();
    text.and_then(parse_disk_counters).ok_or("the counters of the device cannot be read")
}

/// Reads blocks by so many threads, one at a time each, until the time is over; the sum of the times
/// of all calls, ns. `None` if a read failed.
fn read(open: impl AsFd + Sync, blocks: usize, asked: usize) -> Option<u64> {
    let end = monotonic_ns() + TIME_NS;
    let reader = |first: usize| {
        let mut buffer = Buffer::new(BLOCK_BYTES);
        let (mut at, mut sum) = (first, 0);
        while monotonic_ns() < end {
            let offset = (at % blocks.max(1) * BLOCK_BYTES) as u64;
            let start = monotonic_ns();
            let read = file::read_at(&open, buffer.whole_mut(), offset).ok()?;
            sum += monotonic_ns() - start;
            if read == 0 {
                return None;
            }
            at += asked;
        }
        Some(sum)
    };
    std::thread::scope(|scope| {
        let reader = &reader;
        let started: Vec<_> =
            (0..asked).map(|i| spawn(scope, format!("flight-{i}"), move || reader(i))).collect();
        started.into_iter().map(|thread| thread.join().ok().flatten()).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_a_file_is_asked_for_or_the_reason_said() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(".flight-test");
        std::fs::write(&path, vec![1; 4 * BLOCK_BYTES]).unwrap();
        let counted = count(&path, 4 * BLOCK_BYTES);
        std::fs::remove_file(&path).unwrap();
        match counted {
            Ok(flights) => {
                assert_eq!(flights.map(|f| f.asked), ASKED);
                // One call after another cannot be more than one at a time, nor four than four.
                assert!(flights.iter().all(|f| f.ours > 0.0 && f.ours <= f.asked as f64));
            }
            Err(why) => assert!(!why.is_empty()),
        }
        assert!(count(Path::new("/no/such/file"), 1).is_err());
    }
}

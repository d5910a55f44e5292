//! How caches affect a system call: read(2) of a warm file by buffer size.
//!
//! A small buffer pays the cost of a call for only a few bytes. A large one exceeds the caches, so
//! the bytes travel to memory and back before the program sees them. The best size is in between.

use crate::blocks::minimum;
use crate::error::MemoryError;
use crate::flight::{self, Flight};
use crate::options::MemoryOptions;
use ioloom_failure::{Operation, PathError};
use ioloom_model::memory::MemoryResult;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::{cache, file, make, proc};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// File size in bytes.
const FILE_BYTES: usize = 64 << 20;
/// File size in quick mode in bytes.
const FILE_QUICK_BYTES: usize = 32 << 20;
/// Buffer sizes: powers of two in this range.
const BUFFER_MIN: usize = 4 << 10;
const BUFFER_MAX: usize = 16 << 20;

/// The results of the reads, as needed by the checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reads {
    /// Fraction of the file in the page cache before the reads; `None` if unknown.
    pub(crate) warm_share: Option<f64>,
    /// Number of bytes returned by the calls.
    pub(crate) brought: u64,
    /// Number of bytes that the kernel counted for this process's calls.
    pub(crate) counted: Option<u64>,
    /// Number of bytes read from the device for this process during the reads.
    pub(crate) from_device: Option<u64>,
    /// Requests in flight according to two measurements, or the reason why they were not counted.
    pub(crate) flights: Result<[Flight; 2], &'static str>,
}

/// A file that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// Creates a file under a name that other users, who may be able to create links in the directory,
    /// cannot guess.
    fn make(dir: &Path, bytes: usize) -> Result<Self, PathError> {
        let path = dir.join(format!(".ioloom-memory-{:016x}", make::random_number()));
        let file = make::private_file(&path).map_err(PathError::on(Operation::Create, &path))?;
        let scratch = Self(path);
        File::from(file)
            .write_all(&vec![7u8; bytes])
            .map_err(PathError::on(Operation::Write, &scratch.0))?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn run(
    options: &MemoryOptions,
    result: &mut MemoryResult,
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<Reads, MemoryError> {
    let bytes = if options.quick { FILE_QUICK_BYTES } else { FILE_BYTES };
    std::fs::create_dir_all(&options.dir)
        .map_err(PathError::on(Operation::CreateDir, &options.dir))?;
    let scratch = Scratch::make(&options.dir, bytes)?;
    let path = scratch.0.clone();
    let open = file::open(&path, file::OpenHow::default());
    let open = open.map_err(PathError::on(Operation::Open, &path))?;
    let resident = cache::resident_pages(&open, bytes as u64).ok().flatten();
    let pages = (bytes as u64).div_ceil(proc::page_bytes());
    let mut reads = Reads {
        warm_share: resident.map(|n| n as f64 / pages as f64),
        brought: 0,
        counted: None,
        from_device: None,
        flights: Err("not counted"),
    };
    let before = proc::process_io().ok();
    let mut buffer = Buffer::new(BUFFER_MAX);
    buffer.touch_pages();
    let mut curve = Vec::new();
    let mut size = BUFFER_MIN;
    while size <= BUFFER_MAX {
        let mut times = Vec::new();
        for _ in 0..if options.quick { 3 } else { 5 } {
            check_stop()?;
            let into = &mut buffer.whole_mut()[..size];
            let start = monotonic_ns();
            let mut at = 0;
            while at < bytes {
                let got = file::read_at(&open, into, at as u64);
                let got = got.map_err(PathError::on(Operation::Read, &path))?;
                if got == 0 {
                    break;
                }
                // Touch each line, like a program that uses the data.
                let seen = into[..got].iter().step_by(64).fold(0u64, |s, b| s + u64::from(*b));
                std::hint::black_box(seen);
                at += got;
            }
            reads.brought += at as u64;
            times.push((monotonic_ns() - start) as f64);
        }
        curve.push((size as f64, bytes as f64 / (minimum(&times) / 1e9)));
        size *= 2;
    }
    let after = proc::process_io().ok();
    check_stop()?;
    reads.flights = flight::count(&path, bytes);
    drop(scratch);
    if let (Some(before), Some(after)) = (before, after) {
        reads.counted = Some(after.read_chars - before.read_chars);
        reads.from_device = Some(after.read_bytes - before.read_bytes);
    }
    if let Some((size, rate)) = best(&curve) {
        result.extra.insert("read_buffer_bytes".to_owned(), size);
        result.extra.insert("warm_read_bytes_per_s".to_owned(), rate);
    }
    result.curves.insert("bufsize".to_owned(), curve);
    Ok(reads)
}

/// Returns the smallest buffer whose rate is within 5 % of the best, and its rate. A smaller buffer
/// leaves more of the cache to other programs.
pub(crate) fn best(curve: &[(f64, f64)]) -> Option<(f64, f64)> {
    let top = curve.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    curve.iter().copied().find(|(_, rate)| *rate >= 0.95 * top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_with_a_predictable_name_is_not_followed() {
        let dir = std::env::temp_dir().join(format!("ioloom-{:016x}", make::random_number()));
        std::fs::create_dir(&dir).unwrap();
        let target = dir.join("target");
        std::fs::write(&target, "precious").unwrap();
        let link = dir.join(format!(".ioloom-memory-{}", std::process::id()));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let scratch = Scratch::make(&dir, 10).unwrap();
        let (kept, bytes) = (std::fs::read(&target).unwrap(), std::fs::read(&scratch.0).unwrap());
        let path = scratch.0.clone();
        drop(scratch);
        let left = path.exists();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((&kept[..], &bytes[..], left), (&b"precious"[..], &[7; 10][..], false));
    }

    #[test]
    fn the_smallest_good_buffer_is_chosen() {
        let curve = [(4.0, 2.0), (8.0, 3.8), (16.0, 4.0), (32.0, 3.9), (64.0, 2.0)];
        assert_eq!(best(&curve), Some((8.0, 3.8)));
        assert_eq!(best(&[]), None);
    }
}

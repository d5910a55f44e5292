//! The files of a job, and random parts of them.
//!
//! Parts consist of runs of adjacent files: single files at random places would need more reads of
//! directories and inodes than the job does. Each part is taken once, because reading it changes
//! what is in memory.

use super::watch::within;
use crate::each::input::usable_kind;
use ioloom_sys::file::{self, Kind, OpenHow};
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Adjacent files that stay together.
const RUN: usize = 16;
/// Threads that evict: each open can wait for a slow file system.
const EVICTING: usize = 16;

/// The files of a job.
pub(super) struct Sample {
    list: PathList,
    /// Whether all files were found in time.
    pub(super) complete: bool,
    /// Runs of files in random order: first index and length.
    runs: Vec<(usize, usize)>,
    /// The next run to take.
    next: usize,
    /// Whether parts may be taken again.
    pub(super) again: bool,
    pub(super) walk_ns: u64,
    /// Arguments and directories that could not be read.
    pub(super) errors: Vec<String>,
}

/// How files are listed.
pub(super) struct Listing<'a> {
    pub(super) paths: &'a [PathBuf],
    /// Limit of the time; `None` lists all files.
    pub(super) time: Option<Duration>,
    /// Raised by an interrupt.
    pub(super) stop: Arc<AtomicBool>,
}

/// A part of the files.
#[derive(Debug, Default)]
pub(super) struct Slice {
    pub(super) paths: PathList,
}

/// The total size of the files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Total {
    pub(super) files: u64,
    pub(super) bytes: f64,
    /// Relative standard error of the bytes.
    pub(super) error: f64,
}

impl Sample {
    /// Lists the files below some paths.
    pub(super) fn list(how: &Listing<'_>, seed: u64) -> Self {
        let time = how.time;
        let start = Instant::now();
        let (mut complete, mut list, mut errors) = (true, PathList::new(), Vec::new());
        for path in how.paths {
            match usable_kind(path) {
                Err(error) => errors.push(error),
                Ok(Kind::Directory) => {
                    let left = time.map(|time| time.saturating_sub(start.elapsed()));
                    let found =
                        within(left, &how.stop, |cancel| ioloom::tree(path).cancel(cancel).walk());
                    complete &= !found.cancelled;
                    errors.extend(found.errors.iter().map(ToString::to_string));
                    list.append(found.files);
                }
                Ok(_) => list.push(path.as_os_str().as_bytes()),
            }
        }
        let walk_ns = start.elapsed().as_nanos() as u64;
        Self { errors, complete, walk_ns, ..Self::of(list, seed) }
    }

    fn of(list: PathList, seed: u64) -> Self {
        let count = list.len();
        // With few files, runs are shorter, so that there are enough of them.
        let run = RUN.min(count / 64).max(1);
        let mut runs: Vec<_> =
            (0..count).step_by(run).map(|first| (first, run.min(count - first))).collect();
        // An odd state would make neighbouring seeds equal.
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.rotate_left(32);
        for i in (1..runs.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            runs.swap(i, (random >> 33) as usize % (i + 1));
        }
        let (errors, again) = (Vec::new(), false);
        Self { list, complete: true, runs, next: 0, again, walk_ns: 0, errors }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the first file to take.
    pub(super) fn first(&self) -> Option<&Path> {
        self.runs.first().map(|(index, _)| self.list.path(*index))
    }

    /// Returns one file of each device, from single files of at most `runs` runs, for at most `time`. After the
    /// first run, these are the runs that are taken last, because a look brings inodes into memory.
    pub(super) fn one_of_each_device(&self, runs: usize, time: Duration) -> Vec<&Path> {
        let start = Instant::now();
        let mut found: Vec<(u64, &Path)> = Vec::new();
        let all = self.runs.first().into_iter().chain(self.runs.iter().rev());
        for (tried, (index, _)) in all.take(runs).enumerate() {
            if tried > 0 && start.elapsed() > time {
                break;
            }
            let path = self.list.path(*index);
            let Ok(device) = std::fs::metadata(path).map(|facts| facts.dev()) else { continue };
            if found.iter().all(|(other, _)| *other != device) {
                found.push((device, path));
            }
        }
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Returns how many files can still be taken.
    pub(super) fn left(&self) -> usize {
        if self.again {
            return self.len();
        }
        self.runs[self.next..].iter().map(|(_, files)| files).sum()
    }

    /// Takes about `files` files, in the order of the list.
    pub(super) fn take(&mut self, files: usize) -> Slice {
        let (mut taken, mut count) = (Vec::new(), 0);
        while count < files && taken.len() < self.runs.len() {
            if self.next == self.runs.len() {
                if !self.again {
                    break;
                }
                self.next = 0;
            }
            taken.push(self.runs[self.next]);
            count += self.runs[self.next].1;
            self.next += 1;
        }
        taken.sort_unstable();
        self.slice(taken.into_iter().flat_map(|(first, files)| first..first + files))
    }

    /// Returns all files.
    pub(super) fn all(&self) -> Slice {
        self.slice(0..self.len())
    }

    fn slice(&self, indices: impl Iterator<Item = usize>) -> Slice {
        let mut paths = PathList::new();
        for index in indices {
            match self.list.inode(index).filter(|_| self.list.known_regular(index)) {
                Some(inode) => paths.push_found(&[self.list.get(index)], inode),
                None => paths.push(self.list.get(index)),
            }
        }
        Slice { paths }
    }

    /// Returns the share of the pages of random files that are in memory, from at most `files` files and
    /// for at most `time`; `None` if the system cannot report it.
    pub(super) fn resident(&self, files: usize, time: Duration) -> Option<f64> {
        let start = Instant::now();
        let page = ioloom_sys::proc::page_bytes();
        let (mut pages, mut resident) = (0, 0);
        // One file of each run, from the end of the random order, which is taken last.
        for (tried, (first, _)) in self.runs.iter().rev().take(files).enumerate() {
            if tried > 0 && start.elapsed() > time {
                break;
            }
            let Ok(file) = file::open(self.list.path(*first), OpenHow::default()) else { continue };
            let file = std::fs::File::from(file);
            let bytes = file.metadata().map_or(0, |facts| facts.len());
            // The system does not report the pages of a file that belongs to another user.
            let Ok(Some(own)) = ioloom_sys::cache::resident_pages(&file, bytes) else { continue };
            resident += own;
            pages += bytes.div_ceil(page);
        }
        (pages > 0).then(|| (resident as f64 / pages as f64).min(1.0))
    }

    /// Adds up the sizes of files in random order, for at most `time` or until `stop` is raised.
    pub(super) fn total(&self, time: Duration, stop: &AtomicBool) -> Total {
        Total::estimate(&self.seen(time, stop), self.len())
    }

    /// Returns files and bytes of runs. When the time is over, one file of each of two runs is enough, which is
    /// the least for an estimate with an error.
    fn seen(&self, time: Duration, stop: &AtomicBool) -> Vec<(f64, f64)> {
        let start = Instant::now();
        let mut seen: Vec<(f64, f64)> = Vec::new();
        for (first, files) in &self.runs {
            if seen.len() > 1 && start.elapsed() > time {
                break;
            }
            let mut run = (0.0, 0.0);
            for index in *first..first + files {
                if stop.load(Ordering::Relaxed) {
                    return seen;
                }
                if run.0 > 0.0 && start.elapsed() > time {
                    break;
                }
                let bytes = std::fs::metadata(self.list.path(index)).map_or(0, |m| m.len()) as f64;
                run = (run.0 + 1.0, run.1 + bytes);
            }
            seen.push(run);
        }
        seen
    }
}

impl Total {
    /// Estimates the total of `files` files from the files and bytes of some runs. Sizes of adjacent files are
    /// similar, so the error follows from the runs and not from single files (ratio estimator of a cluster
    /// sample).
    fn estimate(runs: &[(f64, f64)], files: usize) -> Self {
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>();
        let (seen, bytes) = (sum(&|run| run.0), sum(&|run| run.1));
        let mean = bytes / seen.max(1.0);
        let squares = sum(&|run| (run.1 - mean * run.0).powi(2));
        let missing = (1.0 - seen / (files as f64).max(1.0)).max(0.0);
        let count = runs.len().max(2) as f64;
        let error = (missing * count / (count - 1.0) * squares).sqrt() / bytes.max(1.0);
        Self { files: files as u64, bytes: mean * files as f64, error }
    }
}

#[cfg(test)]
impl Listing<'static> {
    /// Lists all files below a directory.
    pub(super) fn of(dir: &Path) -> Self {
        let paths = vec![dir.to_owned()].leak();
        Self { paths, time: None, stop: Arc::default() }
    }
}

impl Slice {
    /// Evicts the clean pages of the files from memory, after writing dirty ones, until `time` is over or
    /// `stop` is raised. Returns whether it tried all files. A file that is gone or has changed its type is
    /// reported by the run that cannot read it, and one that stays in memory shows in the bytes that came
    /// from a device.
    pub(super) fn evict(&self, time: Duration, stop: &AtomicBool) -> bool {
        let (start, next) = (Instant::now(), AtomicUsize::new(0));
        let evict_some = || {
            while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.paths.len() {
                    break;
                }
                let _ = file::open(self.paths.path(index), OpenHow::default()).and_then(|file| {
                    ioloom_sys::cache::write_back(&file)?;
                    ioloom_sys::cache::evict_file(&file)
                });
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..EVICTING.min(self.paths.len()) {
                scope.spawn(evict_some);
            }
        });
        next.load(Ordering::Relaxed) >= self.paths.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(files: usize) -> Sample {
        let mut list = PathList::new();
        for file in 0..files {
            list.push(format!("/f{file:05}").as_bytes());
        }
        Sample::of(list, 1)
    }

    fn names(slice: &Slice) -> Vec<String> {
        (0..slice.paths.len()).map(|i| slice.paths.path(i).display().to_string()).collect()
    }

    #[test]
    fn another_seed_takes_other_files() {
        let first = |seed| names(&Sample::of(sample(5_000).list, seed).take(64));
        assert_eq!(first(1), first(1));
        assert!(first(2) != first(3), "neighbours");
    }

    #[test]
    fn files_that_were_just_written_are_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one"), vec![1; 100_000]).unwrap();
        let sample = Sample::list(&Listing::of(dir.path()), 1);
        if let Some(share) = sample.resident(10, Duration::from_secs(60)) {
            assert!(share > 0.0, "{share}");
        }
    }

    #[test]
    fn the_list_ends_with_its_time_or_an_interrupt() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one"), "text").unwrap();
        let stop = Arc::new(AtomicBool::new(true));
        let (no_time, stopped) = (Some(Duration::ZERO), Listing::of(dir.path()));
        let late = Listing { time: no_time, ..Listing::of(dir.path()) };
        for how in [late, Listing { stop, ..stopped }] {
            let sample = Sample::list(&how, 1);
            assert_eq!((sample.len(), sample.complete), (0, false));
        }
    }

    #[test]
    fn eviction_ends_with_its_time_or_an_interrupt() {
        let (long, stop) = (Duration::from_secs(60), AtomicBool::new(false));
        let slice = sample(100).all();
        assert!(slice.evict(long, &stop), "files that are gone count as tried");
        assert!(!slice.evict(Duration::ZERO, &stop));
        stop.store(true, Ordering::Relaxed);
        assert!(!slice.evict(long, &stop));
    }

    #[test]
    fn files_that_cannot_be_opened_take_time_as_well() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), vec![1; 100_000]).unwrap();
        }
        let sample = Sample::list(&Listing::of(dir.path()), 1);
        let (last, _) = *sample.runs.last().unwrap();
        std::fs::remove_file(sample.list.path(last)).unwrap();
        assert_eq!(sample.resident(10, Duration::ZERO), None);
    }

    #[test]
    fn one_file_of_each_device_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), "text").unwrap();
        }
        let sample = Sample::list(&Listing::of(dir.path()), 1);
        let found = sample.one_of_each_device(10, Duration::from_secs(60));
        assert_eq!(found, [sample.first().unwrap()]);
    }

    #[test]
    fn the_error_of_the_total_is_that_of_runs() {
        // Ten runs of empty files and ten of files of 1,000 bytes.
        let runs: Vec<(f64, f64)> =
            (0..20).map(|run| (16.0, f64::from(run % 2) * 16_000.0)).collect();
        let total = Total::estimate(&runs, 64_000);
        assert_eq!((total.files, total.bytes), (64_000, 32_000_000.0));
        // One over the root of 19; single files at random would have a quarter of it.
        assert!((total.error / (1.0 / 19f64.sqrt()) - 1.0).abs() < 0.01, "{total:?}");
        let short = [(16.0, 1600.0), (4.0, 400.0)];
        assert!(Total::estimate(&short, 1_000).error < 1e-9, "runs of different length");
    }

    #[test]
    fn parts_are_disjoint_and_cover_all_files() {
        let mut sample = sample(5_000);
        let mut all: Vec<String> = Vec::new();
        while sample.left() > 0 {
            let part = names(&sample.take(100));
            assert!(part.is_sorted(), "a part is read in the order of the list");
            all.extend(part);
        }
        assert!(names(&sample.take(100)).is_empty(), "nothing is taken twice");
        assert!(!all.is_sorted(), "parts are random");
        all.sort();
        assert_eq!(all, names(&sample.all()));
        sample.again = true;
        assert_eq!((sample.left(), sample.take(100).paths.len() >= 100), (5_000, true));
    }

    #[test]
    fn a_part_is_never_larger_than_the_whole() {
        let mut few = sample(10);
        few.again = true;
        assert_eq!(few.take(1_000).paths.len(), 10);
        assert_eq!(sample(0).take(5).paths.len(), 0);
    }

    #[test]
    fn the_total_of_all_files_has_no_error() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..20 {
            std::fs::write(dir.path().join(i.to_string()), vec![0; 100 * i]).unwrap();
        }
        let sample = Sample::list(&Listing::of(dir.path()), 1);
        let go = AtomicBool::new(false);
        let total = sample.total(Duration::from_secs(60), &go);
        assert_eq!((total.files, total.bytes, sample.complete), (20, 19_000.0, true));
        assert!(total.error < 1e-9);
        assert!(sample.total(Duration::ZERO, &go).error > 0.0, "two of twenty");
    }

    #[test]
    fn the_total_ends_with_its_time_or_an_interrupt() {
        let (sample, stop) = (sample(5_000), AtomicBool::new(false));
        assert_eq!(sample.seen(Duration::ZERO, &stop), [(1.0, 0.0); 2], "one file of each run");
        stop.store(true, Ordering::Relaxed);
        assert!(sample.seen(Duration::from_secs(60), &stop).is_empty());
    }
}

//! The files of a job, and random parts of them.
//!
//! Parts consist of runs of adjacent files: single files at random places would need more reads of
//! directories and inodes than the job does. Each part is taken once, because reading it changes
//! what is in memory.

use crate::exit::Failure;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::file::{self, Kind, OpenHow};
use ioloom_walk::PathList;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Adjacent files that stay together.
const RUN: usize = 16;

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
    /// Directories that could not be read.
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
    pub(super) fn list(how: &Listing<'_>, seed: u64) -> Result<Self, Failure> {
        let time = how.time;
        let start = Instant::now();
        let (late, mut list, mut errors) =
            (Arc::new(AtomicBool::new(false)), PathList::new(), Vec::new());
        for path in how.paths {
            let kind = file::kind_of(path)
                .map_err(PathError::on(Operation::Stat, path))
                .map_err(Failure::failed)?;
            match kind {
                Kind::Regular => list.push(path.as_os_str().as_bytes()),
                Kind::Directory => {
                    let (raised, stop) = (late.clone(), how.stop.clone());
                    let found = ioloom::tree(path)
                        .filter_entry(move |_| {
                            let in_time = time.is_none_or(|time| start.elapsed() < time)
                                && !stop.load(Ordering::Relaxed);
                            if !in_time {
                                raised.store(true, Ordering::Relaxed);
                            }
                            in_time
                        })
                        .walk();
                    errors.extend(found.errors.iter().map(ToString::to_string));
                    list.append(found.files);
                }
                other => {
                    return Err(Failure::failed(format!(
                        "cannot read {}: it is {}, not a regular file or a directory",
                        quoted(path),
                        other.word()
                    )));
                }
            }
        }
        let complete = !late.load(Ordering::Relaxed);
        let walk_ns = start.elapsed().as_nanos() as u64;
        Ok(Self { errors, complete, walk_ns, ..Self::of(list, seed) })
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

    /// Returns the first file.
    pub(super) fn first(&self) -> Option<&Path> {
        (!self.list.is_empty()).then(|| self.list.path(0))
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
        for (first, _) in self.runs.iter().rev().take(files) {
            if start.elapsed() > time && pages > 0 {
                break;
            }
            let Ok(file) = file::open(self.list.path(*first), OpenHow::default()) else { continue };
            let file = std::fs::File::from(file);
            let bytes = file.metadata().map_or(0, |facts| facts.len());
            // The system reports no pages of files that belong to others.
            let Ok(Some(own)) = ioloom_sys::cache::resident_pages(&file, bytes) else { continue };
            resident += own;
            pages += bytes.div_ceil(page);
        }
        (pages > 0).then(|| (resident as f64 / pages as f64).min(1.0))
    }

    /// Adds up the sizes of files in random order, for at most `time`.
    pub(super) fn total(&self, time: Duration) -> Total {
        let start = Instant::now();
        let (mut seen, mut sum, mut squares) = (0.0, 0.0, 0.0);
        'all: for (first, files) in &self.runs {
            for index in *first..first + files {
                if start.elapsed() > time && seen >= 2.0 {
                    break 'all;
                }
                let bytes = std::fs::metadata(self.list.path(index)).map_or(0, |m| m.len()) as f64;
                seen += 1.0;
                sum += bytes;
                squares += bytes * bytes;
            }
        }
        let files = self.len() as f64;
        let mean = sum / f64::max(seen, 1.0);
        let variance = (squares / f64::max(seen, 1.0) - mean * mean).max(0.0);
        let missing = 1.0 - seen / files.max(1.0);
        let error = (variance * missing / f64::max(seen, 1.0)).sqrt() / mean.max(1.0);
        Total { files: self.len() as u64, bytes: mean * files, error }
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
    /// Evicts the clean pages of the files from memory, after writing dirty ones. A file that is gone or
    /// has changed its type is reported by the run that cannot read it, and one that stays in memory
    /// shows in the bytes that came from a device.
    pub(super) fn evict(&self) {
        for index in 0..self.paths.len() {
            let _ = file::open(self.paths.path(index), OpenHow::default()).and_then(|file| {
                ioloom_sys::cache::write_back(&file)?;
                ioloom_sys::cache::evict_file(&file)
            });
        }
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
        let sample = Sample::list(&Listing::of(dir.path()), 1).unwrap();
        if let Some(share) = sample.resident(10, Duration::from_secs(60)) {
            assert!(share > 0.0, "{share}");
        }
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
        let sample = Sample::list(&Listing::of(dir.path()), 1).unwrap();
        let total = sample.total(Duration::from_secs(60));
        assert_eq!((total.files, total.bytes, sample.complete), (20, 19_000.0, true));
        assert!(total.error < 1e-9);
        assert!(sample.total(Duration::ZERO).error > 0.0, "two of twenty");
    }
}

//! The probes of `--calibrate`: file sets, and timed reads, walks and copies.

use super::eviction::{evict, leave_out_kept};
use super::scratch::{Scratch, proceed};
use crate::exit::Failure;
use crate::interrupt::StopSignals;
use ioloom_copy::{CopyCounters, CopyOptions, Silent, Target};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_fileset::{self as fileset, CreateOptions, SetText};
use ioloom_walk::{Control, DirRef, Fields, Found, Kind, NewDir, Threads, Visitor, Walk};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BinaryHeap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The sets of the probes, and of brief ones.
const SMALL: [&str; 2] =
    ["count=16000,size=4KiB,layout=nested,seed=1", "count=800,size=4KiB,seed=1"];
const MEDIUM: [&str; 2] = ["count=256,size=128KiB,seed=4", "count=32,size=128KiB,seed=4"];
const TREE: [&str; 2] = ["count=128000,size=1,layout=nested,seed=3", "count=3200,size=1,seed=3"];
const LARGE: [&str; 2] = ["count=4,size=16MiB,seed=2", "count=4,size=2MiB,seed=2"];
/// Smallest file that counts as large in an existing directory, and the most that are read.
const LARGE_MIN: u64 = 1 << 20;
const LARGE_FILES: usize = 4;
/// Most large files of an existing directory that are tried: some may not be evicted.
const LARGE_TRIED: usize = 16 * LARGE_FILES;
/// Most files that are used of an existing directory, and most that are copied.
const FILES_MAX: usize = 16_000;
const COPIED_MAX: usize = 8_000;
/// Shortest time of a read probe in seconds, and its fewest files.
const PROBE_S: f64 = 1.0;
const PROBE_FILES: usize = 200;
/// Files per request in flight after which the start and the end no longer matter, and the longest time
/// for them.
const STEADY: usize = 50;
const STEADY_S: f64 = 5.0;

/// How to probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// Use the files of the directory.
    pub(super) existing: bool,
    /// Drop all caches before each walk.
    pub(super) drop_caches: bool,
    /// Copy cached files instead of evicted ones.
    pub(super) copy_cached: bool,
    /// A tenth of the files, and one round.
    pub(super) brief: bool,
    /// Also probe a stock server.
    pub(super) exchange: bool,
}

/// Files and their bytes.
#[derive(Default)]
pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    pub(super) bytes: u64,
}

impl Files {
    pub(super) fn mean(&self) -> u64 {
        self.bytes / (self.paths.len() as u64).max(1)
    }
}

/// File sets that are removed on drop, or an existing directory.
pub(super) struct Sets {
    /// Directory of created sets; `None` for existing files.
    created: Option<Scratch>,
    pub(super) small: Files,
    pub(super) medium: Files,
    pub(super) large: Files,
    /// Directory that is walked, and its files.
    tree: (PathBuf, u64),
    /// Number of copies.
    copies: Cell<u32>,
    /// Most small files of a copy.
    copied: Cell<usize>,
    /// Existing files that cannot be evicted.
    pub(super) left_out: usize,
}

impl Sets {
    /// Creates sets below `dir`.
    pub(super) fn create(dir: &Path, brief: bool, signals: &StopSignals) -> Result<Self, Failure> {
        let scratch = Scratch::create(dir, "files")?;
        let root = scratch.path().to_owned();
        let set =
            |name: &str, texts: [&str; 2]| set(&root, name, texts[usize::from(brief)], signals);
        let mut sets = Self {
            created: Some(scratch),
            small: Files::default(),
            medium: Files::default(),
            large: Files::default(),
            tree: (PathBuf::new(), 0),
            copies: Cell::new(0),
            copied: Cell::new(0),
            left_out: 0,
        };
        sets.small = set("small", SMALL)?;
        sets.medium = set("medium", MEDIUM)?;
        sets.large = set("large", LARGE)?;
        let tree = set("tree", TREE)?;
        sets.tree = (fileset::files_dir(&root.join("tree")), tree.paths.len() as u64);
        let targets = root.join("targets");
        std::fs::create_dir(&targets)
            .map_err(|e| Failure::failed(PathError::new(Operation::CreateDir, &targets, e)))?;
        sync(&root)?;
        Ok(sets)
    }

    /// Uses the files of a directory, without those that cannot be evicted; creates nothing.
    pub(super) fn existing(dir: &Path, signals: &StopSignals) -> Result<Self, Failure> {
        let walk = Walk { cancel: Some(signals.flag.clone()), ..walk(1) };
        let (found, report) = walk
            .run(&[dir.to_owned()], |_| Usable::new())
            .map_err(|refused| Failure::refused(format!("cannot walk: {refused}")))?;
        proceed(signals)?;
        if let Some(error) = report.errors.first() {
            return Err(Failure::failed(error));
        }
        let mut all = Usable::new();
        found.into_iter().for_each(|part| all.add(part));
        let (mut small, mut large) = (all.small.sorted(), all.large.sorted());
        if small.len() < PROBE_FILES {
            return Err(Failure::refused(format!(
                "{} has {} files of less than 1 MiB; --existing needs {PROBE_FILES}",
                quoted(dir),
                small.len()
            )));
        }
        let left_out = leave_out_kept(&mut small, PROBE_FILES, || proceed(signals))?
            + leave_out_kept(&mut large, 0, || proceed(signals))?;
        large.truncate(LARGE_FILES);
        let small = spread(small);
        let files = |all: Vec<(PathBuf, u64)>| Files {
            bytes: all.iter().map(|(_, bytes)| bytes).sum(),
            paths: all.into_iter().map(|(path, _)| path).collect(),
        };
        Ok(Self {
            created: None,
            small: files(small),
            medium: Files::default(),
            large: files(large),
            tree: (dir.to_owned(), all.entries),
            copies: Cell::new(0),
            copied: Cell::new(0),
            left_out,
        })
    }

    /// Returns the directory of created sets.
    fn root(&self) -> Option<&Path> {
        self.created.as_ref().map(Scratch::path)
    }

    /// Returns the number of files that a walk finds.
    pub(super) fn walked(&self) -> u64 {
        self.tree.1
    }

    /// Returns the most small files that were copied at once.
    pub(super) fn copied(&self) -> u64 {
        self.copied.get() as u64
    }

    /// Returns how many of the small files a probe with `n` in flight uses if the previous one took
    /// `each_s` per file. Few files for many in flight would measure the start and the end.
    pub(super) fn count(&self, each_s: f64, n: u32) -> usize {
        let files = |seconds: f64| (seconds / each_s.max(1e-9)) as usize;
        let steady = (STEADY * n as usize).min(files(STEADY_S));
        files(PROBE_S).max(steady).max(PROBE_FILES).min(self.small.paths.len())
    }

    /// Returns `count` of the small files, in the order in which probes read them.
    pub(super) fn first_small(&self, count: usize) -> Cow<'_, [PathBuf]> {
        let first = &self.small.paths[..count];
        if self.created.is_some() {
            return Cow::Borrowed(first);
        }
        let mut first = first.to_vec();
        first.sort_unstable();
        Cow::Owned(first)
    }

    /// Walks the tree and returns the seconds per file, and the processor seconds.
    pub(super) fn walk(
        &self,
        threads: u32,
        how: How,
        signals: &StopSignals,
    ) -> Result<[f64; 2], Failure> {
        if how.drop_caches {
            let fail = |e| {
                Failure::failed(PathError::new(Operation::Write, "/proc/sys/vm/drop_caches", e))
            };
            ioloom_sys::cache::flush_and_drop_caches().map_err(fail)?;
        }
        let (start, cpu) = (Instant::now(), cpu_s());
        let walk = Walk { cancel: Some(signals.flag.clone()), ..walk(threads) };
        let (counts, report) = walk
            .run(std::slice::from_ref(&self.tree.0), |_| Counter(0))
            .map_err(|refused| Failure::refused(format!("cannot walk: {refused}")))?;
        let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_s() - cpu);
        proceed(signals)?;
        if let Some(error) = report.errors.first() {
            return Err(Failure::failed(error));
        }
        let found: u64 = counts.iter().map(|counter| counter.0).sum();
        if found != self.tree.1 {
            return Err(Failure::failed(format!(
                "the walk found {found} of {} files; another program changes them",
                self.tree.1
            )));
        }
        Ok([elapsed, cpu].map(|seconds| seconds / found.max(1) as f64))
    }

    /// Copies about `count` small files and returns the seconds and processor seconds per file; `None`
    /// if nothing may be created.
    pub(super) fn copy_small(
        &self,
        count: usize,
        threads: u32,
        how: How,
    ) -> Result<Option<[f64; 2]>, Failure> {
        let all = &self.small.paths;
        let count = count.min(COPIED_MAX);
        if self.created.is_none() {
            return Ok(None);
        }
        // Whole directories, because the threads share directories.
        let last = all[count.max(1) - 1].parent();
        let end = all.iter().rposition(|path| path.parent() == last).map_or(count, |at| at + 1);
        let mut sources: Vec<PathBuf> =
            all[..end].iter().filter_map(|path| path.parent().map(Path::to_owned)).collect();
        sources.dedup();
        self.copied.set(self.copied.get().max(end));
        let bytes = self.small.bytes as usize / all.len() * end;
        self.copy(&sources, (&all[..end], bytes), threads, how)
    }

    /// Copies the medium or the large files; see [`Sets::copy_small`].
    pub(super) fn copy_set(
        &self,
        name: &str,
        threads: u32,
        how: How,
    ) -> Result<Option<[f64; 2]>, Failure> {
        let Some(root) = self.root() else { return Ok(None) };
        let files = if name == "medium" { &self.medium } else { &self.large };
        self.copy(
            &[fileset::files_dir(&root.join(name))],
            (&files.paths, files.bytes as usize),
            threads,
            how,
        )
    }

    /// Copies directories that contain `files` into a new one. Copies are kept until the end: without a
    /// journal, ext4 does not use a deleted inode again for a minute, and a search that passes thousands of
    /// them took ten times as long as the copy.
    fn copy(
        &self,
        sources: &[PathBuf],
        files: (&[PathBuf], usize),
        threads: u32,
        how: How,
    ) -> Result<Option<[f64; 2]>, Failure> {
        let Some(root) = self.root() else { return Ok(None) };
        // Otherwise this copy would compete with the writeback of the last one.
        sync(root)?;
        let number = self.copies.get();
        self.copies.set(number + 1);
        let target = root.join("targets").join(number.to_string());
        let took = copy(&target, sources, files, threads, how)?;
        // The next copy then uses the same memory.
        sync(root)?;
        evict(&copied(&target)?)?;
        Ok(Some(took))
    }
}

/// Returns items in an order of which each beginning takes runs of adjacent ones evenly from the whole list, so that
/// probes of few files read the same sizes as those of many. Random runs would differ more.
fn spread<T>(all: Vec<T>) -> Vec<T> {
    // Multiples of the golden section, modulo one.
    let place =
        |index: usize| (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1 << 63);
    let mut placed: Vec<(u64, T)> =
        all.into_iter().enumerate().map(|(index, item)| (place(index), item)).collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, item)| item).collect()
}

/// Uses memory and frees it. The first use of memory that a hypervisor has taken back took twice as long as
/// a copy; what was freed last is used first.
fn touch_memory(bytes: usize) {
    let memory = std::hint::black_box(vec![1_u8; bytes]);
    drop(memory);
}

/// Returns the files of a copy.
fn copied(target: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (lists, report) = walk(1)
        .run(&[target.to_owned()], |_| List::default())
        .map_err(|refused| Failure::refused(format!("cannot walk: {refused}")))?;
    match report.errors.first() {
        Some(error) => Err(Failure::failed(error)),
        None => Ok(lists.into_iter().flat_map(|list| list.0).collect()),
    }
}

fn sync(dir: &Path) -> Result<(), Failure> {
    let fail = |e| Failure::failed(PathError::new(Operation::Sync, dir, e));
    let file = File::open(dir).map_err(fail)?;
    ioloom_sys::transfer::sync_all(&file).map_err(fail)
}

/// Copies directories that contain `files` and returns the seconds and processor seconds per file.
fn copy(
    target: &Path,
    sources: &[PathBuf],
    (files, bytes): (&[PathBuf], usize),
    threads: u32,
    how: How,
) -> Result<[f64; 2], Failure> {
    if how.copy_cached {
        warm(files)?;
    } else {
        evict(files)?;
    }
    touch_memory(bytes);
    std::fs::create_dir(target)
        .map_err(|e| Failure::failed(PathError::new(Operation::CreateDir, target, e)))?;
    let options =
        CopyOptions { recursive: true, threads: Some(threads as usize), ..<_>::default() };
    let (start, cpu) = (Instant::now(), cpu_s());
    let report = ioloom_copy::copy(
        sources,
        &Target::Into(target.to_owned()),
        &options,
        &Silent,
        &CopyCounters::default(),
    )
    .map_err(Failure::failed)?;
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_s() - cpu);
    if let Some(error) = report.errors.first() {
        return Err(Failure::failed(error));
    }
    Ok([elapsed, cpu].map(|seconds| seconds / files.len() as f64))
}

fn set(root: &Path, name: &str, text: &str, signals: &StopSignals) -> Result<Files, Failure> {
    let text: SetText = text.parse().map_err(Failure::failed)?;
    let spec = text.resolve().map_err(Failure::failed)?;
    let dir = root.join(name);
    let goes_on = |_| !signals.flag.load(Ordering::Relaxed);
    let made = fileset::create(&spec, &dir, &CreateOptions::default(), &goes_on);
    proceed(signals)?;
    let bytes = made.map_err(Failure::failed)?.set.bytes_total;
    let files = fileset::files_dir(&dir);
    let path = |index| files.join(fileset::relative_path(&spec, index));
    Ok(Files { paths: (0..spec.count).map(path).collect(), bytes })
}

fn walk(threads: u32) -> Walk {
    Walk { threads: Threads::Count(threads as usize), fields: Fields::BYTES, ..Walk::default() }
}

/// Processor seconds of all threads of this process.
fn cpu_s() -> f64 {
    ioloom_sys::clock::process_cpu_ns(std::process::id()).map_or(0.0, |ns| ns as f64 / 1e9)
}

/// Counts files.
struct Counter(u64);

impl Visitor for Counter {
    type Dir = ();

    fn enter(&mut self, _dir: &NewDir<'_, ()>) -> Option<()> {
        Some(())
    }

    fn entry(&mut self, _dir: DirRef<'_, ()>, _found: &Found<'_>) -> Control {
        self.0 += 1;
        Control::Continue
    }
}

/// Lists regular files.
#[derive(Default)]
struct List(Vec<PathBuf>);

impl Visitor for List {
    type Dir = ();

    fn enter(&mut self, _dir: &NewDir<'_, ()>) -> Option<()> {
        Some(())
    }

    fn entry(&mut self, dir: DirRef<'_, ()>, found: &Found<'_>) -> Control {
        if found.kind == Kind::Regular {
            self.0.push(dir.path_of(found.name));
        }
        Control::Continue
    }
}

/// Keeps the files of an existing directory that probes use, and counts all entries.
struct Usable {
    small: FirstPaths,
    large: FirstPaths,
    entries: u64,
}

impl Usable {
    fn new() -> Self {
        let (small, large) = (FirstPaths::new(FILES_MAX), FirstPaths::new(LARGE_TRIED));
        Self { small, large, entries: 0 }
    }

    /// Adds what another thread found.
    fn add(&mut self, other: Self) {
        self.entries += other.entries;
        other.small.files.into_iter().for_each(|file| self.small.add(file));
        other.large.files.into_iter().for_each(|file| self.large.add(file));
    }
}

impl Visitor for Usable {
    type Dir = ();

    fn enter(&mut self, _dir: &NewDir<'_, ()>) -> Option<()> {
        Some(())
    }

    fn entry(&mut self, dir: DirRef<'_, ()>, found: &Found<'_>) -> Control {
        self.entries += 1;
        if let (Kind::Regular, Some(meta)) = (found.kind, found.meta)
            && meta.bytes > 0
        {
            let files = if meta.bytes < LARGE_MIN { &mut self.small } else { &mut self.large };
            files.add((dir.path_of(found.name), meta.bytes));
        }
        Control::Continue
    }
}

/// The first paths in order, at most `most`, with the sizes of the files.
struct FirstPaths {
    most: usize,
    files: BinaryHeap<(PathBuf, u64)>,
}

impl FirstPaths {
    fn new(most: usize) -> Self {
        Self { most, files: BinaryHeap::new() }
    }

    fn add(&mut self, file: (PathBuf, u64)) {
        self.files.push(file);
        if self.files.len() > self.most {
            self.files.pop();
        }
    }

    fn sorted(self) -> Vec<(PathBuf, u64)> {
        self.files.into_sorted_vec()
    }
}

fn warm(paths: &[PathBuf]) -> Result<(), Failure> {
    read(paths, 0..paths.len(), 4).map(|_| ())
}

/// Reads files with a fixed window and returns the seconds per file, and the processor seconds.
pub(super) fn read(
    paths: &[PathBuf],
    range: Range<usize>,
    in_flight: u32,
) -> Result<[f64; 2], Failure> {
    let paths = &paths[range.start.min(paths.len())..range.end.min(paths.len())];
    if paths.is_empty() {
        return Ok([0.0; 2]);
    }
    let plan = format!("read/window:l={in_flight},p={}", ioloom::usable_cores());
    let plan = plan.parse::<ioloom::Plan>().map_err(Failure::failed)?;
    let (start, cpu) = (Instant::now(), cpu_s());
    let bytes: u64 =
        ioloom::list(paths).pin(plan).map(|file| file.len()).sum().map_err(Failure::failed)?;
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_s() - cpu);
    if bytes == 0 {
        return Err(Failure::failed("the probe read no bytes"));
    }
    Ok([elapsed, cpu].map(|seconds| seconds / paths.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_sys::map::{Map, MapAdvice};

    #[test]
    fn large_files_that_cannot_be_evicted_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..PROBE_FILES {
            std::fs::write(dir.path().join(format!("small{number}")), [1; 100]).unwrap();
        }
        let bytes = LARGE_MIN as usize;
        let large: Vec<PathBuf> =
            (0..=LARGE_FILES).map(|number| dir.path().join(format!("large{number}"))).collect();
        large.iter().for_each(|path| std::fs::write(path, vec![1; bytes]).unwrap());
        let file = File::open(&large[0]).unwrap();
        let map = Map::new(&file, bytes, MapAdvice::Populate).unwrap();
        // Otherwise, nothing can be evicted here.
        if let Ok(sets) = Sets::existing(dir.path(), &StopSignals::catch()) {
            assert_eq!(sets.large.paths, large[1..]);
        }
        drop(map);
    }

    #[test]
    fn probes_of_few_and_of_many_existing_files_read_the_same_sizes() {
        for count in [3_200, 4_000, 5_000, 6_400, 8_000, 12_000, 16_000] {
            let sizes: Vec<u64> =
                (0..count).map(|at| if at < 200 { 500 << 10 } else { 1 << 10 }).collect();
            let all = spread(sizes);
            let mean = |files: usize| all[..files].iter().sum::<u64>() as f64 / files as f64;
            let ratio = mean(200) / mean(3_200);
            assert!((0.75..1.25).contains(&ratio), "{count}: {ratio}");
        }
    }

    #[test]
    fn spread_files_are_each_read_once() {
        let mut all = spread((0..1_000).collect());
        assert!(!all.is_sorted());
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn probes_of_existing_files_read_them_in_the_order_of_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..2 * PROBE_FILES {
            std::fs::write(dir.path().join(format!("{number:03}")), [1; 100]).unwrap();
        }
        // Otherwise, nothing can be evicted here.
        if let Ok(sets) = Sets::existing(dir.path(), &StopSignals::catch()) {
            let first = sets.first_small(PROBE_FILES);
            assert!(first.is_sorted());
            assert!(first[PROBE_FILES - 1] > dir.path().join("300"));
        }
    }

    #[test]
    fn only_the_first_paths_are_kept() {
        let mut first = FirstPaths::new(3);
        for name in ["e", "b", "f", "a", "d", "c"] {
            first.add((PathBuf::from(name), 1));
            assert!(first.files.len() <= 3);
        }
        assert_eq!(first.sorted(), ["a", "b", "c"].map(|name| (PathBuf::from(name), 1)));
    }
}

//! One of the three acts on trees and lists.
//!
//! Trees go through the walker, whose threads open, ask and close the files they find. A list goes
//! to a fixed crew that shares its iterator. Either way a file is told to the caller at once and
//! then forgotten, except for the largest ones and the first of those that did not end as wanted.

use crate::act::{Incomplete, evict_file, load_until};
use crate::error::CacheError;
use crate::held::{Id, who_maps};
use crate::state::{Source, State, residency};
use crate::tally::Tally;
use crate::tree::{Keep, TreeVisitor};
use ioloom_sys::file::{self, Kind, OpenHow};
use ioloom_walk::{Threads, Walk};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files that did not end as wanted and are told one by one, at most.
pub const INCOMPLETE_MAX: usize = 1000;
/// Errors that are kept.
pub(crate) const ERRORS_MAX: usize = 1000;
/// Threads that work on a list: most of their time they wait for the device.
const LIST_THREADS: usize = 16;

/// What is done with each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Only asked about.
    Status,
    /// Put out of the page cache.
    Drop {
        /// Whether its changed pages are written first.
        write: bool,
    },
    /// Read into the page cache.
    Warm,
}

/// How far a scan has come; read by others while it runs.
#[derive(Debug, Default)]
pub struct CacheProgress {
    /// Files done.
    pub files: AtomicU64,
    /// Their sizes, bytes.
    pub bytes: AtomicU64,
}

/// One file that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Its path.
    pub path: PathBuf,
    /// Size, bytes.
    pub size_bytes: u64,
    /// Its state, after the act.
    pub now: State,
    /// Its state before the act.
    pub before: State,
    /// Why it is not as wanted.
    pub incomplete: Option<Incomplete>,
    /// The process that has it mapped, where one was found: number and name.
    pub mapped_by: Option<(u32, String)>,
    pub(crate) id: Id,
}

/// Sums of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirReport {
    /// Its path.
    pub path: PathBuf,
    /// Steps below its root.
    pub depth: u32,
    /// Which root it lies below, from 0.
    pub root: usize,
    /// Sums of everything in and below it.
    pub tally: Tally,
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootReport {
    /// The path as it was given; none for a list.
    pub path: Option<PathBuf>,
    /// Sums.
    pub tally: Tally,
}

/// What a scan came to.
#[derive(Debug, Default)]
pub struct Report {
    /// The arguments in their order.
    pub roots: Vec<RootReport>,
    /// Directories down to the wanted depth, by path.
    pub directories: Vec<DirReport>,
    /// The files with the most resident pages, the largest first; before the act for a drop.
    pub top: Vec<FileReport>,
    /// Files that did not end as wanted: the first [`INCOMPLETE_MAX`].
    pub incomplete: Vec<FileReport>,
    /// All of those.
    pub incomplete_count: u64,
    /// Entries that are no regular files, and second names of files.
    pub skipped: u64,
    /// What could not be opened or asked, in words: the first thousand.
    pub errors: Vec<String>,
    /// All of those.
    pub errors_count: u64,
    /// Whether it was ended early.
    pub stopped: bool,
}

impl Report {
    /// Sums over all arguments.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.roots.iter().for_each(|root| total.add(&root.tally));
        total
    }
}

/// What to do with trees or lists.
pub struct Scan<'a> {
    /// What is done with each file.
    pub act: Action,
    /// How many of the files with the most resident pages are kept.
    pub top: usize,
    /// Depth down to which directories are told; 0 for none.
    pub depth_max: u32,
    /// Threads that walk.
    pub threads: Threads,
    /// Ends it early when it becomes true.
    pub stop: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<CacheProgress>,
    /// Called for each file, by many threads.
    pub each: Option<&'a (dyn Fn(&FileReport) + Sync)>,
}

/// A file by its rank: resident pages before the act, then path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ranked(pub(crate) FileReport);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |r: &Self| r.0.before.pages.resident.max(r.0.now.pages.resident);
        (key(self), Reverse(&self.0.path)).cmp(&(key(other), Reverse(&other.0.path)))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What all threads of a scan share.
pub(crate) struct Ground<'a> {
    pub(crate) scan: &'a Scan<'a>,
    /// Files with several names that were met, so that each counts once.
    linked: Mutex<HashSet<Id>>,
}

impl Scan<'_> {
    /// Works on `roots`: directories with everything below, files, block devices.
    ///
    /// # Errors
    /// Why the walk does not start.
    pub fn trees(&self, roots: &[PathBuf]) -> Result<Report, ioloom_walk::Refused> {
        let walk =
            Walk { threads: self.threads, cancel: Some(self.stop.clone()), ..Walk::default() };
        let ground = Ground { scan: self, linked: Mutex::default() };
        let sums: Vec<Mutex<Tally>> = roots.iter().map(|_| Mutex::default()).collect();
        let (visitors, walked) = walk.run(roots, |_| TreeVisitor::new(&ground, &sums))?;
        let mut report = Report { stopped: walked.stopped, ..Report::default() };
        let errors = walked.errors.iter().map(ToString::to_string);
        report.errors.extend(errors);
        report.errors_count = walked.errors_count;
        report.roots = roots
            .iter()
            .zip(&sums)
            .map(|(path, sum)| RootReport { path: Some(path.clone()), tally: taken(sum) })
            .collect();
        let mut kept = Keep::default();
        for visitor in visitors {
            report.directories.extend(visitor.directories);
            kept.merge(visitor.keep, self.top);
        }
        report.directories.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
        Ok(self.finish(report, kept))
    }

    /// Works on a list of files. A path that cannot be read ends the list with its error.
    ///
    /// # Panics
    /// Passes on a panic of a thread.
    pub fn list(
        &self,
        paths: impl Iterator<Item = Result<PathBuf, ioloom_walk::ListError>> + Send,
    ) -> Report {
        let ground = Ground { scan: self, linked: Mutex::default() };
        let source = Mutex::new((paths, None));
        let next = || {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            if source.1.is_some() || self.stop.load(Ordering::Relaxed) {
                return None;
            }
            match source.0.next()? {
                Ok(path) => Some(path),
                Err(error) => {
                    source.1 = Some(error.to_string());
                    None
                }
            }
        };
        let crew = || {
            let (mut keep, mut sum) = (Keep::default(), Tally::default());
            while let Some(path) = next() {
                ground.visit(path, true, &mut keep, &mut sum);
            }
            (keep, sum)
        };
        let done: Vec<(Keep, Tally)> = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, crew);
            let others: Vec<_> = (1..LIST_THREADS).map_while(|i| start(i).ok()).collect();
            let own = crew();
            let joined = others.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.chain([own]).collect()
        });
        let (mut kept, mut tally) = (Keep::default(), Tally::default());
        for (keep, sum) in done {
            kept.merge(keep, self.top);
            tally.add(&sum);
        }
        let mut report =
            Report { roots: vec![RootReport { path: None, tally }], ..Report::default() };
        if let Some(error) = source.into_inner().unwrap_or_else(PoisonError::into_inner).1 {
            report.errors.push(error);
            report.errors_count = 1;
        }
        report.stopped = self.stop.load(Ordering::Relaxed);
        self.finish(report, kept)
    }

    /// Sorts what was kept, and finds out who has mapped what stays.
    fn finish(&self, mut report: Report, kept: Keep) -> Report {
        let mut top: Vec<Ranked> = kept.top.into_iter().map(|Reverse(ranked)| ranked).collect();
        top.sort_by(|a, b| b.cmp(a));
        report.top = top.into_iter().map(|ranked| ranked.0).collect();
        report.incomplete = kept.incomplete;
        report.incomplete.sort_by(|a, b| a.path.cmp(&b.path));
        report.incomplete_count = kept.incomplete_count;
        report.skipped = kept.skipped;
        report.errors_count += kept.errors_count;
        report.errors.extend(kept.errors);
        report.errors.truncate(ERRORS_MAX);
        name_reasons(&mut report.incomplete);
        report
    }
}

/// Replaces "in use" by the reason where it can be found.
fn name_reasons(incomplete: &mut [FileReport]) {
    let in_use = |file: &&mut FileReport| file.incomplete == Some(Incomplete::InUse);
    let mut memory: BTreeMap<(u32, u32), bool> = BTreeMap::new();
    for file in incomplete.iter_mut().filter(in_use) {
        let known = memory.entry(file.id.0);
        let path = &file.path;
        if *known.or_insert_with(|| ioloom_sys::cache::is_memory_backed(path).unwrap_or(false)) {
            file.incomplete = Some(Incomplete::InMemory);
        }
    }
    let ids: BTreeSet<Id> = incomplete.iter_mut().filter(in_use).map(|file| file.id).collect();
    let holders = who_maps(&ids);
    for file in incomplete.iter_mut().filter(in_use) {
        if let Some(holder) = holders.get(&file.id) {
            file.incomplete = Some(Incomplete::Mapped);
            file.mapped_by = Some((holder.pid, holder.name.clone()));
        }
    }
}

fn taken(sum: &Mutex<Tally>) -> Tally {
    *sum.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ground<'_> {
    /// Opens, asks and treats one file. What is named by the user may be a link or a device.
    pub(crate) fn visit(&self, path: PathBuf, named: bool, keep: &mut Keep, sum: &mut Tally) {
        match self.treat(&path, named, keep) {
            Ok(Some(report)) => {
                let progress = &self.scan.progress;
                progress.files.fetch_add(1, Ordering::Relaxed);
                progress.bytes.fetch_add(report.size_bytes, Ordering::Relaxed);
                sum.file(report.size_bytes, &report.now, &report.before);
                if let Some(each) = self.scan.each {
                    each(&report);
                }
                keep.file(report, self.scan.top);
            }
            Ok(None) => keep.skipped += 1,
            Err((operation, source)) if !named && source.kind() == io::ErrorKind::NotFound => {
                // It vanished between its name and its turn.
                let _ = operation;
            }
            Err((operation, source)) => {
                keep.error(CacheError::new(operation, &path, source));
            }
        }
    }

    fn treat(
        &self,
        path: &Path,
        named: bool,
        keep: &mut Keep,
    ) -> Result<Option<FileReport>, (&'static str, io::Error)> {
        let how = OpenHow { nofollow: !named, ..OpenHow::default() };
        let open = file::open(path, how).map_err(|e| ("open", e))?;
        let what = file::identity(&open).map_err(|e| ("ask for the size of", e))?;
        match what.kind {
            Kind::Regular => {}
            Kind::Device if named && what.size > 0 => {}
            other if named => {
                let why = format!("it is {}, which has no pages", other.word());
                return Err(("look at", io::Error::new(io::ErrorKind::InvalidInput, why)));
            }
            _ => return Ok(None),
        }
        let id = (what.device, what.inode);
        if what.links > 1 && !self.met_first(id) {
            return Ok(None);
        }
        let size = what.size;
        let acted = match self.scan.act {
            Action::Status => residency(&open, size).map(|now| (now, now, None)),
            Action::Drop { write } => evict_file(&open, size, write),
            Action::Warm => load_until(&open, size, &mut keep.buffer, &self.scan.stop),
        };
        let (before, now, incomplete) = acted.map_err(|e| (self.scan.act.operation(), e))?;
        let path = path.to_owned();
        Ok(Some(FileReport {
            path,
            size_bytes: size,
            now,
            before,
            incomplete,
            mapped_by: None,
            id,
        }))
    }

    fn met_first(&self, id: Id) -> bool {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }
}

impl Action {
    const fn operation(self) -> &'static str {
        match self {
            Self::Status => "ask for the pages of",
            Self::Drop { .. } => "write and drop",
            Self::Warm => "read",
        }
    }
}

/// What a thread keeps of its files.
impl Keep {
    fn file(&mut self, report: FileReport, top: usize) {
        if report.incomplete.is_some() {
            self.incomplete_count += 1;
            if self.incomplete.len() < INCOMPLETE_MAX {
                self.incomplete.push(report.clone());
            }
        }
        let seen = report.before.source != Source::Unknown;
        if seen && top > 0 {
            self.rank(Ranked(report), top);
        }
    }

    pub(crate) fn rank(&mut self, ranked: Ranked, top: usize) {
        let smallest: Option<&Reverse<Ranked>> = self.top.peek();
        if self.top.len() < top {
            self.top.push(Reverse(ranked));
        } else if smallest.is_some_and(|Reverse(least)| ranked > *least) {
            self.top.pop();
            self.top.push(Reverse(ranked));
        }
    }
}

/// The files with the most resident pages, the smallest on top.
pub(crate) type Top = BinaryHeap<Reverse<Ranked>>;

//! Processes a single file, and collects results per thread.

use crate::file::{Incomplete, evict_counted, load_until};
use crate::mappings::Id;
use crate::report::{ERRORS_MAX, FileReport, INCOMPLETE_MAX};
use crate::scan::{Action, Scan};
use crate::state::{Source, State, residency};
use crate::tally::Tally;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::file::{self, Kind, OpenHow};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// A file ordered by its resident pages before or after the action, then by path.
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

/// Results collected by one thread.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// The files with the most resident pages; the smallest is on top.
    pub(crate) top: BinaryHeap<Reverse<Ranked>>,
    pub(crate) incomplete: Vec<FileReport>,
    pub(crate) incomplete_count: u64,
    pub(crate) skipped: u64,
    pub(crate) errors: Vec<String>,
    pub(crate) errors_count: u64,
    /// The read buffer.
    buffer: Vec<u8>,
}

impl Collected {
    fn add_error(&mut self, error: &PathError) {
        self.errors_count += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error.to_string());
        }
    }

    fn add_file(&mut self, report: FileReport, top: usize) {
        if report.incomplete.is_some() {
            self.incomplete_count += 1;
            if self.incomplete.len() < INCOMPLETE_MAX {
                self.incomplete.push(report.clone());
            }
        }
        let known = report.before.source != Source::Unknown;
        if known && top > 0 {
            self.rank(Ranked(report), top);
        }
    }

    fn rank(&mut self, ranked: Ranked, top: usize) {
        let smallest: Option<&Reverse<Ranked>> = self.top.peek();
        if self.top.len() < top {
            self.top.push(Reverse(ranked));
        } else if smallest.is_some_and(|Reverse(least)| ranked > *least) {
            self.top.pop();
            self.top.push(Reverse(ranked));
        }
    }

    /// Merges the results of another thread.
    pub(crate) fn merge(&mut self, other: Self, top: usize) {
        for Reverse(ranked) in other.top {
            self.rank(ranked, top);
        }
        let room = INCOMPLETE_MAX.saturating_sub(self.incomplete.len());
        self.incomplete.extend(other.incomplete.into_iter().take(room));
        self.incomplete_count += other.incomplete_count;
        self.skipped += other.skipped;
        let room = ERRORS_MAX.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(room));
        self.errors_count += other.errors_count;
    }
}

/// The state of a scan that is shared between threads.
pub(crate) struct SharedScan<'a> {
    pub(crate) scan: &'a Scan<'a>,
    /// Files found so far that have several hard links or were specified by the user; each is counted
    /// once.
    linked: Mutex<HashSet<Id>>,
}

impl<'a> SharedScan<'a> {
    pub(crate) fn new(scan: &'a Scan<'a>) -> Self {
        Self { scan, linked: Mutex::default() }
    }

    /// Performs the action on one file. Paths specified by the user can be symlinks or block
    /// devices.
    pub(crate) fn visit(
        &self,
        path: PathBuf,
        named: bool,
        collected: &mut Collected,
        sum: &mut Tally,
    ) {
        match self.act(&path, named, collected) {
            Ok(Some(report)) => {
                let progress = &self.scan.progress;
                progress.files.fetch_add(1, Ordering::Relaxed);
                progress.bytes.fetch_add(report.size_bytes, Ordering::Relaxed);
                sum.file(report.size_bytes, &report.now, &report.before);
                if let Some(each) = self.scan.each {
                    each(&report);
                }
                collected.add_file(report, self.scan.top);
            }
            Ok(None) => collected.skipped += 1,
            // The file was removed after its directory was read.
            Err(error) if !named && error.source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => collected.add_error(&error),
        }
    }

    fn act(
        &self,
        path: &Path,
        named: bool,
        collected: &mut Collected,
    ) -> Result<Option<FileReport>, PathError> {
        let how = OpenHow { nofollow: !named, ..OpenHow::default() };
        let open = file::open(path, how).map_err(PathError::on(Operation::Open, path))?;
        let what = file::identity(&open).map_err(PathError::on(Operation::Stat, path))?;
        match what.kind {
            Kind::Regular => {}
            Kind::Device if named && what.size > 0 => {}
            other if named => {
                let why = format!("it is {}, which has no page cache", other.word());
                let error = io::Error::new(io::ErrorKind::InvalidInput, why);
                return Err(PathError::new(Operation::Residency, path, error));
            }
            _ => return Ok(None),
        }
        let id = (what.device, what.inode);
        if (named || what.links > 1) && !self.is_first_name(id) {
            return Ok(None);
        }
        let size = what.size;
        let acted: io::Result<(State, State, Option<Incomplete>)> = match self.scan.action {
            Action::Status => residency(&open, size).map(|now| (now, now, None)),
            Action::Drop { write } => {
                evict_counted(&open, size, write, &self.scan.progress.writing)
            }
            Action::Warm => load_until(&open, size, &mut collected.buffer, &self.scan.stop),
        };
        let (before, now, incomplete) =
            acted.map_err(PathError::on(self.scan.action.operation(), path))?;
        Ok(Some(FileReport {
            path: path.to_owned(),
            size_bytes: size,
            now,
            before,
            incomplete,
            mapped_by: None,
            id,
        }))
    }

    fn is_first_name(&self, id: Id) -> bool {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }
}

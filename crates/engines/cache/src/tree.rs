//! The visitor: treats the files that the walker finds and lets sums go up.

use crate::error::CacheError;
use crate::scan::{DirReport, ERRORS_MAX, FileReport, Ground, INCOMPLETE_MAX, Top};
use crate::tally::Tally;
use ioloom_walk::{Control, DirRef, Found, Kind, NewDir, Visitor};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// What one thread keeps of the files that it treated.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    pub(crate) top: Top,
    pub(crate) incomplete: Vec<FileReport>,
    pub(crate) incomplete_count: u64,
    pub(crate) skipped: u64,
    pub(crate) errors: Vec<String>,
    pub(crate) errors_count: u64,
    /// What files are read into.
    pub(crate) buffer: Vec<u8>,
}

impl Keep {
    pub(crate) fn error(&mut self, error: CacheError) {
        self.errors_count += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error.to_string());
        }
    }

    pub(crate) fn merge(&mut self, other: Self, top: usize) {
        for std::cmp::Reverse(ranked) in other.top {
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

/// One thread of a scan.
pub(crate) struct TreeVisitor<'g> {
    ground: &'g Ground<'g>,
    roots: &'g [Mutex<Tally>],
    /// Sums of the part of a directory that this thread visits.
    part: Tally,
    pub(crate) keep: Keep,
    pub(crate) directories: Vec<DirReport>,
}

impl<'g> TreeVisitor<'g> {
    pub(crate) fn new(ground: &'g Ground<'g>, roots: &'g [Mutex<Tally>]) -> Self {
        let (part, keep, directories) = (Tally::default(), Keep::default(), Vec::new());
        Self { ground, roots, part, keep, directories }
    }

    fn control(&self) -> Control {
        if self.ground.scan.stop.load(Ordering::Relaxed) {
            Control::Stop
        } else {
            Control::Continue
        }
    }
}

fn add(into: &Mutex<Tally>, what: &Tally) {
    into.lock().unwrap_or_else(PoisonError::into_inner).add(what);
}

impl Visitor for TreeVisitor<'_> {
    type Dir = Mutex<Tally>;

    fn enter(&mut self, _dir: &NewDir<'_, Self::Dir>) -> Option<Self::Dir> {
        Some(Mutex::default())
    }

    fn entry(&mut self, dir: DirRef<'_, Self::Dir>, found: &Found<'_>) -> Control {
        if matches!(found.kind, Kind::Regular | Kind::Unknown) {
            let path = dir.path_of(found.name);
            self.ground.visit(path, false, &mut self.keep, &mut self.part);
        } else {
            self.keep.skipped += 1;
        }
        self.control()
    }

    fn root_entry(&mut self, root: usize, path: &Path, _found: &Found<'_>) -> Control {
        let mut sum = Tally::default();
        self.ground.visit(path.to_owned(), true, &mut self.keep, &mut sum);
        add(&self.roots[root], &sum);
        self.control()
    }

    fn part(&mut self, dir: DirRef<'_, Self::Dir>) {
        add(dir.data(), &std::mem::take(&mut self.part));
    }

    fn leave(&mut self, dir: DirRef<'_, Self::Dir>) {
        let tally = *dir.data().lock().unwrap_or_else(PoisonError::into_inner);
        match dir.parent() {
            Some(parent) => add(parent.data(), &tally),
            None => add(&self.roots[dir.root()], &tally),
        }
        let depth = dir.depth() as u32;
        if depth > 0 && depth <= self.ground.scan.depth_max {
            let (path, root) = (dir.path(), dir.root());
            self.directories.push(DirReport { path, depth, root, tally });
        }
    }
}

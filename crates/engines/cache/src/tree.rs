//! The visitor of a walk: processes files and adds up directory totals.

use crate::report::DirReport;
use crate::tally::Tally;
use crate::visit::{Collected, SharedScan};
use ioloom_walk::{Control, DirRef, Found, Kind, NewDir, Visitor};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// The visitor of one thread.
pub(crate) struct TreeVisitor<'g> {
    shared: &'g SharedScan<'g>,
    roots: &'g [Mutex<Tally>],
    /// Totals of the current directory, limited to the entries that this thread visits.
    part: Tally,
    pub(crate) collected: Collected,
    pub(crate) directories: Vec<DirReport>,
}

impl<'g> TreeVisitor<'g> {
    pub(crate) fn new(shared: &'g SharedScan<'g>, roots: &'g [Mutex<Tally>]) -> Self {
        let (part, collected, directories) = (Tally::default(), Collected::default(), Vec::new());
        Self { shared, roots, part, collected, directories }
    }

    fn control(&self) -> Control {
        if self.shared.scan.stop.load(Ordering::Relaxed) {
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
            self.shared.visit(path, false, &mut self.collected, &mut self.part);
        } else {
            self.collected.skipped += 1;
        }
        self.control()
    }

    fn root_entry(&mut self, root: usize, path: &Path, _found: &Found<'_>) -> Control {
        let mut sum = Tally::default();
        self.shared.visit(path.to_owned(), true, &mut self.collected, &mut sum);
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
        if depth > 0 && depth <= self.shared.scan.depth_max {
            let (path, root) = (dir.path(), dir.root());
            self.directories.push(DirReport { path, depth, root, tally });
        }
    }
}

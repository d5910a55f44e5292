//! Runs a scan.
//!
//! Trees are scanned by the walker, whose threads open, query and close each file. A list is
//! processed by a fixed number of threads that share its iterator. In both cases each file is
//! passed to the caller immediately; only the largest files, the first incomplete ones and the inode
//! numbers of a list are retained.

use crate::file::Incomplete;
use crate::mappings::{Id, mapping_processes};
use crate::report::{ERRORS_MAX, FileReport, Report, RootReport};
use crate::scan::Scan;
use crate::tally::Tally;
use crate::tree::TreeVisitor;
use crate::visit::{Collected, Ranked, SharedScan};
use ioloom_walk::Walk;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Number of threads that process a list; they mostly wait for the device.
const LIST_THREADS: usize = 16;

impl Scan<'_> {
    /// Scans `roots`, which can be directories (scanned recursively), files or block devices. Roots
    /// that are the same as another one, or that are found in it, are skipped.
    ///
    /// # Errors
    /// Returns an error if the walk cannot start.
    pub fn trees(&self, roots: &[PathBuf]) -> Result<Report, ioloom_walk::Refused> {
        let walk =
            Walk { threads: self.threads, cancel: Some(self.stop.clone()), ..Walk::default() };
        let shared = SharedScan::new(self);
        let all = roots.len();
        let is_listed = |dir: &Path| std::fs::read_dir(dir).is_ok();
        let roots = &separate(roots, is_listed)[..];
        let sums: Vec<Mutex<Tally>> = roots.iter().map(|_| Mutex::default()).collect();
        let (visitors, walked) = walk.run(roots, |_| TreeVisitor::new(&shared, &sums))?;
        let mut report = Report { stopped: walked.stopped, ..Report::default() };
        let errors = walked.errors.iter().map(ToString::to_string);
        report.errors.extend(errors);
        report.errors_count = walked.errors_count;
        report.roots = roots
            .iter()
            .zip(&sums)
            .map(|(path, sum)| RootReport { path: Some(path.clone()), tally: value(sum) })
            .collect();
        let mut collected = Collected::default();
        collected.skipped += (all - roots.len()) as u64;
        for visitor in visitors {
            report.directories.extend(visitor.directories);
            collected.merge(visitor.collected, self.top);
        }
        report.directories.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
        Ok(self.finish(report, collected))
    }

    /// Scans a list of files. Stops at the first entry that cannot be read, and reports it.
    ///
    /// # Panics
    /// Propagates a panic from a worker thread.
    pub fn list(
        &self,
        paths: impl Iterator<Item = Result<PathBuf, ioloom_walk::ListError>> + Send,
    ) -> Report {
        let shared = SharedScan::new(self);
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
        let work = || {
            let (mut collected, mut sum) = (Collected::default(), Tally::default());
            while let Some(path) = next() {
                shared.visit(path, true, &mut collected, &mut sum);
            }
            (collected, sum)
        };
        let done: Vec<(Collected, Tally)> = std::thread::scope(|scope| {
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work);
            let others: Vec<_> = (1..LIST_THREADS).map_while(|i| start(i).ok()).collect();
            let own = work();
            let joined = others.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.chain([own]).collect()
        });
        let (mut collected, mut tally) = (Collected::default(), Tally::default());
        for (part, sum) in done {
            collected.merge(part, self.top);
            tally.add(&sum);
        }
        let mut report =
            Report { roots: vec![RootReport { path: None, tally }], ..Report::default() };
        if let Some(error) = source.into_inner().unwrap_or_else(PoisonError::into_inner).1 {
            report.errors.push(error);
            report.errors_count = 1;
        }
        report.stopped = self.stop.load(Ordering::Relaxed);
        self.finish(report, collected)
    }

    /// Sorts the results and looks up the processes that map files that could not be evicted.
    fn finish(&self, mut report: Report, collected: Collected) -> Report {
        let mut top: Vec<Ranked> =
            collected.top.into_iter().map(|Reverse(ranked)| ranked).collect();
        top.sort_by(|a, b| b.cmp(a));
        report.top = top.into_iter().map(|ranked| ranked.0).collect();
        report.incomplete = collected.incomplete;
        report.incomplete.sort_by(|a, b| a.path.cmp(&b.path));
        report.incomplete_count = collected.incomplete_count;
        report.skipped = collected.skipped;
        report.errors_count += collected.errors_count;
        report.errors.extend(collected.errors);
        report.errors.truncate(ERRORS_MAX);
        name_reasons(&mut report.incomplete);
        report
    }
}

/// Returns the roots without those whose files belong to another root too. A root below a directory that
/// cannot be listed is not found in another one.
fn separate(roots: &[PathBuf], is_listed: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    if roots.len() < 2 {
        return roots.to_vec();
    }
    // A named device is queried, whereas one in a tree is skipped.
    let resolved = |root: &PathBuf| {
        let real = root.canonicalize().ok()?;
        real.metadata().is_ok_and(|meta| meta.is_dir() || meta.is_file()).then_some(real)
    };
    let real: Vec<Option<PathBuf>> = roots.iter().map(resolved).collect();
    let known: HashSet<&Path> = real.iter().flatten().map(PathBuf::as_path).collect();
    let is_known = |upper: &Path| known.contains(upper);
    let is_below = |path: &Path| {
        let above = || path.ancestors().skip(1);
        above().any(is_known) && above().take_while(|dir| is_listed(dir)).any(is_known)
    };
    let (mut seen, mut separate) = (HashSet::new(), Vec::new());
    for (root, real) in roots.iter().zip(&real) {
        if real.as_ref().is_none_or(|path| !is_below(path) && seen.insert(path)) {
            separate.push(root.clone());
        }
    }
    separate
}

/// Replaces "in use" by a more specific reason if there is one.
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
    let holders = mapping_processes(&ids);
    for file in incomplete.iter_mut().filter(in_use) {
        if let Some(holder) = holders.get(&file.id) {
            file.incomplete = Some(Incomplete::Mapped);
            file.mapped_by = Some((holder.pid, holder.name.clone()));
        }
    }
}

fn value(sum: &Mutex<Tally>) -> Tally {
    *sum.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_skipped_only_if_it_is_found_in_another_one() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let (middle, below) = (top.join("middle"), top.join("middle/below"));
        std::fs::create_dir_all(&below).unwrap();
        let roots = [top.clone(), below.clone()];
        assert_eq!(separate(&roots, |_| true), std::slice::from_ref(&top));
        for unlisted in [&top, &middle] {
            assert_eq!(separate(&roots, |dir| dir != unlisted), roots);
        }
        // The directory in between is a root itself.
        let roots = [top.clone(), middle.clone(), below];
        assert_eq!(separate(&roots, |dir| dir != top), [top.clone(), middle]);
    }
}

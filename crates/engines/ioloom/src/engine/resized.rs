//! Tests with the parts of the engine: a limit on files in flight that changes during a run, and
//! threads that rest.

use super::execute;
use super::pilot::Pilot;
use super::ready::Ready;
use super::work::{Piece, RunOptions, Work};
use super::{prepare, window_of};
use crate::error::FileError;
use crate::feed::Entry;
use crate::source::{Listed, Source};
use ioloom_budget::Budget;
use ioloom_model::layout::layout;
use ioloom_model::{Plan, ReadOrder};
use ioloom_sys::file::{OpenHow, open};
use ioloom_sys::proc::Usage;
use ioloom_walk::PathList;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Counts how often each file was processed.
struct Seen(Vec<AtomicU32>);

impl Work for Seen {
    type State = u64;
    type Local = ();
    type Error = Infallible;

    fn local(&self) {}

    fn begin(&self, _: usize, _: &Path) -> u64 {
        0
    }

    fn piece(
        &self,
        (): &mut (),
        bytes: &mut u64,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, Infallible> {
        assert_eq!(*bytes, piece.offset, "the pieces of a file come in order");
        *bytes += piece.bytes.len() as u64;
        Ok(ControlFlow::Continue(()))
    }

    fn finish(
        &self,
        (): &mut (),
        bytes: u64,
        index: usize,
        _: &Path,
    ) -> Result<ControlFlow<()>, Infallible> {
        assert_eq!(bytes, size(index) as u64);
        self.0[index].fetch_add(1, Ordering::Relaxed);
        Ok(ControlFlow::Continue(()))
    }

    fn function_failed(&self, (): &mut (), _: usize, _: &Path, _: Infallible) -> ControlFlow<()> {
        unreachable!("the function does not fail")
    }

    fn failed(&self, (): &mut (), error: FileError) -> ControlFlow<()> {
        panic!("{error}");
    }
}

const FILES: usize = 1500;

fn size(index: usize) -> usize {
    index % 7 * 3000
}

fn make(dir: &Path) -> Vec<PathBuf> {
    let paths = (0..FILES).map(|index| {
        let path = dir.join(index.to_string());
        std::fs::write(&path, vec![1; size(index)]).unwrap();
        path
    });
    paths.collect()
}

/// Evicts the contents of every second file, so that reads of some wait and of others do not.
fn evict(paths: &[PathBuf]) {
    for path in paths.iter().step_by(2) {
        let file = open(path, OpenHow::default()).unwrap();
        // Dirty pages stay.
        ioloom_sys::cache::write_back(&file).unwrap();
        ioloom_sys::cache::evict_file(&file).unwrap();
    }
}

#[test]
fn no_file_is_lost_or_doubled_while_the_limit_changes() {
    let dir = tempfile::tempdir().unwrap();
    let paths = make(dir.path());
    let mut list = PathList::default();
    paths.iter().for_each(|path| list.push(path.as_os_str().as_bytes()));
    for (text, stream) in [
        ("nowait/window:l=64,p=2", false),
        ("nowait/window:l=64,p=2", true),
        ("nowait/window:l=64,p=2/chunk=4KiB", false),
        ("nowait/window:l=64,p=2/chunk=4KiB", true),
        ("nowait/window:l=16,p=2/blocking=8,memory=1MiB", false),
        ("nowait/window:l=64,p=3/stripe=16", false),
    ] {
        evict(&paths);
        let plan: Plan = text.parse().unwrap();
        let source = if stream {
            let entries = paths.clone().into_iter().map(Entry::Path);
            Source::stream(crate::feed::one_by_one(entries), ReadOrder::List, false)
        } else {
            Source::list(
                Listed::Borrowed(&list),
                ReadOrder::List,
                None,
                &crate::cancel::Cancel::new(),
            )
        };
        let options = RunOptions::default();
        let budget = Arc::new(Budget::new(plan.memory_bytes));
        let shared = prepare(&source, plan, budget, &options).unwrap();
        let seen = Seen((0..FILES).map(|_| AtomicU32::new(0)).collect());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random: u64 = 1;
                while !over.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    let limit = (random >> 33) as u32 % shared.window.size();
                    shared.window.set_limit(limit >> ((random >> 60) as u32 % 7));
                    shared.spare_bell.ring_all();
                    std::thread::yield_now();
                }
            });
            let executed = execute::run(&shared, &options, &seen);
            over.store(true, Ordering::Relaxed);
            assert_eq!(executed.unwrap().files, FILES as u64, "{text}");
        });
        let odd = seen.0.iter().position(|count| count.load(Ordering::Relaxed) != 1);
        assert_eq!(odd, None, "{text}, stream {stream}");
    }
}

/// All workers rest when a stream ends, and none of them finds its end. Without a bell, threads that
/// rest elsewhere would find it at the end of their nap.
#[test]
fn the_last_worker_that_rests_wakes_threads_that_rest_elsewhere() {
    let none = crate::feed::one_by_one(std::iter::empty());
    let source = Source::stream(none, ReadOrder::List, false);
    source.start().unwrap();
    source.bell().rest(|_| source.is_settled_surely().then_some(()));
    let plan: Plan = "nowait/window:l=8,p=2".parse().unwrap();
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let shared = prepare(&source, plan, budget, &RunOptions::default()).unwrap();
    let ready = Ready::<()>::new(1, shared.gauges.clone());
    ready.joins();
    let over = AtomicBool::new(false);
    let guard = Instant::now() + Duration::from_secs(60);
    let back = || over.load(Ordering::SeqCst) || Instant::now() > guard;
    std::thread::scope(|scope| {
        scope.spawn(|| shared.spare_bell.rest(|_| back().then_some(())));
        while shared.spare_bell.resting() == 0 {
            std::thread::yield_now();
        }
        assert!(!ready.rest(&shared), "the stream has ended, and no other worker has started");
        assert_eq!(shared.spare_bell.rung_for_all.load(Ordering::SeqCst), 1);
        over.store(true, Ordering::SeqCst);
        shared.spare_bell.ring_all();
    });
}

#[test]
fn a_window_has_a_place_for_each_worker() {
    for text in ["nowait/window:l=3,p=8", "uring/window:l=9,p=2", "read/threads:n=2"] {
        let layout = layout(&text.parse::<Plan>().unwrap()).unwrap();
        let window = window_of(&layout);
        assert!(window.size() >= 1 && window.limit() == window.size(), "{text}");
    }
}

/// A list that crosses mounts: some reads blocked, but the files that follow do not.
#[test]
fn workers_have_the_places_of_blocking_threads_that_rest() {
    let mut list = PathList::default();
    (0..10).for_each(|i| list.push(format!("/no/such/{i}").as_bytes()));
    let cancel = crate::cancel::Cancel::new();
    let source = Source::list(Listed::Borrowed(&list), ReadOrder::List, None, &cancel);
    let plan: Plan = "nowait/window:l=64,p=2/blocking=32,auto".parse().unwrap();
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let shared = prepare(&source, plan, budget, &RunOptions::default()).unwrap();
    let mut pilot = Pilot::new(&shared).unwrap();
    let mut limits = |unanswered, active: u32| {
        shared.unanswered.store(unanswered, Ordering::Relaxed);
        (0..active).for_each(|_| shared.blocking.starts());
        let blocking = pilot.check(&Usage::default(), 0, 2);
        (0..active).for_each(|_| shared.blocking.leaves());
        (shared.window.limit(), blocking)
    };
    assert_eq!(limits(0, 0), (64, 0));
    assert_eq!(limits(1, 16), (48, 62), "sixteen read next to the workers");
    assert_eq!(limits(1, 0), (64, 62), "they rest, and start again when a read blocks");
    assert_eq!(limits(1, 64), (2, 62));
}

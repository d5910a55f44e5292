//! Tests with the parts of the engine: when a worker keeps its permit.

use super::looped;
use super::prepare;
use super::ready::Ready;
use super::work::{Piece, RunOptions, Work, Worker};
use crate::arena::Lease;
use crate::cancel::Cancel;
use crate::claim::Claim;
use crate::error::{Error, FileError, Operation};
use crate::fetch::{self, Cx, Fetch, Reaped, Started};
use crate::loaded::{Data, Loaded};
use crate::shared::Shared;
use crate::source::{Item, Listed, Next, Source};
use crate::take::Take;
use ioloom_budget::{Budget, Part, Permits};
use ioloom_model::{Plan, ReadOrder};
use ioloom_observe::{Detail, Meter};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{Nowait, read_nowait_at};
use ioloom_walk::PathList;
use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Does nothing with files, of which some fail.
struct Idle;

impl Work for Idle {
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
        _: &mut u64,
        _: &Piece<'_>,
    ) -> Result<ControlFlow<()>, Infallible> {
        Ok(ControlFlow::Continue(()))
    }

    fn finish(
        &self,
        (): &mut (),
        _: u64,
        _: usize,
        _: &Path,
    ) -> Result<ControlFlow<()>, Infallible> {
        Ok(ControlFlow::Continue(()))
    }

    fn function_failed(&self, (): &mut (), _: usize, _: &Path, _: Infallible) -> ControlFlow<()> {
        unreachable!("the function does not fail")
    }

    fn failed(&self, (): &mut (), _: FileError) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    AtOnce,
    Blocks,
    Misses,
    Fails,
    /// At once, after the permit was returned.
    Returns,
    /// At once, in [`PIECES`] pieces.
    InPieces,
}

const PIECES: u64 = 100;

/// Whether the worker held a permit.
#[derive(Debug, Default)]
struct Held {
    /// At the start of each file.
    starts: Vec<bool>,
    /// After it returned its permit for a read.
    reads: Vec<bool>,
    /// When it looked for completions, with a read in flight.
    reaps: Vec<bool>,
}

/// A method that reads each file as a test says.
struct Scripted<'p> {
    how: fn(usize) -> Read,
    blocked: bool,
    missed: Vec<Loaded<'p, u64>>,
    held: Rc<RefCell<Held>>,
}

fn is_held(cx: &Cx<'_, '_>) -> bool {
    cx.shared.permits.as_ref().is_some_and(|permits| permits.held() > 0)
}

impl<'p> Fetch<'p, u64> for Scripted<'p> {
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, u64>,
        _: Option<Lease>,
    ) -> Started<'p, u64> {
        self.held.borrow_mut().starts.push(is_held(cx));
        let how = (self.how)(item.index);
        if how == Read::Fails {
            let path = item.path.as_path();
            let error = FileError::rejected(item.index, path, Operation::Read, "as the test says");
            return Started::Failed(error);
        }
        self.blocked |= how == Read::Blocks;
        if how == Read::Returns {
            cx.give_back_permit();
            self.held.borrow_mut().reads.push(is_held(cx));
        }
        let piece = Loaded {
            item,
            file: None,
            data: Data::Empty,
            len: 0,
            offset: 0,
            size: None,
            cut: false,
            last: how != Read::InPieces,
        };
        if how == Read::Misses {
            self.missed.push(piece);
            return Started::Pending;
        }
        Started::Ready(piece)
    }

    fn resume(&mut self, _: &mut Cx<'_, '_>, done: Loaded<'p, u64>) -> Started<'p, u64> {
        let offset = done.offset + 1;
        Started::Ready(Loaded { offset, last: offset == PIECES, ..done })
    }

    fn reap(
        &mut self,
        cx: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, u64>,
    ) -> Result<(), Error> {
        if !self.missed.is_empty() {
            self.held.borrow_mut().reaps.push(is_held(cx));
        }
        if wait {
            out.extend(self.missed.drain(..).map(Ok));
        }
        Ok(())
    }

    fn take_blocked(&mut self) -> bool {
        std::mem::take(&mut self.blocked)
    }

    fn in_flight(&self) -> usize {
        self.missed.len()
    }
}

/// Calls `run` with the state of a run over `list`.
fn with_shared<R>(list: &PathList, run: impl FnOnce(&Shared<'_>) -> R) -> R {
    let source = Source::list(Listed::Borrowed(list), ReadOrder::List, None, &Cancel::new());
    let plan: Plan = "nowait/window:l=128,p=1".parse().unwrap();
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let shared = prepare(&source, plan, budget, &RunOptions::default()).unwrap();
    run(&shared)
}

/// Runs one worker over `files` files, and returns when it held a permit.
fn held(files: usize, how: fn(usize) -> Read) -> Held {
    let mut list = PathList::default();
    (0..files).for_each(|i| list.push(format!("/no/such/{i}").as_bytes()));
    with_shared(&list, |shared| {
        let held = Rc::new(RefCell::new(Held::default()));
        let ready = Ready::new(1, shared.gauges.clone());
        ready.joins();
        shared.window.joins();
        let fetch = Scripted { how, blocked: false, missed: Vec::new(), held: Rc::clone(&held) };
        let mut worker =
            Worker::new(shared, 0, &Idle, Meter::start(monotonic_ns(), Detail::Totals));
        looped::run(&mut worker, Box::new(fetch), Part::new(0, 64), &ready);
        let held = held.take();
        assert_eq!(held.starts.len(), files);
        held
    })
}

/// One file that is not in memory costs the permits of the next 64 files, and not those of the run.
#[test]
fn a_permit_is_kept_again_after_reads_that_block_and_failures() {
    let odd: [fn(usize) -> Read; 3] = [
        |index: usize| if index == 200 { Read::Blocks } else { Read::AtOnce },
        |index: usize| if index == 200 { Read::Fails } else { Read::AtOnce },
        |index: usize| if index == 200 { Read::Misses } else { Read::AtOnce },
    ];
    for how in odd {
        let starts = held(400, how).starts;
        let what = how(200);
        assert!(starts[..64].iter().all(|held| !held), "{what:?}: it is not known before");
        assert!(starts[140], "{what:?}: all files were in memory");
        assert!(starts[201..=264].iter().all(|held| !held), "{what:?}: kept after the file");
        assert!(what == Read::Misses || starts[350], "{what:?}: not kept again");
    }
}

#[test]
fn the_pieces_of_a_file_are_one_hit() {
    let how = |index: usize| if index == 0 { Read::InPieces } else { Read::AtOnce };
    let starts = held(300, how).starts;
    assert!(starts[..64].iter().all(|held| !held), "{starts:?}");
    assert!(starts[200], "all files were in memory");
}

/// Even if it does not wait for completions, a worker may read its oldest miss with a blocking call.
#[test]
fn completions_are_taken_without_a_permit() {
    let how = |index: usize| if index == 0 { Read::Misses } else { Read::AtOnce };
    let reaps = held(400, how).reaps;
    assert!(reaps.len() > 10 && reaps.iter().all(|held| !held), "{reaps:?}");
}

#[test]
fn a_permit_returned_for_a_read_is_taken_for_the_function_and_kept() {
    let how = |index: usize| if index == 200 { Read::Returns } else { Read::AtOnce };
    let held = held(400, how);
    assert_eq!(held.reads, [false], "the read may wait");
    assert!(held.starts[200] && held.starts[201], "all files were in memory");
}

/// Reads a file, which a walk found, with a permit in hand. Returns whether it is still held, or `None` if
/// the file was not in memory.
fn held_after(path: &Path) -> Option<bool> {
    let mut list = PathList::default();
    list.push_found(&[path.as_os_str().as_bytes()], 1);
    with_shared(&list, |shared| {
        let mut fetch = fetch::make::<u64>(shared, 0, 8).unwrap();
        let meter = &mut Meter::start(monotonic_ns(), Detail::Totals);
        let take = Take { stripe: 1, threads: 1, paced: false };
        let next = shared.source.next(&mut Claim::default(), take);
        let Next::Item(item) = next else { unreachable!("the list has one path") };
        let mut kept = shared.permits.as_ref().map(Permits::take);
        let of = Some(&mut kept);
        let mut cx = Cx { shared, meter, may_wait: false, idle: false, kept: of };
        match fetch.start(&mut cx, item, None) {
            Started::Ready(_) => Some(kept.is_some()),
            Started::Failed(error) => panic!("{error}"),
            Started::Pending | Started::Later(_) => None,
        }
    })
}

#[test]
fn a_permit_is_returned_before_reads_that_may_wait_and_kept_for_those_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large");
    std::fs::write(&large, vec![1; 1 << 20]).unwrap();
    let made_up = Path::new("/proc/self/stat");
    for path in [large.as_path(), made_up] {
        let file = std::fs::File::open(path).unwrap();
        let is_hit = matches!(read_nowait_at(&file, &mut [0], 0), Ok(Nowait::Hit(_)));
        let held = held_after(path);
        if is_hit {
            assert_ne!(held, Some(false), "{}: no read waits", path.display());
        } else if path == made_up {
            assert_eq!(held, Some(false), "any read may wait");
        }
    }
}

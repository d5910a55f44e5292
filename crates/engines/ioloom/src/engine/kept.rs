//! Tests with the parts of the engine: when a worker keeps its permit.

use super::looped;
use super::prepare;
use super::ready::Ready;
use super::work::{Piece, RunOptions, Work, Worker};
use crate::arena::Lease;
use crate::cancel::Cancel;
use crate::error::{Error, FileError, Operation};
use crate::fetch::{Cx, Fetch, Reaped, Started};
use crate::loaded::{Data, Loaded};
use crate::shared::Shared;
use crate::source::{Item, Listed, Source};
use ioloom_budget::{Budget, Part};
use ioloom_model::{Plan, ReadOrder};
use ioloom_observe::Detail;
use ioloom_sys::clock::monotonic_ns;
use ioloom_walk::PathList;
use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::ControlFlow;
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
    /// At once, in [`PIECES`] pieces.
    InPieces,
}

const PIECES: u64 = 100;

/// Whether the worker held a permit.
#[derive(Debug, Default)]
struct Held {
    /// At the start of each file.
    starts: Vec<bool>,
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
        let mut worker = Worker::new(shared, 0, &Idle, monotonic_ns(), Detail::Totals);
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

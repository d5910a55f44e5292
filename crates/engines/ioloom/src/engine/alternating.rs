//! Tests with the parts of the engine: files that begin by `nowait` and by rings in turns.

use super::execute;
use super::prepare;
use super::work::{Executed, Piece, RunOptions, Work};
use crate::cancel::Cancel;
use crate::error::{Error, FileError};
use crate::feed::Entry;
use crate::methods::Methods;
use crate::source::{Listed, Source};
use ioloom_budget::Budget;
use ioloom_model::{Plan, ReadOrder};
use ioloom_sys::file::{OpenHow, open};
use ioloom_walk::PathList;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Hashes files, and cancels when it has seen so many.
#[derive(Default)]
struct Hashing {
    hashes: Mutex<BTreeMap<usize, u64>>,
    failed: Mutex<Vec<usize>>,
    cancels: Option<(usize, Cancel)>,
    seen: AtomicUsize,
}

impl Work for Hashing {
    type State = (Xxh3, u64);
    type Local = ();
    type Error = Infallible;

    fn local(&self) {}

    fn begin(&self, _: usize, _: &Path) -> Self::State {
        (Xxh3::new(), 0)
    }

    fn piece(
        &self,
        (): &mut (),
        (hash, read): &mut Self::State,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, Infallible> {
        assert_eq!(*read, piece.offset, "the pieces of a file come in order");
        *read += piece.bytes.len() as u64;
        hash.update(piece.bytes);
        Ok(ControlFlow::Continue(()))
    }

    fn finish(
        &self,
        (): &mut (),
        (hash, _): Self::State,
        index: usize,
        _: &Path,
    ) -> Result<ControlFlow<()>, Infallible> {
        let twice = self.hashes.lock().unwrap().insert(index, hash.digest());
        assert_eq!(twice, None, "file {index} came twice");
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        if let Some((_, cancel)) = self.cancels.as_ref().filter(|(at, _)| *at == seen) {
            cancel.cancel();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn function_failed(&self, (): &mut (), _: usize, _: &Path, _: Infallible) -> ControlFlow<()> {
        unreachable!("the function does not fail")
    }

    fn failed(&self, (): &mut (), error: FileError) -> ControlFlow<()> {
        assert_eq!(error.index % 37, 36, "{error}");
        self.failed.lock().unwrap().push(error.index);
        ControlFlow::Continue(())
    }
}

const FILES: usize = 600;
const SIZES: [usize; 6] = [0, 1, 4096, 100, 65_536, 9_000];

/// Every 37th file is missing, and a few are large.
fn make(dir: &Path) -> Vec<PathBuf> {
    let file = |index: usize| {
        let path = dir.join(index.to_string());
        let size = if index % 50 == 49 { 1 << 20 } else { SIZES[index % SIZES.len()] };
        let byte = |at: usize| (at / 7 + index) as u8;
        if index % 37 != 36 {
            std::fs::write(&path, (0..size).map(byte).collect::<Vec<_>>()).unwrap();
        }
        path
    };
    (0..FILES).map(file).collect()
}

/// Evicts the contents of every second file, so that reads of some wait and of others do not.
fn evict(paths: &[PathBuf]) {
    for path in paths.iter().step_by(2) {
        let Ok(file) = open(path, OpenHow::default()) else { continue };
        // Dirty pages stay.
        ioloom_sys::cache::write_back(&file).unwrap();
        ioloom_sys::cache::evict_file(&file).unwrap();
    }
}

/// Changes the method and the window at random until `over`.
fn alternate(shared: &crate::shared::Shared<'_>, over: &AtomicBool) {
    let mut random: u64 = 1;
    while !over.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let by_ring = random >> 63 == 1;
        shared.methods.begin_by_ring(by_ring);
        let workers = shared.methods.workers();
        // Files also begin by rings while all workers share the window.
        let few = by_ring && random >> 61 & 1 == 1;
        shared.window.set_sharers(if few { workers } else { u32::MAX });
        shared.window.set_limit((random >> 33) as u32 % shared.window.size());
        shared.spare_bell.ring_all();
        // Long enough for a few files.
        std::thread::sleep(Duration::from_micros(random >> 50 & 1023));
    }
}

/// Ends the alternation, after a panic as well.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a plan while the methods alternate. `None` if rings cannot be created here.
#[expect(clippy::print_stdout, reason = "a skipped test prints what the machine lacks")]
fn run(
    (text, stream): (&str, bool),
    paths: &[PathBuf],
    work: &Hashing,
    cancel: &Cancel,
) -> Option<Result<Executed<()>, Error>> {
    let plan: Plan = text.parse().unwrap();
    let mut list = PathList::default();
    paths.iter().for_each(|path| list.push(path.as_os_str().as_bytes()));
    let source = if stream {
        let paths = paths.to_vec();
        let entries = paths.into_iter().map(Entry::Path);
        Source::stream(crate::feed::one_by_one(entries), ReadOrder::List, false)
    } else {
        Source::list(Listed::Borrowed(&list), ReadOrder::List, None, cancel)
    };
    let options = RunOptions { cancel: cancel.clone(), ..RunOptions::default() };
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let mut shared = prepare(&source, plan, budget, &options).unwrap();
    // With small rings, a worker also begins files by both methods at once.
    shared.methods = Methods::both((shared.window.size() / 8).max(2), 2);
    let (shared, over) = (shared, AtomicBool::new(false));
    let executed = std::thread::scope(|scope| {
        scope.spawn(|| alternate(&shared, &over));
        let _over = Ends(&over);
        execute::run(&shared, &options, work)
    });
    assert_eq!(shared.budget.used(), 0, "{text}: a buffer was not returned");
    if let Some(refused) = shared.methods.refused() {
        println!("skipped: cannot create an io_uring: {}", refused.error);
        return None;
    }
    Some(executed)
}

/// Of larger windows than they have workers, which leaves a ring room for more than one file.
const PLANS: [&str; 5] = [
    "nowait/window:l=160,p=2/stripe=8",
    "nowait/window:l=160,p=2/chunk=4KiB",
    "nowait/window:l=96,p=2/memory=8MiB",
    "nowait/window:l=80,p=2/chunk=64KiB,memory=1MiB",
    "nowait/window:l=3,p=2/blocking=4",
];

#[test]
fn the_bytes_are_the_same_while_methods_alternate() {
    let dir = tempfile::tempdir().unwrap();
    let paths = make(dir.path());
    let wanted: BTreeMap<usize, u64> = (0..FILES)
        .filter_map(|index| Some((index, xxh3_64(&std::fs::read(&paths[index]).ok()?))))
        .collect();
    for text in PLANS {
        for stream in [false, true] {
            evict(&paths);
            let work = Hashing::default();
            let Some(executed) = run((text, stream), &paths, &work, &Cancel::new()) else { return };
            assert_eq!(executed.unwrap().files, wanted.len() as u64, "{text}");
            assert!(work.hashes.into_inner().unwrap() == wanted, "{text}: other bytes");
            let mut failed = work.failed.into_inner().unwrap();
            failed.sort_unstable();
            let missing: Vec<usize> = (0..FILES).filter(|index| index % 37 == 36).collect();
            assert_eq!(failed, missing, "{text}");
        }
    }
}

#[test]
fn a_cancel_while_methods_alternate_drains_both() {
    let dir = tempfile::tempdir().unwrap();
    let paths = make(dir.path());
    for text in PLANS {
        evict(&paths);
        let cancel = Cancel::new();
        let work = Hashing { cancels: Some((100, cancel.clone())), ..Hashing::default() };
        let Some(executed) = run((text, false), &paths, &work, &cancel) else { return };
        let executed = executed.unwrap();
        assert!(executed.cancelled && executed.files > 100, "{text}: {}", executed.files);
        for (index, hash) in work.hashes.into_inner().unwrap() {
            assert_eq!(hash, xxh3_64(&std::fs::read(&paths[index]).unwrap()), "{text}");
        }
    }
}

#[test]
fn a_ring_counts_opens_without_a_descriptor_and_loses_no_file() {
    let test = "engine::alternating::child_with_few_descriptors";
    let mut child = Command::new("sh");
    child.args(["-c", "ulimit -n 160; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "run by a_ring_counts_opens_without_a_descriptor_and_loses_no_file in a child"]
#[expect(clippy::print_stdout, reason = "a skipped test prints what the machine lacks")]
fn child_with_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let mut list = PathList::default();
    let content = |index: usize| vec![index as u8; 20_000];
    for index in 0..100 {
        let path = dir.path().join(index.to_string());
        std::fs::write(&path, content(index)).unwrap();
        list.push(path.as_os_str().as_bytes());
    }
    let (cancel, options) = (Cancel::new(), RunOptions::default());
    let source = Source::list(Listed::Borrowed(&list), ReadOrder::List, None, &cancel);
    // All of the window is opened before the first file ends.
    let plan: Plan = "uring:open/window:l=64,p=1/chunk=4KiB".parse().unwrap();
    let budget = Arc::new(Budget::new(plan.memory_bytes));
    let shared = prepare(&source, plan, budget, &options).unwrap();
    let mut taken: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - 24);
    let work = Hashing::default();
    match execute::run(&shared, &options, &work) {
        Err(Error::Refused(reason)) => return println!("skipped: {reason}"),
        other => assert_eq!(other.unwrap().files, 100),
    }
    assert!(shared.refused.load(Ordering::Relaxed) > 0);
    for (index, hash) in work.hashes.into_inner().unwrap() {
        assert_eq!(hash, xxh3_64(&content(index)), "file {index}");
    }
}

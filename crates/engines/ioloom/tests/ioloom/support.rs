//! File sets, a client of the engine that hashes, and the oracle to compare it with.

use ioloom::engine::{self, Piece, RunOptions, Work};
use ioloom::{Error, FileError, Plan};
use ioloom_walk::PathList;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Hash and length of each processed file, by its position.
pub(crate) type Hashes = BTreeMap<usize, (u64, u64)>;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hashes: Hashes,
    pub(crate) failed: Vec<FileError>,
    pub(crate) budget_peak_bytes: u64,
}

/// Bytes that differ at every offset: a misplaced piece changes the hash.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Files of the given sizes in a new directory below `root`.
pub(crate) fn make(root: &Path, sizes: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir_in(root).unwrap();
    let paths = sizes.iter().enumerate().map(|(i, size)| {
        let path = dir.path().join(format!("{i:05}"));
        std::fs::write(&path, content(i as u64 + 1, *size)).unwrap();
        path
    });
    let paths = paths.collect();
    (dir, paths)
}

/// The directory of cargo for tests, and shared memory if it exists.
pub(crate) fn roots() -> Vec<PathBuf> {
    let mut roots = vec![PathBuf::from(env!("CARGO_TARGET_TMPDIR"))];
    std::fs::create_dir_all(&roots[0]).unwrap();
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() {
        roots.push(memory)
    } else {
        eprintln!("skipped: no /dev/shm")
    }
    roots
}

/// A list in which every second path is known to be regular, as from a walk.
pub(crate) fn list(paths: &[PathBuf]) -> PathList {
    let mut list = PathList::new();
    for (i, path) in paths.iter().enumerate() {
        let bytes = path.as_os_str().as_bytes();
        match std::fs::symlink_metadata(path) {
            Ok(meta) if i % 2 == 1 && meta.is_file() => list.push_found(&[bytes], meta.ino()),
            _ => list.push(bytes),
        }
    }
    list
}

/// The oracle: reads with the standard library and hashes in one call.
pub(crate) fn expected(paths: &[PathBuf]) -> Hashes {
    let hash = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        (xxh3_64(&bytes), bytes.len() as u64)
    };
    paths.iter().map(hash).enumerate().collect()
}

pub(crate) struct Hashing;

impl Work for Hashing {
    type State = (Xxh3, u64);
    type Local = (Vec<(usize, (u64, u64))>, Vec<FileError>);
    type Error = Infallible;

    fn local(&self) -> Self::Local {
        Self::Local::default()
    }

    fn begin(&self, _: usize, _: &Path) -> Self::State {
        (Xxh3::new(), 0)
    }

    fn piece(
        &self,
        _: &mut Self::Local,
        state: &mut Self::State,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, Infallible> {
        assert_eq!(piece.offset, state.1, "pieces come in order");
        state.0.update(piece.bytes);
        state.1 += piece.bytes.len() as u64;
        Ok(ControlFlow::Continue(()))
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        state: Self::State,
        index: usize,
        _: &Path,
    ) -> Result<ControlFlow<()>, Infallible> {
        local.0.push((index, (state.0.digest(), state.1)));
        Ok(ControlFlow::Continue(()))
    }

    fn function_failed(
        &self,
        _: &mut Self::Local,
        _: usize,
        _: &Path,
        never: Infallible,
    ) -> ControlFlow<()> {
        match never {}
    }

    fn failed(&self, local: &mut Self::Local, error: FileError) -> ControlFlow<()> {
        local.1.push(error);
        ControlFlow::Continue(())
    }
}

pub(crate) fn plan(text: &str) -> Plan {
    text.parse::<Plan>().unwrap().complete(2)
}

/// Runs a plan over a list, mappings allowed, and checks that nothing is counted twice.
pub(crate) fn run(list: PathList, plan: Plan) -> Result<Outcome, Error> {
    let options = RunOptions { mmap: true, ..RunOptions::default() };
    let done = engine::run(&list, None, plan, &options, &Hashing)?;
    let (mut hashes, mut failed) = (Hashes::new(), Vec::new());
    for (values, errors) in done.locals {
        for (index, value) in values {
            assert!(hashes.insert(index, value).is_none(), "{plan}: file {index} came twice");
        }
        failed.extend(errors);
    }
    assert_eq!(done.files, hashes.len() as u64, "{plan}");
    let bytes: u64 = hashes.values().map(|(_, len)| len).sum();
    // The function may have seen pieces of a file that failed later.
    let pieces_lost = plan.chunk_bytes.is_some() && !failed.is_empty();
    assert!(done.bytes == bytes || pieces_lost && done.bytes > bytes, "{plan}: {}", done.bytes);
    Ok(Outcome { hashes, failed, budget_peak_bytes: done.budget_peak_bytes })
}

/// Returns the system's error number, if a system call failed.
pub(crate) fn errno(error: &FileError) -> Option<i32> {
    error.io_error()?.raw_os_error()
}

/// Reports whether a refusal is due to something that this machine may lack, and prints it.
pub(crate) fn lacks<E>(plan: &Plan, error: &Error<E>) -> bool {
    let Error::Refused(reason) = error else { return false };
    let missing = plan.method.is_direct() && reason.contains("does not report direct I/O")
        || plan.method.needs_ring()
            && (reason.contains("cannot create an io_uring") || reason.contains("cannot register"));
    if missing {
        eprintln!("skipped: {reason}");
    }
    missing
}

/// Runs a test of this binary again in a child process, with the arguments of `command`.
pub(crate) fn child(test: &str, exe: &Path, mut command: std::process::Command) -> (bool, String) {
    command.arg(exe).args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    let out = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("1 passed") || text.contains("1 failed"), "{test} did not run: {text}");
    (out.status.success(), text)
}

/// Evicts files from the page cache.
pub(crate) fn evict(paths: &[PathBuf]) {
    for path in paths {
        let file = std::fs::File::open(path).unwrap();
        file.sync_all().unwrap();
        ioloom_sys::cache::evict_file(&file).unwrap();
    }
}

/// Longer than any run here, also on a machine whose disk or processors are busy for seconds.
pub(crate) const NEVER: Duration = Duration::from_secs(60);

/// Runs `test` on a thread of its own and fails if it hangs.
pub(crate) fn guarded(what: String, test: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match ended.recv_timeout(2 * NEVER) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        _ => thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload)),
    }
}

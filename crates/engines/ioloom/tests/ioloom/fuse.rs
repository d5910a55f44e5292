//! A file system with latency, whose reads cannot be asked not to wait: enough opens and reads are
//! in flight under the default plan, and every method returns the same bytes.
//!
//! The file system delays opens until 64 of them have been in flight at the same time, and reads
//! likewise. A run that never gets there takes longer, and fails by the counters, not by the time.

use crate::support::{NEVER, content as pattern, guarded, lacks, list, make, plan, roots, run};
use ioloom::{Cancel, Error, Files, Tree};
use ioloom_delayfs::{DelayFs, Mounted, Options, available, content, serve_for_parent};
use ioloom_model::{Method, table};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

/// Opens and reads that must be in flight at the same time.
const WANTED: u64 = 64;
/// Number of runs, of which one must pass: any of them may be held up.
const TRIES: usize = 4;

#[test]
#[ignore = "run in a child by the other tests"]
fn server() {
    serve_for_parent();
}

/// Mounts in a child, or prints why not.
fn mounted(options: Options) -> Option<(Mounted, TempDir)> {
    if let Err(reason) = available() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = DelayFs::mount_in_child(dir.path(), options, "fuse::server").unwrap();
    Some((mounted, dir))
}

/// Files of 4 KiB, whose opens and reads are slow until enough of them overlap. The engine needs some
/// rounds of reads until it has started its threads, so there are more files than those.
fn slow() -> Option<(Mounted, TempDir)> {
    let mut options = Options::new(2000, 4096);
    (options.open, options.read) = (Duration::from_millis(50), Duration::from_millis(50));
    options.until_overlap = NonZeroUsize::new(WANTED as usize);
    mounted(options)
}

type Hashes = BTreeMap<PathBuf, u64>;

/// Hashes all files under the default plan.
fn hashes(files: Files<'_>) -> Hashes {
    let run = files.map(|f| (f.path().to_owned(), xxh3_64(f.bytes()))).run().unwrap();
    run.value.into_iter().collect()
}

/// Returns what the hashes of a mounted file system are.
fn expected(mounted: &Mounted) -> Hashes {
    let hash = |file| xxh3_64(&content(file, 0, mounted.size(file) as usize));
    mounted.paths().into_iter().enumerate().map(|(file, path)| (path, hash(file))).collect()
}

/// Runs on new file systems until enough opens and reads overlap, because those of a run that is held up
/// end one by one. `local` are the hashes of files elsewhere. Returns `None` if the user cannot mount.
fn overlaps(case: &str, local: &Hashes, input: impl Fn(&Mounted) -> Files<'static>) -> Option<()> {
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let (mounted, _dir) = slow()?;
        let mut want = expected(&mounted);
        want.extend(local.clone());
        assert!(hashes(input(&mounted)) == want, "{case}: other bytes");
        let seen = mounted.counters();
        if seen.opens_peak >= WANTED && seen.reads_peak >= WANTED {
            return Some(());
        }
        all.push(seen);
    }
    panic!("{case}: {all:?}");
}

#[test]
fn lists_trees_and_streams_overlap() {
    type Form = fn(&Mounted) -> Files<'static>;
    let forms: [(&str, Form); 4] = [
        ("tree", |mounted| ioloom::tree(mounted.root()).into_files()),
        ("list", |mounted| ioloom::list(mounted.paths())),
        ("files", |mounted| ioloom::files(mounted.paths())),
        // As from a pipe: its length is not known.
        ("stream", |mounted| {
            let mut paths = mounted.paths().into_iter();
            ioloom::files(std::iter::from_fn(move || paths.next()))
        }),
    ];
    for (form, input) in forms {
        if overlaps(form, &Hashes::new(), input).is_none() {
            return;
        }
    }
}

/// A path from a stream is looked up once, except by threads that began before a lookup had waited.
/// There are many of them only in a run that is held up.
#[test]
fn streams_look_paths_up_once() {
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let mut options = Options::new(2000, 4096);
        options.lookup = Duration::from_millis(2);
        let Some((mounted, _dir)) = mounted(options) else { return };
        let mut paths = mounted.paths().into_iter();
        // Below the root of the file system.
        let names = mounted.paths()[0].strip_prefix(mounted.root()).unwrap().components().count();
        mounted.reset();
        let got = hashes(ioloom::files(std::iter::from_fn(move || paths.next())));
        assert!(got == expected(&mounted), "other bytes");
        let seen = mounted.counters();
        let once = 2000 * names as u64;
        assert!(seen.lookups >= once, "{once} wanted: {seen}");
        if seen.lookups < once + once / 10 {
            return;
        }
        all.push(seen);
    }
    panic!("more lookups than files: {all:?}");
}

/// Returns local files in `root`, and what their hashes are.
fn local(root: &Path, files: usize) -> (TempDir, Hashes) {
    let (dir, paths) = make(root, &vec![3000; files]);
    let hash = |(i, path)| (path, xxh3_64(&pattern(i as u64 + 1, 3000)));
    (dir, paths.into_iter().enumerate().map(hash).collect())
}

/// The first local files are read before the first slow one, and the other way round.
#[test]
fn inputs_that_cross_mounts_overlap() {
    for root in roots() {
        for order in ["local first", "slow first", "alternating"] {
            for form in ["list", "stream"] {
                let (_local_dir, local) = local(&root, 500);
                let input = |mounted: &Mounted| {
                    let near: Vec<PathBuf> = local.keys().cloned().collect();
                    let far = mounted.paths();
                    let paths: Vec<PathBuf> = match order {
                        "local first" => [near, far].concat(),
                        "slow first" => [far, near].concat(),
                        _ => far
                            .chunks(4)
                            .zip(&near)
                            .flat_map(|(a, b)| [a, std::slice::from_ref(b)].concat())
                            .collect(),
                    };
                    match form {
                        "list" => ioloom::list(&paths),
                        _ => ioloom::files(paths),
                    }
                };
                let case = format!("{}, {order}, {form}", root.display());
                if overlaps(&case, &local, input).is_none() {
                    return;
                }
            }
        }
    }
}

/// A worker that keeps its permit while it reads makes all others wait that have read a file.
#[test]
fn a_worker_keeps_no_permit_during_reads_that_block() {
    let mut options = Options::new(3000, 100);
    (options.open, options.read) = (Duration::from_millis(1), Duration::from_millis(1));
    let Some((mounted, _dir)) = mounted(options) else { return };
    let threads = Mutex::new(Vec::new());
    let plan = plan("nowait/window:l=8,p=1/blocking=8");
    let run = ioloom::files(mounted.paths()).pin(plan).map(|_| {
        threads.lock().unwrap().push(std::thread::current().id());
    });
    run.run().unwrap();
    let threads = threads.into_inner().unwrap();
    assert_eq!(threads.len(), 3000);
    // With one permit, functions run one after another.
    let rows = threads.chunk_by(|a, b| a == b).map(<[_]>::len);
    let in_long_rows: usize = rows.filter(|row| *row >= 8).sum();
    assert!(in_long_rows < 300, "one thread ran several functions in a row: {in_long_rows}");
}

/// The walk has found the root when the first lookup arrives, which is answered long after the cancel.
#[test]
fn a_cancel_ends_a_run_before_a_directory_answers() {
    type Form = fn(Files<'static, Tree>) -> bool;
    let forms: [(&str, Form); 3] = [
        ("run", |files| matches!(files.map(|f| f.len()).run(), Err(Error::Cancelled { files: 0 }))),
        ("known_paths", |mut files| files.known_paths().is_none()),
        ("walk", |files| files.walk().cancelled),
    ];
    for (form, is_cancelled) in forms {
        let mut options = Options::new(4, 100);
        options.lookup = 10 * NEVER;
        let Some((mounted, _dir)) = mounted(options) else { return };
        guarded(form.to_owned(), move || {
            let token = Cancel::new();
            let files = ioloom::tree(mounted.root()).sorted(true).cancel(&token);
            let run = std::thread::spawn(move || is_cancelled(files));
            while mounted.counters().lookups == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            token.cancel();
            assert!(run.join().unwrap(), "{form}");
        });
    }
}

/// Files of a tree, whose sizes are not known, on a server that returns less than a read requests.
/// For such a file, io_uring of Linux 6.18 returns more bytes than the file has.
#[test]
fn a_short_answer_is_not_the_end_of_a_file() {
    let mut options = Options::new(24, 0);
    options.sizes = vec![0, 1, 9_999, 10_000, 10_001, 50_000, 65_536, 300_000];
    options.short = NonZeroUsize::new(10_000);
    let Some((mounted, _dir)) = mounted(options) else { return };
    assert!(hashes(ioloom::tree(mounted.root()).into_files()) == expected(&mounted), "default");
    let want: Vec<u64> = expected(&mounted).into_values().collect();
    let mut ran = 0;
    for method in Method::ALL.iter().filter(|m| !m.is_mmap() && !m.is_direct()) {
        for schedule in ["threads:n=3", "window:l=16,p=2", "roles:r=1,h=1,c=1,w=6"] {
            for chunks in ["", "/chunk=16KiB"] {
                let plan = plan(&format!("{method}/{schedule}{chunks}"));
                let found = ioloom::tree(mounted.root()).walk().files;
                assert!((0..24).all(|at| found.known_regular(at)));
                match run(found, plan) {
                    Ok(got) => {
                        assert!(got.failed.is_empty(), "{plan}: {:?}", got.failed);
                        for (at, (hash, len)) in got.hashes {
                            let read = (hash, len);
                            let expected = (want[at], mounted.size(at));
                            assert!(
                                *method == Method::Null || read == expected,
                                "{plan}: file {at}"
                            );
                        }
                        ran += 1;
                    }
                    Err(error) => {
                        let refused = table::check(&plan).is_err() || lacks(&plan, &error);
                        assert!(refused, "{plan}: {error}");
                    }
                }
            }
        }
    }
    assert!(ran >= 6, "only {ran} plans ran");
}

#[test]
fn every_method_returns_the_same_bytes() {
    let mut options = Options::new(60, 0);
    options.sizes = vec![0, 1, 4095, 4096, 4097, 65_537, 300_000];
    (options.open, options.read) = (Duration::from_micros(200), Duration::from_micros(200));
    let Some((mounted, _dir)) = mounted(options) else { return };
    let want: Vec<u64> = expected(&mounted).into_values().collect();
    let schedules = ["threads:n=3", "window:l=16,p=2", "roles:r=1,h=1,c=1,w=6"];
    let mut ran = 0;
    for method in Method::ALL.iter().filter(|method| **method != Method::Null) {
        for schedule in schedules {
            for chunks in ["", "/chunk=16KiB"] {
                let plan = plan(&format!("{method}/{schedule}{chunks}"));
                match run(list(&mounted.paths()), plan) {
                    Ok(got) => {
                        assert!(got.failed.is_empty(), "{plan}: {:?}", got.failed);
                        let hashes: Vec<u64> = got.hashes.values().map(|(hash, _)| *hash).collect();
                        assert!(hashes == want, "{plan}: other bytes");
                        ran += 1;
                    }
                    Err(error) => {
                        let refused = table::check(&plan).is_err() || lacks(&plan, &error);
                        assert!(refused, "{plan}: {error}");
                    }
                }
            }
        }
    }
    assert!(ran >= 6, "only {ran} plans ran");
}

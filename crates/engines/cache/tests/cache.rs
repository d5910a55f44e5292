//! Compares reports with trees in a known state, and injects a failure into each system call.

#![allow(clippy::print_stdout, reason = "skipped tests print the reason")]

use ioloom_cache::{Action, Incomplete, Report, Scan, Source, map, residency};
use ioloom_sys::{cache, fault};
use ioloom_walk::{Separator, Threads, read_list};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// A directory on a device, with the exclusive right to inject faults.
struct Place {
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    /// Returns `None` and prints the reason if the tree is in memory or the kernel lacks cachestat.
    fn new() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        fault::set("");
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if cache::is_memory_backed(dir.path()).unwrap() {
            println!("skipped: the build tree is in memory");
            return None;
        }
        let probe = File::create(dir.path().join("probe")).unwrap();
        if cache::state(&probe, 0, 0).unwrap().is_none() {
            println!("skipped: this kernel lacks cachestat");
            return None;
        }
        fs::remove_file(dir.path().join("probe")).unwrap();
        Some(Self { dir, _alone: alone })
    }

    fn write(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
        fs::write(&path, data).unwrap();
        path
    }

    fn scan(&self, action: Action) -> Report {
        scan(action).trees(&[self.dir.path().to_owned()]).unwrap()
    }

    /// Evicts everything.
    fn evict(&self) {
        self.evict_after(|| {});
    }

    /// Evicts everything after `prepare`, and returns the report. Repeats both for at most two
    /// minutes: reclaim that is interrupted on a busy machine can hold clean pages for longer than
    /// one attempt waits for them.
    fn evict_after(&self, prepare: impl Fn()) -> Report {
        let begun = Instant::now();
        loop {
            prepare();
            let report = self.scan(Action::Drop { write: true });
            if is_evicted(&report) {
                return report;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", report.incomplete);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fault::set("");
    }
}

/// Reports whether no page is resident. Panics if pages remain for any reason but being in use.
fn is_evicted(report: &Report) -> bool {
    let in_use = Some(Incomplete::InUse);
    let all = &report.incomplete;
    assert!(all.iter().all(|file| file.incomplete == in_use), "{all:?}");
    report.total().resident_pages == 0 && report.incomplete_count == 0
}

fn scan(action: Action) -> Scan<'static> {
    Scan {
        action,
        top: 3,
        depth_max: 1,
        threads: Threads::Count(3),
        stop: Arc::new(AtomicBool::new(false)),
        progress: Arc::default(),
        each: None,
    }
}

fn read(path: &Path) {
    File::open(path).unwrap().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_tree_is_evicted_and_loaded() {
    let Some(place) = Place::new() else { return };
    let mut pages = 0;
    for (name, bytes) in [("a/one", 1), ("a/b/two", 5 * PAGE), ("c/three", 100_000), ("zero", 0)] {
        place.write(name, bytes);
        pages += bytes.div_ceil(PAGE);
    }
    let before = place.scan(Action::Status);
    assert_eq!(before.total().files, 4);
    assert_eq!(before.total().pages, pages);
    assert_eq!(before.total().resident_pages, pages, "just written");
    // Everything is loaded before each attempt, so that all pages are evicted by the last one.
    let dropped = place.evict_after(|| drop(place.scan(Action::Warm)));
    assert_eq!(dropped.total().was_resident_pages, pages);
    assert_eq!(place.scan(Action::Status).total().resident_pages, 0);
    let warmed = place.scan(Action::Warm);
    assert_eq!((warmed.total().resident_pages, warmed.incomplete_count), (pages, 0));
    let now = place.scan(Action::Status);
    assert_eq!(now.total().resident_pages, pages);
    // Totals of depth-1 directories include everything below them.
    let sums: Vec<_> = now.directories.iter().map(|d| (d.tally.files, d.tally.pages)).collect();
    assert_eq!(sums, [(2, 6), (1, 25)]);
    let top: Vec<_> = now.top.iter().map(|f| f.now.pages.resident.unwrap()).collect();
    assert_eq!(top, [25, 5, 1]);
}

#[test]
fn dirty_pages_stay_unless_they_are_written() {
    let Some(place) = Place::new() else { return };
    let path = place.write("dirty", 64 * PAGE);
    let unwritten = place.scan(Action::Drop { write: false });
    if unwritten.total().dirty_pages == 0 {
        println!("skipped: the pages were written before they could be queried");
    } else {
        assert_eq!(unwritten.incomplete[0].incomplete, Some(Incomplete::Dirty));
    }
    place.evict();
    assert_eq!(fs::read(path).unwrap().len() as u64, 64 * PAGE);
}

#[test]
fn a_mapped_file_stays_and_the_process_is_named() {
    let Some(place) = Place::new() else { return };
    let path = place.write("held", 32 * PAGE);
    // Runs a program that keeps a file mapped: a copy of a shell maps its own executable.
    let shell = place.dir.path().join("shell");
    let mut out = File::create(&shell).unwrap();
    out.write_all(&fs::read("/bin/sh").unwrap()).unwrap();
    fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    out.sync_all().unwrap();
    drop(out);
    // Once it prints, its pages are actually mapped, not just listed in `maps`.
    let mut child = std::process::Command::new(&shell)
        .args(["-c", "echo runs; read x"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut said = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"runs\n");
    let report = place.scan(Action::Drop { write: true });
    child.kill().unwrap();
    child.wait().unwrap();
    let held = report.incomplete.iter().find(|f| f.path == shell).expect("some pages must remain");
    assert_eq!(held.incomplete, Some(Incomplete::Mapped));
    assert_eq!(held.mapped_by.as_ref().map(|by| by.0), Some(pid));
    assert!(report.incomplete.iter().all(|f| f.path != path), "unmapped files are evicted");
}

#[test]
fn hard_links_count_once_and_lists_count_as_trees() {
    let Some(place) = Place::new() else { return };
    let path = place.write("x/f", 10 * PAGE);
    fs::hard_link(&path, place.dir.path().join("x/g")).unwrap();
    place.write("y", PAGE);
    let tree = place.scan(Action::Status);
    assert_eq!((tree.total().files, tree.skipped), (2, 1));
    let list: Vec<u8> = ["x/f", "x/g", "y", "gone", "x"]
        .iter()
        .flat_map(|name| {
            let path = place.dir.path().join(name);
            [path.as_os_str().as_encoded_bytes(), b"\0"].concat()
        })
        .collect();
    let listed = scan(Action::Status).list(read_list(&list[..], Separator::Nul));
    assert_eq!(listed.total(), tree.total());
    assert_eq!(listed.errors_count, 2, "a missing file and a directory: {:?}", listed.errors);
}

#[test]
fn a_map_shows_the_resident_stretches() {
    let Some(place) = Place::new() else { return };
    let path = place.write("half", 200 * PAGE);
    place.evict();
    let file = File::open(&path).unwrap();
    cache::advise_random(&file).unwrap();
    let mut into = vec![0; 20 * PAGE as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut into, 100 * PAGE).unwrap();
    let cells = map(&file, 200 * PAGE, 10).unwrap();
    let resident: Vec<_> = cells.iter().map(|cell| cell.resident.unwrap()).collect();
    assert_eq!(resident, [0, 0, 0, 0, 0, 20, 0, 0, 0, 0]);
    assert!(cells.iter().all(|cell| cell.total == 20));
    assert_eq!(map(&file, 3 * PAGE, 10).unwrap().len(), 3, "no more stretches than pages");
}

#[test]
fn without_cachestat_pages_are_sampled() {
    let Some(place) = Place::new() else { return };
    let small = place.write("small", 100 * PAGE);
    let big = place.write("big", 2000 * PAGE);
    for path in [&small, &big] {
        read(path);
    }
    let asked = |path: &Path| {
        fault::set("cachestat:1:1,cachestat:2:1");
        let file = File::open(path).unwrap();
        let size = file.metadata().unwrap().len();
        let state = residency(&file, size).unwrap();
        fault::set("");
        state
    };
    let warm = asked(&small);
    assert_eq!((warm.source, warm.pages.resident), (Source::Pages, Some(100)));
    assert_eq!(warm.pages.dirty, None, "sampling cannot detect dirty pages");
    let warm = asked(&big);
    assert_eq!((warm.source, warm.pages.resident), (Source::Sampled, Some(2000)));
    assert!(!warm.is_warm(), "a sample proves nothing");
    place.evict();
    // Each query loads one page per sample: the estimate is zero and most of the file stays cold.
    let cold = asked(&big);
    assert_eq!((cold.source, cold.pages.resident), (Source::Sampled, Some(0)));
    assert!(cold.resident_between.unwrap().1 < 100);
    let file = File::open(&big).unwrap();
    let brought = cache::state(&file, 0, 0).unwrap().unwrap().resident;
    assert!(brought <= 256, "the query loaded {brought} pages");
}

#[test]
fn a_query_does_not_find_pages_that_an_earlier_one_loaded() {
    let Some(place) = Place::new() else { return };
    let path = place.write("big", 20_000 * PAGE);
    place.evict();
    let file = File::open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    // The pages differ each time: ten queries load at most an eighth of the file.
    for _ in 0..10 {
        fault::set("cachestat:1:1");
        let state = residency(&file, size).unwrap();
        fault::set("");
        assert_eq!(state.source, Source::Sampled);
        let resident = state.pages.resident.unwrap();
        assert!(resident < 10_000, "{resident} of 20000");
        // Wait for the reads in flight.
        for page in 0..20_000u64 {
            if cache::state(&file, page * PAGE, PAGE).unwrap().unwrap().resident > 0 {
                ioloom_sys::file::read_at(&file, &mut [0], page * PAGE).unwrap();
            }
        }
    }
}

#[test]
fn a_sampled_file_is_evicted_completely() {
    let Some(place) = Place::new() else { return };
    let path = place.write("big", 20_000 * PAGE);
    let file = File::open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    let never: Vec<_> = (1..=10).map(|call| format!("cachestat:{call}:1")).collect();
    fault::set(&never.join(","));
    let (_, after, _) = ioloom_cache::evict_file(&file, size, true).unwrap();
    fault::set("");
    assert_eq!((after.source, after.pages.resident), (Source::Sampled, Some(0)));
    let left = cache::state(&file, 0, 0).unwrap().unwrap().resident;
    // The queries loaded 256.
    assert!(left < 64, "{left} pages are left");
}

#[test]
fn a_cold_file_stays_cold_if_only_reads_can_query_it() {
    let Some(place) = Place::new() else { return };
    let path = place.write("small", 100 * PAGE);
    place.evict();
    let file = File::open(&path).unwrap();
    let never: Vec<_> = (1..=10).map(|call| format!("cachestat:{call}:1")).collect();
    fault::set(&never.join(","));
    let (before, after, incomplete) = ioloom_cache::evict_file(&file, 100 * PAGE, true).unwrap();
    fault::set("");
    assert_eq!((before.source, before.pages.resident), (Source::Pages, Some(0)));
    assert_eq!((after.pages.resident, incomplete), (Some(0), None));
    let left = cache::state(&file, 0, 0).unwrap().unwrap().resident;
    assert_eq!(left, 0, "the queries loaded pages that must be evicted again");
}

#[test]
fn files_named_twice_count_once() {
    let Some(place) = Place::new() else { return };
    let file = place.write("t/sub/f", 10 * PAGE);
    place.write("t/g", PAGE);
    let tree = place.dir.path().join("t");
    let link = place.dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let totals = |roots: &[&Path]| {
        let roots: Vec<PathBuf> = roots.iter().map(|path| path.to_path_buf()).collect();
        let report = scan(Action::Status).trees(&roots).unwrap();
        assert_eq!(report.roots.len(), 1);
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        (report.total().files, report.total().pages, report.skipped)
    };
    assert_eq!(totals(&[&file, &file]), (1, 10, 1));
    assert_eq!(totals(&[&tree]), (2, 11, 0));
    let (sub, again) = (tree.join("sub"), tree.join("sub/.."));
    for more in [&sub, &again, &file, &link, &tree] {
        assert_eq!(totals(&[&tree, more]), (2, 11, 1), "{more:?}");
        assert_eq!(totals(&[more, &tree]), (2, 11, 1), "{more:?}");
    }
    let mut list = file.as_os_str().as_encoded_bytes().to_vec();
    list.push(b'\n');
    let twice = [list.clone(), list].concat();
    let listed = scan(Action::Status).list(read_list(&twice[..], Separator::Newline));
    assert_eq!((listed.total().files, listed.skipped), (1, 1));
}

#[test]
fn a_state_that_cannot_be_queried_is_unknown() {
    let Some(place) = Place::new() else { return };
    let path = place.write("f", PAGE);
    let file = File::open(&path).unwrap();
    // EPERM from cachestat, EOPNOTSUPP from the read.
    fault::set("cachestat:1:1,preadv2:1:95");
    let state = residency(&file, PAGE).unwrap();
    fault::set("");
    assert_eq!((state.source, state.pages.resident), (Source::Unknown, None));
}

#[test]
fn each_failed_call_is_reported_and_the_others_continue() {
    let Some(place) = Place::new() else { return };
    for (op, action) in [
        ("open", Action::Status),
        ("fstat", Action::Status),
        ("cachestat", Action::Status),
        ("fadvise", Action::Drop { write: true }),
        ("sync_file_range", Action::Drop { write: true }),
        ("pread", Action::Warm),
    ] {
        let one = Scan { threads: Threads::Count(1), ..scan(action) };
        let roots = ["d/1", "d/2"].map(|name| place.dir.path().join(name));
        // The kernel may have written the pages already, in which case the call is not made; retry.
        let tries = if op == "sync_file_range" { 50 } else { 1 };
        let scanned = || {
            // ext4 writes a truncated file when it is closed.
            let _ = fs::remove_dir_all(place.dir.path().join("d"));
            place.write("d/1", PAGE);
            place.write("d/2", PAGE);
            fault::set(&format!("{op}:1:5"));
            let report = one.trees(&roots).unwrap();
            fault::set("");
            report
        };
        let mut reports = (0..tries).map(|_| scanned());
        let report = reports.find(|report| report.errors_count > 0).expect("the call must be made");
        assert_eq!(report.errors_count, 1, "{op}: {:?}", report.errors);
        assert!(report.errors[0].contains("Input/output error"), "{op}: {:?}", report.errors);
        assert_eq!(report.total().files, 1, "{op}");
    }
}

#[test]
fn memory_file_systems_keep_their_pages() {
    let Some(_alone) = Place::new() else { return };
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    fs::write(dir.path().join("f"), vec![1; 10 * PAGE as usize]).unwrap();
    let report = scan(Action::Drop { write: true }).trees(&[dir.path().to_owned()]).unwrap();
    if report.total().unknown_files > 0 {
        println!("skipped: this kernel does not identify memory file systems");
        return;
    }
    assert_eq!(report.incomplete[0].incomplete, Some(Incomplete::InMemory));
}

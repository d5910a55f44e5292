//! Plans, claims and census: whatever fails or is repeated, each shard counts once or is missing.

#![allow(missing_docs, reason = "a test")]

mod markers;

use ioloom_shard::census::census;
use ioloom_shard::part::{self, Claim, Claimed, Committed, Found, Runner, Work, name};
use ioloom_shard::plan::{Plan, PlanHeader};
use ioloom_shard::record::{Record, encode};
use ioloom_shard::summary::{Progress, Summary};
use ioloom_shard::{Invalid, Raw, ShardError};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::{fault, make};
use ioloom_walk::PathList;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fault rules are those of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    fault::set("");
    guard
}

/// A directory in memory if there is one: syncs of a disk take most of the time.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

const HOST: &str = "this";

fn header(shards: u64, created_ns: u64) -> PlanHeader {
    PlanHeader {
        shards,
        files: 0,
        directory: Raw(b"/data".to_vec()),
        roots: vec![Raw(b"a\xff".to_vec())],
        tree: None,
        selection: Vec::new(),
        subtrees: false,
        names: String::new(),
        contained: 0,
        filled: Vec::new(),
        regular: false,
        errors: Vec::new(),
        errors_count: 0,
        host: HOST.to_owned(),
        pid: std::process::id(),
        created_ns,
        version: "1".to_owned(),
    }
}

fn names(count: usize) -> PathList {
    let mut names = PathList::new();
    for i in 0..count {
        names.push(format!("dir\n{}/file {i}", i / 3).as_bytes());
    }
    names.push(b"\xff\xfe");
    names
}

fn plan(dir: &Path, shards: u64) -> Plan {
    Plan::write(&dir.join("plan"), header(shards, 1), &names(9)).unwrap()
}

fn work(compute: &str) -> Work {
    let options = BTreeMap::from([("compute".to_owned(), compute.to_owned())]);
    Work { command: "each".to_owned(), options }
}

fn runner(started_ns: u64) -> Runner {
    let (host, version) = (HOST.to_owned(), "1".to_owned());
    Runner { host, pid: std::process::id(), worker: None, version, started_ns }
}

fn found(files: u64, elapsed_ns: u64) -> Found {
    Found {
        ended_ns: elapsed_ns + 1,
        elapsed_ns,
        cpu_ns: 1,
        files,
        bytes: 10 * files,
        errors: 0,
        method: "read".to_owned(),
        limited_by: Some("device".to_owned()),
        why: None,
    }
}

fn claim(plan: &Plan, shard: u64, dir: &Path) -> Result<Claimed, ShardError> {
    let entry = plan.entry(shard, plan.header.shards).unwrap();
    Claim::take(plan, &entry, work("xxh3"), runner(1), dir, false)
}

fn run(plan: &Plan, shard: u64, dir: &Path) -> Result<bool, ShardError> {
    let entry = plan.entry(shard, plan.header.shards).unwrap();
    let record = Record::Done { bytes: 10, xxh3: Some(shard), hash: None };
    let records = vec![record; entry.files as usize];
    match claim(plan, shard, dir)? {
        Claimed::Complete(_) => Ok(false),
        Claimed::Run(claim) => {
            claim.commit(found(entry.files, 100 * shard), &encode(records.iter()), false)?;
            Ok(true)
        }
    }
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

#[test]
fn a_plan_is_read_as_written_and_splits_evenly() {
    let _alone = alone();
    let dir = scratch();
    for shards in [1, 3, 10, 13] {
        let at = dir.path().join(shards.to_string());
        let written = Plan::write(&at, header(shards, 1), &names(9)).unwrap();
        let read = Plan::read(&at).unwrap();
        assert_eq!(read.header, written.header);
        assert!(read.entries().eq(written.entries()));
        assert_eq!(read.checksum, written.checksum);
        let (least, most) = (10 / shards, 10_u64.div_ceil(shards));
        assert!(read.entries().all(|entry| (least..=most).contains(&entry.files)));
        let mut all = PathList::new();
        for entry in read.entries() {
            all.append(read.names(&entry).unwrap());
        }
        assert!(all.iter().eq(names(9).iter()));
        assert!(matches!(Plan::write(&at, header(1, 2), &names(9)), Err(ShardError::Exists(_))));
    }
}

#[test]
fn shards_outside_the_plan_are_refused() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 3);
    for (shard, of) in [(0, 3), (4, 3), (1, 2), (1, 4), (u64::MAX, 3)] {
        assert!(matches!(plan.entry(shard, of), Err(ShardError::NoShard { .. })), "{shard}/{of}");
    }
}

#[test]
fn whatever_fails_while_a_plan_is_written_nothing_remains() {
    let _alone = alone();
    let mut failures = 0;
    for op in ["make-directory", "create", "write", "sync", "sync-directory", "rename"] {
        for n in 1..=5 {
            let dir = scratch();
            fault::set(&format!("{op}:{n}:28"));
            let written = Plan::write(&dir.path().join("plan"), header(3, 1), &names(9));
            fault::set("");
            let Err(error) = written else { continue };
            failures += 1;
            let text = error.to_string();
            assert!(text.contains("No space left") && text.contains("free space"), "{text}");
            assert!(!text.contains("/plan."), "{text}");
            // The sync of the parent comes after the rename, when the plan is complete.
            if op == "sync-directory" && n == 2 {
                assert!(Plan::read(&dir.path().join("plan")).is_ok());
            } else {
                assert_eq!(entries(dir.path()), [""; 0], "{op} {n}");
            }
        }
    }
    assert!(failures >= 16, "{failures}");
}

#[test]
fn whatever_fails_while_a_part_is_written_the_shard_is_missing_or_complete() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 3);
    let mut failures = 0;
    for op in ["create", "write", "sync", "sync-directory", "renameat", "read-file"] {
        for n in 1..=3 {
            let parts = scratch();
            fault::set(&format!("{op}:{n}:5"));
            let ran = run(&plan, 2, parts.path());
            fault::set("");
            let Err(error) = ran else { continue };
            failures += 1;
            assert!(error.to_string().contains("Input/output error"), "{error}");
            assert!(!error.to_string().contains("/.part-"), "{error}");
            let census = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
            let complete = op == "sync-directory";
            assert_eq!(census.complete().count(), usize::from(complete), "{op} {n}");
            assert!(census.damaged.is_empty() && census.foreign.is_empty());
            let left = if complete { vec![name(2)] } else { vec![] };
            assert_eq!(entries(parts.path()), left, "{op} {n}");
            assert_eq!(run(&plan, 2, parts.path()).unwrap(), !complete);
        }
    }
    assert!(failures >= 8, "{failures}");
}

#[test]
fn a_shard_runs_once_and_a_damaged_part_is_replaced() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 2);
    let parts = scratch();
    assert!(run(&plan, 1, parts.path()).unwrap());
    assert!(!run(&plan, 1, parts.path()).unwrap());
    let path = parts.path().join(name(1));
    let whole = fs::read(&path).unwrap();
    let first_line = [(1, whole[0] ^ 1), (64, 0)].map(|(len, byte)| {
        let mut changed = whole.clone();
        changed[..len].fill(byte);
        changed
    });
    let cuts = [0, 1, 40, whole.len() - 1].map(|cut| whole[..cut].to_vec());
    for changed in cuts.into_iter().chain(first_line) {
        fs::write(&path, &changed).unwrap();
        let damaged = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
        assert_eq!((damaged.damaged.len(), &damaged.missing[..]), (1, &[1, 2][..]));
        assert!(run(&plan, 1, parts.path()).unwrap());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    // Perhaps a newer program wrote it.
    let mut newer = whole;
    newer["ioloom-shard-part ".len()] = b'7';
    fs::write(&path, &newer).unwrap();
    let refused = claim(&plan, 1, parts.path()).unwrap_err().to_string();
    assert!(refused.contains("it has version 7 of the format"), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), newer);
}

/// Returns the claims of two workers that run the only shard of a plan at the same time.
fn two_claims(plan: &Plan, parts: &Path) -> [Box<Claim>; 2] {
    [1, 2].map(|started_ns| {
        let entry = plan.entry(1, 1).unwrap();
        let by = runner(started_ns);
        match Claim::take(plan, &entry, work("xxh3"), by, parts, false).unwrap() {
            Claimed::Run(claim) => claim,
            Claimed::Complete(_) => panic!("not claimed"),
        }
    })
}

fn commit(claim: Box<Claim>, elapsed_ns: u64, redo: bool) -> Result<Committed, ShardError> {
    let records = vec![Record::Done { bytes: 1, xxh3: None, hash: None }; 10];
    claim.commit(found(10, elapsed_ns), &encode(records.iter()), redo)
}

/// Returns when the worker started that wrote the part.
fn winner(parts: &Path) -> u64 {
    assert_eq!(entries(parts), [name(1)]);
    part::read(&parts.join(name(1))).unwrap().header.by.started_ns
}

/// Runs `meanwhile` before the call number `n` of `op`.
fn interleave(op: &'static str, n: u64, meanwhile: impl FnOnce() + Send + 'static) {
    let state = Mutex::new((n, Some(meanwhile)));
    fault::before_each(Some(Box::new(move |called| {
        // Calls of `meanwhile` find the lock taken.
        let Ok(mut state) = state.try_lock() else { return };
        if called == op && state.0 > 0 {
            state.0 -= 1;
            if state.0 == 0 {
                state.1.take().unwrap()();
            }
        }
    })));
}

#[test]
fn the_first_of_two_workers_counts() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    for redo in [false, true] {
        let parts = scratch();
        let [slow, fast] = two_claims(&plan, parts.path());
        assert!(matches!(commit(fast, 1, false), Ok(Committed::Counted(_))));
        match commit(slow, 99, redo).unwrap() {
            Committed::Late(kept) if !redo => assert_eq!(kept.header.found.elapsed_ns, 1),
            Committed::Counted(mine) if redo => assert_eq!(mine.found.elapsed_ns, 99),
            other => panic!("{other:?}"),
        }
        assert_eq!(winner(parts.path()), if redo { 1 } else { 2 });
    }
}

#[test]
fn a_plan_that_is_interrupted_leaves_nothing() {
    let _alone = alone();
    let dir = scratch();
    let (at, stop) = (dir.path().join("plan"), AtomicBool::new(true));
    let written = Plan::write_unless(&stop, &at, header(3, 1), &names(9));
    assert!(matches!(written, Err(ShardError::Interrupted(_))), "{written:?}");
    assert!(entries(dir.path()).is_empty());
}

#[test]
fn the_first_of_two_plans_in_a_directory_remains() {
    let _alone = alone();
    let dir = scratch();
    let at = dir.path().join("plan");
    let other = at.clone();
    interleave("rename", 1, move || {
        Plan::write(&other, header(2, 2), &names(9)).unwrap();
    });
    let late = Plan::write(&at, header(3, 1), &names(9));
    fault::before_each(None);
    assert!(matches!(late, Err(ShardError::Exists(_))), "{late:?}");
    assert_eq!(Plan::read(&at).unwrap().header.shards, 2);
    assert_eq!(entries(dir.path()), ["plan"]);
}

/// Another worker commits between any two calls of a commit, with a free name or a damaged part, and
/// with or without renames that replace nothing: one result counts, the part is that one, and the
/// worker whose result was discarded knows it.
#[test]
fn two_commits_at_the_same_time_count_once() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let (mut counted, mut late) = (0, 0);
    // EINVAL: what NFS answers to a rename that must not replace.
    for rules in ["", "renameat:1:22,renameat:2:22,renameat:3:22,renameat:4:22"] {
        for damaged in [false, true] {
            for op in [
                "create",
                "write",
                "sync",
                "renameat",
                "linkat",
                "read-file",
                "rename",
                "unlink",
                "sync-directory",
            ] {
                for n in 1..=2 {
                    let parts = scratch();
                    let [slow, fast] = two_claims(&plan, parts.path());
                    if damaged {
                        fs::write(parts.path().join(name(1)), "ioloom-shard-part 1 ").unwrap();
                    }
                    let other = Arc::new(Mutex::new(None));
                    let set = Arc::clone(&other);
                    fault::set(rules);
                    interleave(op, n, move || *set.lock().unwrap() = Some(commit(fast, 2, false)));
                    let mine = commit(slow, 1, false).unwrap();
                    fault::before_each(None);
                    fault::set("");
                    let other = other.lock().unwrap().take();
                    let case = format!("{rules} {damaged} {op} {n}");
                    let first = winner(parts.path());
                    match (mine, other.map(Result::unwrap)) {
                        (Committed::Counted(_), None) => assert_eq!(first, 1, "{case}"),
                        (Committed::Counted(_), Some(Committed::Late(kept))) => {
                            assert_eq!((first, kept.header.by.started_ns), (1, 1), "{case}");
                            counted += 1;
                        }
                        (Committed::Late(kept), Some(Committed::Counted(_))) => {
                            assert_eq!((first, kept.header.by.started_ns), (2, 2), "{case}");
                            late += 1;
                        }
                        other => panic!("{case}: {other:?}"),
                    }
                }
            }
        }
    }
    assert!(counted >= 4 && late >= 20, "{counted} {late}");
}

/// They would be waited for, read without end, or replaced after the work.
#[test]
fn parts_that_are_no_regular_files_are_refused_before_the_work() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let path = parts.path().join(name(1));
    let refused = |words: &str| {
        let errors = [
            claim(&plan, 1, parts.path()).unwrap_err(),
            census(&plan, &[parts.path().to_owned()], HOST).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(entries(parts.path()), [name(1)]);
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
    };
    let at = Dir::open(parts.path()).unwrap();
    let pipe = CString::new(name(1)).unwrap();
    make::node(&at, &pipe, Kind::Fifo, 0o600, (0, 0)).unwrap();
    refused("a named pipe, not a regular file");
    fs::create_dir(&path).unwrap();
    refused("a directory, not a regular file");
    symlink("/dev/zero", &path).unwrap();
    refused("not a regular file");
    symlink("missing", &path).unwrap();
    refused("a symbolic link to a file that does not exist");
    // A link to a valid part is a part.
    assert!(run(&plan, 1, parts.path()).unwrap());
    fs::rename(&path, parts.path().join("kept")).unwrap();
    symlink("kept", &path).unwrap();
    assert!(!run(&plan, 1, parts.path()).unwrap());
}

#[test]
fn a_manifest_that_is_damaged_or_missing_is_one_error_with_advice() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 2);
    let entry = plan.entry(2, 2).unwrap();
    let path = dir.path().join("plan").join(&entry.manifest);
    let whole = fs::read(&path).unwrap();
    let refused = || plan.names(&entry).unwrap_err().to_string();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(refused().contains("it is damaged") && refused().contains("new plan"), "{cut}");
    }
    fs::write(&path, "another file").unwrap();
    assert!(refused().contains("is not the manifest of") && refused().contains("or plan again"));
    fs::remove_file(&path).unwrap();
    assert!(refused().contains("No such file") && refused().contains("or plan again"));
}

#[test]
fn a_part_of_another_plan_or_work_is_neither_counted_nor_replaced() {
    let _alone = alone();
    let dir = scratch();
    let first = plan(dir.path(), 2);
    let other = Plan::write(&dir.path().join("other"), header(2, 2), &names(9)).unwrap();
    let parts = scratch();
    run(&first, 1, parts.path()).unwrap();
    let reason = |error: ShardError| match error {
        ShardError::Invalid { reason, .. } => reason,
        error => panic!("{error}"),
    };
    let refused = reason(claim(&other, 1, parts.path()).unwrap_err());
    assert!(matches!(refused, Invalid::OtherPlan(_)), "{refused}");
    let entry = first.entry(1, 2).unwrap();
    let refused = Claim::take(&first, &entry, work("md5"), runner(1), parts.path(), true);
    let refused = reason(refused.unwrap_err());
    assert!(matches!(refused, Invalid::OtherWork { .. }), "{refused}");
    let found = census(&other, &[parts.path().to_owned()], HOST).unwrap();
    assert_eq!((found.foreign.len(), &found.missing[..]), (1, &[1, 2][..]));
    // A part under the name of another shard is that of its own shard.
    fs::rename(parts.path().join(name(1)), parts.path().join(name(2))).unwrap();
    let moved = census(&first, &[parts.path().to_owned()], HOST).unwrap();
    assert_eq!(moved.missing, [2]);
    assert!(claim(&first, 2, parts.path()).is_err());
}

#[test]
fn parts_in_two_directories_are_double_and_one_directory_twice_is_not() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 2);
    let (a, b) = (scratch(), scratch());
    run(&plan, 1, a.path()).unwrap();
    run(&plan, 2, b.path()).unwrap();
    let places = |paths: &[&Path]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let all = census(&plan, &places(&[a.path(), b.path(), a.path()]), HOST).unwrap();
    assert!(all.is_complete(), "{all:?}");
    let summary = Summary::of(&all);
    assert_eq!((summary.files, summary.bytes, summary.slowest[0].0), (10, 100, 2));
    assert_eq!(summary.hosts.len(), 1);
    assert_eq!(summary.hosts[0].limited_by.as_deref(), Some("device"));
    run(&plan, 1, b.path()).unwrap();
    let all = census(&plan, &places(&[a.path(), b.path()]), HOST).unwrap();
    assert_eq!((all.double.len(), all.double[0].0, all.missing.len()), (1, 1, 0));
    assert!(!all.is_complete() && all.parts[0].is_none());
}

#[test]
fn begun_shards_are_running_or_killed() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 4);
    let parts = scratch();
    run(&plan, 1, parts.path()).unwrap();
    let Claimed::Run(running) = claim(&plan, 2, parts.path()).unwrap() else {
        panic!("not claimed")
    };
    // No process has this number.
    let dead = Runner { pid: u32::MAX, ..runner(7) };
    let entry = plan.entry(3, 4).unwrap();
    let dead = Claim::take(&plan, &entry, work("xxh3"), dead, parts.path(), false).unwrap();
    let Claimed::Run(dead) = dead else { panic!("not claimed") };
    std::mem::forget(dead);
    // It was killed while it wrote its part.
    let new = format!(".{}.{HOST}.{}.7.new", name(3), u32::MAX);
    fs::write(parts.path().join(new), "ioloom-shard-part 1").unwrap();
    let all = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
    let begun: Vec<_> = all.unfinished.iter().map(|b| (b.shard, b.ended)).collect();
    assert_eq!(begun, [(2, false), (3, true)]);
    let summary = Summary::of(&all);
    let progress = Progress::of(&all, &summary, 10, 1_000_001);
    assert_eq!(progress.stragglers, [2]);
    assert!(progress.eta_ns.is_some_and(|ns| ns > 0), "{progress:?}");
    drop(running);
    // The next run of the killed shard removes what was left.
    assert!(run(&plan, 3, parts.path()).unwrap());
    assert_eq!(entries(parts.path()), [name(1), name(3)]);
    let all = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
    let progress = Progress::of(&all, &Summary::of(&all), 10, 1_000_001);
    assert_eq!((progress.eta_ns, progress.stragglers.len()), (None, 0));
}

#[test]
fn a_process_is_known_by_its_namespace_its_start_and_its_number() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let Claimed::Run(claim) = claim(&plan, 1, parts.path()).unwrap() else { panic!("not claimed") };
    let marker = parts.path().join(format!(".{}.{HOST}", name(1)));
    let written: serde_json::Value = serde_json::from_slice(&fs::read(&marker).unwrap()).unwrap();
    let has_ended = |field: &str, value: serde_json::Value| {
        let mut changed = written.clone();
        changed[field] = value;
        fs::write(&marker, changed.to_string()).unwrap();
        census(&plan, &[parts.path().to_owned()], HOST).unwrap().unfinished[0].ended
    };
    assert!(!has_ended("shard", 1.into()));
    // The number is that of this process, which is another one.
    assert!(has_ended("start_ticks", 1.into()));
    assert!(has_ended("boot", "another".into()));
    let mut elsewhere = written["by"].clone();
    elsewhere["pid"] = u32::MAX.into();
    assert!(has_ended("by", elsewhere));
    assert!(!has_ended("namespace", "pid:[1]".into()));
    drop(claim);
}

#[test]
fn a_complete_shard_that_another_worker_still_runs_is_named() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let [slow, fast] = two_claims(&plan, parts.path());
    assert!(matches!(commit(fast, 1, false), Ok(Committed::Counted(_))));
    let places = [parts.path().to_owned()];
    let all = census(&plan, &places, HOST).unwrap();
    assert!(all.is_complete() && all.unfinished.is_empty());
    assert_eq!(all.superseded.iter().map(|begun| begun.shard).collect::<Vec<_>>(), [1]);
    let marker = parts.path().join(format!(".{}.{HOST}", name(1)));
    assert_eq!(all.superseded[0].marker, marker);
    // Parts that are named by themselves are in the directory of the marker, which counts once.
    let files = [parts.path().join(name(1)), parts.path().to_owned()];
    for places in [&files[..1], &files[..]] {
        let all = census(&plan, places, HOST).unwrap();
        assert_eq!(all.superseded.iter().map(|begun| &begun.marker).collect::<Vec<_>>(), [&marker]);
    }
    drop(slow);
    assert!(census(&plan, &places, HOST).unwrap().superseded.is_empty());
}

#[test]
fn a_second_worker_of_a_host_has_a_marker_of_its_own() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let [first, second] = two_claims(&plan, parts.path());
    assert!(matches!(commit(first, 1, false), Ok(Committed::Counted(_))));
    let all = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
    assert_eq!(all.superseded.iter().map(|begun| begun.by.started_ns).collect::<Vec<_>>(), [2]);
    drop(second);
    assert_eq!(entries(parts.path()), [name(1)]);
}

#[test]
fn a_damaged_part_is_moved_by_one_of_two_workers() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let (at, moved) = (parts.path().join(name(1)), parts.path().join("moved"));
    fs::write(&at, "not a part").unwrap();
    let (from, to) = (at.clone(), moved.clone());
    interleave("renameat", 1, move || fs::rename(from, to).unwrap());
    let entry = plan.entry(1, 1).unwrap();
    let claimed = Claim::take(&plan, &entry, work("xxh3"), runner(1), parts.path(), true);
    fault::before_each(None);
    assert!(moved.exists());
    let Claimed::Run(claim) = claimed.unwrap() else { panic!("not claimed") };
    assert!(claim.moved.is_none());
}

#[test]
fn the_marker_of_the_worker_that_wrote_the_part_is_over() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let Claimed::Run(claim) = claim(&plan, 1, parts.path()).unwrap() else { panic!("not claimed") };
    let marker = parts.path().join(format!(".{}.{HOST}", name(1)));
    let kept = fs::read(&marker).unwrap();
    assert!(matches!(commit(claim, 1, false), Ok(Committed::Counted(_))));
    // It was killed before it had removed its marker, and whether it runs is unknown on another host.
    fs::write(&marker, kept).unwrap();
    let all = census(&plan, &[parts.path().to_owned()], "another").unwrap();
    assert!(all.is_complete() && all.superseded.is_empty(), "{all:?}");
}

#[test]
fn shards_that_overlap_are_of_different_workers() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 3);
    let parts = scratch();
    for (shard, start, end) in [(1, 10, 20), (2, 15, 30), (3, 20, 25)] {
        let entry = plan.entry(shard, 3).unwrap();
        let claimed = Claim::take(&plan, &entry, work("xxh3"), runner(start), parts.path(), false);
        let Claimed::Run(claim) = claimed.unwrap() else { panic!("not claimed") };
        // The clock was set back meanwhile, so only the duration shows the end.
        claim.commit(Found { ended_ns: 1, ..found(1, end - start) }, b"", false).unwrap();
    }
    let all = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
    let lanes: Vec<Vec<u64>> = Summary::of(&all)
        .timeline
        .iter()
        .map(|lane| lane.shards.iter().map(|span| span.shard).collect())
        .collect();
    assert_eq!(lanes, [vec![1, 3], vec![2]]);
    assert_eq!(Summary::of(&all).elapsed_ns, 20);
}

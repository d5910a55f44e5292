//! Uploads to a server in this process, with and without faults and kills.

use ioloom_bucket::{BUCKET, Contents, Fault, First, Law, Server, Target};
use ioloom_objects::{Location, Options, Store, Uploaded, upload};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn send(server: &Server, from: &Path, url: &str, records: &Path) -> Uploaded {
    let store = Store::with_variables(Location::parse(url).unwrap(), server.environment()).unwrap();
    let retry_pause = Duration::from_millis(2);
    let options = Options { memory: 32 << 20, retry_pause, ..Options::default() };
    upload(&store, from, records, &options).unwrap()
}

/// Bytes that repeat after a prime number, so that no two parts are the same.
fn contents(len: usize) -> Vec<u8> {
    let block: Vec<u8> =
        (0..65_521usize).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut all = block.repeat(len.div_ceil(block.len()));
    all.truncate(len);
    all
}

/// A tree with an empty, small and large files, and a place for records.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("tree/sub dir/deep")).unwrap();
    for (name, len) in
        [("empty", 0), ("a%2F+b", 5000), ("sub dir/deep/one", 1), ("sub dir/large", (20 << 20) + 7)]
    {
        std::fs::write(dir.path().join("tree").join(name), contents(len)).unwrap();
    }
    dir
}

fn records_left(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("records")).map(|all| all.count()).unwrap_or(0)
}

/// Returns whether a record was written. One that exists can still be empty.
fn record_is_written(dir: &Path) -> bool {
    let Ok(records) = std::fs::read_dir(dir.join("records")) else { return false };
    let mut texts = records.flatten().filter_map(|record| std::fs::read(record.path()).ok());
    texts.any(|text| text.ends_with(b"\n"))
}

#[test]
fn a_tree_becomes_objects_despite_faults() {
    let cases = [
        (1, Vec::new()),
        (2, vec![(Fault::Reset, 0.1), (Fault::Busy, 0.1), (Fault::Broken, 0.1)]),
        (3, vec![(Fault::Reset, 0.1), (Fault::Busy, 0.1), (Fault::Broken, 0.1)]),
    ];
    for_each(&cases, |(seed, faults)| {
        let (seed, faults) = (*seed, faults.clone());
        let dir = tree();
        let server = Server::start(Law { seed, faults, ..Law::default() });
        let from = dir.path().join("tree");
        let done = send(&server, &from, "s3://bucket/to", &dir.path().join("records"));
        assert_eq!((done.failed, &done.errors[..]), (0, &[][..]));
        assert_eq!((done.files, done.verified, done.length_only), (4, 4, 0));
        assert_eq!(done.bytes, 5001 + (20 << 20) + 7);
        let keys = ["a%2F+b", "empty", "sub dir/deep/one", "sub dir/large"];
        assert_eq!(server.keys(), keys.map(|key| format!("to/{key}")));
        for key in keys {
            let found = server.get(&format!("to/{key}")).unwrap();
            assert!(found == std::fs::read(from.join(key)).unwrap(), "{key}");
        }
        assert_eq!((server.open_uploads(), records_left(dir.path())), (0, 0));
    });
}

#[test]
fn an_upload_ends_when_the_server_refuses_every_request() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("tree");
    std::fs::create_dir(&from).unwrap();
    (0..200).for_each(|number| std::fs::write(from.join(number.to_string()), "x").unwrap());
    let first = vec![First::new(Target::Write, Fault::Busy, u64::MAX)];
    let server = Server::start(Law { first, ..Law::default() });
    let location = Location::parse("s3://bucket/to").unwrap();
    let store = Store::with_variables(location, server.environment()).unwrap();
    let (outage, retry_pause) = (Duration::ZERO, Duration::from_millis(2));
    let options = Options { outage, retry_pause, ..Options::default() };
    let done = upload(&store, &from, &dir.path().join("records"), &options).unwrap();
    assert!(done.gave_up && !done.cancelled && done.files == 0, "{done:?}");
    assert!((1..100).contains(&done.failed), "{done:?}");
    let ended = done.errors.iter().filter(|error| error.contains("refused every request"));
    assert_eq!(ended.count(), 1, "{done:?}");
}

#[test]
fn a_file_gets_the_name_of_the_location_or_its_own() {
    let (server, dir) = (Server::start(Law::default()), tree());
    let (file, records) = (dir.path().join("tree/empty"), dir.path().join("records"));
    for url in ["s3://bucket/x/y", "s3://bucket/z/", "s3://bucket"] {
        assert_eq!(send(&server, &file, url, &records).verified, 1);
    }
    assert_eq!(server.keys(), ["empty", "x/y", "z/empty"]);
}

#[test]
fn files_that_cannot_be_objects_are_one_error_each() {
    use std::os::unix::ffi::OsStrExt;
    let (server, dir) = (Server::start(Law::default()), tempfile::tempdir().unwrap());
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink("/etc", tree.join("link")).unwrap();
    for name in [&b"new\nline"[..], b"\xff", b"good"] {
        std::fs::write(tree.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let done = send(&server, &tree, "s3://bucket/t", dir.path());
    assert_eq!((done.files, done.failed), (1, 3), "{:?}", done.errors);
    for words in ["a symbolic link", "control characters", "not UTF-8"] {
        assert_eq!(done.errors.iter().filter(|error| error.contains(words)).count(), 1, "{words}");
    }
    assert_eq!(server.keys(), ["t/good"]);
    let done = send(&server, &tree.join("none"), "s3://bucket/t", dir.path());
    assert!(done.errors[0].contains("cannot stat") && done.failed == 1, "{:?}", done.errors);
    for (url, words) in [("s3://denied/x", "s3:PutObject"), ("s3://nosuch/x", "bucket")] {
        let done = send(&server, &tree.join("good"), url, dir.path());
        assert_eq!((done.files, done.failed), (0, 1));
        assert!(done.errors[0].contains(words), "{:?}", done.errors);
    }
}

/// Files of /proc have contents, and their size is 0.
#[test]
fn a_file_that_is_longer_than_its_size_is_an_error() {
    let (server, dir) = (Server::start(Law::default()), tempfile::tempdir().unwrap());
    let done = send(&server, Path::new("/proc/self/status"), "s3://bucket/x", dir.path());
    assert_eq!((done.files, done.failed), (0, 1), "{:?}", done.errors);
    assert!(done.errors[0].contains("longer than its size of 0 bytes"), "{:?}", done.errors);
    assert!(server.keys().is_empty());
}

/// A permission can be missing for one key, or for all.
#[test]
fn refused_files_end_the_run_only_if_all_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    (0..40).for_each(|i| std::fs::write(tree.join(format!("f{i}")), "x").unwrap());
    for (refused, files) in [(1, 39), (7, 33), (u64::MAX, 0)] {
        let first = vec![First::new(Target::Write, Fault::Denied, refused)];
        let server = Server::start(Law { first, ..Law::default() });
        let done = send(&server, &tree, "s3://bucket/t", &dir.path().join("records"));
        assert_eq!((done.files, done.gave_up), (files, files == 0), "{:?}", done.errors);
        let failed = if files == 0 { 1 } else { refused };
        assert_eq!((done.failed, done.errors.len() as u64), (failed, failed));
        assert!(done.errors.iter().all(|error| error.contains("s3:PutObject")));
    }
    // All are refused, and none is left untried.
    (3..40).for_each(|i| std::fs::remove_file(tree.join(format!("f{i}"))).unwrap());
    let first = vec![First::new(Target::Write, Fault::Denied, u64::MAX)];
    let server = Server::start(Law { first, ..Law::default() });
    let done = send(&server, &tree, "s3://bucket/t", &dir.path().join("records"));
    assert_eq!((done.failed, done.errors.len(), done.gave_up), (3, 1, false), "{:?}", done.errors);
}

/// Runs the test `uploads_forever` in another process, and kills it after its first record. Returns
/// nothing if the upload has ended before.
fn killed_upload(latency: Duration) -> Option<(Server, tempfile::TempDir)> {
    let law = Law { latency: (latency, 0.0), ..Law::default() };
    let (server, dir) = (Server::start(law), tree());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "uploads_forever", "--ignored"]).env("UPLOAD_FROM", dir.path());
    let mut child = child.envs(server.environment()).spawn().unwrap();
    let mut is_running = true;
    while is_running && (server.open_uploads() == 0 || !record_is_written(dir.path())) {
        is_running = child.try_wait().unwrap().is_none();
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait().unwrap();
    // Requests that the server has read are still carried out.
    std::thread::sleep(latency * 2);
    let is_left = is_running && server.open_uploads() == 1 && server.get(LARGE).is_none();
    is_left.then_some((server, dir))
}

/// The key of the file that is sent in parts.
const LARGE: &str = "to/sub dir/large";

#[test]
fn the_next_run_aborts_what_a_kill_left() {
    // A longer latency leaves more time to kill it.
    let mut latencies = [200, 1000, 4000].into_iter().map(Duration::from_millis);
    let (server, dir) = latencies.find_map(killed_upload).expect("an upload that is killed");
    assert_eq!((server.open_uploads(), server.get(LARGE)), (1, None));
    // Neither is below the location, although the URL of the first one begins with that of the second.
    let small = dir.path().join("tree/empty");
    for url in ["s3://bucket/t", "s3://bucket/to/sub"] {
        let done = send(&server, &small, url, &dir.path().join("records"));
        assert_eq!((done.aborted, done.verified, server.open_uploads()), (0, 1, 1), "{url}");
    }
    let large = dir.path().join("tree/sub dir/large");
    let done = send(&server, &large, "s3://bucket/to/", &dir.path().join("records"));
    assert_eq!((done.aborted, done.verified, done.failed), (1, 1, 0), "{:?}", done.errors);
    assert_eq!((server.open_uploads(), records_left(dir.path())), (0, 0));
}

/// Another server at the address, or a store without the bucket, does not know whether the upload exists.
#[test]
fn only_the_answer_that_an_upload_does_not_exist_removes_its_record() {
    for (fault, words) in [
        (Fault::NotFound, "the server answered with status 404"),
        (Fault::NoBucket, "The specified bucket does not exist (NoSuchBucket)"),
    ] {
        let (dir, file) = (tempfile::tempdir().unwrap(), "file");
        let [small, large] = [1, 9 << 20].map(|len| {
            let path = dir.path().join(format!("{file}-{len}"));
            std::fs::write(&path, contents(len)).unwrap();
            path
        });
        let first =
            vec![First::new(Target::Part, Fault::Denied, 2), First::new(Target::Abort, fault, 2)];
        let server = Server::start(Law { first, ..Law::default() });
        let records = dir.path().join("records");
        let done = send(&server, &large, "s3://bucket/to/", &records);
        assert_eq!((done.failed, server.open_uploads()), (1, 1), "{done:?}");
        assert_eq!(records_left(dir.path()), 1, "{fault:?}");
        // The next run reports it, and keeps the record.
        let done = send(&server, &small, "s3://bucket/to/", &records);
        assert_eq!((done.aborted, done.failed, done.verified), (0, 1, 1), "{done:?}");
        assert!(done.errors[0].starts_with("cannot abort the upload of 's3://"), "{done:?}");
        assert!(done.errors[0].contains(words), "{done:?}");
        assert_eq!((server.open_uploads(), records_left(dir.path())), (1, 1), "{fault:?}");
        let done = send(&server, &small, "s3://bucket/to/", &records);
        assert_eq!((done.aborted, done.failed), (1, 0), "{done:?}");
        assert_eq!((server.open_uploads(), records_left(dir.path())), (0, 0), "{fault:?}");
    }
}

#[test]
#[ignore = "started and killed by another test"]
fn uploads_forever() {
    let dir = std::env::var_os("UPLOAD_FROM").unwrap();
    let dir = Path::new(&dir);
    let location = Location::parse(&format!("s3://{BUCKET}/to")).unwrap();
    let store = Store::open(location).unwrap();
    let _ = upload(&store, &dir.join("tree"), &dir.join("records"), &Options::default());
}

/// Stops a run when its upload in parts has begun. Returns whether it was stopped before its end and
/// left nothing.
fn stops_an_upload(latency: Duration) -> bool {
    let latency = (latency, 0.0);
    let (server, dir) = (Server::start(Law { latency, ..Law::default() }), tree());
    let location = Location::parse("s3://bucket/to").unwrap();
    let store = Store::with_variables(location, server.environment()).unwrap();
    let (stop, has_ended) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.open_uploads() == 0 && !has_ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let options = Options { stop: stop.clone(), memory: 8 << 20, ..Options::default() };
        let (from, records) = (dir.path().join("tree"), dir.path().join("records"));
        let done = upload(&store, &from, &records, &options);
        has_ended.store(true, Ordering::Relaxed);
        done.unwrap()
    });
    assert_eq!(done.failed, 0, "{done:?}");
    // A server that is silent for seconds is not waited for, so the abort can take too long as well.
    let is_clean = (server.open_uploads(), records_left(dir.path())) == (0, 0);
    if !is_clean || server.get(LARGE).is_some() {
        return false;
    }
    assert!(done.cancelled, "{done:?}");
    assert!(done.bytes <= 5001, "the stopped file counts: {done:?}");
    true
}

#[test]
fn a_stopped_run_aborts_its_uploads() {
    // A longer latency leaves more time to stop it.
    let mut latencies = [50, 50, 500, 1500].into_iter().map(Duration::from_millis);
    assert!(latencies.any(stops_an_upload), "no run was stopped and cleaned up");
}

/// A file that is sent in parts, and one that is sent whole.
const FILES: [(&str, usize); 2] = [("large", (8 << 20) + 5), ("small", 70_000)];

/// Sends both files to a server with these faults. Returns what happened, and whether each object is
/// the file.
fn send_with(first: Vec<First>) -> (Uploaded, [Option<bool>; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for (name, len) in FILES {
        std::fs::write(from.join(name), contents(len)).unwrap();
    }
    let server = Server::start(Law { first, ..Law::default() });
    let done = send(&server, &from, "s3://bucket/to", &dir.path().join("records"));
    assert_eq!(records_left(dir.path()), 0);
    let objects = FILES
        .map(|(name, len)| server.get(&format!("to/{name}")).map(|found| found == contents(len)));
    (done, objects)
}

#[test]
fn every_kind_of_request_is_repeated() {
    use Target::{Begin, Complete, Part, Write};
    let all = [Begin, Part, Complete, Write];
    let cases = [
        (Fault::Reset, &all[..]),
        (Fault::Busy, &all),
        (Fault::Broken, &all),
        (Fault::Unanswered, &all),
        (Fault::Slow, &all),
        // Only completions answer with a status of 200 before they are done.
        (Fault::LateError, &[Complete]),
    ];
    for_each(&cases, |&(fault, targets)| {
        let first = targets.iter().map(|target| First::new(*target, fault, 2)).collect();
        let (done, objects) = send_with(first);
        assert_eq!((done.verified, done.failed), (2, 0), "{fault:?}: {done:?}");
        assert_eq!(objects, [Some(true); 2], "{fault:?}");
        let repeats = if fault == Fault::Slow { 0 } else { 2 * targets.len() as u64 };
        assert!(done.requests.repeated >= repeats, "{fault:?}: {done:?}");
    });
}

/// Runs a test for each case at the same time: repeated requests wait.
fn for_each<T: Sync>(cases: &[T], test: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| test(case));
        }
    });
}

#[test]
fn requests_that_always_fail_are_one_error_and_leave_no_object() {
    let cases = [
        (Target::Write, Fault::Busy, 1),
        (Target::Begin, Fault::Reset, 0),
        (Target::Part, Fault::Broken, 0),
        (Target::Complete, Fault::LateError, 0),
        (Target::Complete, Fault::Reset, 0),
    ];
    for_each(&cases, |&(target, fault, lost)| {
        let (done, objects) = send_with(vec![First::new(target, fault, u64::MAX)]);
        let case = format!("{target:?} {fault:?}: {done:?}");
        assert_eq!((done.verified, done.failed), (1, 1), "{case}");
        let mut expected = [Some(true); 2];
        expected[lost] = None;
        assert_eq!(objects, expected, "{case}");
        assert!(done.errors[0].contains("(after 8 attempts)"), "{case}");
    });
}

#[test]
fn an_upload_whose_answers_are_lost_is_a_success() {
    // The completion is carried out once; every repetition finds no upload.
    for_each(&[Target::Complete, Target::Write], |&target| {
        let (done, objects) = send_with(vec![First::new(target, Fault::Unanswered, u64::MAX)]);
        assert_eq!((done.verified, done.failed), (2, 0), "{target:?} {done:?}");
        assert_eq!(objects, [Some(true); 2]);
    });
}

#[test]
fn an_object_that_was_there_before_is_no_proof_of_success() {
    let dir = tempfile::tempdir().unwrap();
    let (file, bytes) = (dir.path().join("file"), contents((9 << 20) + 1));
    std::fs::write(&file, &bytes).unwrap();
    let mut old = bytes.clone();
    old[1 << 20] ^= 1;
    for_each(&[(old, false), (bytes, true)], |(before, succeeds)| {
        let succeeds = *succeeds;
        let first = vec![First::new(Target::Complete, Fault::Reset, u64::MAX)];
        let server = Server::start(Law { first, ..Law::default() });
        server.put("file", Contents::from(before.clone()).with_version("some version"));
        let records = dir.path().join(format!("records {succeeds}"));
        let done = send(&server, &file, "s3://bucket/", &records);
        assert_eq!((done.verified, done.failed == 0), (u64::from(succeeds), succeeds), "{done:?}");
        assert!(server.get("file").unwrap() == *before);
        assert_eq!((server.open_uploads(), std::fs::read_dir(&records).unwrap().count()), (0, 0));
    });
}

#[test]
fn an_object_that_is_not_the_file_is_a_failure() {
    for (target, words) in [(Target::Write, "35000 bytes"), (Target::Part, "bytes")] {
        let (done, _) = send_with(vec![First::new(target, Fault::HalfStored, 1)]);
        assert_eq!((done.verified, done.failed), (1, 1), "{done:?}");
        assert!(done.errors[0].starts_with("cannot verify 's3://bucket/to/"), "{done:?}");
        assert!(done.errors[0].contains(words), "{done:?}");
    }
}

#[test]
fn uploads_keep_to_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for number in 0..400 {
        std::fs::write(from.join(format!("{number}")), "contents").unwrap();
    }
    // A busy machine may not reach a high limit, and repeats more requests after a pause.
    let keeps = [300.0, 300.0, 150.0, 75.0].into_iter().any(|cap_per_s| {
        let server = Server::start(Law { cap_per_s, burst: cap_per_s / 10.0, ..Law::default() });
        let done = send(&server, &from, "s3://bucket/to", dir.path());
        assert_eq!((done.verified, done.failed), (400, 0), "{done:?}");
        let counts = server.counts();
        assert_eq!(done.requests.refused, counts.refused);
        // Without a pace, hundreds of requests in flight are repeated until they are admitted.
        (1..200).contains(&counts.refused)
    });
    assert!(keeps, "no limit was reached and kept");
}

/// The client of HTTP takes the time in which it sends the contents for silence of the server.
#[test]
#[ignore = "takes half a minute"]
fn a_line_on_which_a_part_takes_longer_than_the_silence_fails_no_upload() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, contents(9 << 20)).unwrap();
    let law = Law { receives_slowly: Duration::from_secs(3), ..Law::default() };
    let server = Server::start(law);
    let done = send(&server, &file, "s3://bucket/to", &dir.path().join("records"));
    assert_eq!((done.verified, done.failed, done.requests.repeated), (1, 0, 0), "{done:?}");
}

//! Runs over objects of a server in this process, with and without faults.

use ioloom_bucket::{BUCKET, Contents, DENIED, Fault, First, Law, Server, Target, pattern};
use ioloom_objects::{
    Kind, Location, Mapped, ObjectError, Options, Piece, Place, Store, Work, WorkError, download,
    list, objects, run,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn store(server: &Server, url: &str) -> Store {
    Store::with_variables(Location::parse(url).unwrap(), server.environment()).unwrap()
}

/// Bytes that differ between objects and positions.
fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn filled(law: Law, count: u64, len: impl Fn(u64) -> usize) -> (Server, BTreeMap<String, Vec<u8>>) {
    let server = Server::start(law);
    let mut all = BTreeMap::new();
    for number in 0..count {
        let key = format!("dir/sub {}/object+{number:04}", number % 3);
        let bytes = contents(number, len(number));
        server.put(&key, bytes.clone());
        all.insert(format!("s3://{BUCKET}/{key}"), bytes);
    }
    (server, all)
}

/// Repeats failed requests soon: the pauses themselves have tests of their own.
fn small() -> Options<'static> {
    let retry_pause = Duration::from_millis(2);
    Options { memory: 1 << 20, threads: 2, retry_pause, ..Options::default() }
}

fn read(store: &Store, options: &Options<'_>) -> Mapped<Vec<u8>> {
    objects(store, options, |object| object.bytes().to_vec()).unwrap()
}

fn only_error(mapped: &Mapped<Vec<u8>>) -> &ObjectError {
    assert_eq!(mapped.errors.len(), 1, "{:?}", mapped.errors);
    &mapped.errors[0]
}

#[test]
fn every_object_is_read_once_in_order() {
    let law = Law { page: 7, ..Law::default() };
    let (server, all) = filled(law, 50, |number| [0, 1, 4096, 70_000][number as usize % 4]);
    server.put("other/x", "not listed");
    server.put("dirt", "not below dir/");
    let mapped = read(&store(&server, "s3://bucket/dir"), &small());
    assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
    let found: Vec<_> = mapped.values.iter().map(|(url, _)| url).collect();
    assert!(found.iter().copied().eq(all.keys()), "{found:?}");
    assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), all);
    let measured = mapped.run.measured;
    assert_eq!(measured.files, 50);
    assert_eq!(measured.bytes, all.values().map(|bytes| bytes.len() as u64).sum::<u64>());
    assert!(measured.budget_peak_bytes <= 1 << 20, "{}", measured.budget_peak_bytes);
}

#[test]
fn ranges_of_large_objects_arrive_whole_within_the_budget() {
    let (server, all) = filled(Law::default(), 6, |number| 150_000 + 7919 * number as usize);
    let options = Options { memory: 1 << 20, threads: 2, ..Options::default() };
    // A quarter of the budget is more than an object; an eighth is less, so there are ranges.
    let mapped = read(&store(&server, "s3://bucket/dir/"), &options);
    assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), all);
    assert!(mapped.run.requests.sent >= 12, "{:?}", mapped.run.requests);
    assert!(mapped.run.measured.budget_peak_bytes <= 1 << 20);
    // The copy of an object counts, too, and not only its ranges.
    let one = read(&store(&server, "s3://bucket/dir/sub 0/object+0000"), &options);
    assert_eq!(
        (one.values.len(), one.run.measured.budget_peak_bytes >= 150_000 + (1 << 17)),
        (1, true)
    );
}

#[test]
fn faults_are_repeated_and_never_give_wrong_bytes() {
    let faults = vec![
        (Fault::Reset, 0.03),
        (Fault::Broken, 0.03),
        (Fault::Cut, 0.04),
        (Fault::WrongTotal, 0.03),
        (Fault::Shortened, 0.03),
        (Fault::Slow, 0.03),
    ];
    for seed in [1, 2] {
        // Refusals are few and early: each reduces the rate, by more on a slow machine, and refusals
        // without end would hold it there.
        let first = vec![First::new(Target::Read, Fault::Busy, 5)];
        let law = Law { seed, first, faults: faults.clone(), page: 40, ..Law::default() };
        let (server, all) =
            filled(law, 150, |number| if number % 10 == 0 { 150_000 } else { 3000 });
        let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
        assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
        assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), all);
        assert!(server.counts().faults > 10 && mapped.run.requests.repeated > 10);
    }
}

#[test]
fn a_replaced_object_is_read_in_one_version_or_fails() {
    let law = Law { faults: vec![(Fault::Replaced, 0.2)], ..Law::default() };
    let (server, all) = filled(law, 100, |number| if number % 5 == 0 { 200_000 } else { 3000 });
    let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
    assert_eq!(mapped.values.len() + mapped.errors.len(), all.len());
    assert!(mapped.values.len() > 70, "{:?}", mapped.errors);
    for error in &mapped.errors {
        assert_eq!(error.kind, Kind::Changed, "{error}");
        assert!(error.to_string().contains("it was replaced while it was read"), "{error}");
    }
    for (url, bytes) in &mapped.values {
        // A replacement changes the first eight bytes, always all of them by one number.
        assert_eq!(bytes[8..], all[url][8..], "{url}");
    }
}

/// Reads two objects, one after the other, and changes the second one while the function runs on the
/// first one. The change must happen while the request for the second one waits. If a pause of the
/// machine delays it, the second one is what it was, and a longer latency is tried.
fn changed_meanwhile(
    len: usize,
    change: impl Fn(&Server, Duration) + Sync,
    is_wanted: impl Fn(&Mapped<Vec<u8>>) -> bool,
) {
    let earlier = [contents(1, len), vec![7; 3000]];
    for latency in [50, 200, 1000, 4000].map(Duration::from_millis) {
        let mapped = changed_within(latency, len, &change);
        if is_wanted(&mapped) {
            return;
        }
        let second = mapped.values.get(1).map(|(_, bytes)| bytes);
        let is_late = second.is_some_and(|bytes| earlier.contains(bytes));
        assert!(mapped.errors.is_empty() && is_late, "{mapped:?}");
    }
    panic!("each change came too late");
}

fn changed_within(
    latency: Duration,
    len: usize,
    change: &(impl Fn(&Server, Duration) + Sync),
) -> Mapped<Vec<u8>> {
    let law = Law { latency: (latency, 0.0), ..Law::default() };
    let (server, _) = filled(law, 2, |number| if number == 1 { len } else { 100 });
    let options = Options { window: Some(1), ..small() };
    objects(&store(&server, "s3://bucket/dir/"), &options, |object| {
        if object.bytes().len() == 100 {
            change(&server, latency);
        }
        object.bytes().to_vec()
    })
    .unwrap()
}

#[test]
fn an_object_that_changes_after_its_listing_is_what_it_is_now() {
    let key = |server: &Server| server.keys().pop().expect("two objects");
    let is_read = |mapped: &Mapped<Vec<u8>>, bytes: &[u8]| {
        mapped.errors.is_empty() && mapped.values.len() == 2 && mapped.values[1].1 == bytes
    };
    let fails = |mapped: &Mapped<Vec<u8>>, kind: Kind| {
        mapped.errors.len() == 1 && mapped.errors[0].kind == kind
    };
    let grow = |server: &Server, _: Duration| server.put(&key(server), vec![7; 3000]);
    changed_meanwhile(0, grow, |grown| is_read(grown, &[7; 3000]));
    let empty = |server: &Server, _: Duration| server.put(&key(server), vec![]);
    changed_meanwhile(3000, empty, |emptied| is_read(emptied, &[]));
    let remove = |server: &Server, _: Duration| server.remove(&key(server));
    changed_meanwhile(3000, remove, |removed| fails(removed, Kind::Missing));
    // Replaced, and removed when its new version is requested.
    let replace_and_remove = |server: &Server, latency: Duration| {
        server.put(&key(server), vec![7; 3000]);
        std::thread::sleep(latency / 2);
        let before = server.counts().requests;
        let began = std::time::Instant::now();
        while server.counts().requests == before && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.remove(&key(server));
    };
    changed_meanwhile(3000, replace_and_remove, |gone| fails(gone, Kind::Missing));
    let enlarge = |server: &Server, _: Duration| server.put(&key(server), vec![7; 2_000_000]);
    changed_meanwhile(0, enlarge, |too_large| fails(too_large, Kind::Changed));
}

#[test]
fn contents_that_always_fail_are_one_error_per_object() {
    for (fault, kind) in [(Fault::Cut, Kind::Interrupted), (Fault::Shortened, Kind::Response)] {
        let law = Law { faults: vec![(fault, 1.0)], ..Law::default() };
        let (server, _) = filled(law, 2, |_| 5000);
        let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
        assert_eq!((mapped.values.len(), mapped.errors.len()), (0, 2));
        for error in &mapped.errors {
            assert_eq!((error.kind, error.attempts), (kind, 8), "{error}");
        }
    }
}

#[test]
fn attributes_that_are_not_ascii_are_not_in_the_way() {
    let server = Server::start(Law::default());
    for (key, text, name) in [
        ("d/a", "x", "content-disposition"),
        ("d/b", "x", "x-amz-meta-name"),
        ("d/empty", "", "x-amz-meta-name"),
    ] {
        server.put(key, Contents::from(text).with_header(name, "é"));
    }
    let mapped = read(&store(&server, "s3://bucket/d/"), &small());
    assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
    assert_eq!((mapped.values.len(), mapped.run.requests.repeated), (3, 0));
}

#[test]
fn a_limit_is_found_and_kept() {
    // A busy machine may not reach a high limit.
    let is_found = [400.0, 200.0, 100.0].into_iter().any(|cap_per_s| {
        let latency = (Duration::from_millis(5), 0.3);
        let law = Law { cap_per_s, burst: cap_per_s / 10.0, latency, ..Law::default() };
        let (server, all) = filled(law, 400, |_| 1000);
        let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
        assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
        assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), all);
        let counts = server.counts();
        assert_eq!(counts.refused, mapped.run.requests.refused);
        counts.refused > 0
    });
    assert!(is_found, "no limit was reached");
}

#[test]
fn one_object_is_a_location_too() {
    let server = Server::start(Law::default());
    server.put("a", "alone");
    server.put("p", "object");
    server.put("p/x", "below");
    let mapped = read(&store(&server, "s3://bucket/a"), &small());
    assert_eq!(mapped.values, [("s3://bucket/a".to_owned(), b"alone".to_vec())]);
    let mapped = read(&store(&server, "s3://bucket/p"), &small());
    assert_eq!(mapped.values.len(), 2, "the object and what is below it");
    let mapped = read(&store(&server, "s3://bucket/p/"), &small());
    assert_eq!(mapped.values, [("s3://bucket/p/x".to_owned(), b"below".to_vec())]);
}

#[test]
fn markers_of_directories_are_not_objects() {
    let server = Server::start(Law::default());
    server.put("d/", "");
    server.put("d/empty", "");
    server.put("d/sub/", "");
    let mapped = read(&store(&server, "s3://bucket/d/"), &small());
    assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
    assert_eq!(mapped.values, [("s3://bucket/d/empty".to_owned(), Vec::new())]);
}

/// Keys that the client cannot represent.
const ODD: [&str; 10] =
    ["/a", "a/", "/", "a//b", "a/./b", "..", "a/../b", "a\u{1}b", "a\nb", "\u{7f}"];
/// Keys that look like others when they are encoded, decoded or cut.
const EVEN: [&str; 14] = [
    "a",
    "a/b",
    "b",
    "a%2Fb",
    "a%",
    "%61",
    "a+b",
    "a b",
    " a",
    "a ",
    "...",
    "a&amp;b",
    "<a>",
    "é\u{1f600}?#",
];

#[test]
fn every_object_is_either_read_or_reported() {
    for (page, faults) in [(1, vec![]), (3, vec![]), (1000, vec![]), (2, vec![(Fault::Cut, 0.2)])] {
        let server = Server::start(Law { page, faults, seed: 5, ..Law::default() });
        for key in ODD.iter().chain(&EVEN) {
            server.put(key, format!("contents of {key}"));
        }
        let store = store(&server, "s3://bucket/");
        let mapped = read(&store, &small());
        let expected: BTreeMap<_, _> = EVEN
            .map(|key| (format!("s3://{BUCKET}/{key}"), format!("contents of {key}").into_bytes()))
            .into();
        assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), expected, "{page}");
        let mut reported: Vec<_> = mapped.errors.iter().map(|error| error.url.clone()).collect();
        let mut odd = ODD.map(|key| format!("s3://{BUCKET}/{key}"));
        reported.sort();
        odd.sort();
        assert_eq!(reported, odd, "{page}");
        assert!(mapped.errors.iter().all(|error| error.kind == Kind::Unsupported));
        assert_eq!(mapped.run.failed, ODD.len() as u64);
        let (mut found, mut errors) = (0, 0);
        let each = |listed: Result<_, _>| {
            *(if listed.is_ok() { &mut found } else { &mut errors }) += 1;
            true
        };
        list(&store, &AtomicBool::new(false), each).unwrap();
        assert_eq!((found, errors), (EVEN.len(), ODD.len()));
    }
}

#[test]
fn empty_objects_are_repeated_like_others_and_not_lost() {
    let law = Law { faults: vec![(Fault::Busy, 0.1), (Fault::Broken, 0.1)], ..Law::default() };
    let (server, all) = filled(law, 60, |_| 0);
    let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
    assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
    assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), all);
}

#[test]
fn empty_objects_count_towards_the_budget() {
    let (server, all) = filled(Law::default(), 200, |_| 0);
    let options = Options { memory: 1 << 16, ..small() };
    let mapped = read(&store(&server, "s3://bucket/dir/"), &options);
    assert_eq!(mapped.values.len(), all.len());
    let peak = mapped.run.measured.budget_peak_bytes;
    assert!((1 << 10..=1 << 16).contains(&peak), "{peak}");
}

#[test]
fn a_budget_below_the_least_one_counts_as_that() {
    let (server, all) = filled(Law::default(), 20, |_| 1000);
    let options = Options { memory: 1, ..small() };
    let mapped = read(&store(&server, "s3://bucket/dir/"), &options);
    assert_eq!((mapped.values.len(), mapped.errors.len()), (all.len(), 0));
}

#[test]
fn what_cannot_be_listed_is_one_error_with_advice() {
    let server = Server::start(Law::default());
    server.put("bad//key", "x");
    let text = |url: &str| {
        let mapped = read(&store(&server, url), &small());
        only_error(&mapped).to_string()
    };
    assert_eq!(
        text("s3://nosuch/x/"),
        "cannot list 's3://nosuch/x/': The specified bucket does not exist (NoSuchBucket); check the \
         name of the bucket, AWS_ENDPOINT_URL and AWS_REGION"
    );
    assert_eq!(
        text(&format!("s3://{DENIED}/")),
        "cannot list 's3://denied/': Access Denied (AccessDenied); check the credentials, and that \
         they permit s3:ListBucket"
    );
    assert_eq!(
        text("s3://bucket/none"),
        "cannot read 's3://bucket/none': No such object or prefix"
    );
    let empty_segment = text("s3://bucket/bad/");
    assert!(empty_segment.starts_with("cannot read 's3://bucket/bad//key': "), "{empty_segment}");
    let gone = {
        let server = Server::start(Law::default());
        server.environment()
    };
    let location = Location::parse("s3://bucket/x").unwrap();
    let mapped = read(&Store::with_variables(location, gone).unwrap(), &small());
    let unreachable = only_error(&mapped);
    assert_eq!(unreachable.kind, Kind::Unreachable, "{unreachable}");
    assert_eq!(
        unreachable.to_string(),
        "cannot list 's3://bucket/x': Connection refused (after 8 attempts); check AWS_ENDPOINT_URL and \
         the network"
    );
}

#[test]
fn a_listing_can_be_ended() {
    let (server, all) = filled(Law { page: 3, ..Law::default() }, 10, |_| 10);
    let mut found = Vec::new();
    let each = |listed: Result<ioloom_objects::Listed, _>| {
        found.push(format!("s3://{BUCKET}/{}", listed.unwrap().key));
        found.len() < 5
    };
    list(&store(&server, "s3://bucket/dir"), &AtomicBool::new(false), each).unwrap();
    assert!(found.iter().eq(all.keys().take(5)), "{found:?}");
}

#[test]
fn an_empty_bucket_is_no_error() {
    let server = Server::start(Law::default());
    let mapped = read(&store(&server, "s3://bucket"), &small());
    assert!(mapped.values.is_empty() && mapped.errors.is_empty(), "{:?}", mapped.errors);
}

#[test]
fn a_run_stops_when_it_is_told() {
    let law = Law { latency: (Duration::from_millis(3), 0.0), ..Law::default() };
    let (server, all) = filled(law, 300, |_| 100);
    let stop = Arc::new(AtomicBool::new(false));
    let seen = AtomicU64::new(0);
    let options = Options { stop: stop.clone(), window: Some(2), ..small() };
    let mapped = objects(&store(&server, "s3://bucket/dir/"), &options, |_| {
        if seen.fetch_add(1, Ordering::Relaxed) == 5 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(mapped.run.cancelled && mapped.errors.is_empty());
    assert!((6..all.len()).contains(&mapped.values.len()), "{}", mapped.values.len());
    assert!(server.counts().in_flight_max <= 4, "two requests, the listing and its description");
}

#[test]
fn after_a_stop_nothing_that_waits_is_processed() {
    let (server, _) = filled(Law::default(), 200, |_| 100);
    let stop = Arc::new(AtomicBool::new(false));
    let calls = AtomicU64::new(0);
    let options = Options { stop: stop.clone(), threads: 1, ..small() };
    let mapped = objects(&store(&server, "s3://bucket/dir/"), &options, |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        // Until the others have arrived.
        while server.counts().served < 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    })
    .unwrap();
    assert!(mapped.run.cancelled);
    assert_eq!(calls.into_inner(), 1);
}

#[test]
fn a_panic_of_the_function_is_passed_on() {
    let (server, _) = filled(Law::default(), 20, |_| 100);
    let store = store(&server, "s3://bucket/dir/");
    let run = || objects(&store, &small(), |_| assert!(server.counts().requests == 0, "as wanted"));
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"as wanted"));
}

#[test]
fn too_large_objects_fail_alone() {
    let (server, _) = filled(Law::default(), 4, |number| if number == 1 { 400_000 } else { 1000 });
    let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
    assert_eq!(mapped.values.len(), 3);
    let error = only_error(&mapped);
    assert_eq!(error.kind, Kind::Memory, "{error}");
}

/// Compares objects with the pattern of the server.
struct Compare;

impl Work for Compare {
    type State = u64;
    type Local = (u64, Vec<String>);

    fn local(&self) -> Self::Local {
        Self::Local::default()
    }

    fn begin(&self, _: usize, _: &str) -> u64 {
        0
    }

    fn piece(&self, len: &mut u64, piece: Piece<'_>) -> Result<(), WorkError> {
        assert_eq!(*len, piece.offset);
        let mut expected = vec![0; piece.bytes.len()];
        pattern(piece.offset, &mut expected);
        *len += piece.bytes.len() as u64;
        if piece.bytes == expected { Ok(()) } else { Err("wrong bytes".into()) }
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        len: u64,
        _: usize,
        _: &str,
    ) -> Result<(), WorkError> {
        local.0 += len;
        Ok(())
    }

    fn function_failed(&self, local: &mut Self::Local, _: usize, url: &str, error: WorkError) {
        local.1.push(format!("{url}: {error}"));
    }

    fn failed(&self, local: &mut Self::Local, _: Option<usize>, error: &ObjectError) {
        local.1.push(error.to_string());
    }
}

/// The example `large` does this with ten objects of 1 GiB and measures the memory of the process.
#[test]
fn objects_far_larger_than_the_budget_are_read_in_parallel_ranges() {
    let law = Law { latency: (Duration::from_millis(2), 0.5), ..Law::default() };
    let server = Server::start(law);
    for number in 0..3 {
        server.put(&format!("o/{number}"), Contents::pattern((20 << 20) + number));
    }
    let options = Options { memory: 4 << 20, threads: 2, ..Options::default() };
    let run = run(&store(&server, "s3://bucket/o/"), &options, &Compare).unwrap();
    let errors: Vec<_> = run.locals.iter().flat_map(|local| &local.1).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(run.locals.iter().map(|local| local.0).sum::<u64>(), 3 * (20 << 20) + 3);
    assert!(run.measured.budget_peak_bytes <= 4 << 20, "{}", run.measured.budget_peak_bytes);
    // More than the objects, so there were several ranges of one at the same time.
    assert!(server.counts().in_flight_max > 3, "{:?}", server.counts());
}

fn files_below(dir: &std::path::Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                all.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    all
}

#[test]
fn downloads_are_complete_and_verified() {
    let faults = vec![(Fault::Cut, 0.05), (Fault::Busy, 0.05), (Fault::Reset, 0.05)];
    let law = Law { faults, page: 9, ..Law::default() };
    let (server, all) = filled(law, 40, |n| if n % 7 == 1 { 300_000 } else { n as usize * 10 });
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Below(dir.path().join("new/target"));
    let done = download(&store(&server, "s3://bucket/dir"), &place, &small()).unwrap();
    assert!(done.errors.is_empty(), "{:?}", done.errors);
    assert_eq!((done.verified, done.length_only), (40, 0));
    let expected: BTreeMap<_, _> = all
        .iter()
        .map(|(url, bytes)| (url.replace("s3://bucket/dir/", ""), bytes.clone()))
        .collect();
    assert_eq!(files_below(&dir.path().join("new/target")), expected);
}

#[test]
fn a_download_that_fails_leaves_no_file() {
    let law = Law { faults: vec![(Fault::Cut, 1.0)], ..Law::default() };
    let (server, _) = filled(law, 1, |_| 5000);
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Below(dir.path().to_owned());
    let done = download(&store(&server, "s3://bucket/dir"), &place, &small()).unwrap();
    assert_eq!((done.errors.len(), done.run.failed, done.verified), (1, 1, 0));
    assert_eq!(files_below(dir.path()), BTreeMap::new());
}

#[test]
fn a_name_that_is_a_file_and_a_directory_is_one_error() {
    let server = Server::start(Law::default());
    server.put("d/a", "file");
    server.put("d/a/b", "below it");
    server.put("d/c", "other");
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Below(dir.path().to_owned());
    let options = Options { threads: 1, window: Some(1), ..small() };
    let done = download(&store(&server, "s3://bucket/d/"), &place, &options).unwrap();
    assert_eq!(done.errors.len(), 1, "{:?}", done.errors);
    assert!(done.errors[0].contains("cannot create directory"), "{:?}", done.errors);
    let names: Vec<_> = files_below(dir.path()).into_keys().collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn no_link_below_the_target_is_followed() {
    let server = Server::start(Law::default());
    for key in ["d/link/a", "d/real/link/b", "d/file", "d/real/c"] {
        server.put(key, "new");
    }
    let (outside, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("file"), "old").unwrap();
    std::fs::create_dir_all(dir.path().join("target/real")).unwrap();
    let link = |to: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
    };
    link(outside.path(), "target/link");
    link(outside.path(), "target/real/link");
    link(&outside.path().join("file"), "target/file");
    // The target itself may be a link.
    link(&dir.path().join("target"), "named");
    let place = Place::Below(dir.path().join("named"));
    let done = download(&store(&server, "s3://bucket/d/"), &place, &small()).unwrap();
    assert_eq!(done.errors.len(), 2, "{:?}", done.errors);
    for error in &done.errors {
        assert!(error.contains("link': it is a symbolic link"), "{error}");
    }
    let untouched = [("file".to_owned(), b"old".to_vec())];
    assert_eq!(files_below(outside.path()), untouched.into());
    let target = dir.path().join("target");
    assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "new");
    assert!(!target.join("file").is_symlink(), "the link is replaced");
    assert_eq!(std::fs::read_to_string(target.join("real/c")).unwrap(), "new");
}

#[test]
fn no_special_file_below_the_target_is_replaced() {
    let server = Server::start(Law::default());
    for key in ["d/file", "d/socket"] {
        server.put(key, "new");
    }
    let dir = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let place = Place::Below(dir.path().to_owned());
    let done = download(&store(&server, "s3://bucket/d/"), &place, &small()).unwrap();
    assert_eq!(done.errors.len(), 1, "{:?}", done.errors);
    assert!(done.errors[0].contains("socket': it is not a regular file"), "{:?}", done.errors);
    assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "new");
    let kind = std::fs::symlink_metadata(dir.path().join("socket")).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_socket(&kind), "{kind:?}");
}

#[test]
fn one_object_is_copied_to_one_file() {
    let server = Server::start(Law::default());
    server.put("d/a", "one");
    server.put("d/a/b", "not this one");
    let dir = tempfile::tempdir().unwrap();
    let options = Options { recursive: false, ..small() };
    let copy = |url, place: &Place| download(&store(&server, url), place, &options).unwrap();
    let file = Place::As(dir.path().join("file"));
    assert_eq!(copy("s3://bucket/d/a", &file).errors, [""; 0]);
    assert_eq!(copy("s3://bucket/d/a", &Place::Below(dir.path().to_owned())).errors, [""; 0]);
    let expected = ["a", "file"].map(|name| (name.to_owned(), b"one".to_vec()));
    assert_eq!(files_below(dir.path()), expected.into());
    let missing = copy("s3://bucket/d/x", &file).errors;
    assert_eq!(missing, ["cannot read 's3://bucket/d/x': No such object"]);
    let prefix = copy("s3://bucket/d/", &file).errors;
    assert_eq!(prefix.len(), 1, "{prefix:?}");
    assert!(prefix[0].contains("it is a prefix, not an object"), "{prefix:?}");
}

#[test]
fn two_objects_are_never_one_file() {
    let server = Server::start(Law::default());
    server.put("logs", "one");
    server.put("logs/logs", "two");
    server.put("logs/other", "three");
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Below(dir.path().to_owned());
    let copied = download(&store(&server, "s3://bucket/logs"), &place, &small()).unwrap();
    assert_eq!((copied.verified, copied.errors.len()), (2, 1), "{:?}", copied.errors);
    assert!(copied.errors[0].contains("another object has the same file"), "{:?}", copied.errors);
    assert_eq!(files_below(dir.path()).len(), 2);
    let below = tempfile::tempdir().unwrap();
    let place = Place::Below(below.path().to_owned());
    let copied = download(&store(&server, "s3://bucket/logs/"), &place, &small()).unwrap();
    assert_eq!((copied.verified, copied.errors.len()), (2, 0));
}

#[test]
fn an_object_that_may_be_there_is_not_left_out() {
    let first = vec![First::new(Target::Describe, Fault::Broken, u64::MAX)];
    let server = Server::start(Law { first, ..Law::default() });
    server.put("p", "one");
    server.put("p/a", "two");
    let read = read(&store(&server, "s3://bucket/p"), &small());
    let text = only_error(&read).to_string();
    let words = "(after 8 attempts); try again later, or check AWS_ENDPOINT_URL";
    assert!(text.contains("cannot list 's3://bucket/p'") && text.ends_with(words), "{text}");
}

#[test]
fn failures_that_are_not_repeated_use_up_no_retries() {
    let first = vec![First::new(Target::Read, Fault::Denied, 600)];
    let server = Server::start(Law { first, ..Law::default() });
    (0..700).for_each(|i| server.put(&format!("a/{i}"), "x"));
    let read = read(&store(&server, "s3://bucket/a/"), &small());
    assert_eq!((read.run.failed, read.run.requests.repeated), (600, 0));
}

#[test]
fn a_version_that_looks_like_a_sum_and_is_none_is_no_failure() {
    let server = Server::start(Law::default());
    let version = "0123456789abcdef0123456789ABCDEF";
    let bytes = contents(5, 300_000);
    server.put("d/x", Contents::from(bytes.clone()).with_version(version));
    let dir = tempfile::tempdir().unwrap();
    let place = Place::Below(dir.path().to_owned());
    let copied = download(&store(&server, "s3://bucket/d"), &place, &small()).unwrap();
    assert!(copied.errors.is_empty(), "{:?}", copied.errors);
    assert_eq!((copied.verified, copied.length_only, copied.other_e_tag), (0, 0, 1));
    assert!(std::fs::read(dir.path().join("x")).unwrap() == bytes);
    // The sum of an empty object is not evidence that the server has sums.
    for (key, contents, has_sums) in [("d/empty", "", false), ("d/y", "sum", true)] {
        server.put(key, contents);
        let copied = download(&store(&server, "s3://bucket/d"), &place, &small()).unwrap();
        assert_eq!((copied.errors.len(), copied.run.failed), (0, 0), "{:?}", copied.errors);
        assert_eq!((copied.other_e_tag, copied.has_sums), (1, has_sums), "{key}");
        assert_eq!(copied.other_e_tag_urls, ["s3://bucket/d/x"]);
        assert_eq!(copied.run.measured.files, copied.verified + 1);
    }
}

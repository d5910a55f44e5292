//! Each object is read once and whole, with and without faults.

use crate::setup::{filled, only_error, read, small, store};
use ioloom_bucket::{Contents, Fault, First, Law, Server, Target};
use ioloom_objects::{Kind, Options};
use std::collections::BTreeMap;
use std::time::Duration;

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
fn a_response_without_a_version_is_not_a_replaced_object() {
    let first = vec![First::new(Target::Read, Fault::Portal, u64::MAX)];
    let (server, _) = filled(Law { first, ..Law::default() }, 1, |_| 5000);
    let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
    let error = only_error(&mapped);
    assert_eq!((error.kind, error.attempts), (Kind::Response, 8), "{error}");
    assert_eq!(error.reason, "the server sent no version (ETag)");
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
fn empty_objects_are_repeated_like_others_and_not_lost() {
    let law = Law { faults: vec![(Fault::Busy, 0.1), (Fault::Broken, 0.1)], ..Law::default() };
    let (server, all) = filled(law, 60, |_| 0);
    let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
    assert!(mapped.errors.is_empty(), "{:?}", mapped.errors);
    assert_eq!(mapped.values.into_iter().collect::<BTreeMap<_, _>>(), all);
}

#[test]
fn failures_that_are_not_repeated_use_up_no_retries() {
    let first = vec![First::new(Target::Read, Fault::Denied, 600)];
    let server = Server::start(Law { first, ..Law::default() });
    (0..700).for_each(|i| server.put(&format!("a/{i}"), "x"));
    let read = read(&store(&server, "s3://bucket/a/"), &small());
    assert_eq!((read.run.failed, read.run.requests.repeated), (600, 0));
}

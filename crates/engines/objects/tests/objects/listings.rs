//! Objects of a location, and errors of listings.

use crate::setup::{filled, only_error, read, small, store};
use ioloom_bucket::{BUCKET, Contents, DENIED, Fault, First, Law, Server, Target};
use ioloom_objects::{Action, Kind, Location, Store, list};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

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
fn an_object_with_a_version_that_is_no_header_is_one_error() {
    let server = Server::start(Law::default());
    server.put("d/a", "one");
    server.put("d/b", Contents::from("two").with_version("x\ny"));
    server.put("d/c", "three");
    let mapped = read(&store(&server, "s3://bucket/d/"), &small());
    let error = only_error(&mapped);
    assert_eq!((error.kind, &*error.url), (Kind::Unsupported, "s3://bucket/d/b"), "{error}");
    assert!(error.reason.contains("a version (ETag) that a header cannot contain"), "{error}");
    assert_eq!(mapped.values.len(), 2, "the others are read");
}

#[test]
fn a_server_that_ignores_the_prefix_ends_the_listing() {
    for other in ["pq", "other/z", "a//b"] {
        let server = Server::start(Law { ignores_prefix: true, ..Law::default() });
        server.put("p/a", "below");
        server.put(other, "not below");
        for url in ["s3://bucket/p", "s3://bucket/p/"] {
            let mapped = read(&store(&server, url), &small());
            let error = only_error(&mapped);
            assert_eq!((error.action, error.kind), (Action::List, Kind::Response), "{error}");
            assert!(error.reason.ends_with("an object that is not below the prefix"), "{error}");
            assert!(mapped.values.is_empty(), "{url} {other}");
        }
    }
}

#[test]
fn a_page_that_breaks_off_is_requested_four_times() {
    let first = vec![First::new(Target::List, Fault::Cut, u64::MAX)];
    let server = Server::start(Law { first, ..Law::default() });
    server.put("d/a", "x");
    let mapped = read(&store(&server, "s3://bucket/d/"), &small());
    let error = only_error(&mapped);
    assert_eq!((error.kind, error.attempts), (Kind::Interrupted, 4), "{error}");
    assert_eq!(server.counts().requests, 4);
}

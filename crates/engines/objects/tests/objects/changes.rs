//! Objects that are replaced or removed during a run.

use crate::setup::{contents, filled, read, small, store};
use ioloom_bucket::{Fault, Law, Server};
use ioloom_objects::{Kind, Mapped, Options, objects};
use std::time::Duration;

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

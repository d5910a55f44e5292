//! Copies of objects to files.

use crate::setup::{contents, filled, small, store};
use ioloom_bucket::{Contents, Fault, Law, Server};
use ioloom_objects::{Options, Place, download};
use std::collections::BTreeMap;

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

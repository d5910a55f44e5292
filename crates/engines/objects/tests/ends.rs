//! How runs end: stops, panics, refusals, and targets that cannot be replaced.

use ioloom_bucket::{Fault, First, Law, Pages, Server, Target};
use ioloom_objects::{Kind, Location, Options, Place, Progress, Store, download, list, objects};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn store(server: &Server, url: &str) -> Store {
    Store::with_variables(Location::parse(url).unwrap(), server.environment()).unwrap()
}

fn one_at_a_time() -> Options<'static> {
    Options { memory: 1 << 20, threads: 2, window: Some(1), ..Options::default() }
}

#[test]
fn special_files_are_not_replaced_and_links_are_followed() {
    let server = Server::start(Law::default());
    server.put("a", "one");
    let dir = tempfile::tempdir().unwrap();
    let [socket, link, file] = ["socket", "link", "file"].map(|name| dir.path().join(name));
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::write(&file, "old").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::os::unix::fs::symlink(&socket, dir.path().join("to socket")).unwrap();
    let options = Options { recursive: false, ..one_at_a_time() };
    let copy = |to: &std::path::Path| {
        download(&store(&server, "s3://bucket/a"), &Place::As(to.to_owned()), &options).unwrap()
    };
    for to in [&socket, &dir.path().join("to socket")] {
        let errors = copy(to).errors;
        assert!(errors.len() == 1 && errors[0].contains("not a regular file"), "{errors:?}");
    }
    assert!(!std::fs::metadata(&socket).unwrap().is_file());
    assert_eq!(copy(&link).errors, [""; 0]);
    assert!(link.is_symlink());
    assert_eq!(std::fs::read(&file).unwrap(), b"one");
}

#[test]
fn a_file_keeps_the_permissions_of_the_one_that_it_replaces() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start(Law::default());
    server.put("d/new", "one");
    server.put("d/old", "two");
    let dir = tempfile::tempdir().unwrap();
    let mode = |name: &str| {
        std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777
    };
    for name in ["old", "as", "made"] {
        std::fs::write(dir.path().join(name), "x").unwrap();
    }
    for (name, mode) in [("old", 0o640), ("as", 0o600)] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path().join(name), permissions).unwrap();
    }
    let copy = |url, place: &Place| {
        let copied = download(&store(&server, url), place, &one_at_a_time()).unwrap();
        assert_eq!(copied.errors, [""; 0]);
    };
    copy("s3://bucket/d/", &Place::Below(dir.path().to_owned()));
    copy("s3://bucket/d/new", &Place::As(dir.path().join("as")));
    assert_eq!((mode("old"), mode("as"), mode("new")), (0o640, 0o600, mode("made")));
    assert_eq!(std::fs::read_to_string(dir.path().join("as")).unwrap(), "one");
}

#[test]
fn an_object_that_may_not_be_read_is_not_left_out() {
    for (fault, key, failed) in [
        (Fault::Denied, "p", 1),
        (Fault::Denied, "q", 0),
        (Fault::Invalid, "p", 1),
        (Fault::Invalid, "q", 0),
    ] {
        let first = [Target::Describe, Target::Read].map(|target| {
            let count = if target == Target::Describe { u64::MAX } else { failed };
            First::new(target, fault, count)
        });
        let server = Server::start(Law { first: first.into(), ..Law::default() });
        server.put(key, "one");
        server.put("p/a", "two");
        server.put("p-x", "three");
        let store = store(&server, "s3://bucket/p");
        let read = objects(&store, &one_at_a_time(), |object| object.bytes().to_vec()).unwrap();
        assert_eq!(read.errors.len() as u64, failed, "{:?}", read.errors);
        assert_eq!(read.values, [("s3://bucket/p/a".to_owned(), b"two".to_vec())]);
        for error in &read.errors {
            assert!(error.to_string().contains("cannot read 's3://bucket/p'"), "{error}");
        }
    }
}

#[test]
fn what_is_below_is_listed_where_the_object_itself_may_not_be() {
    let both = ["s3://bucket/p", "s3://bucket/p/a"];
    let (denied, refused) = (Some(Kind::Denied), Some(Kind::Refused));
    for (description, fault, expected, kind) in [
        (Fault::Denied, Fault::Denied, &both[1..], denied),
        (Fault::Denied, Fault::Invalid, &both[1..], denied),
        (Fault::Invalid, Fault::Denied, &both[1..], refused),
        (Fault::Denied, Fault::LateError, &both[..], None),
    ] {
        let first = vec![
            First::new(Target::Describe, description, u64::MAX),
            First::new(Target::List, fault, 1),
        ];
        let server = Server::start(Law { first, ..Law::default() });
        server.put("p", "one");
        server.put("p/a", "two");
        let store = store(&server, "s3://bucket/p");
        let read = objects(&store, &one_at_a_time(), |_| ()).unwrap();
        let kinds: Vec<Kind> = read.errors.iter().map(|error| error.kind).collect();
        assert_eq!(kinds, Vec::from_iter(kind), "{fault:?}: {:?}", read.errors);
        for error in &read.errors {
            assert!(error.to_string().contains("cannot read 's3://bucket/p'"), "{error}");
        }
        let urls: Vec<String> = read.values.into_iter().map(|(url, ())| url).collect();
        assert_eq!(urls, expected, "{fault:?}");
    }
}

#[test]
fn an_object_that_may_not_be_described_is_not_missing_and_one_error() {
    // The listings that are refused: that of the object, or that of what is below it as well.
    for (description, refused, word) in
        [(Fault::Denied, 1, "read"), (Fault::Denied, 2, "list"), (Fault::Invalid, 2, "list")]
    {
        let first = vec![
            First::new(Target::Describe, description, u64::MAX),
            First::new(Target::List, Fault::Denied, refused),
        ];
        let server = Server::start(Law { first, ..Law::default() });
        let store = store(&server, "s3://bucket/p");
        let read = objects(&store, &one_at_a_time(), |_| ()).unwrap();
        let errors: Vec<String> = read.errors.iter().map(ToString::to_string).collect();
        let begin = format!("cannot {word} 's3://bucket/p': ");
        assert!(errors.len() == 1 && errors[0].starts_with(&begin), "{errors:?}");
        assert_eq!(read.errors[0].kind, Kind::Denied);
    }
}

#[test]
fn an_object_of_a_directory_bucket_that_may_not_be_described_is_an_error() {
    let first = vec![First::new(Target::Describe, Fault::Denied, u64::MAX)];
    let server = Server::start(Law { first, ..Law::default() });
    let store = store(&server, "s3://data--use1-az4--x-s3/p");
    let mut kinds = Vec::new();
    let error = list(&store, &AtomicBool::new(false), |listed| {
        kinds.push(listed.unwrap_err().kind);
        true
    });
    // The server has no such bucket, which the listing of what is below reports.
    assert_eq!((kinds, error.unwrap_err().kind), (vec![Kind::Denied], Kind::NoBucket));
}

#[test]
fn a_silent_server_does_not_delay_a_stop() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let variables = [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_SKIP_SIGNATURE", "true")];
    let store = Store::with_variables(Location::parse("s3://b/p/").unwrap(), variables).unwrap();
    let stop = AtomicBool::new(false);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Relaxed);
        });
        list(&store, &stop, |_| true).unwrap();
    });
    // The client itself waits 20 s for a silent server.
    assert!(began.elapsed() < Duration::from_secs(18), "{:?}", began.elapsed());
}

/// Stores answer with status 200 before they know that they fail.
#[test]
fn an_error_instead_of_a_list_does_not_end_it() {
    for (count, values, errors) in [(1, 10, 0), (u64::MAX, 3, 1)] {
        let first = vec![First::new(Target::List, Fault::LateError, count).after(1)];
        let server = Server::start(Law { page: 3, first, ..Law::default() });
        (0..10).for_each(|number| server.put(&format!("dir/{number}"), "x"));
        let store = store(&server, "s3://bucket/dir/");
        let read = objects(&store, &one_at_a_time(), |object| object.bytes().to_vec()).unwrap();
        assert_eq!((read.values.len(), read.errors.len()), (values, errors), "{:?}", read.errors);
        for error in &read.errors {
            let words = "Please try again (InternalError) (after 4 attempts)";
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

#[test]
fn a_list_that_does_not_go_forward_ends_with_one_error() {
    let same = "the server keeps sending the same page of the list";
    let again = "the server listed the same object twice";
    for (pages, page, words) in [
        (Pages::Repeated, 3, Some(same)),
        (Pages::Circular, 3, Some(same)),
        (Pages::Circular, 1, Some(again)),
        (Pages::Circular, 20, Some(same)),
        (Pages::All, 3, None),
    ] {
        // The second page is an error, so it is requested again.
        let first = match pages {
            Pages::All => vec![First::new(Target::List, Fault::LateError, 1).after(1)],
            _ => Vec::new(),
        };
        let server = Server::start(Law { page, pages, first, ..Law::default() });
        (0..10).for_each(|number| server.put(&format!("dir/{number}"), "x"));
        let store = store(&server, "s3://bucket/dir/");
        let read = objects(&store, &one_at_a_time(), |object| object.bytes().to_vec()).unwrap();
        let errors: Vec<String> = read.errors.iter().map(ToString::to_string).collect();
        match words {
            None => assert_eq!((read.values.len(), errors.len()), (10, 0), "{errors:?}"),
            Some(words) => {
                assert_eq!(errors.len(), 1, "{pages:?} {page}: {errors:?} {:?}", read.values);
                assert!(errors[0].contains(words), "{pages:?} {page}: {errors:?}");
            }
        }
    }
}

#[test]
fn a_list_of_unsupported_keys_is_passed_on_page_by_page_and_ends() {
    let server = Server::start(Law { page: 2, pages: Pages::Circular, ..Law::default() });
    (0..10).for_each(|number| server.put(&format!("/logs/{number}"), "x"));
    let store = store(&server, "s3://bucket/");
    let mut requests = Vec::new();
    let each = |listed: Result<_, _>| {
        assert!(listed.is_err());
        requests.push(server.counts().requests);
        true
    };
    let error = list(&store, &AtomicBool::new(false), each).unwrap_err().to_string();
    assert!(error.contains("keeps sending the same page of the list"), "{error}");
    assert_eq!(requests[..4], [1, 1, 2, 2]);
    let read = objects(&store, &one_at_a_time(), |_| ()).unwrap();
    assert!(read.errors.len() > 10 && read.values.is_empty(), "{:?}", read.errors);
}

#[test]
fn a_panic_of_the_progress_function_ends_the_run() {
    let latency = (Duration::from_millis(30), 0.0);
    let server = Server::start(Law { latency, ..Law::default() });
    (0..30).for_each(|number| server.put(&format!("dir/{number}"), "x"));
    let store = store(&server, "s3://bucket/dir/");
    let progress = |_: &Progress| panic!("as wanted");
    let options = Options { progress: &progress, ..one_at_a_time() };
    let run = || objects(&store, &options, |_| ());
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"as wanted"));
}

//! Failures of `close`, which report that data was not stored.

use ioloom_bucket::{Law, Server};
use ioloom_objects::{Location, Options, Place, Store, download};
use ioloom_sys::fault;

#[test]
fn a_file_whose_close_fails_does_not_get_its_name() {
    let server = Server::start(Law::default());
    server.put("d/file", "new");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "old").unwrap();
    let location = Location::parse("s3://bucket/d/").unwrap();
    let store = Store::with_variables(location, server.environment()).unwrap();
    let options = Options { threads: 1, ..Options::default() };
    let place = Place::Below(dir.path().to_owned());
    // Those of directories are among them, and their results are not used.
    let rules: Vec<_> = (1..100).map(|number| format!("close:{number}:5")).collect();
    fault::set(&rules.join(","));
    let done = download(&store, &place, &options);
    fault::set("");
    let done = done.unwrap();
    assert_eq!((done.run.failed, done.verified, done.errors.len()), (1, 0, 1), "{done:?}");
    let expected = format!("cannot close '{}'", dir.path().join("file").display());
    assert!(done.errors[0].starts_with(&expected), "{:?}", done.errors);
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(names, [dir.path().join("file")], "the hidden file is removed");
    assert_eq!(std::fs::read_to_string(&names[0]).unwrap(), "old");
}

//! What limits a run.

use ioloom_bucket::{Fault, First, Law, Server, Target};
use ioloom_objects::{Location, Options, Store, objects};
use std::time::Duration;

#[test]
fn requests_after_the_end_of_the_list_wait_for_the_server() {
    let limited = |server: &Server, url: &str| {
        let location = Location::parse(url).unwrap();
        let store = Store::with_variables(location, server.environment()).unwrap();
        let retry_pause = Duration::from_millis(400);
        let options = Options { threads: 2, retry_pause, ..Options::default() };
        let mapped = objects(&store, &options, |object| object.bytes().len()).unwrap();
        mapped.run.measured.bottleneck.unwrap().word
    };
    // The list ends at once, and the only request takes long.
    let first = vec![First::new(Target::Read, Fault::Broken, 2)];
    let server = Server::start(Law { first, ..Law::default() });
    server.put("d/one", "one");
    assert_eq!(limited(&server, "s3://bucket/d/"), "object store");
    let empty = Server::start(Law::default());
    assert_ne!(limited(&empty, "s3://bucket"), "object store");
}

//! `du` on prefixes.

use super::run;
use ioloom_bucket::{Law, Server};

fn server() -> Server {
    let server = Server::start(Law { page: 2, ..Law::default() });
    for (key, len) in [("d/a", 1000), ("d/x/y/b", 300), ("d/x/c", 20), ("d/z", 4), ("e", 1)] {
        server.put(key, vec![0; len]);
    }
    server
}

#[test]
fn lines_are_those_of_du() {
    let server = server();
    let du = |args: &[&str]| run(&server, &[&["du", "-b"][..], args].concat()).well().out;
    assert_eq!(
        du(&["s3://bucket/d"]),
        "300\ts3://bucket/d/x/y\n320\ts3://bucket/d/x\n1324\ts3://bucket/d\n"
    );
    assert_eq!(du(&["-s", "s3://bucket"]), "1325\ts3://bucket\n");
    assert_eq!(du(&["-s", "--inodes", "s3://bucket/d/"]), "4\ts3://bucket/d\n");
    assert_eq!(
        du(&["-a", "-d", "1", "-c", "s3://bucket/d/"]),
        "1000\ts3://bucket/d/a\n320\ts3://bucket/d/x\n4\ts3://bucket/d/z\n1324\ts3://bucket/d\n1324\ttotal\n"
    );
    let document = run(&server, &["du", "--json", "s3://bucket/d"]).well().json();
    assert_eq!(document["command"], "du");
}

#[test]
fn an_export_has_the_objects_but_lines_only_directories() {
    let server = server();
    let out = run(&server, &["du", "--export-ncdu", "-", "s3://bucket/d"]).well().out;
    assert!(out.contains("{\"name\":\"z\",\"asize\":4"), "{out}");
    let dir = tempfile::tempdir().unwrap();
    let map = dir.path().join("map.svg");
    let args = ["du", "-b", "--svg", map.to_str().unwrap(), "s3://bucket/d/x"];
    assert_eq!(run(&server, &args).well().out, "300\ts3://bucket/d/x/y\n320\ts3://bucket/d/x\n");
    let picture = std::fs::read_to_string(map).unwrap();
    assert!(picture.contains("y / b"), "{picture}");
}

#[test]
fn errors_fail_with_code_1() {
    let server = server();
    for (args, words) in [
        (
            &["s3://nosuch/x"][..],
            "cannot list 's3://nosuch/x': The specified bucket does not exist",
        ),
        (&["s3://bucket/none"], "cannot read 's3://bucket/none': No such object or prefix"),
        (
            &["--exclude", "x", "s3://bucket"],
            "--exclude and --exclude-from cannot be used with objects",
        ),
        (&["s3://bucket", "s3://bucket/d"], "a URL cannot be combined"),
    ] {
        run(&server, &[&["du"][..], args].concat()).one_error(1, words);
    }
}

#[test]
fn a_url_is_not_compared_as_a_path() {
    let ran = run(&server(), &["du", "--diff", "old.json", "s3://bucket/p"]);
    ran.one_error(1, "cannot compare 's3://bucket/p'");
    let ran = run(&server(), &["du", "--diff", "old.json", "s3://KEY:SEC/RET@bucket/p"]);
    ran.one_error(1, "cannot compare 's3://bucket/p'");
}

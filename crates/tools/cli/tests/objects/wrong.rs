//! Wrong buckets, permissions and endpoints: one error each, with what to do.

use super::{Ran, program};
use ioloom_bucket::{Law, Server};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

/// Every command that uses a store, for a bucket.
fn commands(bucket: &str, dir: &Path) -> Vec<Vec<String>> {
    let (file, tree) = (dir.join("tree/a"), dir.join("tree"));
    let [file, tree, new] = [file, tree, dir.join("new")].map(|path| path.display().to_string());
    let (object, prefix) = (format!("s3://{bucket}/x"), format!("s3://{bucket}/x/"));
    [
        &["each", &prefix][..],
        &["each", &object],
        &["du", &prefix],
        &["cp", "-r", &prefix, &new],
        &["cp", &object, &new],
        &["cp", &file, &object],
        &["cp", "-r", &tree, &prefix],
    ]
    .iter()
    .map(|words| words.iter().map(|word| (*word).to_owned()).collect())
    .collect()
}

/// Asserts that every command ends with one error that has these words.
fn all_fail(bucket: &str, endpoint: Option<&str>, code: i32, words: &[&str]) {
    let (server, dir) = (Server::start(Law::default()), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(dir.path().join("tree").join(name), name).unwrap();
    }
    // Requests to servers that cannot be reached are repeated for seconds.
    std::thread::scope(|scope| {
        for args in commands(bucket, dir.path()) {
            let (server, dir) = (&server, &dir);
            scope.spawn(move || {
                let mut command = program(server);
                command.args(&args).env("XDG_STATE_HOME", dir.path().join("state"));
                command.envs(endpoint.map(|url| ("AWS_ENDPOINT_URL", url)));
                let ran = Ran::of(command.output().unwrap());
                let mut lines: Vec<_> = ran.err.lines().collect();
                let is_summary = |line: &str| {
                    line.ends_with("no file was copied") || line.ends_with("and 2 more errors")
                };
                lines.retain(|line| !is_summary(line));
                // Only `each` has a code of its own for wrong settings.
                let code = if args[0] == "each" { code } else { 1 };
                assert_eq!((ran.code, lines.len()), (Some(code), 1), "{args:?}: {}", ran.err);
                for word in words {
                    assert!(lines[0].contains(word), "{args:?}: no '{word}' in {}", lines[0]);
                }
            });
        }
    });
    assert!(!dir.path().join("new").is_file(), "nothing was copied");
}

/// A server that knows nothing about objects. It ends with the test program.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let body = if first.starts_with("HEAD") { "" } else { "<html>Not found</html>" };
            let _ = write!(
                &stream,
                "HTTP/1.1 404 x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

#[test]
fn a_bucket_that_does_not_exist() {
    let words = ["'s3://nosuch/x", "The specified bucket does not exist", "check the name of the"];
    all_fail("nosuch", None, 1, &words);
}

#[test]
fn a_bucket_without_permission() {
    all_fail("denied", None, 1, &["'s3://denied/x", "check the credentials, and that they permit"]);
}

#[test]
fn an_endpoint_at_which_no_server_listens() {
    // Uploads report the number of attempts, too.
    let words = ["Connection refused", "; check AWS_ENDPOINT_URL and the network"];
    all_fail("bucket", Some("http://127.0.0.1:9"), 1, &words);
}

#[test]
fn an_endpoint_of_another_server() {
    let words = ["check that AWS_ENDPOINT_URL is that of an S3 server"];
    all_fail("bucket", Some(&web_server()), 1, &words);
}

#[test]
fn an_endpoint_without_a_scheme() {
    let words = ["'localhost:9000' does not begin with http:// or https://; set AWS_ENDPOINT_URL"];
    all_fail("bucket", Some("localhost:9000"), 2, &words);
}

#[test]
fn an_endpoint_with_tls_that_has_none() {
    let server = Server::start(Law::default());
    let url = server.endpoint().replace("http:", "https:");
    all_fail("bucket", Some(&url), 1, &["check AWS_ENDPOINT_URL"]);
}

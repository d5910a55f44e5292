//! Files on a web server in this process.

use super::Ran;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

const SMALL: &[u8] = b"a small file";
/// More than is read in one request.
const LARGE: usize = (8 << 20) + 4096;

/// A server that ends with the test program. Returns its URL.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    url
}

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at % 251) as u8).collect()
}

fn answer(mut stream: &TcpStream) {
    let lines: Vec<String> = BufReader::new(stream)
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_ascii_lowercase())
        .collect();
    let Some(first) = lines.first() else { return };
    let is_head = first.starts_with("head");
    let path = first.split(' ').nth(1).unwrap_or_default();
    let range = lines.iter().find_map(|line| line.strip_prefix("range: bytes="));
    let contents = if path.contains("large") { large() } else { SMALL.to_vec() };
    let length = contents.len();
    let head = |status: &str, more: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\nconnection: close\r\n{more}content-length: {length}\r\n\r\n")
    };
    let version = "etag: \"one\"\r\n";
    let (head, body) = match path {
        "/a/absent" => (head("404 Not Found", "", 9), b"<p>No</p>".to_vec()),
        "/a/denied" => (head("403 Forbidden", "", 0), Vec::new()),
        // As URLs that are signed for one method.
        "/a/signed?sig=x" if is_head => (head("403 Forbidden", "", 0), Vec::new()),
        // As servers that do not know the length, or the method.
        "/a/no-length" if is_head => (head("200 OK", version, 0), Vec::new()),
        "/a/no-head" if is_head => (head("404 Not Found", "", 0), Vec::new()),
        "/a/short" => (head("200 OK", version, length + 1), contents),
        "/a/weak" if lines.iter().any(|line| line.starts_with("if-match")) => {
            (head("412 Precondition Failed", "", 0), Vec::new())
        }
        "/a/weak" => (head("200 OK", "etag: W/\"one\"\r\n", length), contents),
        "/a/wrong-sum" => {
            let sum = "content-md5: 1B2M2Y8AsgTpgAmY7PhCfg==\r\n";
            (head("200 OK", sum, length), contents)
        }
        "/a/endless" => ("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_owned(), contents),
        "/a/large" if range.is_some() => {
            let (start, end) = range.unwrap().split_once('-').unwrap();
            let (start, end) = (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1);
            let more = format!("content-range: bytes {start}-{}/{length}\r\n{version}", end - 1);
            (head("206 Partial Content", &more, end - start), contents[start..end].to_vec())
        }
        _ => (head("200 OK", version, length), contents),
    };
    let _ = stream.write_all(head.as_bytes());
    if !is_head {
        let _ = stream.write_all(&body);
    }
}

fn run(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
    command.env_clear().env("HOME", "/nonexistent").args(args);
    Ran::of(command.output().unwrap())
}

#[test]
fn files_are_processed_and_copied() {
    let (url, dir) = (server(), tempfile::tempdir().unwrap());
    let file = |name: &str| format!("{url}/a/{name}");
    let target = dir.path().display().to_string();
    let small = ["small", "weak", "small%20one?a=b/c", "signed?sig=x", "no-length", "no-head"];
    for name in small.into_iter().chain(["large"]) {
        let document = run(&["cp", "--json", &file(name), &target]).well().json();
        assert_eq!((&document["files"], &document["length_only_files"]), (&1.into(), &1.into()));
    }
    for name in ["small", "weak", "small one", "signed", "no-length", "no-head"] {
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), SMALL, "{name}");
    }
    assert!(std::fs::read(dir.path().join("large")).unwrap() == large());
    let named = dir.path().join("named").display().to_string();
    run(&["cp", &format!("{url}/"), &named]).well();
    assert_eq!(std::fs::read(&named).unwrap(), SMALL);
    let of_file = run(&["each", "--per-file", "--compute", "sha256", &named]).well().out;
    let of_url = run(&["each", "--per-file", "--compute", "sha256", &file("small")]).well().out;
    assert_eq!(of_url.split(' ').next(), of_file.split(' ').next());
    assert!(of_url.trim_end().ends_with(&file("small")), "{of_url}");
    let sizes = run(&["du", "-b", &file("small")]).well().out;
    assert!(sizes.starts_with(&format!("{}\t", SMALL.len())), "{sizes}");
}

#[test]
fn what_cannot_be_read_is_one_error() {
    let (url, dir) = (server(), tempfile::tempdir().unwrap());
    let target = dir.path().join("new").display().to_string();
    for (name, words) in [
        ("a/absent", "No such file; check the URL"),
        ("a/denied", "Access denied; check that the URL can be read without a password"),
        ("a/short", "after 8 attempts"),
        ("a/endless", "the server does not say how long the file is"),
        ("a/large-without-ranges", "the server does not send ranges"),
        ("a/wrong-sum", "the store has d41d8cd98f00b204e9800998ecf8427e"),
    ] {
        let url = format!("{url}/{name}");
        run(&["cp", &url, &target]).one_error(1, words);
        assert!(!Path::new(&target).exists(), "{name}");
        if name != "a/wrong-sum" {
            let ran = run(&["each", &url]);
            assert_eq!(ran.code, Some(1), "{}", ran.err);
            assert!(ran.err.contains(words), "{}", ran.err);
        }
    }
}

#[test]
fn what_is_not_for_web_servers_is_refused() {
    let (url, dir) = (server(), tempfile::tempdir().unwrap());
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let [file, dir] = [&file, dir.path()].map(|path| path.display().to_string());
    let target = format!("{url}/new");
    let words = "files on web servers can only be read, not written";
    for args in [&["cp", &file, &target][..], &["cp", "-r", &dir, &target]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
        command.env_clear().env("XDG_STATE_HOME", format!("{dir}/state")).args(args);
        Ran::of(command.output().unwrap()).one_error(1, words);
    }
    run(&["cp", "-r", &target, &dir]).one_error(1, "there is nothing below it");
    run(&["cp", &format!("{url}/"), &dir]).one_error(1, "the URL has no name of a file");
    run(&["each", "http://user:secret@host/"]).one_error(2, "a user name or a password");
    run(&["each", "http://127.0.0.1:9/x"]).one_error(1, "check the host in the URL");
}

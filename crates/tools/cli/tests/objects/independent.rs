//! The same with a server that others wrote: s3s-fs, if it is installed.
//!
//! It checks signatures and lengths by its own code and stores objects as files, so what it received can be
//! read without our client. It answers with an error of its own if a key is one of its directories:
//! prefixes end with a slash here.

#![allow(clippy::print_stdout, reason = "says what is skipped")]

use super::Ran;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SECRET: &str = "secret";

/// Returns a program that is on the search path. Otherwise says what is skipped, and how to install it.
pub(super) fn installed(name: &str, how: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: {name} is missing; {how}");
    }
    found
}

/// Returns an address at which nothing listens.
pub(super) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits until a server listens.
pub(super) fn await_server(address: SocketAddr) {
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "the server does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates files of several sizes with odd names below `dir`; returns their root, and their paths below it.
pub(super) fn tree_in(dir: &Path) -> (PathBuf, Vec<PathBuf>) {
    let tree = dir.join("tree");
    let names = ["empty", "a/one", "a/b/two words", "a/b/é%20+&=", "large"];
    for (name, bytes) in names.iter().zip([0, 1, 4096, 70_000, 20 << 20]) {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let contents: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
        fs::write(path, contents).unwrap();
    }
    (tree, names.iter().map(PathBuf::from).collect())
}

struct Independent {
    process: Child,
    endpoint: String,
    dir: tempfile::TempDir,
}

impl Independent {
    fn start() -> Option<Self> {
        let program = installed("s3s-fs", "cargo install s3s-fs --features binary")?;
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/bucket")).unwrap();
        let address = free_address();
        let process = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--access-key", "id", "--secret-key", SECRET])
            .arg(dir.path().join("root"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        await_server(address);
        Some(Self { process, endpoint: format!("http://{address}"), dir })
    }

    fn run(&self, secret: &str, args: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
        command
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", self.dir.path().join("state"))
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ALLOW_HTTP", "true")
            .args(args);
        Ran::of(command.output().unwrap())
    }
}

impl Drop for Independent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn assert_same(names: &[PathBuf], one: &Path, other: &Path) {
    for name in names {
        let read =
            |dir: &Path| fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name:?}: {e}"));
        assert!(read(one) == read(other), "{}", name.display());
    }
}

#[test]
fn what_an_independent_server_received_and_sent_is_equal() {
    let Some(server) = Independent::start() else { return };
    let (tree, names) = tree_in(server.dir.path());
    let from = tree.display().to_string();
    let copied = server.run(SECRET, &["cp", "-r", "--json", &from, "s3://bucket/up"]).well();
    assert_eq!(copied.json()["files"], names.len());
    assert_same(&names, &tree, &server.dir.path().join("root/bucket/up"));
    let digest = |path: &str| {
        let document = server.run(SECRET, &["each", "--json", "--compute", "sha256", path]).well();
        (document.json()["files"].clone(), document.json()["digest"].clone())
    };
    assert_eq!(digest("s3://bucket/up/"), digest(&from));
    let sums = server.run(SECRET, &["du", "-b", "-s", "s3://bucket/up/"]).well().out;
    let bytes: u64 = names.iter().map(|name| fs::metadata(tree.join(name)).unwrap().len()).sum();
    assert!(sums.starts_with(&format!("{bytes}\t")), "{sums}");
    let back = server.dir.path().join("back");
    server.run(SECRET, &["cp", "-r", "s3://bucket/up/", &back.display().to_string()]).well();
    assert_same(&names, &tree, &back);
}

#[test]
fn what_an_independent_server_refuses_is_one_error() {
    let Some(server) = Independent::start() else { return };
    let each = |secret: &str, url: &str| server.run(secret, &["each", url]);
    each(SECRET, "s3://absent/up/").one_error(1, "NoSuchBucket");
    each("wrong", "s3://bucket/up/").one_error(1, "SignatureDoesNotMatch");
    let target = server.dir.path().join("target").display().to_string();
    let absent = server.run(SECRET, &["cp", "s3://bucket/absent", &target]);
    absent.one_error(1, "No such object");
    assert!(!Path::new(&target).exists());
}

//! Runs the binary on a small tree with awkward files to verify that all peers read the same bytes.

use ioloom_peers::Totals;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PEER: &str = env!("CARGO_BIN_EXE_peer");

/// All peers with a digest, and their arguments.
const PEERS: [&[&str]; 10] = [
    &["rayon", "--threads", "2"],
    &["rayon", "--threads", "16"],
    &["std-threads", "--threads", "1"],
    &["std-threads", "--threads", "7"],
    &["tokio", "--concurrency", "16"],
    &["tokio", "--concurrency", "16", "--form", "stream"],
    &["read-loop", "--buffer-kib", "4"],
    &["read-loop"],
    &["leanest", "--threads", "3", "--hash", "--buffer-kib", "4"],
    &["mmap", "--threads", "3"],
];

/// Creates 50 files with sizes around page and buffer boundaries, some in directories and one with
/// a non-UTF-8 name, and a symbolic link that must not be counted. Returns relative names and
/// bytes.
fn tree(dir: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    const SIZES: [usize; 10] = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 262_144, 300_001];
    let mut files = Vec::new();
    for i in 0..50usize {
        let mut name = format!("d{}/s{}/f{i}", i % 3, i % 2).into_bytes();
        if i == 7 {
            name.extend(b"-\xff\xfe");
        }
        let bytes: Vec<u8> = (0..SIZES[i % 10]).map(|k| (k * 31 + i * 17) as u8).collect();
        let path = dir.join(OsStr::from_bytes(&name));
        fs::create_dir_all(path.parent().expect("below the directory")).expect("makes directories");
        fs::write(path, &bytes).expect("writes a file");
        files.push((name, bytes));
    }
    std::os::unix::fs::symlink("d0/s0/f0", dir.join("link")).expect("makes a link");
    files
}

fn expected(files: &[(Vec<u8>, Vec<u8>)]) -> Totals {
    let mut totals = Totals::default();
    for (name, bytes) in files {
        totals.add_file(name, bytes);
    }
    totals
}

fn peer(args: &[&str], dir: &Path, input: &[&OsStr]) -> Value {
    let output =
        Command::new(PEER).args(args).arg(dir).args(input).output().expect("starts the peer");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("prints one JSON line")
}

fn write_list(path: PathBuf, files: &[(Vec<u8>, Vec<u8>)], end: u8) -> PathBuf {
    let mut text = Vec::new();
    for (name, _) in files {
        text.extend(name);
        text.push(end);
    }
    fs::write(&path, text).expect("writes the list");
    path
}

#[test]
fn all_peers_agree_with_the_bytes_and_with_each_other() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let files = tree(dir.path());
    let want = expected(&files);
    let newlines = write_list(scratch.path().join("n"), &files, b'\n');
    let nuls = write_list(scratch.path().join("z"), &files, 0);
    let inputs: [&[&OsStr]; 4] = [
        &[OsStr::new("--list"), newlines.as_os_str()],
        &[OsStr::new("--list"), nuls.as_os_str()],
        &[OsStr::new("--walk"), OsStr::new("walkdir")],
        &[OsStr::new("--walk"), OsStr::new("ignore")],
    ];
    for args in PEERS {
        for input in inputs {
            let line = peer(args, dir.path(), input);
            assert_eq!(line["files"], want.files, "{args:?} {input:?}");
            assert_eq!(line["bytes"], want.bytes, "{args:?} {input:?}");
            assert_eq!(line["digest"], want.hex(), "{args:?} {input:?}");
            for field in ["elapsed_ns", "peak_rss"] {
                assert!(line[field].as_u64().is_some_and(|v| v > 0), "{args:?}: {field}");
            }
            for field in ["cpu_user_ns", "cpu_kernel_ns", "walk_ns"] {
                assert!(line[field].is_u64(), "{args:?}: {field}");
            }
        }
    }
    let floor = peer(&["leanest", "--threads", "2"], dir.path(), inputs[0]);
    assert_eq!((floor["files"].as_u64(), floor["bytes"].as_u64()), (Some(50), Some(want.bytes)));
    assert_eq!(floor["digest"], Value::Null, "nothing was hashed");
}

#[test]
fn a_directory_with_a_slash_at_its_end_gives_the_same_digest() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let want = expected(&tree(dir.path())).hex();
    let mut slashed = dir.path().as_os_str().to_owned();
    slashed.push("/");
    for walker in ["walkdir", "ignore"] {
        let input = [OsStr::new("--walk"), OsStr::new(walker)];
        for args in [PEERS[0], PEERS[8]] {
            assert_eq!(peer(args, Path::new(&slashed), &input)["digest"], want, "{args:?}");
        }
    }
}

#[test]
fn a_missing_file_ends_every_peer_with_one_error_that_names_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut files = tree(dir.path());
    files.insert(20, (b"d0/not-there".to_vec(), Vec::new()));
    let list = write_list(scratch.path().join("n"), &files, b'\n');
    for args in PEERS {
        let output = Command::new(PEER)
            .args(args)
            .arg(dir.path())
            .arg("--list")
            .arg(&list)
            .output()
            .expect("starts the peer");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        assert!(error.contains("d0/not-there"), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?} printed a result despite the error");
    }
}

#[test]
fn a_list_that_leaves_the_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    tree(dir.path());
    for entry in ["../outside\n", "/etc/hostname\n", "d0/../../x\n", "\n"] {
        let list = scratch.path().join("n");
        fs::write(&list, entry).expect("writes the list");
        let output = Command::new(PEER)
            .args(PEERS[0])
            .arg(dir.path())
            .arg("--list")
            .arg(&list)
            .output()
            .expect("starts the peer");
        assert_eq!(output.status.code(), Some(1), "{entry:?}");
    }
}

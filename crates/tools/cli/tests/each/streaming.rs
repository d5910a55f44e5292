//! Lines are printed during the run, and a reader that has seen enough ends it.

use crate::place::{Each, ProcessOutput, Workspace, fresh};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Guard against hangs.
const HANG: Duration = Duration::from_secs(60);

/// Starts `each` with pipes on all sides.
fn started(place: &Workspace, args: &[&str]) -> Child {
    let mut command = place.ours(&["each"]);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends each line that arrives.
fn lines_of(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            if sender.send(line.unwrap()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// A program that waits for a line before it names the next file.
#[test]
fn each_line_is_printed_before_the_next_path_is_known() {
    let place = fresh();
    for more in [&[][..], &["--json"], &["--ordered"], &["--read-order", "inode"]] {
        let mut child = started(&place, &[&["-", "--per-file"], more].concat());
        let mut list = child.stdin.take().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        for i in 0..20 {
            let name = format!("file {i}");
            place.write(&name, &name);
            writeln!(list, "{name}").unwrap();
            let line = lines.recv_timeout(HANG);
            if line.is_err() {
                child.kill().unwrap();
            }
            assert!(line.as_ref().is_ok_and(|line| line.contains(&name)), "{more:?} {i}: {line:?}");
        }
        drop(list);
        let last = lines.recv_timeout(HANG);
        match more {
            ["--json"] => assert!(last.unwrap().contains("\"files\":20")),
            _ => assert_eq!(last, Err(RecvTimeoutError::Disconnected)),
        }
        ProcessOutput::from(child.wait_with_output().unwrap()).ended(0);
    }
}

/// Returns when a file was last read.
fn read_at(place: &Workspace, name: &str) -> (i64, i64) {
    let meta = fs::metadata(place.at(name)).unwrap();
    (meta.atime(), meta.atime_nsec())
}

/// The window of the plan limits the files that are opened after the reader has gone.
#[test]
fn a_reader_that_has_gone_ends_the_run_at_once() {
    const FILES: usize = 3000;
    let place = fresh();
    let names: Vec<String> = (0..FILES).map(|i| format!("t/{i}")).collect();
    names.iter().for_each(|name| place.write(name, "x"));
    place.write("control", "x");
    let before: Vec<_> = names.iter().map(|name| read_at(&place, name)).collect();
    let control = read_at(&place, "control");
    // Times of files advance in steps of some milliseconds.
    std::thread::sleep(Duration::from_millis(30));
    for more in [&[][..], &["--json"], &["--tag"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let args = ["t", "--per-file", "--schedule", "window:l=8,p=1"];
        let mut command = place.ours(&["each"]);
        let ran: ProcessOutput =
            command.args(args).args(more).stdout(writer).output().unwrap().into();
        assert_eq!(ran.ended(0).err, "");
    }
    fs::read(place.at("control")).unwrap();
    if read_at(&place, "control") == control {
        return println!("skipped: reading a file does not change its access time here");
    }
    let read = names.iter().zip(before).filter(|(name, before)| read_at(&place, name) != *before);
    let read = read.count();
    assert!((1..=FILES / 10).contains(&read), "{read} files were read");
}

#[test]
fn a_reported_failure_is_not_lost_with_the_reader() {
    let place = fresh();
    place.write("t/a", "a");
    for more in [&["--per-file"][..], &["--per-file", "--json"], &["--json"], &[]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.ours(&["each", "absent", "t"]);
        let ran: ProcessOutput = command.args(more).stdout(writer).output().unwrap().into();
        ran.ended(1).one_error(&["cannot stat 'absent'"]);
    }
}

/// A list that is still open, a reader that takes one line, as `head -1` does.
#[test]
fn a_reader_that_has_gone_ends_the_run_while_the_list_is_open() {
    let place = fresh();
    let mut child = started(&place, &["-", "--per-file", "--schedule", "threads:n=1"]);
    let mut list = child.stdin.take().unwrap();
    for i in 0..100 {
        place.write(format!("{i}"), "x");
        writeln!(list, "{i}").unwrap();
    }
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        drop(lines);
        let ran = child.wait_with_output().unwrap();
        let _ = sender.send((first, ran));
    });
    let (first, ran) = ended.recv_timeout(HANG).unwrap();
    assert!(first.ends_with("  0\n"), "{first}");
    assert_eq!(ProcessOutput::from(ran).ended(0).err, "");
    drop(list);
}

#[test]
fn an_output_that_fails_is_an_error() {
    let place = fresh();
    place.write("a", "a");
    place.write("sums", place.each(&["a", "--per-file"]).ended(0).out);
    for args in [&["a", "--per-file", "--quiet"][..], &["--check", "sums"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran: ProcessOutput =
            place.ours(&["each"]).args(args).stdout(full).output().unwrap().into();
        ran.ended(1).one_error(&["cannot write to standard output: No space left on device"]);
    }
}

#[test]
fn json_lines_name_every_file_and_end_with_the_document() {
    let place = fresh();
    place.odd_tree("t");
    let files = crate::place::regular_files(&place.at("t"));
    let list = [b"t/absent\0".to_vec()].into_iter().chain(files.iter().map(|name| {
        [b"t/", std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str()), b"\0"].concat()
    }));
    let list: Vec<u8> = list.flatten().collect();
    let ran = place.each_of(&["-0", "-", "--per-file", "--json", "--ordered"], &list).ended(1);
    let lines: Vec<serde_json::Value> =
        ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!((&last["command"], &last["files"]), (&"each".into(), &files.len().into()));
    assert_eq!(last["digest_partial"], true);
    assert_eq!(lines.len(), files.len() + 1);
    assert_eq!(lines[0]["path"], "t/absent");
    assert!(lines[0]["error"].as_str().unwrap().contains("No such file"), "{}", lines[0]);
    for (line, name) in lines[1..].iter().zip(&files) {
        let path = place.at("t").join(name);
        assert_eq!(line["bytes"], path.metadata().unwrap().len());
        let hash = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&fs::read(&path).unwrap()));
        assert_eq!(line["hash"], hash);
        assert_eq!(line.get("path_base64").is_some(), name.to_str().is_none(), "{line}");
        assert_eq!(line["path"], format!("t/{}", name.to_string_lossy()));
    }
}

#[test]
fn a_failed_file_is_reported_before_the_run_ends() {
    let place = fresh();
    let mut child = started(&place, &["-", "--per-file", "--quiet", "--schedule", "threads:n=1"]);
    let errors = lines_of(child.stderr.take().unwrap());
    let mut list = child.stdin.take().unwrap();
    for i in 0..20 {
        writeln!(list, "absent {i}").unwrap();
    }
    let first = errors.recv_timeout(HANG);
    assert!(first.as_ref().is_ok_and(|line| line.contains("absent 0")), "{first:?}");
    for _ in 1..20 {
        assert!(errors.recv_timeout(HANG).is_ok());
    }
    drop(list);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn closed_streams_are_errors_and_not_silent() {
    let place = fresh();
    place.write("t/a", "a");
    place.write("sums", place.each(&["t/a", "--per-file"]).ended(0).out);
    let ran = |line: &str| -> ProcessOutput {
        let mut shell = place.command("sh");
        shell.args(["-c", line]).env("ioloom", crate::place::PROGRAM);
        shell.output().unwrap().into()
    };
    for args in [
        "each t",
        "each t --json",
        "each t --per-file --quiet",
        "each t --exec 'true {}' --quiet",
        "each --check sums",
        "du t",
        "machine",
        "cp --explain t/a b",
        "--version",
        "each --help",
        "cp --help",
        "cp --version",
    ] {
        let closed = ran(&format!("\"$ioloom\" {args} >&-")).ended(1);
        closed.one_error(&["standard output is closed"]);
    }
    for args in ["--version", "each --help", "du --help", "cp --help", "cp --version"] {
        let full = ran(&format!("\"$ioloom\" {args} > /dev/full")).ended(1);
        full.one_error(&["cannot write to standard output: No space left on device"]);
    }
    for args in ["each t --quiet", "each --check sums --status", "cp t/a b"] {
        ran(&format!("\"$ioloom\" {args} >&-")).ended(0);
    }
    // What the runtime of Rust opens in place of a closed stream, but opened by the caller.
    ran("\"$ioloom\" each t 1<>/dev/null").ended(0);
    for args in [
        "each - --quiet",
        "each --check -",
        "each - --method mmap:plain --compute touch",
        "cache status -",
        "cache drop -",
    ] {
        let closed = ran(&format!("\"$ioloom\" {args} <&-")).ended(1);
        closed.one_error(&["cannot read standard input: it is closed"]);
    }
}

//! Questions about existing files, on standard input.

use crate::{ioloom, names, place};
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Goal: a signal ends a copy that waits for an answer. Method: an answer never comes.
#[test]
fn a_signal_ends_a_copy_that_waits_for_an_answer() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    for name in ["from", "to"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("file"), name).unwrap();
    }
    for (args, signal, code) in
        [(&["-i", "from/file", "to/file"][..], "TERM", 143), (&["-ri", "from/.", "to"], "INT", 130)]
    {
        let mut command = ioloom();
        command.current_dir(dir.path()).arg("cp").args(args);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = child.stderr.take().unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"? ") {
            let mut byte = [0];
            messages.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        let (signal, id) = (format!("-{signal}"), child.id().to_string());
        assert!(Command::new("kill").args([signal, id]).status().unwrap().success());
        let mut ended = None;
        for _ in 0..1000 {
            ended = child.try_wait().unwrap();
            if ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if ended.is_none() {
            child.kill().unwrap();
        }
        assert_eq!(ended.and_then(|ended| ended.code()), Some(code), "{args:?}");
        assert_eq!(fs::read(at("to/file")).unwrap(), b"to", "{args:?}");
        assert_eq!((names(dir.path()).len(), names(&at("to")).len()), (2, 1), "{args:?}");
    }
}

#[test]
fn every_file_gets_its_own_answer() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("to")).unwrap();
    for name in ["a", "b", "c", "d"] {
        fs::write(at(name), "new").unwrap();
        fs::write(at("to").join(name), "old").unwrap();
    }
    let mut command = ioloom();
    command.current_dir(dir.path()).args(["cp", "-i", "--threads=1", "a", "b", "c", "d", "to"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The end of the input is a no.
    child.stdin.take().unwrap().write_all(b"y\nno\nYes\xff\n").unwrap();
    assert!(child.wait().unwrap().success());
    let replaced =
        ["a", "b", "c", "d"].map(|name| fs::read(at("to").join(name)).unwrap() == b"new");
    assert_eq!(replaced.iter().filter(|replaced| **replaced).count(), 2);
}

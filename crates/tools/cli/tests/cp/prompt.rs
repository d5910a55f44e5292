//! Questions about existing files, on standard input.

use crate::{ioloom, names, place};
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write, pipe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Returns the exit code; kills a program that does not end.
fn code_soon(child: &mut Child) -> Option<i32> {
    code_within(child, 6000)
}

/// Like [`code_soon`]; `looks` are 10 ms apart.
fn code_within(child: &mut Child, looks: u32) -> Option<i32> {
    for _ in 0..looks {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// Goal: a signal ends a copy whose output is not read, before the ten seconds after which it is taken for blocked.
/// Method: more messages, names, and more of a document than fit in a small pipe. A busy machine can delay the end, so
/// one of five copies must end within half of that time.
#[test]
fn a_signal_ends_a_copy_whose_output_is_not_read() {
    let dir = place();
    fs::create_dir(dir.path().join("to")).unwrap();
    for i in 0..200 {
        fs::write(dir.path().join(format!("file-{i}")), "").unwrap();
    }
    for (flag, name, is_stderr) in
        [(None, "absent", true), (Some("-v"), "file", false), (Some("--json"), "absent", false)]
    {
        let code = (0..5).find_map(|_| code_of_unread(dir.path(), flag, name, is_stderr));
        assert_eq!(code, Some(143), "{flag:?}");
    }
}

/// Ends a copy of 200 files whose output is not read. Returns its exit code, or `None` if it takes too long.
fn code_of_unread(dir: &Path, flag: Option<&str>, name: &str, is_stderr: bool) -> Option<i32> {
    let (reader, writer) = pipe().unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    let mut command = ioloom();
    command.current_dir(dir).arg("cp").args(flag);
    command.args((0..200).map(|i| format!("{name}-{i}"))).arg("to");
    match is_stderr {
        true => command.stderr(writer),
        false => command.stdout(writer).stderr(Stdio::null()),
    };
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut before = 0;
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(200));
        let now = ioctl_fionread(&reader).unwrap();
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    assert!(child.try_wait().unwrap().is_none(), "{flag:?}: it does not wait for its reader");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let code = code_within(&mut child, 500);
    drop(reader);
    code
}

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
        assert_eq!(code_soon(&mut child), Some(code), "{args:?}");
        assert_eq!(fs::read(at("to/file")).unwrap(), b"to", "{args:?}");
        assert_eq!((names(dir.path()).len(), names(&at("to")).len()), (2, 1), "{args:?}");
    }
}

/// Goal: a signal that arrives together with the end of the input is not taken for a no. Method: the signal, and the
/// end right after it, many times: without a wait, half of the copies went on.
#[test]
fn a_signal_together_with_the_end_of_the_input_ends_a_copy() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("to")).unwrap();
    for name in ["a", "b", "to/a"] {
        fs::write(at(name), name).unwrap();
    }
    let signals = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
    for (signal, code) in signals.into_iter().cycle().take(30) {
        let mut command = ioloom();
        command.current_dir(dir.path()).args(["cp", "-i", "a", "b", "to"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = child.stderr.take().unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"? ") {
            let mut byte = [0];
            messages.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        let input = child.stdin.take();
        kill_process(Pid::from_child(&child), signal).unwrap();
        drop(input);
        assert_eq!(code_soon(&mut child), Some(code), "{signal:?}");
        assert_eq!(names(&at("to")), ["a"], "{signal:?}");
        assert_eq!(fs::read(at("to/a")).unwrap(), b"to/a", "{signal:?}");
    }
}

#[test]
fn every_file_gets_its_own_answer_in_the_order_of_the_sources() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("to")).unwrap();
    for name in ["a", "b", "c", "d"] {
        fs::write(at(name), "new").unwrap();
        fs::write(at("to").join(name), "old").unwrap();
    }
    let mut command = ioloom();
    command.current_dir(dir.path()).args(["cp", "-i", "a", "b", "c", "d", "to"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The end of the input is a no.
    child.stdin.take().unwrap().write_all(b"y\nno\nYes\xff\n").unwrap();
    assert!(child.wait().unwrap().success());
    let replaced =
        ["a", "b", "c", "d"].map(|name| fs::read(at("to").join(name)).unwrap() == b"new");
    assert_eq!(replaced, [true, false, true, false]);
}

//! Readers of the output that are stalled: an interrupt ends the run.

use crate::place::{Each, ProcessOutput, Workspace, fresh};
use crate::signals::{listens, lives, send, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use std::io::{PipeReader, Read, Write, pipe};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A tree whose lines do not fit in a pipe, and one whose lines do not fit by less than a buffer.
fn trees(place: &Workspace) {
    for (tree, files) in [("t", 4000), ("few", 1500)] {
        for i in 0..files {
            place.write(format!("{tree}/a-name-of-some-length-{i}"), "x");
        }
    }
    place.write("sums", place.each(&["t", "--per-file"]).ended(0).out);
    place.write("absent", (0..4000).map(|i| format!("absent-{i}\n")).collect::<String>());
    place.write("large", vec![b'x'; 1 << 20]);
}

/// Waits until as much is in the pipe as its writer can put into it.
fn until_full(pipe: &PipeReader) {
    until("the pipe is full", || {
        let before = ioctl_fionread(pipe).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        before > 2000 && ioctl_fionread(pipe).unwrap() == before
    });
}

/// Waits for the end of the program; a minute guards against a hang.
fn ended(mut child: Child) -> ProcessOutput {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("the interrupt did not end it");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

/// Interrupts the program when its output is stalled. Returns what it printed elsewhere, and the pipe.
fn interrupted(
    mut command: Command,
    output: impl FnOnce(&mut Command, Stdio),
) -> (ProcessOutput, String) {
    let (mut reader, writer) = pipe().unwrap();
    output(&mut command, writer.into());
    let child = command.spawn().unwrap();
    drop(command);
    until_full(&reader);
    send("-TERM", child.id());
    let ran = ended(child);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    (ran, text)
}

#[test]
fn an_interrupt_ends_a_run_whose_output_is_not_read() {
    let place = fresh();
    trees(&place);
    for args in [
        &["t", "--per-file"][..],
        &["t", "--per-file", "--ordered"],
        &["t", "--per-file", "--json"],
        &["t", "--per-file", "--schedule", "threads:n=1"],
        &["few", "--per-file"],
        &["t", "--per-file", "--method", "mmap:plain"],
        &["--check", "sums"],
        &["large", "large", "large", "--exec", "cat {}"],
        &["large", "large", "large", "--exec", "cat"],
    ] {
        let mut command = place.ours(&["each"]);
        command.args(args).stderr(Stdio::piped());
        let (ran, text) = interrupted(command, |command, pipe| {
            command.stdout(pipe);
        });
        let ran = ran.ended(130);
        assert!(ran.err.contains("interrupted"), "{args:?}: {}", ran.err);
        // The line that was cut is the last.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let whole = match args {
                [.., "--json"] => line.starts_with("{\"bytes\":1,"),
                ["--check", _] => line.ends_with(": OK\n"),
                _ => line.starts_with("XXH3_"),
            };
            assert!(whole, "{args:?}: {line}");
        }
    }
}

#[test]
fn an_interrupt_ends_a_run_whose_messages_are_not_read() {
    let place = fresh();
    trees(&place);
    for args in [
        &["-", "--per-file"][..],
        &["-", "--exec", "false"],
        &["-", "--per-file", "--method", "mmap:plain"],
        &["large", "large", "large", "--exec", "cat {}", "--json"],
    ] {
        let mut command = place.ours(&["each"]);
        let list = std::fs::File::open(place.at("absent")).unwrap();
        command.args(args).stdin(list).stdout(Stdio::piped());
        let (ran, _) = interrupted(command, |command, pipe| {
            command.stderr(pipe);
        });
        ran.ended(130);
    }
}

/// `script` passes on Ctrl-S, which stops the output of its terminal.
#[test]
fn an_interrupt_ends_a_run_whose_terminal_is_stopped() {
    let place = fresh();
    // The work takes longer than the guard.
    for i in 0..1000 {
        place.write(format!("t/{i}"), "x");
    }
    let each = format!(
        "echo $$ > id; exec {} each t --compute sleep:200ms --schedule threads:n=1 > out",
        crate::place::PROGRAM
    );
    let mut script = place.command("script");
    script.args(["-qec", &each, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped());
    let Ok(mut script) = script.stdout(Stdio::piped()).spawn() else {
        return println!("skipped: script is missing");
    };
    let mut shown = script.stdout.take().unwrap();
    let mut keys = script.stdin.take().unwrap();
    // The bar is drawn.
    let mut first = [0; 64];
    assert!(shown.read(&mut first).unwrap() > 0);
    keys.write_all(b"\x13").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let id = std::fs::read_to_string(place.at("id")).unwrap().trim().parse().unwrap();
    send("-TERM", id);
    let begun = Instant::now();
    while lives(id) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let has_ended = !lives(id);
    // With its terminal, what is left of the run ends.
    script.kill().unwrap();
    script.wait().unwrap();
    assert!(has_ended, "the interrupt did not end it");
}

/// A pipe that is full from the beginning.
#[test]
fn an_interrupt_ends_a_run_whose_result_is_not_read() {
    let place = fresh();
    place.write("a", "a");
    place.write("sums", place.each(&["a", "--per-file"]).ended(0).out);
    for args in [&["a"][..], &["a", "--json"], &["--check", "sums"]] {
        let (reader, mut writer) = pipe().unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&now)).unwrap() > 0 {
            writer.write_all(&[0; 4096]).unwrap();
        }
        let mut command = place.ours(&["each"]);
        let child = command.args(args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        until("it handles signals", || listens(&child));
        // By then it usually waits for the reader.
        std::thread::sleep(Duration::from_millis(500));
        send("-INT", child.id());
        let ran = ended(child).ended(130);
        assert!(ran.err.contains("interrupted"), "{args:?}: {}", ran.err);
        drop(reader);
    }
}

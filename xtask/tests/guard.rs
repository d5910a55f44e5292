//! Tests the guard between a step and its program: exit codes pass through, and no process outlives
//! the one that started it.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

fn guard(script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["guard", "--", "sh", "-c", script]).process_group(0);
    command
}

#[test]
fn exit_codes_pass_through() {
    for code in [0, 7] {
        let mut child = guard(&format!("exit {code}")).stdin(Stdio::piped()).spawn().unwrap();
        // The pipe must stay open until the end; `wait` would close it first.
        let pipe = child.stdin.take();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        drop(pipe);
    }
}

#[test]
fn the_group_ends_with_whoever_started_it() {
    let mut child = guard("echo up; sleep 600 & sleep 600")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 3]).unwrap();
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // End of file means that the background sleepers, which held the pipe open, have exited too.
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn commands_that_do_not_exist_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("frobnicate").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("is not a command"));
}

//! Interrupts of commands, of the walk and of lists on standard input.

use crate::place::{PROGRAM, ProcessOutput, Workspace, fresh};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// After this time a signal is a second request.
pub(crate) const LATER: Duration = Duration::from_millis(500);

pub(crate) fn send(signal: &str, to: u32) {
    let sent = Command::new("kill").args([signal, &to.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits for a condition; a minute guards against a hang.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn started(place: &Workspace, args: &[&str]) -> Child {
    let mut command = place.command(PROGRAM);
    command.arg("each").args(args).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns whether the program handles SIGINT.
pub(crate) fn listens(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & 0x4002 == 0x4002)
}

/// Returns the process IDs that commands have written, one file for each.
fn written(place: &Workspace) -> Vec<u32> {
    let files = fs::read_dir(place.at("ids")).unwrap().map(|entry| entry.unwrap().path());
    files.filter_map(|path| fs::read_to_string(path).unwrap().trim().parse::<u32>().ok()).collect()
}

pub(crate) fn lives(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

/// A tree of six files and a shell command that writes its process ID and that of a child of its
/// own, and then waits for longer than [`until`] does.
fn slow_commands(place: &Workspace, more: &str) -> String {
    for i in 0..6 {
        place.write(format!("t/{i}"), "x");
    }
    fs::create_dir(place.at("ids")).unwrap();
    format!("sh -c '{more} sleep 300 & echo $! > ids/$!; echo $$ > ids/$$; wait; sleep 300' sh")
}

#[test]
fn an_interrupt_ends_the_commands_that_run() {
    for signal in ["-INT", "-TERM"] {
        for path in ["", " {}"] {
            let place = fresh();
            // A shell sets SIGINT to be ignored for what it runs with &; SIGTERM ends the rest.
            let command = slow_commands(&place, "trap \"kill \\$!; exit 9\" INT;") + path;
            let program = started(&place, &["t", "--exec", &command, "-j", "2"]);
            until("two commands run", || written(&place).len() == 4);
            send(signal, program.id());
            let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
            assert!(ran.err.contains("interrupted after 0 files"), "{signal}: {}", ran.err);
            assert_eq!(written(&place).len(), 4, "{signal}: no more commands start");
            until("all have ended", || !written(&place).into_iter().any(lives));
        }
    }
}

#[test]
fn an_interrupt_ends_a_stopped_command() {
    let place = fresh();
    place.write("t/a", "a");
    fs::create_dir(place.at("ids")).unwrap();
    let command = "sh -c 'echo $$ > ids/$$; kill -STOP $$; sleep 300' sh {}";
    let program = started(&place, &["t", "--exec", command]);
    let stopped =
        |id| fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| stat.contains(") T"));
    until("the command is stopped", || written(&place).into_iter().any(stopped));
    send("-TERM", program.id());
    until("the run has ended", || !lives(program.id()));
    let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
    assert!(ran.err.contains("interrupted after 0 files"), "{}", ran.err);
    assert!(!written(&place).into_iter().any(lives));
}

fn state(id: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

#[test]
fn commands_stop_and_go_on_with_the_program() {
    let place = fresh();
    slow_commands(&place, "");
    // It starts no other program after its line: until that runs, a shell cannot stop.
    let command = "sh -c 'echo $$ > ids/$$; exec sleep 300' sh {}";
    // In a group of its own, as a shell starts it: a stop of an orphaned group is ignored.
    let mut each = place.command(PROGRAM);
    each.args(["each", "t", "--exec", command, "-j", "1"]).process_group(0);
    let program = each.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the command runs", || written(&place).len() == 1);
    let all: Vec<u32> = written(&place).into_iter().chain([program.id()]).collect();
    send("-TSTP", program.id());
    until("all are stopped", || all.iter().all(|id| state(*id) == 'T'));
    send("-CONT", program.id());
    until("all go on", || all.iter().all(|id| state(*id) != 'T'));
    send("-QUIT", program.id());
    let ended = program.wait_with_output().unwrap().status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(3));
    until("all have ended", || !written(&place).into_iter().any(lives));
}

#[test]
fn a_command_that_reads_from_the_terminal_is_an_error() {
    let place = fresh();
    place.write("t/a", "a");
    let each = format!("{PROGRAM} each t --exec \"sh -c 'read x < /dev/tty' sh {{}}\" 2> errors");
    let mut script = place.command("script");
    let child = script.args(["-qec", &each, "/dev/null"]).stdin(Stdio::null()).spawn();
    let Ok(mut child) = child else { return println!("skipped: script is missing") };
    until("the run has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let errors = fs::read_to_string(place.at("errors")).unwrap();
    assert!(errors.contains("because it uses the terminal"), "{errors}");
}

#[test]
fn a_second_interrupt_kills_the_commands() {
    let place = fresh();
    let command = slow_commands(&place, "trap \"\" INT TERM;") + " {}";
    let program = started(&place, &["t", "--exec", &command, "-j", "2"]);
    until("two commands run", || written(&place).len() == 4);
    send("-INT", program.id());
    std::thread::sleep(LATER);
    send("-TERM", program.id());
    ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
    until("all have ended", || !written(&place).into_iter().any(lives));
}

/// As `timeout` signals a process, and then its group.
#[test]
fn signals_at_the_same_time_are_one_request() {
    for _ in 0..10 {
        let place = fresh();
        place.write("a", "a");
        let mut program = started(&place, &["-", "--per-file"]);
        let mut list = program.stdin.take().unwrap();
        list.write_all(b"a\n").unwrap();
        // The first file is done, and the list is still open.
        program.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
        for signal in [Signal::TERM, Signal::INT] {
            kill_process(Pid::from_child(&program), signal).unwrap();
        }
        let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
        assert!(ran.err.contains("(partial: interrupted)"), "{}", ran.err);
        drop(list);
    }
}

#[test]
fn a_later_signal_ends_the_run_at_once() {
    let place = fresh();
    place.write("t/a", "a");
    let program = started(&place, &["t", "--compute", "sleep:60s"]);
    until("it handles signals", || listens(&program));
    let begun = Instant::now();
    send("-INT", program.id());
    std::thread::sleep(LATER);
    send("-INT", program.id());
    ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn an_interrupt_ends_a_mapped_plan_and_its_child() {
    for signal in ["-INT", "-TERM"] {
        let place = fresh();
        place.write("a", "a");
        let mut program = started(&place, &["-", "--per-file", "--method", "mmap:plain"]);
        let mut list = program.stdin.take().unwrap();
        list.write_all(b"a\n").unwrap();
        // The first file is done, and the list is still open.
        program.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
        let id = program.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let child: Option<u32> = children.ok().map(|ids| ids.trim().parse().unwrap());
        send(signal, id);
        let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
        assert!(ran.err.contains("(partial: interrupted)"), "{signal}: {}", ran.err);
        assert!(!child.is_some_and(lives), "{signal}");
        drop(list);
    }
}

#[test]
fn an_interrupt_before_the_first_file_is_reported() {
    let place = fresh();
    for (args, message) in
        [(&["-"][..], "interrupted after 0 files"), (&["--check", "-"], "interrupted")]
    {
        let mut program = started(&place, args);
        until("it handles signals", || listens(&program));
        let open = program.stdin.take();
        send("-INT", program.id());
        let ran = ProcessOutput::from(program.wait_with_output().unwrap()).ended(130);
        drop(open);
        assert!(ran.err.contains(message), "{args:?}: {}", ran.err);
    }
}

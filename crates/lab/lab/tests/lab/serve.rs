//! `serve` in a real child process.

use ioloom_lab::child::{ChildAnswer, ChildEnd, Runner, serve};
use ioloom_model::record::RunOrder;
use ioloom_model::{Measured, Outcome};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const VARIABLE: &str = "IOLOOM_LAB_TEST_CHILD";

/// Does nothing unless another test started this program as the child for a run.
#[test]
fn a_child_of_a_run() {
    let Some(kind) = std::env::var_os(VARIABLE) else { return };
    serve(|order| {
        if kind == "hang" {
            std::thread::sleep(Duration::from_secs(1000));
        }
        if kind == "server" {
            let script = "echo $$ >&2; exec sleep 1000";
            Command::new("/bin/sh").args(["-c", script]).status().unwrap();
        }
        let mut measured = Measured { files: order.files_max.unwrap_or(0), ..Measured::default() };
        for (name, value) in [("half", 0.5), ("none", f64::NAN), ("endless", f64::INFINITY)] {
            measured.extra.insert(name.to_owned(), value);
        }
        measured.curves.insert("c".to_owned(), vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)]);
        measured.others_cpu = Some(f64::NAN);
        ChildAnswer { outcome: Outcome::Done { measured: Box::new(measured) }, device_bytes: None }
    });
    std::process::exit(0);
}

fn order() -> RunOrder {
    RunOrder {
        plan: "read/threads:n=1".parse().unwrap(),
        compute: "xxh3".parse().unwrap(),
        dir: "/x".into(),
        set: None,
        files_max: Some(42),
        seed: 1,
        spans_max: 0,
        observe: ioloom_model::record::Observe::default(),
    }
}

#[test]
fn orders_are_served_and_device_bytes_filled_in() {
    // The test harness also writes to standard output; pass on only the answer.
    let script = r#""$0" --exact serve::a_child_of_a_run --nocapture | grep -a '^{'"#;
    let runner = Runner {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into(), std::env::current_exe().unwrap().into()],
        environment: vec![(VARIABLE.into(), "answer".into())],
    };
    let stop = AtomicBool::new(false);
    let end = runner.run(&order(), Duration::from_secs(120), &stop, None);
    let ChildEnd::Answered(answer) = end else { panic!() };
    let Outcome::Done { measured } = &answer.outcome else { panic!("{:?}", answer.outcome) };
    assert_eq!(measured.files, 42);
    // Non-finite values are removed; the other values of the run remain.
    assert_eq!(measured.extra.iter().collect::<Vec<_>>(), [(&"half".to_owned(), &0.5)]);
    assert_eq!(measured.curves["c"], [(0.0, 1.0), (2.0, 3.0)]);
    assert_eq!(measured.others_cpu, None);
    if std::path::Path::new("/proc/self/io").exists() {
        assert!(answer.device_bytes.is_some());
    }
}

#[test]
fn a_child_ends_when_its_parent_is_gone() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serve::a_child_of_a_run", "--nocapture"])
        .env(VARIABLE, "hang")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", serde_json::to_string(&order()).unwrap()).unwrap();
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Waits until a process has ended. The kill is asynchronous, so this polls.
fn has_ended(pid: u32) -> bool {
    (0..6000).any(|_| match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(text) if text.contains(") Z ") || text.contains(") X ") => true,
        Ok(_) => {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    })
}

#[test]
fn a_server_that_a_child_started_ends_when_the_parent_is_gone() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serve::a_child_of_a_run", "--nocapture"])
        .env(VARIABLE, "server")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", serde_json::to_string(&order()).unwrap()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let server: u32 = lines.find_map(|line| line.unwrap().parse().ok()).unwrap();
    drop(stdin);
    assert!(has_ended(server), "the server is still running");
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

//! Problems: usage errors, changing trees, interrupts and closed pipes.

use crate::place::{Du, fresh};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn wrong_use_is_one_error() {
    let place = fresh();
    place.write("t/f", "x");
    for (args, code) in [
        (&["--threads", "0", "t"][..], 2),
        (&["--method", "telepathy", "t"], 2),
        (&["--method", "names-only", "t"], 2),
        (&["--threshold", "much", "t"], 2),
        (&["--threshold", "-0", "t"], 2),
        (&["-B", "0", "t"], 2),
        (&["-s", "-a", "t"], 2),
        (&["-s", "-d", "1", "t"], 2),
        (&["-X", "absent", "t"], 2),
        (&["--files0-from", "absent"], 2),
        (&["-i", "t"], 3),
        (&["absent"], 1),
        (&["--import", "absent"], 1),
        (&["--diff", "absent", "t"], 1),
        (&["--save", "no/such/dir", "-s", "t"], 1),
    ] {
        let ran = place.du(args).ended(code);
        assert!(!ran.err.is_empty(), "{args:?}");
        if code != 2 {
            assert_eq!(ran.err.lines().count(), 1, "{args:?}: {}", ran.err);
        }
    }
}

#[test]
fn a_root_that_is_missing_leaves_the_others() {
    let place = fresh();
    place.write("t/f", "x");
    let ran = place.du(&["-s", "absent", "t"]).ended(1);
    assert!(ran.text().ends_with("\tt\n") && ran.err.contains("absent"), "{}", ran.err);
}

#[test]
fn names_that_come_and_go_are_not_errors() {
    let place = fresh();
    for i in 0..300 {
        place.write(format!("t/{i}/stays"), "x");
    }
    let (stop, root) = (AtomicBool::new(false), place.at("t"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                let dir = root.join(format!("{}/comes", i % 300));
                let _ = fs::create_dir(&dir);
                let _ = fs::write(dir.join("and-goes"), "x");
                let _ = fs::remove_dir_all(&dir);
            }
        });
        let mut codes = Vec::new();
        for threads in ["1", "2", "8", "8", "8", "2"] {
            let ran = place.du(&["-s", "--inodes", "--threads", threads, "t"]);
            let count: u64 = ran.text().split('\t').next().unwrap().parse().unwrap_or(0);
            codes.push((ran.code, count, ran.err));
        }
        stop.store(true, Ordering::Relaxed);
        for (code, count, err) in codes {
            assert_eq!(code, Some(0), "{err}");
            // Created and removed entries may or may not be counted in a directory.
            assert!((601..=601 + 2 * 300).contains(&count), "{count}");
        }
    });
}

/// Waits until the program handles signals; returns false if it exits first.
fn listening(child: &mut Child) -> bool {
    let status = format!("/proc/{}/status", child.id());
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0");
        if u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & 2 != 0) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_interrupt_prints_partial_totals() {
    let place = fresh();
    let args = ["--json", "-d0", "--threads", "1", "/usr", "/"];
    let mut command = place.our_command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if listening(&mut child) {
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let ran: crate::place::ProcessOutput = child.wait_with_output().unwrap().into();
    if ran.code != Some(130) {
        println!("skipped: this machine has too few files to be interrupted");
        return;
    }
    let json = ran.json();
    assert_eq!((&json["interrupted"], &json["complete"]), (&true.into(), &false.into()));
    assert!(ran.err.contains("incomplete"), "{}", ran.err);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let place = fresh();
    for i in 0..3000 {
        place.write(format!("t/a-name-of-some-length-{i}"), "");
    }
    let script = "\"$1\" du -a t | head -1";
    let mut command = Command::new("sh");
    let program = crate::place::PROGRAM;
    command.args(["-c", script, "sh", program]).current_dir(place.path()).stdin(Stdio::null());
    let ran: crate::place::ProcessOutput = command.output().unwrap().into();
    let ran = ran.ended(0);
    assert_eq!((ran.text().lines().count(), ran.err.as_str()), (1, ""));
}

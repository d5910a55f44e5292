//! A system that denies every kernel event, as containers do. A separate test program because fault
//! injection affects the whole process.

#![allow(clippy::print_stdout, reason = "skipped tests print a notice")]

use ioloom_model::{Level, State};
use ioloom_observe::collect::{Refused, Session, TraceOptions, probe};
use ioloom_sys::fault;
use ioloom_trace::{NO_FILE, SpanKind};
use std::time::Duration;

fn refuse_everything() {
    let mut rules = Vec::new();
    for n in 1..200 {
        for (op, errno) in [("perf_event_open", 1), ("tracefs-create", 13), ("tracefs-mount", 1)] {
            rules.push(format!("{op}:{n}:{errno}"));
        }
        rules.push(format!("tracefs-lock:{n}:13"));
    }
    fault::set(&rules.join(","));
}

#[test]
fn without_any_rights_level_0_still_works_and_others_say_why_not() {
    refuse_everything();
    let found = probe();
    assert!(found.iter().filter(|p| p.level == 0).all(|p| p.ok), "{found:?}");
    assert!(found.iter().filter(|p| p.level > 0).all(|p| !p.ok && p.remedy.is_some()));

    let options = TraceOptions { calibrate: false, ..TraceOptions::default() };
    for level in [Level::Switch, Level::Kernel] {
        refuse_everything();
        let refused = Session::start(Some(level), options).err().expect("must be refused");
        assert!(matches!(&refused, Refused::Level { level: l, .. } if *l == level));
        let text = refused.to_string();
        assert!(text.starts_with(&format!("evidence level {}", level.number())), "{text}");
        assert!(text.contains("Operation not permitted") || text.contains("denied"), "{text}");
    }

    refuse_everything();
    let session = Session::start(None, options).unwrap();
    assert_eq!(session.level(), Level::Account);
    let mut recorder = session.register("one", "worker");
    session.begin();
    recorder.begin();
    std::thread::sleep(Duration::from_millis(2));
    recorder.lap(SpanKind::Sleep, NO_FILE);
    recorder.finish();
    let raw = session.stop();
    let notes = raw.evidence.notes.join("\n");
    assert!(notes.contains("no context switches") && notes.contains("no kernel events"), "{notes}");
    let thread = raw.threads.iter().find(|t| t.role == "worker").unwrap();
    assert_eq!((thread.spans.len(), thread.accounts.len()), (1, 1));
    fault::set("");

    // Every share is present, and they add up.
    let trace = ioloom_trace::classify(raw);
    let thread = trace.threads.iter().find(|t| t.role == "worker").unwrap();
    let sum: u64 = thread.states.values().filter_map(|time| time.ns).sum();
    assert_eq!(sum, thread.end_ns - thread.start_ns);
    assert!(thread.states[&State::Sleep].ns.unwrap() > 1_000_000, "{:?}", thread.states);
    for (state, time) in &thread.states {
        let held = || thread.states.values().any(|holder| holder.includes.contains(state));
        assert!(time.ns.is_some() || (time.why.is_some() && held()), "{state:?} {time:?}");
    }
}

/// Runs the same program as an unprivileged user.
#[test]
fn an_unprivileged_user_gets_what_the_system_permits() {
    const INSIDE: &str = "IOLOOM_TEST_AS_NOBODY";
    if std::env::var_os(INSIDE).is_none() {
        use std::os::unix::process::CommandExt;
        if !ioloom_sys::proc::status().is_ok_and(|s| s.has_sys_admin()) {
            println!("skipped: already an unprivileged user");
            return;
        }
        // The copy must be readable for that user.
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        for path in [dir.path(), &copy] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = std::process::Command::new(&copy);
        command.args([
            "--exact",
            "an_unprivileged_user_gets_what_the_system_permits",
            "--nocapture",
        ]);
        let output =
            command.env(INSIDE, "1").uid(65534).gid(65534).current_dir("/").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}{output:?}");
        return;
    }
    let options = TraceOptions { calibrate: false, ..TraceOptions::default() };
    let session = Session::start(None, options).unwrap();
    let mut recorder = session.register("one", "worker");
    session.begin();
    recorder.begin();
    std::thread::sleep(Duration::from_millis(2));
    recorder.lap(SpanKind::Sleep, NO_FILE);
    recorder.finish();
    let raw = session.stop();
    let thread = raw.threads.iter().find(|t| t.role == "worker").unwrap();
    assert_eq!(thread.spans.len(), 1);
    assert_eq!(raw.level == Some(Level::Account), thread.switches.is_empty());
}

//! Studies that die midway: from SIGKILL, and from a file size limit.

use crate::bench::{Bench, TWO_ARMS, study};
use ioloom_lab::run_study;
use ioloom_model::StudySpec;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "IOLOOM_LAB_TEST_STUDY";
const RUNS: usize = 12 * 3;

fn long_study() -> StudySpec {
    let mut spec = study(TWO_ARMS);
    spec.experiments[0].blocks_full = 12;
    spec
}

/// Does nothing unless another test started this program to run a study and kill it.
#[test]
fn study_in_a_child_process() {
    let Some(dir) = std::env::var_os(VARIABLE) else { return };
    let bench = Bench::at(Path::new(&dir));
    let mut options = bench.silent();
    options.runner = bench.runner("0.02");
    if let Err(error) = run_study(&long_study(), &bench.subject, &bench.store(), &options) {
        std::fs::write(bench.dir.join("error"), error.to_string()).unwrap();
        std::process::exit(1);
    }
}

fn resume_and_check(bench: &Bench, killed: usize) {
    let store = bench.store();
    let file = store.files().unwrap().remove(0);
    let before = store.read(&file.header.session).unwrap();
    assert!(!file.ended && before.end.is_none());
    assert!(!before.runs.is_empty() && before.runs.len() < RUNS, "{}", before.runs.len());
    assert_eq!(before.header.order.len(), RUNS, "the list must be complete before the first run");
    let mut options = bench.silent();
    options.resume = true;
    let after = run_study(&long_study(), &bench.subject, &store, &options).unwrap().session;
    assert_eq!(after.runs.len(), RUNS);
    assert_eq!(after.runs[..before.runs.len()], before.runs[..], "a finished run was lost");
    let in_order = after.runs.iter().enumerate().all(|(i, r)| r.key.position as usize == i);
    assert!(in_order, "each run of the list should occur once, in order");
    let started = bench.started();
    assert!((RUNS..=RUNS + killed).contains(&started), "{started}: a finished run ran again");
}

/// Kills a study in its seventh run or later. Returns `None` if it has made all of them: a busy machine can hold up
/// the test for so long.
fn killed_in_the_middle() -> Option<Bench> {
    let bench = Bench::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::study_in_a_child_process"])
        .env(VARIABLE, &bench.dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while bench.started() < 7 {
        assert!(since.elapsed() < Duration::from_secs(120), "the study did not start running");
        if child.try_wait().unwrap().is_some() {
            assert!(bench.started() >= RUNS, "the study exited too soon");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let runs = {
        let store = bench.store();
        let file = store.files().unwrap().remove(0);
        store.read(&file.header.session).unwrap().runs.len()
    };
    (runs < RUNS).then_some(bench)
}

#[test]
fn a_study_killed_in_the_middle_resumes_and_loses_no_finished_run() {
    let bench = (0..10).find_map(|_| killed_in_the_middle());
    let bench = bench.expect("every study finished before it was killed");
    resume_and_check(&bench, 1);
}

#[test]
fn a_store_that_cannot_grow_ends_the_study_with_one_error_and_resumes() {
    let bench = Bench::new();
    // The unit is 512 or 1024 bytes, depending on the shell; either limit is reached before the
    // last run.
    let script = r#"trap "" XFSZ; ulimit -f 32; exec "$0" "$@""#;
    let status = Command::new("/bin/sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "kill::study_in_a_child_process"])
        .env(VARIABLE, &bench.dir)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    let error = std::fs::read_to_string(bench.dir.join("error")).unwrap();
    assert!(error.starts_with("cannot write to ") && error.contains(".jsonl"), "{error}");
    assert!(error.contains("recorded runs are safe"), "{error}");
    let store = bench.store();
    let file = store.files().unwrap().remove(0);
    let session = store.read(&file.header.session).unwrap();
    assert_eq!(session.torn_bytes, 0, "the partial line should have been removed");
    resume_and_check(&bench, 1);
}

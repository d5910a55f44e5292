//! Studies that stop early: killed, interrupted, or out of space.

use crate::home::{Home, TINY};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Number of runs in the long study: three arms, one of them twice, in every block.
const BLOCKS: usize = 20;
const RUNS: usize = 3 * BLOCKS;

fn long_study(home: &Home) -> Vec<String> {
    let text = TINY.replace("blocks_quick = 3", &format!("blocks_quick = {BLOCKS}"));
    let studies = home.studies(&text);
    ["study", "tiny", "--studies", &studies].map(str::to_owned).to_vec()
}

/// Attempts to stop a study before it has finished. A busy machine can hold up a test for so long that one
/// attempt comes too late.
const ATTEMPTS: usize = 10;

/// Returns the result of the first attempt that was in time.
fn in_time<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    (0..ATTEMPTS).find_map(|_| attempt()).expect("every study finished before it was stopped")
}

/// Starts the study and waits until this many lines are recorded, the header included. Returns `None` if it has
/// finished.
fn after(lines: usize, home: &Home, args: &[String]) -> Option<Child> {
    let mut command = home.command(args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let since = Instant::now();
    while home.lines().len() < lines {
        assert!(since.elapsed() < Duration::from_secs(120), "the study does not start");
        if child.try_wait().unwrap().is_some() {
            assert!(home.lines().len() > RUNS, "the study exited too early");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(child)
}

fn resumed_whole(home: &Home, args: &[String], before: &[String]) {
    let mut again = args.to_vec();
    again.push("--resume".to_owned());
    let ran = home.run(&again).well();
    assert!(ran.err.contains("continuing session"), "{}", ran.err);
    let after = home.lines();
    assert_eq!(after[..before.len()], *before, "no finished run is lost or changed");
    let positions: Vec<u64> =
        home.records().iter().map(|r| r["key"]["position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (0..RUNS as u64).collect::<Vec<_>>(), "each run is recorded once");
}

/// Killed, resumed, killed again and resumed: the same set of runs as without kills.
#[test]
fn a_study_killed_twice_loses_no_finished_run_and_repeats_none() {
    let (home, args, before) = in_time(|| {
        let home = Home::new();
        let args = long_study(&home);
        let resume = [&args[..], &["--resume".to_owned()]].concat();
        let mut before: Vec<String> = Vec::new();
        for args in [&args, &resume] {
            let mut child = after(before.len() + 8, &home, args)?;
            child.kill().unwrap();
            child.wait().unwrap();
            let now = home.lines();
            assert_eq!(now[..before.len()], *before, "a finished run is lost or changed");
            before = now;
        }
        (before.len() < RUNS).then_some((home, args, before))
    });
    resumed_whole(&home, &args, &before);
}

#[test]
fn an_interrupted_study_exits_with_130_and_says_how_to_resume() {
    let (home, args, output) = in_time(|| {
        let home = Home::new();
        let args = long_study(&home);
        let child = after(8, &home, &args)?;
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let output = child.wait_with_output().unwrap();
        (home.lines().len() < RUNS).then_some((home, args, output))
    });
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("Continue with: ioloom study tiny") && err.contains("--resume"), "{err}");
    resumed_whole(&home, &args, &home.lines());
}

/// Returns the paths and texts of the sessions of a study.
fn sessions_of(home: &Home, study: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(home.store().join("sessions")).into_iter().flatten();
    let paths = entries.map(|e| e.unwrap().path());
    let own = paths.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(study));
    let mut all: Vec<_> = own
        .map(|p| (p.display().to_string(), std::fs::read_to_string(&p).unwrap_or_default()))
        .collect();
    all.sort();
    all
}

/// Kills the second of two studies, and returns the directory of both definitions. Returns `None` if both have
/// finished.
fn killed_in_the_second_study() -> Option<(Home, String)> {
    let home = Home::new();
    let studies =
        home.studies(&TINY.replace("blocks_quick = 3", &format!("blocks_quick = {BLOCKS}")));
    let first = TINY.replace("name = \"tiny\"", "name = \"before\"");
    std::fs::write(home.path("studies/before.toml"), first).unwrap();
    let lines = || sessions_of(&home, "tiny").first().map_or(0, |(_, text)| text.lines().count());
    let args = ["study", "--studies", &studies].map(str::to_owned);
    let mut command = home.command(&args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while lines() < 8 {
        assert!(since.elapsed() < Duration::from_secs(120), "the second study does not start");
        if child.try_wait().unwrap().is_some() {
            assert!(lines() > RUNS, "the command exited too early");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let is_in_time = lines() < RUNS;
    is_in_time.then_some((home, studies))
}

/// The second of several studies is killed after the first has finished. Resuming repeats neither.
#[test]
fn resuming_several_studies_repeats_no_finished_one() {
    let (home, studies) = in_time(killed_in_the_second_study);
    let before = sessions_of(&home, "before");
    assert_eq!(before.len(), 1);
    let again = ["study", "--studies", &studies, "--resume", "--json"];
    let ran = home.run(&again).well();
    assert!(ran.err.contains("Already complete in session before-"), "{}", ran.err);
    assert_eq!(sessions_of(&home, "before"), before, "the first study was repeated or changed");
    let tiny = sessions_of(&home, "tiny").len();
    assert_eq!(tiny, 1, "the second study did not continue its session");
    let document = ran.json();
    let runs: Vec<_> = document["studies"].as_array().unwrap().iter().map(|s| &s["runs"]).collect();
    assert_eq!(runs, [9, RUNS], "one report contains both studies");
}

/// --resume does not repeat a finished session, and starts one that does not exist yet.
#[test]
fn resuming_without_an_unfinished_session_starts_or_is_refused() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let one = ["study", "tiny", "--studies", &studies, "--resume"];
    let ran = home.run(&one).well();
    assert!(
        ran.err.contains("nothing to resume") && ran.err.contains("starting a new session"),
        "{}",
        ran.err
    );
    let before = home.lines();
    home.run(&one).one_error(3, &["nothing to resume", "is finished", "omit --resume"]);
    assert_eq!(home.lines(), before, "runs were added");
    // Other options start a different study.
    let other = [&one[..], &["--random", "7"]].concat();
    home.run(&other).well();
}

/// A command that stopped between two of its studies has no unfinished session.
#[test]
fn resuming_several_studies_starts_those_without_a_session() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let first = TINY.replace("name = \"tiny\"", "name = \"before\"");
    std::fs::write(home.path("studies/before.toml"), first).unwrap();
    let sessions = || {
        let entries = std::fs::read_dir(home.store().join("sessions")).unwrap();
        let mut all: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    };
    let all = ["study", "--studies", &studies, "--resume"];
    let ran = home.run(&all).well();
    assert!(ran.err.contains("Nothing to resume: no unfinished session"), "{}", ran.err);
    let [before, tiny] = <[_; 2]>::try_from(sessions()).unwrap();
    home.run(&all).one_error(3, &["nothing to resume", "is finished", "omit --resume"]);
    std::fs::remove_file(&tiny).unwrap();
    let ran = home.run(&all).well();
    assert!(ran.err.contains("Already complete in session before-"), "{}", ran.err);
    assert_eq!(sessions().len(), 2, "one session exists and one was created");
    assert_eq!(sessions()[0], before);
    home.run(&all).one_error(3, &["is finished"]);
}

/// The unfinished session of the second study does not match: the definition of the study has changed.
#[test]
fn a_changed_study_begins_a_new_batch() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let first = TINY.replace("name = \"tiny\"", "name = \"before\"");
    std::fs::write(home.path("studies/before.toml"), first).unwrap();
    let sessions = || -> Vec<(PathBuf, String)> {
        let entries = std::fs::read_dir(home.store().join("sessions")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut all: Vec<_> =
            paths.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
        all.sort();
        all
    };
    let all = ["study", "--studies", &studies, "--resume"];
    home.run(&all).well();
    let old = sessions();
    let (stale, text) = old.last().unwrap().clone();
    let end = text.rfind("{\"end\":").unwrap();
    std::fs::write(&stale, &text[..end]).unwrap();
    home.studies(&TINY.replace("blocks_quick = 3", "blocks_quick = 4"));
    let ran = home.run(&all).well();
    assert!(ran.err.contains("Already complete in session before-"), "{}", ran.err);
    let now = sessions();
    assert_eq!(now.len(), 3);
    assert!(now.contains(&(stale, text[..end].to_owned())), "the old session was changed");
    let batches = now.iter().filter(|(_, text)| text.contains("\"sitting\":")).count();
    assert_eq!(batches, 1, "the new session is in the old batch");
    // With the study that was complete before, the new batch is finished.
    home.run(&all).one_error(3, &["nothing to resume", "is finished"]);
    // If it is not, its session is continued, in the same batch.
    let is_new = |path: &Path| old.iter().all(|(known, _)| known != path);
    let (new, text) = now.iter().find(|(path, _)| is_new(path)).unwrap();
    std::fs::write(new, &text[..text.rfind("{\"end\":").unwrap()]).unwrap();
    let ran = home.run(&all).well();
    assert!(ran.err.contains("Already complete in session before-"), "{}", ran.err);
    assert_eq!(sessions().len(), 3);
    assert!(std::fs::read_to_string(new).unwrap().contains("{\"end\":"));
    home.run(&all).one_error(3, &["nothing to resume", "is finished"]);
    // Earlier sessions do not count for a command that began without --resume.
    home.run(&["study", "--studies", &studies]).well();
    let (last, _) = sessions().into_iter().rfind(|(path, _)| is_new(path) && path != new).unwrap();
    std::fs::remove_file(last).unwrap();
    assert_eq!(sessions().len(), 4);
    home.run(&all).well();
    assert_eq!(sessions().len(), 5);
}

/// The newest unfinished session is that of a command with one study.
#[test]
fn resuming_several_studies_does_not_continue_another_command() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let first = TINY.replace("name = \"tiny\"", "name = \"before\"");
    std::fs::write(home.path("studies/before.toml"), first).unwrap();
    let sessions = || -> BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(home.store().join("sessions")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let without_end = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let end = text.rfind("{\"end\":").unwrap();
        std::fs::write(path, &text[..end]).unwrap();
    };
    home.run(&["study", "--studies", &studies]).well();
    let both = sessions();
    home.run(&["study", "tiny", "--studies", &studies]).well();
    let all = sessions();
    let [alone] = all.difference(&both).collect::<Vec<_>>()[..] else { panic!("{all:?}") };
    let is_tiny = |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("tiny");
    let tiny = both.iter().find(is_tiny).unwrap();
    without_end(alone);
    without_end(tiny);
    let before = std::fs::read_to_string(alone).unwrap();
    let ran = home.run(&["study", "--studies", &studies, "--resume"]).well();
    assert!(ran.err.contains("Already complete in session before-"), "{}", ran.err);
    assert_eq!(sessions(), all);
    assert_eq!(std::fs::read_to_string(alone).unwrap(), before);
    assert!(std::fs::read_to_string(tiny).unwrap().contains("{\"end\":"));
}

#[test]
fn a_store_that_cannot_grow_is_one_error_and_the_session_can_resume() {
    let home = Home::new();
    let args = long_study(&home);
    // The unit of the limit is 512 or 1024 bytes, depending on the shell; the study exceeds both.
    let script = r#"trap "" XFSZ; ulimit -f 96; exec "$0" "$@""#;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).arg(home.program());
    let output = home.with_home(shell, &args).output().unwrap();
    let ran = crate::home::Ran::from(output);
    ran.one_error(1, &["write", "finished runs are kept", "--resume"]);
    let before = home.lines();
    assert!(before.len() > 1 && before.len() < RUNS, "{}", before.len());
    resumed_whole(&home, &args, &before);
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let home = Home::new();
    let mut command = home.command(&["claims", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!err.contains("panicked") && !err.contains("ioloom:"), "{err}");
    assert_eq!(output.status.code(), Some(0));
}

//! Runs a program under a hard limit, in its own process group.
//!
//! The limit guards against hangs, not slowness. A small guard (this executable with the argument
//! `guard`) runs between this process and the program. It leads the new group, and its standard
//! input is a pipe from this process. When this process exits for any reason (Ctrl-C, SIGKILL), the
//! pipe closes and the guard kills the group, so nothing is left running. At the limit, the group
//! is killed after its running commands are recorded. The cost is one additional process per step.

use crate::tools;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_current_process_group, kill_process_group};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Number of output lines retained for the final message.
const LINES_KEPT_MAX: usize = 400;

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    program: PathBuf,
    args: Vec<String>,
    dir: PathBuf,
    env: Vec<(String, String)>,
    uid: Option<u32>,
    limit: Duration,
    guard: PathBuf,
    quiet: bool,
}

thread_local! {
    /// Whether the jobs of this thread run in the background.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Runs `steps`, whose jobs get the lowest priority and print only what failed.
pub(crate) fn in_background<T>(steps: impl FnOnce() -> T) -> T {
    IN_BACKGROUND.set(true);
    let result = steps();
    IN_BACKGROUND.set(false);
    result
}

/// A job that runs while other steps run.
#[derive(Debug)]
pub(crate) struct Background {
    job: std::thread::JoinHandle<anyhow::Result<Ended>>,
    start: Instant,
}

impl Background {
    /// Waits for the job and prints its last lines.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) fn join(self) -> anyhow::Result<Ended> {
        let ended = self.job.join().map_err(|_| anyhow::anyhow!("a background job panicked"))??;
        ended.lines.iter().for_each(|line| println!("{line}"));
        println!("ended after {:.0} s in the background", self.start.elapsed().as_secs_f64());
        Ok(ended)
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; 128 + signal if a signal ended it.
    pub(crate) code: i32,
    /// The command lines running when it was killed at the limit; `None` if it was not killed.
    pub(crate) killed: Option<Vec<String>>,
    /// The last lines of standard output and error, in order of arrival.
    pub(crate) lines: VecDeque<String>,
    /// Test results parsed from the lines, if a test runner wrote them.
    pub(crate) tests: Tests,
}

/// The output of a test runner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Names of failed tests.
    pub(crate) failed: Vec<String>,
    /// Number of failed tests in the results.
    failures: u64,
    /// Test programs that ended without a result.
    aborted: Vec<String>,
    /// The test program that cargo started last.
    started: Option<String>,
    /// Lists of tests that began and have no result so far.
    open: Vec<List>,
    /// Whether a list of its own began since.
    began: bool,
    /// Whether a signal or an exit in a test ended that program.
    has_ended: bool,
    /// Whether it runs the tests of documents.
    is_of_documents: bool,
    /// Announcements of slow tests.
    slow: Vec<String>,
    /// The test that finished last.
    last: Option<String>,
}

/// Exit status of a test program in which tests failed.
const FAILED_TESTS: &str = "101";

/// A list of tests that a program announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct List {
    count: u64,
    /// Whether it is a list of the program that cargo started. Tests start the same program as a child, which
    /// prints a list too, and no result if it is killed.
    is_own: bool,
}

impl Tests {
    /// Reads complete output.
    #[cfg(test)]
    pub(crate) fn of(lines: &[String]) -> Self {
        let mut tests = Self::default();
        lines.iter().for_each(|line| tests.see(line));
        tests
    }

    fn see(&mut self, line: &str) {
        // Cargo indents these words, so output of tests hardly begins with them.
        let program =
            line.strip_prefix("     Running ").or_else(|| line.strip_prefix("   Doc-tests "));
        let list = || line.strip_prefix("running ")?.split_once(" test")?.0.parse::<u64>().ok();
        if let Some(program) = program {
            self.aborted = self.aborted();
            self.started = Some(program.to_owned());
            self.is_of_documents = line.starts_with("   Doc-tests ");
            self.open.clear();
            self.began = false;
            self.has_ended = false;
        } else if let Some(count) = list() {
            // Tests of documents can run in several programs, one after another, and start no children.
            let is_own = !self.began || self.is_of_documents;
            self.open.push(List { count, is_own });
            self.began = true;
        } else if is_end_without_result(line) {
            self.has_ended = self.started.is_some();
        } else if line.contains("has been running for over") {
            self.slow.push(line.trim_start_matches("test ").to_owned());
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let count = |at: usize, word: &str| {
                let words = rest.split("; ").nth(at)?.strip_suffix(word)?.trim_end();
                words.rsplit(' ').next()?.parse::<u64>().ok()
            };
            let words = ["passed", "failed", "ignored", "measured"];
            let counts = [0, 1, 2, 3].map(|at| count(at, words[at]).unwrap_or(0));
            self.passed += counts[0];
            self.failures += counts[1];
            let total: u64 = counts.iter().sum();
            let at = |own: bool| {
                self.open.iter().rposition(|list| list.count == total && list.is_own == own)
            };
            if let Some(at) = at(true).or_else(|| at(false)) {
                self.open.remove(at);
            }
        } else if let Some(rest) = line.strip_prefix("test ") {
            if let Some(name) = rest.strip_suffix(" ... FAILED") {
                self.failed.push(name.to_owned());
            }
            self.last = Some(rest.to_owned());
        }
    }

    /// Returns the test programs that ended without a result, as after an abort.
    pub(crate) fn aborted(&self) -> Vec<String> {
        let has_none = self.started.is_some() && !self.began;
        let is_open = has_none || self.has_ended || self.open.iter().any(|list| list.is_own);
        let last = is_open.then(|| self.started.clone().unwrap_or_else(|| "a program".to_owned()));
        self.aborted.iter().cloned().chain(last).collect()
    }

    /// Returns whether the names in [`Self::failed`] are all that failed.
    pub(crate) fn names_all_failures(&self) -> bool {
        self.aborted().is_empty() && self.failures == self.failed.len() as u64
    }
}

/// Returns whether cargo prints here that a signal, or an exit in a test, ended a test program. Its list can have
/// been taken for one with a result: a child that ended may have had as many tests.
fn is_end_without_result(line: &str) -> bool {
    let words = line.trim_start();
    let status = || words.rsplit_once(" (exit status: ")?.1.split(')').next();
    words.starts_with("process didn't exit successfully: ")
        && (words.contains(" (signal: ") || status().is_some_and(|status| status != FAILED_TESTS))
}

impl Ended {
    /// Returns whether it exited on its own with code 0.
    pub(crate) fn fine(&self) -> bool {
        self.killed.is_none() && self.code == 0
    }

    /// Describes the failure in one line.
    pub(crate) fn word(&self) -> String {
        match &self.killed {
            None => format!("exit code {}", self.code),
            Some(running) => {
                let mut word = "killed at the limit".to_owned();
                if let Some(slow) = self.tests.slow.last() {
                    word += &format!("; slow: {slow}");
                } else if let Some(last) = &self.tests.last {
                    word += &format!("; last test: {last}");
                }
                if let Some(last) = running.last() {
                    word += &format!("; running: {last}");
                }
                word
            }
        }
    }
}

impl Job {
    /// A program from the list in [`tools`], run in `dir`.
    pub(crate) fn new(name: &'static str, args: &[&str], dir: &Path, limit_s: u64) -> Self {
        let program = tools::find(name).unwrap_or_else(|| name.into());
        Self::built(program, args, dir, limit_s)
    }

    /// A program that this repository built.
    pub(crate) fn built(program: PathBuf, args: &[&str], dir: &Path, limit_s: u64) -> Self {
        Self {
            program,
            args: args.iter().map(|&a| a.to_owned()).collect(),
            dir: dir.to_owned(),
            env: Vec::new(),
            uid: None,
            limit: Duration::from_secs(limit_s),
            // This path stays valid when a step rebuilds this program.
            guard: "/proc/self/exe".into(),
            quiet: false,
        }
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Runs it as this user and group; needs root.
    pub(crate) fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Starts it in the background with the lowest priority, so it uses only what other steps leave
    /// idle. [`Background::join`] prints its output.
    pub(crate) fn in_background(self) -> Background {
        println!("$ {} &", self.shown());
        let job = std::thread::spawn(move || self.low().run_here());
        Background { job, start: Instant::now() }
    }

    /// The same job with the lowest priority and without output.
    fn low(&self) -> Self {
        let mut low = self.clone();
        let program = std::mem::replace(&mut low.program, "nice".into());
        let first = ["-n".to_owned(), "19".to_owned(), program.to_string_lossy().into_owned()];
        low.args = first.into_iter().chain(low.args).collect();
        low.quiet = true;
        low
    }

    /// The command line.
    pub(crate) fn shown(&self) -> String {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        std::iter::once(name).chain(self.args.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    /// Runs it to completion or until the limit.
    ///
    /// # Errors
    /// It cannot be started. A failed exit is not an error.
    pub(crate) fn run(&self) -> anyhow::Result<Ended> {
        if !IN_BACKGROUND.get() {
            return self.run_here();
        }
        let ended = self.low().run_here()?;
        if !ended.fine() {
            println!("$ {} &", self.shown());
            ended.lines.iter().for_each(|line| println!("{line}"));
        }
        Ok(ended)
    }

    fn run_here(&self) -> anyhow::Result<Ended> {
        if !self.quiet {
            println!("$ {}", self.shown());
        }
        let (reader, mut child) = self.start()?;
        let (line_tx, line_rx) = mpsc::channel();
        std::thread::spawn(move || read_lines(reader, &line_tx));
        let mut ended =
            Ended { code: 0, killed: None, lines: VecDeque::new(), tests: Tests::default() };
        let start = Instant::now();
        loop {
            take_lines(&line_rx, &mut ended, Duration::from_millis(50), self.quiet);
            if let Some(status) = child.try_wait().context("wait for a step")? {
                ended.code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                break;
            }
            if start.elapsed() > self.limit {
                ended.killed = Some(command_lines_of_group(child.id()));
                ended.code = 137;
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                child.wait().context("wait for a killed step")?;
                break;
            }
        }
        // Leftover processes would hold the pipe and use CPUs, so kill the group.
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        take_lines(&line_rx, &mut ended, Duration::from_secs(10), self.quiet);
        Ok(ended)
    }

    /// Starts it without the guard, for callers that kill it themselves. Its output goes to the
    /// file `said`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start_apart(&self, said: &Path) -> anyhow::Result<Kept> {
        let file =
            std::fs::File::create(said).context("create a file for the output of a program")?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .current_dir(&self.dir)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("share a file")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {}", self.shown()))?;
        Ok(Kept(child))
    }

    fn start(&self) -> anyhow::Result<(std::io::PipeReader, Child)> {
        let (reader, writer) = std::io::pipe().context("make a pipe for a step")?;
        let mut command = Command::new(&self.guard);
        command.arg("guard");
        if let Some(uid) = self.uid {
            command.arg("--uid").arg(uid.to_string());
        }
        command
            .arg("--")
            .arg(&self.program)
            .args(&self.args)
            .current_dir(&self.dir)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::piped())
            .stdout(writer.try_clone().context("share a pipe")?)
            .stderr(writer)
            .process_group(0);
        let child = command.spawn().with_context(|| format!("start {}", self.shown()))?;
        Ok((reader, child))
    }
}

/// A program that was started without the guard. Dropping it kills it with SIGKILL, as a crash
/// would.
#[derive(Debug)]
pub(crate) struct Kept(Child);

impl Kept {
    /// Waits up to `limit` for it to exit. Returns the exit code, or 128 + signal, or `None` if it
    /// is still running.
    ///
    /// # Errors
    /// If the system cannot report its state.
    pub(crate) fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<i32>> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().context("wait for a program")? {
                return Ok(Some(status.code().unwrap_or(128 + status.signal().unwrap_or(0))));
            }
            let left = limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(Duration::from_millis(2)));
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives lines for `patience` or until the pipe is closed, and prints them unless `quiet`.
fn take_lines(lines: &mpsc::Receiver<String>, ended: &mut Ended, patience: Duration, quiet: bool) {
    let until = Instant::now() + patience;
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if !quiet {
            println!("{line}");
        }
        ended.tests.see(&line);
        if ended.lines.len() == LINES_KEPT_MAX {
            ended.lines.pop_front();
        }
        ended.lines.push_back(line);
    }
}

/// Returns the output of a program from the list in [`tools`] that exits immediately and therefore
/// needs no guard.
///
/// # Errors
/// It cannot be started or fails; the message contains its standard error.
pub(crate) fn ask(name: &'static str, args: &[&str], dir: &Path) -> anyhow::Result<String> {
    let program = tools::find(name).unwrap_or_else(|| name.into());
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {}: {}: {}", args.join(" "), output.status, words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read_lines(reader: impl Read, lines: &mpsc::Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        if lines.send(line).is_err() {
            return;
        }
    }
}

/// The command lines of a process group, oldest first, without the guard.
fn command_lines_of_group(group: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in parentheses may contain anything; the fields follow the last parenthesis.
        let of_group =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2)?.parse().ok());
        if pid == group || of_group != Some(group) {
            continue;
        }
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
        found.push((pid, line.chars().take(160).collect()));
    }
    found.sort();
    found.into_iter().map(|(_, line)| line).collect()
}

/// The guard: `guard [--uid N] -- PROGRAM ARGS…`.
pub(crate) fn child(args: &[String]) -> ExitCode {
    let (uid, command) = match args {
        [flag, uid, dashes, command @ ..] if flag == "--uid" && dashes == "--" => {
            (uid.parse::<u32>().ok(), command)
        }
        [dashes, command @ ..] if dashes == "--" => (None, command),
        _ => return ExitCode::from(2),
    };
    let Some((program, rest)) = command.split_first() else { return ExitCode::from(2) };
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = kill_current_process_group(Signal::KILL);
    });
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    match command.status() {
        Ok(status) => {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
        Err(error) => {
            println!("cannot start {program}: {error}");
            ExitCode::from(127)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(killed: Option<Vec<String>>, lines: &[&str]) -> Ended {
        let mut ended =
            Ended { code: 137, killed, lines: VecDeque::new(), tests: Tests::default() };
        lines.iter().for_each(|line| ended.tests.see(line));
        ended
    }

    #[test]
    fn a_kill_names_the_test() {
        let running = vec!["cargo test".to_owned(), "deps/lab-1".to_owned()];
        let lines = ["test a ... ok", "test b ... ok", "noise"];
        assert_eq!(
            ended(Some(running), &lines).word(),
            "killed at the limit; last test: b ... ok; running: deps/lab-1"
        );
        let lines = ["test c has been running for over 60 seconds", "test a ... ok"];
        let word = ended(Some(vec![]), &lines).word();
        assert!(word.ends_with("slow: c has been running for over 60 seconds"), "{word}");
        assert_eq!(ended(None, &[]).word(), "exit code 137");
    }

    #[test]
    fn results_of_tests_are_added_up() {
        let lines = [
            "test a ... ok",
            "test b ... FAILED",
            "test result: FAILED. 11 passed; 1 failed; 0 ignored; 0 measured",
            "test result: ok. 30 passed; 0 failed; 2 ignored; 0 measured",
        ];
        let tests = ended(None, &lines).tests;
        assert_eq!((tests.passed, tests.failed), (41, vec!["b".to_owned()]));
    }

    #[test]
    fn programs_without_a_result_are_found() {
        let one = ["     Running unittests src/lib.rs (target/debug/deps/a-1)", "running 1 test"];
        let failed = ["test a ... FAILED", "test result: FAILED. 0 passed; 1 failed; 0 ignored"];
        let other = ["     Running tests/b.rs (target/debug/deps/b-1)", "running 2 tests"];
        let fine = ["test result: ok. 2 passed; 0 failed; 0 ignored"];
        let of = |parts: &[&[&str]]| ended(None, &parts.concat()).tests;
        let both =
            of(&[&one, &failed, &other, &fine, &["   Doc-tests a", "running 2 tests"], &fine]);
        assert!(both.aborted().is_empty() && both.names_all_failures());
        let second = of(&[&one, &failed, &other]);
        assert_eq!(second.aborted(), ["tests/b.rs (target/debug/deps/b-1)"]);
        assert!(!second.names_all_failures());
        let first = of(&[&other[..1], &one, &failed]);
        assert_eq!(first.aborted(), ["tests/b.rs (target/debug/deps/b-1)"]);
        // The first program of a document aborts, and the second one has a result.
        let part = of(&[&["   Doc-tests a", "running 3 tests"], &one[1..], &failed]);
        assert_eq!(part.aborted(), ["a"]);
        // A test kills its child, which has announced its list, and another child ends.
        let child = ["running 1 test", "running 1 test", "test result: ok. 1 passed; 0 failed"];
        assert!(of(&[&other, &child, &fine, &one, &failed]).names_all_failures());
        assert_eq!(of(&[&other, &child]).aborted(), ["tests/b.rs (target/debug/deps/b-1)"]);
        // The child of a single test ends, and then a signal ends the program.
        let single = ["     Running tests/c.rs (target/debug/deps/c-1)", "running 1 test"];
        let ended_child = ["running 1 test", "test result: ok. 1 passed; 0 failed"];
        let killed = [
            "error: test failed, to rerun pass `-p c --test c`",
            "",
            "Caused by:",
            "  process didn't exit successfully: `/deps/c-1` (signal: 9, SIGKILL: kill)",
        ];
        let c = "tests/c.rs (target/debug/deps/c-1)";
        assert_eq!(of(&[&single, &ended_child, &killed]).aborted(), [c]);
        assert_eq!(of(&[&single, &ended_child, &killed, &one, &failed]).aborted(), [c]);
        let code = ["  process didn't exit successfully: `/deps/a-1` (exit status: 101)"];
        assert!(of(&[&one, &failed, &code]).names_all_failures());
        let exited = ["  process didn't exit successfully: `/deps/c-1` (exit status: 2)"];
        assert_eq!(of(&[&single, &ended_child, &exited]).aborted(), [c]);
        // A name is missing, because another line was printed between its words.
        assert!(!of(&[&one, &failed[1..]]).names_all_failures());
    }

    #[test]
    fn own_group_is_listed() {
        // This process is in its own group. The guard of a group is omitted, so another process is
        // expected only if this process is not the leader.
        let group = rustix::process::getpgrp().as_raw_nonzero().get().cast_unsigned();
        if group != std::process::id() {
            assert!(!command_lines_of_group(group).is_empty());
        }
    }

    #[test]
    fn lines_survive_what_is_not_text() {
        let (tx, rx) = mpsc::channel();
        read_lines(&b"one\n\xff two\nlast"[..], &tx);
        drop(tx);
        let lines: Vec<_> = rx.iter().collect();
        assert_eq!(lines, ["one", "\u{fffd} two", "last"]);
    }

    /// Runs a shell script under the program that cargo built for the tests of this crate. Returns
    /// `None` if it was not built, as with `cargo test --bin xtask`.
    fn run_script(script: &str, limit_s: u64) -> Option<Ended> {
        let guard = std::env::current_exe().unwrap().ancestors().nth(2)?.join("xtask");
        if !guard.is_file() {
            println!("skipped: {} was not built", guard.display());
            return None;
        }
        let args = ["-c", script];
        let mut job = Job::built("/bin/sh".into(), &args, Path::new("/"), limit_s);
        job.guard = guard;
        Some(job.env("WORD", "seen").run().unwrap())
    }

    #[test]
    fn output_and_code_come_back() {
        if let Some(ended) = run_script("echo $WORD; echo err >&2; exit 3", 60) {
            assert_eq!(ended.code, 3);
            assert!(ended.killed.is_none());
            assert_eq!(ended.lines, ["seen", "err"]);
        }
    }

    /// This includes a step that writes continuously and one that ignores SIGTERM.
    #[test]
    fn a_hang_is_killed_and_named() {
        // On a busy machine, the script can start after the first limit.
        let script = "trap '' TERM; while :; do echo more; done";
        for limit_s in [2, 10, 30] {
            let Some(ended) = run_script(script, limit_s) else { return };
            let running = ended.killed.expect("killed");
            assert_eq!(ended.code, 137);
            if running.iter().any(|line| line.contains("/bin/sh")) {
                return;
            }
        }
        panic!("the script was never named");
    }

    #[test]
    fn what_a_step_leaves_behind_is_killed() {
        if let Some(ended) = run_script("sleep 600 & echo $!", 60) {
            assert_eq!(ended.code, 0);
            let stat = format!("/proc/{}/stat", ended.lines[0]);
            // It has been killed, but reaping takes the kernel a moment.
            let is_there = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z "));
            for _ in 0..6000 {
                if !is_there() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("{stat}: still there");
        }
    }
}

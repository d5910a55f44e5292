//! Runs one order in a child process.
//!
//! Peak memory, /proc/self/io, page faults, descriptor limits, io-wq threads, the SIGBUS from a
//! truncated mapping, and hangs are per process, so each run gets a separate process. The child is
//! the same program with hidden arguments. It reads one line of JSON ([`RunOrder`]) from standard
//! input and writes one JSON document ([`ChildAnswer`]) to standard output.
//!
//! The parent keeps the child's standard input open until the run is over. If the parent dies for
//! any reason, the pipe closes and a watcher thread in the child kills its process group, so no
//! orphan, such as a server that the run started, disturbs the next study. (The parent-death signal
//! would do the same, but it can only be set between fork and exec, where almost nothing is safe to
//! call.) The child leads its own process group. At the deadline, the whole group is killed,
//! including all processes started by the child. An interrupt from the terminal therefore reaches
//! only the parent, which decides what to do.
//!
//! Cost: one fork, exec and pipe per run, a few milliseconds outside the measured time.

use ioloom_failure::{quoted, reason};
use ioloom_model::record::RunOrder;
use ioloom_model::{Measured, Outcome};
use ioloom_sys_lab::cgroup::Throttle;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process_group};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Result of a run, written by the child as one JSON document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildAnswer {
    /// How the run ended.
    pub outcome: Outcome,
    /// Bytes the child read from devices during the run; `None` if the system does not report them.
    pub device_bytes: Option<u64>,
}

impl From<Result<Measured, String>> for ChildAnswer {
    /// Converts a measurement or a failure reason into an answer.
    fn from(run: Result<Measured, String>) -> Self {
        let outcome = match run {
            Ok(measured) => Outcome::Done { measured: Box::new(measured) },
            Err(reason) => Outcome::Failed { reason },
        };
        Self { outcome, device_bytes: None }
    }
}

/// Handles one run in the child: reads the order from standard input, calls `run` and writes the
/// answer to standard output. Ends the process, and the group that it leads, if the parent dies. Fills in
/// `device_bytes` unless `run` has done so.
pub fn serve(run: impl FnOnce(&RunOrder) -> ChildAnswer) -> ExitCode {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let order: RunOrder = match read
        .map_err(|e| e.to_string())
        .and_then(|_| serde_json::from_str(&line).map_err(|e| e.to_string()))
    {
        Ok(order) => order,
        Err(reason) => {
            let outcome = Outcome::Failed {
                reason: format!("cannot read the order on standard input: {reason}"),
            };
            return answer(&ChildAnswer { outcome, device_bytes: None });
        }
    };
    let watch = std::thread::Builder::new().name("parent-watch".into()).spawn(|| {
        let mut rest = [0u8; 64];
        loop {
            match io::stdin().lock().read(&mut rest) {
                Ok(0) => end_with_parent(),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => end_with_parent(),
            }
        }
    });
    // Without the watcher, the parent's deadline still terminates the run.
    drop(watch);
    let before = device_bytes();
    let mut done = run(&order);
    if let Outcome::Done { measured } = &mut done.outcome {
        remove_non_finite(measured);
        if !measured.calls.is_empty() {
            // Recorded with the timed calls because another machine may have a different clock.
            let (_, step_ns) = ioloom_sys::clock::calibrate();
            measured.extra.insert(CLOCK_STEP.to_owned(), step_ns as f64);
        }
    }
    if done.device_bytes.is_none() {
        done.device_bytes = before.zip(device_bytes()).map(|(b, a)| a.saturating_sub(b));
    }
    answer(&done)
}

/// Ends this process and all others of its group. If it does not lead the group, others may have started
/// them, so it only exits. The number of the group of process 1 would mean all processes.
fn end_with_parent() -> ! {
    let own = getpid();
    if getpgrp() == own && !own.is_init() {
        let _ = kill_process_group(own, Signal::KILL);
    }
    std::process::exit(130)
}

/// Name of the clock resolution metric in runs that time individual calls.
pub const CLOCK_STEP: &str = "clock_step_ns";

/// Removes non-finite values. JSON cannot represent them, so a single division by zero would make
/// the whole record unreadable. A missing value means "not measured".
fn remove_non_finite(measured: &mut Measured) {
    measured.extra.retain(|_, value| value.is_finite());
    for curve in measured.curves.values_mut() {
        curve.retain(|(x, y)| x.is_finite() && y.is_finite());
    }
    for share in [&mut measured.device_busy, &mut measured.others_cpu, &mut measured.cpu_pressure] {
        *share = share.filter(|share| share.is_finite());
    }
}

/// Returns the bytes that this process has read from devices, if the system counts them.
fn device_bytes() -> Option<u64> {
    ioloom_sys::proc::process_io().ok().map(|io| io.read_bytes)
}

fn answer(answer: &ChildAnswer) -> ExitCode {
    let written = serde_json::to_string(answer)
        .map_err(io::Error::other)
        .and_then(|text| io::stdout().lock().write_all(text.as_bytes()))
        .and_then(|()| io::stdout().lock().flush());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How to start a child.
#[derive(Debug, Clone)]
pub struct Runner {
    /// The program, normally [`std::env::current_exe`].
    pub program: PathBuf,
    /// Its arguments, normally one hidden subcommand.
    pub arguments: Vec<OsString>,
    /// Additional environment variables.
    pub environment: Vec<(OsString, OsString)>,
}

/// How a child finished.
#[derive(Debug)]
pub enum ChildEnd {
    /// It answered, or was killed at its deadline, as recorded in the outcome.
    Answered(Box<ChildAnswer>),
    /// The study was stopped, and the child was killed or failed before it had a result.
    Stopped,
}

/// Maximum answer size in bytes. A child that writes more is killed.
const ANSWER_MAX: u64 = 256 << 20;
/// Number of bytes retained from the end of standard error.
const TAIL_MAX: usize = 2048;
/// Interval for checking the stop flag.
const TICK: Duration = Duration::from_millis(50);
/// Longest wait for the stop flag after a child has died of a signal that stops a study.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// Time that the threads which read the pipes of a dead child have to finish. A busy machine can hold them up.
const PIPE_WAIT: Duration = Duration::from_secs(5);
/// Time that a child which has answered has to exit.
const EXIT_WAIT: Duration = Duration::from_secs(10);

impl Runner {
    /// Returns a runner for this program with one hidden subcommand.
    ///
    /// # Errors
    /// The program path cannot be determined.
    pub fn of_this_program(word: &str) -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            arguments: vec![word.into()],
            environment: Vec::new(),
        })
    }

    /// Runs one order and waits up to `deadline` for it to finish. `dir` is the child's working
    /// directory if it differs from the parent's.
    ///
    /// This function does not fail. If the child cannot be started, crashes or writes an invalid
    /// answer, the outcome is a failure with the reason and the end of standard error.
    pub fn run(
        &self,
        order: &RunOrder,
        deadline: Duration,
        stop: &AtomicBool,
        dir: Option<&Path>,
    ) -> ChildEnd {
        self.run_in(order, deadline, stop, dir, None)
    }

    /// Like [`Runner::run`], but in a cgroup with a read limit. The child enters the group before
    /// it receives its order, so the limit covers every read of the run.
    pub fn run_in(
        &self,
        order: &RunOrder,
        deadline: Duration,
        stop: &AtomicBool,
        dir: Option<&Path>,
        throttle: Option<&Throttle>,
    ) -> ChildEnd {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let text = match serde_json::to_string(order) {
            Ok(text) => text,
            Err(e) => return failed(format!("cannot write the order as JSON: {e}")),
        };
        match command.spawn() {
            Ok(mut child) => match throttle.map_or(Ok(()), |t| t.enter(child.id())) {
                Ok(()) => attend(child, text, deadline, stop),
                Err(e) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    failed(format!("cannot limit the reads of the run with a cgroup: {e}"))
                }
            },
            Err(e) => failed(format!("cannot run {}: {}", quoted(&self.program), reason(&e))),
        }
    }
}

fn failed(reason: String) -> ChildEnd {
    let outcome = Outcome::Failed { reason };
    ChildEnd::Answered(Box::new(ChildAnswer { outcome, device_bytes: None }))
}

/// Why waiting ended.
enum Waited {
    /// The child has answered with this text, or is dead. `None` if its output has not ended.
    Finished(Option<Vec<u8>>),
    Deadline,
    Stopped,
}

fn attend(mut child: Child, order: String, deadline: Duration, stop: &AtomicBool) -> ChildEnd {
    let group = child.id();
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return failed("the child process has no pipes".to_owned());
    };
    let (send, receive) = sync_channel(1);
    let (give_back, keep_open) = sync_channel(1);
    // The order may exceed the capacity of the pipe, so another thread writes it.
    std::thread::spawn(move || {
        let _ = stdin.write_all(order.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        let _ = give_back.send(stdin);
    });
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.take(ANSWER_MAX + 1).read_to_end(&mut text);
        let _ = send.send(text);
    });
    let (send_tail, tail) = sync_channel(1);
    std::thread::spawn(move || {
        let _ = send_tail.send(tail_of(stderr));
    });
    let waited = wait(&mut child, &receive, deadline, stop);
    // The answer has been written or never will be. No process in the group may survive.
    let status = match &waited {
        Waited::Finished(_) => settle(&mut child),
        _ => None,
    };
    kill_group(group);
    let _ = child.kill();
    let status = status.or_else(|| child.wait().ok());
    drop(keep_open);
    // The threads that read finish when the pipes close. A process that left the group may keep a
    // pipe open; rather than wait for it, lose its last output.
    let until = Instant::now() + PIPE_WAIT;
    let left = || until.saturating_duration_since(Instant::now());
    match waited {
        Waited::Stopped => ChildEnd::Stopped,
        Waited::Deadline => ChildEnd::Answered(Box::new(ChildAnswer {
            outcome: Outcome::TimedOut { seconds: deadline.as_secs_f64() },
            device_bytes: None,
        })),
        Waited::Finished(text) => {
            let text = text.or_else(|| receive.recv_timeout(left()).ok()).unwrap_or_default();
            match judge(&text, status, || tail.recv_timeout(left()).unwrap_or_default()) {
                ChildEnd::Answered(answer)
                    if !matches!(answer.outcome, Outcome::Done { .. })
                        && stopped(status, stop, STOP_WAIT) =>
                {
                    ChildEnd::Stopped
                }
                end => end,
            }
        }
    }
}

/// Returns whether the study was stopped, so that a failure of its child means nothing. A signal that is
/// sent to all processes can kill the child before this process has raised the flag, so it waits for that.
fn stopped(status: Option<ExitStatus>, stop: &AtomicBool, wait: Duration) -> bool {
    let signal = status.and_then(|s| s.signal()).and_then(Signal::from_named_raw);
    let stops = matches!(signal, Some(Signal::TERM | Signal::INT | Signal::HUP));
    let wait = if stops { wait } else { Duration::ZERO };
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if start.elapsed() >= wait {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Waits for end of output, the deadline or the stop flag, whichever comes first.
fn wait(
    child: &mut Child,
    output: &Receiver<Vec<u8>>,
    deadline: Duration,
    stop: &AtomicBool,
) -> Waited {
    let start = Instant::now();
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match output.recv_timeout(TICK.min(left)) {
            Ok(text) => return Waited::Finished(Some(text)),
            Err(RecvTimeoutError::Disconnected) => return Waited::Finished(Some(Vec::new())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return Waited::Stopped;
        }
        if start.elapsed() >= deadline {
            return Waited::Deadline;
        }
        // If the child is dead but its own children hold the pipe open, do not wait for them.
        if matches!(child.try_wait(), Ok(Some(_))) {
            return Waited::Finished(output.recv_timeout(TICK).ok());
        }
    }
}

/// Gives a child that has answered time to exit cleanly.
fn settle(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < EXIT_WAIT {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn kill_group(group: u32) {
    // Group 0 would be this process's own group, and 1 would mean every process of the user.
    assert!(group > 1, "process group {group} does not belong to a child");
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        // This fails only if the group is already empty.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn tail_of(mut stderr: impl Read) -> String {
    let mut kept = Vec::new();
    let mut piece = [0u8; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut piece) {
        kept.extend_from_slice(&piece[..n]);
        if kept.len() > 2 * TAIL_MAX {
            kept.drain(..kept.len() - TAIL_MAX);
        }
    }
    let start = kept.len().saturating_sub(TAIL_MAX);
    String::from_utf8_lossy(&kept[start..]).trim().to_owned()
}

/// Converts the output of a child into the end of its run. `tail` returns the end of its standard error.
fn judge(text: &[u8], status: Option<ExitStatus>, tail: impl FnOnce() -> String) -> ChildEnd {
    let with_tail = |reason: String| {
        let tail = tail();
        failed(if tail.is_empty() {
            reason
        } else {
            format!("{reason}; standard error ended with: {tail}")
        })
    };
    if text.len() as u64 > ANSWER_MAX {
        return with_tail("the answer of the child process is too long".to_owned());
    }
    match serde_json::from_slice::<ChildAnswer>(text) {
        Ok(answer) => ChildEnd::Answered(Box::new(answer)),
        Err(error) => match status {
            Some(s) if s.signal().is_some() => {
                with_tail(signal_in_words(s.signal().unwrap_or_default()))
            }
            Some(s) if !s.success() => with_tail(format!(
                "the child process exited with code {} and wrote no result",
                s.code().unwrap_or(-1)
            )),
            _ if text.is_empty() => {
                with_tail("the child process exited without a result".to_owned())
            }
            _ => with_tail(format!("the child process wrote an invalid answer: {error}")),
        },
    }
}

/// Describes what a fatal signal means for a run.
fn signal_in_words(number: i32) -> String {
    let words = match Signal::from_named_raw(number) {
        Some(Signal::ILL) => "illegal instruction (SIGILL)",
        Some(Signal::ABORT) => "aborted (SIGABRT)",
        Some(Signal::BUS) => "bus error (SIGBUS): a mapped file was truncated while it was read",
        Some(Signal::KILL) => "killed (SIGKILL), by a user or by the kernel's out-of-memory killer",
        Some(Signal::SEGV) => "invalid memory access (SIGSEGV)",
        Some(Signal::TERM) => "terminated (SIGTERM)",
        Some(Signal::XCPU) => "CPU time limit exceeded (SIGXCPU)",
        Some(Signal::XFSZ) => "file size limit exceeded (SIGXFSZ)",
        Some(Signal::SYS) => "forbidden system call (SIGSYS), perhaps by a sandbox",
        _ => return format!("the child process was terminated by signal {number}"),
    };
    format!("the child process died: {words}")
}

/// Returns the time after which a run is killed: 20 s, plus the transfer time at 20 MB/s, plus 2 ms
/// per file, plus twice the compute time, up to `longest`. This is generous even for a slow disk.
pub fn deadline(bytes: u64, files: u64, compute_ns: f64, longest: Duration) -> Duration {
    let seconds = 20.0 + bytes as f64 / 20e6 + files as f64 * 2e-3 + 2.0 * compute_ns / 1e9;
    if seconds.is_finite() && seconds < longest.as_secs_f64() {
        Duration::from_secs_f64(seconds)
    } else {
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::{Compute, Measured};

    fn order() -> RunOrder {
        RunOrder {
            plan: "read/threads:n=1".parse().unwrap(),
            compute: Compute::None,
            dir: "/nowhere".into(),
            set: None,
            files_max: None,
            seed: 1,
            spans_max: 0,
            observe: ioloom_model::record::Observe::default(),
        }
    }

    fn shell(script: &str) -> Runner {
        Runner {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
        }
    }

    fn outcome(script: &str, deadline_ms: u64) -> Outcome {
        let stop = AtomicBool::new(false);
        match shell(script).run(&order(), Duration::from_millis(deadline_ms), &stop, None) {
            ChildEnd::Answered(answer) => answer.outcome,
            ChildEnd::Stopped => panic!("the run was stopped"),
        }
    }

    fn reason(script: &str) -> String {
        match outcome(script, 20_000) {
            Outcome::Failed { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_comes_back_as_given() {
        let answer = ChildAnswer {
            outcome: Outcome::Done {
                measured: Box::new(Measured { files: 7, ..Measured::default() }),
            },
            device_bytes: Some(5),
        };
        let text = serde_json::to_string(&answer).unwrap();
        let script = format!("read order; case $order in *threads:n=1*) echo '{text}';; esac");
        assert_eq!(outcome(&script, 20_000), answer.outcome);
        // The same if its own child holds the pipe.
        assert_eq!(outcome(&format!("{script}; sleep 1000 &"), 20_000), answer.outcome);
    }

    #[test]
    fn a_hanging_child_and_its_children_die_at_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", mark.display());
        // On a busy machine, the child can need longer to start its own.
        let pid = [700, 5_000, 30_000].into_iter().find_map(|deadline_ms| {
            assert!(matches!(outcome(&script, deadline_ms), Outcome::TimedOut { .. }));
            std::fs::read_to_string(&mark).ok().filter(|pid| pid.ends_with('\n'))
        });
        assert!(gone(pid.unwrap().trim()), "the grandchild is still running");
    }

    /// Waits until a process is gone or a zombie. The kill is asynchronous, so this polls.
    fn gone(pid: &str) -> bool {
        for _ in 0..6000 {
            match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Err(_) => return true,
                Ok(text) if text.contains(") Z ") || text.contains(") X ") => return true,
                Ok(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        false
    }

    #[test]
    fn crashes_are_described_with_the_end_of_standard_error() {
        assert!(reason("kill -BUS $$").contains("SIGBUS"));
        assert!(reason("kill -9 $$").contains("out-of-memory"));
        let text = reason("echo oh no >&2; exit 3");
        assert!(text.contains("code 3") && text.contains("oh no"), "{text}");
        assert!(reason("true").contains("without a result"));
        assert!(reason("echo '{\"a\":1}'").contains("invalid answer"));
        let none = Runner { program: "/no/such".into(), ..shell("") };
        let stop = AtomicBool::new(false);
        let end = none.run(&order(), Duration::from_secs(1), &stop, None);
        let ChildEnd::Answered(answer) = end else { panic!() };
        assert!(format!("{:?}", answer.outcome).contains("/no/such"));
    }

    #[test]
    fn a_dead_child_is_noticed_while_its_own_child_holds_the_pipe() {
        assert!(reason("sleep 1000 & exit 4").contains("code 4"));
    }

    #[test]
    fn a_process_that_left_the_group_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("pid");
        let script = format!(
            "setsid sh -c 'echo $$ > {m}; exec sleep 1000' & while [ ! -s {m} ]; do :; done; exit \
            5",
            m = mark.display()
        );
        assert!(reason(&script).contains("code 5"));
        let pid = std::fs::read_to_string(mark).unwrap();
        Command::new("kill").arg(pid.trim()).status().unwrap();
    }

    #[test]
    fn a_raised_flag_stops_the_child() {
        let stop = AtomicBool::new(true);
        let end = shell("sleep 1000").run(&order(), Duration::from_secs(100), &stop, None);
        assert!(matches!(end, ChildEnd::Stopped));
    }

    /// A signal to all processes can reach the child before the handler of this process runs.
    #[test]
    fn a_child_killed_by_a_stopping_signal_is_not_a_failure_if_the_study_stops() {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let status = Some(ExitStatus::from_raw(signal.as_raw()));
            let stop = AtomicBool::new(false);
            let is_stopped = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    stop.store(true, Ordering::Relaxed);
                });
                stopped(status, &stop, Duration::MAX)
            });
            assert!(is_stopped, "{signal:?}");
        }
        let stop = AtomicBool::new(true);
        let end = shell("kill -TERM $$").run(&order(), Duration::from_secs(100), &stop, None);
        assert!(matches!(end, ChildEnd::Stopped), "{end:?}");
        // Without the flag, somewhat later, it is one.
        assert!(reason("kill -TERM $$; sleep 1000").contains("terminated (SIGTERM)"));
    }

    #[test]
    fn deadlines_grow_and_are_bounded() {
        let longest = Duration::from_secs(3600);
        assert_eq!(deadline(0, 0, 0.0, longest), Duration::from_secs(20));
        assert!(deadline(1 << 30, 1000, 1e9, longest) > Duration::from_secs(75));
        assert_eq!(deadline(u64::MAX, 1, 1.0, longest), longest);
        assert_eq!(deadline(0, 1, f64::NAN, longest), longest);
    }
}

//! Runs one program and measures it externally.
//!
//! Wall time runs from before the start until after the exit. CPU time and bytes read are
//! differences of the totals over all exited children: only one child runs at a time, so the
//! difference is that child's. Each program has a process group of its own, which is killed at the
//! deadline, and after the program has exited, so nothing that it started disturbs the next run.
//! The exited program is reaped last, so its number cannot belong to another group. An interrupt
//! from the terminal does not reach the group, so a guard kills it when this process ends.

use anyhow::{Context, Result};
use ioloom_peers::usage::nanos;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time for both outputs of a program to end after its exit. Processes that it left running may hold
/// them open.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);

/// What was read from a program.
type Output = io::Result<Vec<u8>>;

/// A shell that kills the last process group it was given, if its input ends before the next line.
struct Guard(Child);

/// The guard of the only program that runs at a time.
static GUARD: Mutex<Option<Guard>> = Mutex::new(None);

impl Guard {
    const SCRIPT: &str = "while read -r next; do group=$next; done; \
                          [ -z \"$group\" ] || kill -s KILL -- \"-$group\"";

    fn start() -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", Self::SCRIPT]).env_remove("group").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).context("cannot start a shell")
    }

    /// Sets the group to kill when this process ends; `None` for none.
    fn watch(&mut self, group: Option<u32>) {
        let group = group.map(|number| number.to_string()).unwrap_or_default();
        if let Some(input) = &mut self.0.stdin {
            // Without a guard, a program only goes on after an interrupt.
            let _ = writeln!(input, "{group}");
        }
    }
}

/// External measurements of a run.
#[derive(Debug)]
pub struct Finished {
    /// Wall time of the whole process in nanoseconds.
    pub wall_ns: u64,
    /// User time in nanoseconds.
    pub cpu_user_ns: u64,
    /// System time in nanoseconds.
    pub cpu_kernel_ns: u64,
    /// Device reads charged to it, in bytes.
    pub read_bytes: u64,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Why it failed; `None` for exit code 0.
    pub failure: Option<String>,
}

/// Runs a program to completion or until its deadline.
pub fn run(argv: &[OsString], stdin: Option<File>, deadline: Duration) -> Result<Finished> {
    let (program, args) = argv.split_first().context("a command without a program")?;
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(stdin.map_or_else(Stdio::null, Stdio::from)).process_group(0);
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        *guard = Some(Guard::start()?);
    }
    let mut watch = |group| guard.iter_mut().for_each(|guard| guard.watch(group));
    let before = usage()?;
    let start = Instant::now();
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    watch(Some(child.id()));
    let group = Pid::from_child(&child);
    let process =
        pidfd_open(group, PidfdFlags::empty()).context("cannot open a process descriptor")?;
    let stdout = reader(child.stdout.take().context("no standard output")?);
    let stderr = reader(child.stderr.take().context("no standard error")?);
    let exited = exits_within(&process, deadline)?;
    if !exited {
        // An error means that it has just exited.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let ended = |output: &Receiver<Output>, until: Instant| {
        output.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    };
    let until = Instant::now() + OUTPUT_GRACE;
    let (out, errors) = (ended(&stdout, until), ended(&stderr, until));
    let held = out.is_none() || errors.is_none();
    let _ = kill_process_group(group, Signal::KILL);
    watch(None);
    let until = Instant::now() + OUTPUT_GRACE;
    let late = |output: Option<Output>, receiver: &Receiver<Output>| {
        output.or_else(|| ended(receiver, until)).unwrap_or(Ok(Vec::new()))
    };
    let (out, errors) = (late(out, &stdout), late(errors, &stderr));
    let status = child.wait().with_context(|| format!("cannot wait for {}", program.display()))?;
    let out = out.with_context(|| format!("cannot read from {}", program.display()))?;
    let after = usage()?;
    let failure = if !exited {
        Some(format!("killed at its deadline of {} s", deadline.as_secs()))
    } else if !status.success() {
        let errors = errors.unwrap_or_default();
        let said = String::from_utf8_lossy(&errors);
        Some(format!("{status}: {}", said.lines().next().unwrap_or("nothing on stderr")))
    } else {
        held.then(|| "processes that it started held its output open after its exit".to_owned())
    };
    Ok(Finished {
        wall_ns,
        cpu_user_ns: nanos(after.user_time()).saturating_sub(nanos(before.user_time())),
        cpu_kernel_ns: nanos(after.system_time()).saturating_sub(nanos(before.system_time())),
        read_bytes: sectors(&after).saturating_sub(sectors(&before)) * 512,
        stdout: out,
        failure,
    })
}

/// Waits until a process has exited, and leaves it to be reaped. Returns false at the deadline.
fn exits_within(process: &OwnedFd, deadline: Duration) -> Result<bool> {
    let deadline = Timespec::try_from(deadline).context("the deadline is too late")?;
    let mut exit = [PollFd::new(process, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut exit, Some(&deadline)));
    Ok(ready.context("cannot wait for a process")? > 0)
}

/// Reads an output to its end.
fn reader(mut pipe: impl Read + Send + 'static) -> Receiver<Output> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // If the receiver is gone, the output came too late.
        let _ = send.send(pipe.read_to_end(&mut bytes).map(|_| bytes));
    });
    receive
}

fn usage() -> Result<Usage> {
    getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the processor time of children")
}

fn sectors(usage: &Usage) -> u64 {
    u64::try_from(usage.block_reads()).unwrap_or(0)
}

/// Returns the busy time of all CPUs in nanoseconds; `None` without /proc/stat.
pub fn machine_busy_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    busy_ticks(&text).map(|ticks| ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Sums user, nice, system, irq, softirq and steal in the first line, excluding idle and iowait.
fn busy_ticks(text: &str) -> Option<u64> {
    let fields: Vec<u64> = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|f| f.parse().ok())
        .collect();
    let at = |i: usize| fields.get(i).copied().unwrap_or(0);
    (fields.len() >= 7).then(|| at(0) + at(1) + at(2) + at(5) + at(6) + at(7))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, deadline: Duration) -> Finished {
        let argv = ["/bin/sh", "-c", script].map(OsString::from);
        run(&argv, None, deadline).expect("a shell can be started")
    }

    #[test]
    fn the_outcome_of_a_program_is_told() {
        let fine = sh("echo out", Duration::from_secs(60));
        assert_eq!((fine.stdout.as_slice(), fine.failure), (b"out\n".as_slice(), None));
        let failed = sh("echo why >&2; exit 3", Duration::from_secs(60));
        assert!(failed.failure.is_some_and(|f| f.contains('3') && f.contains("why")));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let hung = sh("exec sleep 600", Duration::from_millis(50));
        assert!(hung.failure.is_some_and(|f| f.contains("deadline")));
    }

    #[test]
    fn the_children_of_a_program_that_hangs_are_killed_too() {
        let start = Instant::now();
        let hung = sh("sleep 600; echo out", Duration::from_millis(50));
        assert!(hung.failure.is_some_and(|f| f.contains("deadline")));
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_process_that_holds_the_output_open_is_not_waited_for() {
        let left = sh("sleep 600 & echo out", Duration::from_secs(60));
        assert_eq!(left.stdout, b"out\n");
        assert!(left.failure.is_some_and(|f| f.contains("held its output open")));
        assert!(left.wall_ns < 60_000_000_000);
    }

    #[test]
    fn a_running_program_does_not_survive_this_process() {
        let mut guard = Guard::start().expect("starts a shell");
        let mut running =
            Command::new("sleep").arg("600").process_group(0).spawn().expect("starts a program");
        guard.watch(Some(running.id()));
        drop(guard.0.stdin.take());
        assert!(!running.wait().expect("ends").success());
        assert!(guard.0.wait().expect("ends").success());
    }

    #[test]
    fn busy_time_leaves_idle_and_iowait_out() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 5000 8 16 32 7 7\ncpu0 …"), Some(63));
        assert_eq!(busy_ticks("intr 5"), None);
    }
}

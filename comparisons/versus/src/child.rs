//! Runs one program and measures it externally.
//!
//! Wall time runs from before the start until after the exit. CPU time and bytes read are
//! differences of the totals over all exited children: only one child runs at a time, so the
//! difference is that child's. A program that exceeds its deadline is killed through a pidfd, which
//! cannot affect another process.

use anyhow::{Context, Result};
use ioloom_peers::usage::nanos;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

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
    command.stdin(stdin.map_or_else(Stdio::null, Stdio::from));
    let before = usage()?;
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .context("cannot open a process descriptor")?;
    let (done, waiting) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || match waiting.recv_timeout(deadline) {
        // An error means that it has just exited.
        Err(RecvTimeoutError::Timeout) => pidfd_send_signal(&process, Signal::KILL).is_ok(),
        _ => false,
    });
    let output = child.wait_with_output();
    let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    drop(done);
    let killed = watchdog.join().unwrap_or(false);
    let output = output.with_context(|| format!("cannot wait for {}", program.display()))?;
    let after = usage()?;
    let failure = if output.status.success() {
        None
    } else if killed {
        Some(format!("killed at its deadline of {} s", deadline.as_secs()))
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Some(format!("{}: {}", output.status, said.lines().next().unwrap_or("nothing on stderr")))
    };
    Ok(Finished {
        wall_ns,
        cpu_user_ns: nanos(after.user_time()).saturating_sub(nanos(before.user_time())),
        cpu_kernel_ns: nanos(after.system_time()).saturating_sub(nanos(before.system_time())),
        read_bytes: sectors(&after).saturating_sub(sectors(&before)) * 512,
        stdout: output.stdout,
        failure,
    })
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
    fn busy_time_leaves_idle_and_iowait_out() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 5000 8 16 32 7 7\ncpu0 …"), Some(63));
        assert_eq!(busy_ticks("intr 5"), None);
    }
}

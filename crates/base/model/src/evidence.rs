//! Thread states and the evidence for them.
//!
//! A share of time without its source is a guess. Every result with states therefore contains
//! [`Evidence`]: the observation level, the records that each source delivered and lost, and the
//! self-checks. A state that cannot be distinguished at this level is null with a reason
//! ([`StateTime::why`]), and the state that absorbs its time lists it in [`StateTime::includes`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of a thread at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum State {
    /// Running on a processor.
    OnCpu,
    /// Runnable, waiting for a processor after a wake-up.
    Ready,
    /// Preempted while runnable.
    Preempted,
    /// Blocked on a file.
    Io,
    /// Blocked until an asynchronous request completes.
    AsyncIo,
    /// Blocked on a page fault.
    Paging,
    /// Blocked on another thread: a queue, a lock of the program, a permit.
    Sync,
    /// Blocked on a lock inside the kernel.
    Lock,
    /// Waiting for an event: a socket, a pipe, a poll.
    Event,
    /// Sleeping voluntarily.
    Sleep,
    /// Not explained by the evidence.
    Unknown,
}

impl State {
    /// All states, in legend order.
    pub const ALL: [Self; 11] = [
        Self::OnCpu,
        Self::Ready,
        Self::Preempted,
        Self::Io,
        Self::AsyncIo,
        Self::Paging,
        Self::Sync,
        Self::Lock,
        Self::Event,
        Self::Sleep,
        Self::Unknown,
    ];

    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on-cpu",
            Self::Ready => "ready",
            Self::Preempted => "preempted",
            Self::Io => "io",
            Self::AsyncIo => "async-io",
            Self::Paging => "paging",
            Self::Sync => "sync",
            Self::Lock => "lock",
            Self::Event => "event",
            Self::Sleep => "sleep",
            Self::Unknown => "unknown",
        }
    }
}

/// Observation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// 0: spans, thread clock and run-queue delay. Requires no privileges.
    Account,
    /// 1: adds context switches and major faults of the process's threads. Requires perf events for
    /// its own processes.
    Switch,
    /// 2: adds wake-ups, other threads on the processors, device requests and kernel locks.
    /// Requires access to tracefs.
    Kernel,
}

impl Level {
    /// Returns the number used on the command line.
    pub const fn number(self) -> u8 {
        match self {
            Self::Account => 0,
            Self::Switch => 1,
            Self::Kernel => 2,
        }
    }

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Switch => "switch",
            Self::Kernel => "kernel",
        }
    }
}

/// Quality of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quality {
    /// From timestamped events.
    Exact,
    /// From clocks: the sum is correct, but positions are unknown.
    Bounded,
    /// Inferred only from the kind of call.
    Inferred,
}

/// Time spent in one state, with its source and quality.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StateTime {
    /// Nanoseconds; `None` if the evidence cannot distinguish the state.
    pub ns: Option<u64>,
    /// Name of the source, such as `perf.switch+spans`.
    pub source: String,
    /// Quality; `None` if not measured.
    pub quality: Option<Quality>,
    /// States whose time is included in this one because they could not be distinguished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<State>,
    /// Why it was not measured, and what is required to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Time in every state of a thread or role. The `ns` values add up to the elapsed time.
pub type StateTable = BTreeMap<State, StateTime>;

/// Sum over the threads of one role.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RoleStates {
    /// Role, as in [`crate::ThreadTime::role`].
    pub role: String,
    /// Number of threads.
    pub threads: u32,
    /// Sum of their elapsed times in nanoseconds.
    pub elapsed_ns: u64,
    /// Time per state.
    pub states: StateTable,
}

/// A source of events or counters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceReport {
    /// Name: `spans`, `schedstat`, `perf.switch`, `perf.major-fault`, `tracefs.sched_waking`, ...
    pub name: String,
    /// Number of delivered records.
    pub records: u64,
    /// Number of records that were lost or dropped.
    pub lost: u64,
    /// Calibrated cost per record for the observed program, in nanoseconds.
    pub ns_per_event: Option<f64>,
    /// Required privilege: `none`, `user`, `delegated`, `root`.
    pub privilege: String,
}

/// Self-checks of an observation. `None` if the check is not possible at this level.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Checks {
    /// Sum of all states divided by elapsed time, in per cent. Any value other than 100 is a bug.
    pub tiling_pct: f64,
    /// Difference in on-CPU time between events and thread clock, in percentage points.
    pub on_cpu_vs_clock_pp: Option<f64>,
    /// Difference between ready + preempted time from events and the kernel's run-queue delay, in
    /// percentage points.
    pub ready_vs_run_delay_pp: Option<f64>,
    /// Number of switches whose successor on the same processor or thread did not match.
    pub chain_breaks: Option<u64>,
    /// Number of kernel events from the clock probe that fell between the surrounding clock
    /// readings.
    pub clock_inside: Option<u64>,
    /// Number of kernel events from the clock probe.
    pub clock_total: Option<u64>,
}

/// Evidence for the states of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Observation level.
    pub level: Level,
    /// Sources, with delivered and lost records.
    pub sources: Vec<SourceReport>,
    /// Self-checks.
    pub checks: Checks,
    /// Estimated overhead: events × calibrated cost, divided by threads × elapsed time, in per
    /// cent.
    pub overhead_pct: f64,
    /// Descriptions of losses, failed checks and reasons for a lower level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Time of the first event that was dropped because the limit was reached, in nanoseconds after the start of
    /// the run; `None` if all were stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_until_ns: Option<u64>,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            level: Level::Account,
            sources: Vec::new(),
            checks: Checks::default(),
            overhead_pct: 0.0,
            notes: Vec::new(),
            complete_until_ns: None,
        }
    }
}

//! States of threads, and the evidence for them.
//!
//! A share of time without its source is a guess. Every result with states therefore contains
//! [`Evidence`]: the level of observation, what each source delivered and lost, and the
//! self-checks. A state that the level cannot separate is null with a reason ([`StateTime::why`]),
//! and the state that contains its time lists it in [`StateTime::includes`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of a thread at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum State {
    /// Running on a processor.
    OnCpu,
    /// Woken, waiting for a processor.
    Ready,
    /// Preempted while it had work.
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
    /// Voluntarily asleep.
    Sleep,
    /// Not explained by the evidence.
    Unknown,
}

impl State {
    /// Every state, in the order of legends.
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

/// Level of observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// 0: spans, thread clock and run-queue delay. Requires no privileges.
    Account,
    /// 1: also context switches and major faults of its threads. Requires perf events for own
    /// processes.
    Switch,
    /// 2: also wake-ups, other threads on the processors, device requests and kernel locks.
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
    /// From events with timestamps.
    Exact,
    /// From clocks: the sum is correct, but positions are unknown.
    Bounded,
    /// Only from the kind of call.
    Inferred,
}

/// Time in one state, with its source and quality.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StateTime {
    /// Nanoseconds; `None` if the evidence cannot separate the state.
    pub ns: Option<u64>,
    /// Name of the source, such as `perf.switch+spans`.
    pub source: String,
    /// Quality; `None` if not measured.
    pub quality: Option<Quality>,
    /// States whose time is included in this one because they could not be separated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<State>,
    /// Why it is not measured, and what is needed to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Time in every state of a thread or role. The `ns` add up to the elapsed time.
pub type StateTable = BTreeMap<State, StateTime>;

/// Sum over the threads of one role.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RoleStates {
    /// Role, as in [`crate::ThreadTime::role`].
    pub role: String,
    /// Number of threads.
    pub threads: u32,
    /// Sum of their elapsed times, nanoseconds.
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
    /// Number of records that the source reports as lost.
    pub lost: u64,
    /// Calibrated cost of a record for the observed program, nanoseconds.
    pub ns_per_event: Option<f64>,
    /// Required privilege: `none`, `user`, `delegated`, `root`.
    pub privilege: String,
}

/// Self-checks of an observation. `None` if the level cannot perform the check.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Checks {
    /// Sum of all states divided by elapsed time, in per cent. Any value other than 100 is a bug.
    pub tiling_pct: f64,
    /// Difference of time on a processor between events and thread clock, in percentage points.
    pub on_cpu_vs_clock_pp: Option<f64>,
    /// Difference between ready + preempted time from events and the run-queue delay of the kernel,
    /// in percentage points.
    pub ready_vs_run_delay_pp: Option<f64>,
    /// Number of switches whose successor on the same processor or thread did not match.
    pub chain_breaks: Option<u64>,
    /// Number of kernel events of the clock probe that were between the surrounding clock readings.
    pub clock_inside: Option<u64>,
    /// Number of kernel events of the clock probe.
    pub clock_total: Option<u64>,
}

/// Evidence for the states of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Level of observation.
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
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            level: Level::Account,
            sources: Vec::new(),
            checks: Checks::default(),
            overhead_pct: 0.0,
            notes: Vec::new(),
        }
    }
}

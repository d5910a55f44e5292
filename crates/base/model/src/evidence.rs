//! The states of a thread, and what a statement about them rests on.
//!
//! A share of time without its source is a guess. [`Evidence`] travels with every result that
//! names states: which level of observation ran, what each source delivered and lost, and the
//! self-checks. A state that the level could not tell apart is null with its reason
//! ([`StateTime::why`]), and the state that holds its time names it in [`StateTime::includes`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a thread was doing at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum State {
    /// Running on a processor.
    OnCpu,
    /// Woken, waiting for a processor.
    Ready,
    /// Pushed off the processor while it had work.
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
    /// Blocked until an event: a socket, a pipe, a poll.
    Event,
    /// Asleep by its own wish.
    Sleep,
    /// Not explained by any evidence.
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

    /// The word.
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

/// How closely the system was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// 0: own spans, thread clock and run-queue delay; needs nothing.
    Account,
    /// 1: also switches and major faults of own threads; needs perf events for oneself.
    Switch,
    /// 2: also wake-ups, who ran instead, device requests, kernel locks; needs the trace file system.
    Kernel,
}

impl Level {
    /// Its number on the command line.
    pub const fn number(self) -> u8 {
        match self {
            Self::Account => 0,
            Self::Switch => 1,
            Self::Kernel => 2,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Switch => "switch",
            Self::Kernel => "kernel",
        }
    }
}

/// How far a number can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quality {
    /// From events with their times.
    Exact,
    /// From accounting: right in sum, without positions.
    Bounded,
    /// From the kind of the call alone.
    Inferred,
}

/// Time in one state, with what it rests on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StateTime {
    /// Nanoseconds; `None` when this evidence cannot tell the state apart.
    pub ns: Option<u64>,
    /// Name of the source, such as `perf.switch+spans`.
    pub source: String,
    /// How far it can be trusted; `None` when not measured.
    pub quality: Option<Quality>,
    /// States whose time stands in this one because they could not be told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<State>,
    /// Why it is not measured, and what would make it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Time in every state of one thread or role; the `ns` add up to the elapsed time.
pub type StateTable = BTreeMap<State, StateTime>;

/// The threads of one role together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RoleStates {
    /// Role, as in [`crate::ThreadTime::role`].
    pub role: String,
    /// Number of threads.
    pub threads: u32,
    /// Sum of their elapsed times, nanoseconds.
    pub elapsed_ns: u64,
    /// Sum per state.
    pub states: StateTable,
}

/// One source of events or counters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SourceReport {
    /// Name: `spans`, `schedstat`, `perf.switch`, `perf.major-fault`, `tracefs.sched_waking`, ...
    pub name: String,
    /// Records delivered.
    pub records: u64,
    /// Records that the source says it lost.
    pub lost: u64,
    /// Calibrated cost of one record to the watched program, nanoseconds.
    pub ns_per_event: Option<f64>,
    /// What gave access: `none`, `user`, `delegated`, `root`.
    pub privilege: String,
}

/// Self-checks of one observation. `None`: this level cannot make the check.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Checks {
    /// Sum of all states over elapsed, per cent: 100 by construction, else a defect.
    pub tiling_pct: f64,
    /// Difference between time on a processor by events and by the thread clock, points.
    pub on_cpu_vs_clock_pp: Option<f64>,
    /// Difference between ready + preempted by events and the kernel's run-queue delay, points.
    pub ready_vs_run_delay_pp: Option<f64>,
    /// Switches whose successor on the same processor or thread did not fit.
    pub chain_breaks: Option<u64>,
    /// Kernel events of the clock probe that fell between the readings around them.
    pub clock_inside: Option<u64>,
    /// Kernel events of the clock probe.
    pub clock_total: Option<u64>,
}

/// What the states of one run rest on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The level that ran.
    pub level: Level,
    /// Sources with what they delivered and lost.
    pub sources: Vec<SourceReport>,
    /// Self-checks.
    pub checks: Checks,
    /// Estimated cost of watching: events × calibrated cost over threads × elapsed, per cent.
    pub overhead_pct: f64,
    /// Losses, failed checks and reasons for a lower level, in words.
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

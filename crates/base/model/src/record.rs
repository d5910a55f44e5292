//! What one run measured, as the store keeps it and the report reads it.

use crate::evidence::RoleStates;
use crate::{
    AnyPlan, Compute, Condition, Doubt, Evidence, FileSetRealised, FileSetSpec, Level, Proof, State,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of [`RunRecord`] and of everything inside it; `docs/json.md` documents it.
pub const RECORD_SCHEMA: u32 = 1;

/// The calls whose cost is kept apart. The names are those of the seed's spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// Opening a file.
    Open,
    /// Asking for its size.
    Stat,
    /// The read call: all of a blocking read, or the submission of an asynchronous one.
    Read,
    /// Waiting for a completion, or a blocking read of a miss that was started earlier.
    Completion,
    /// Handing a file from reader to computer: waiting on a queue or for a permit.
    HandOver,
    /// Waiting for memory of the budget.
    Memory,
    /// The user's function.
    Compute,
    /// Closing a file.
    Close,
    /// Mapping a file.
    Map,
    /// Unmapping a file.
    Unmap,
}

impl CallKind {
    /// Every kind, in the order of a file's life.
    pub const ALL: [Self; 10] = [
        Self::Open,
        Self::Stat,
        Self::Memory,
        Self::Read,
        Self::Map,
        Self::Completion,
        Self::HandOver,
        Self::Compute,
        Self::Unmap,
        Self::Close,
    ];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stat => "stat",
            Self::Read => "read",
            Self::Completion => "completion",
            Self::HandOver => "hand-over",
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Close => "close",
            Self::Map => "map",
            Self::Unmap => "unmap",
        }
    }
}

/// Counts and times of one kind of call over a run, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CallStats {
    /// How many calls.
    pub count: u64,
    /// How many of them were timed; the rest only counted.
    #[serde(default)]
    pub timed: u64,
    /// Sum of their times; scaled to all calls when not all were timed.
    pub total_ns: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Median, within 3 % (log-linear table).
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest of those timed, exact.
    pub max_ns: u64,
}

impl CallStats {
    /// Mean in nanoseconds; zero without calls.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_ns as f64 / self.count as f64 }
    }
}

/// Where the time of one thread went (level 0: spans, thread clock and schedstat).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadTime {
    /// Name of the thread, by role and number: `ioloom-read-0`.
    pub name: String,
    /// Role: `worker`, `reader`, `hybrid`, `computer`.
    pub role: String,
    /// From the start barrier to the thread's end of work.
    pub elapsed_ns: u64,
    /// On a processor.
    pub on_cpu_ns: u64,
    /// Ready to run and waiting for a processor; `None` without /proc/thread-self/schedstat.
    pub ready_ns: Option<u64>,
    /// Blocked inside calls that fetch data.
    pub io_ns: u64,
    /// Blocked on queues, permits or memory.
    pub sync_ns: u64,
    /// Blocked inside the user's function (page faults of a mapping, sleep, its own locks).
    pub compute_blocked_ns: u64,
    /// Elapsed and not explained by the above.
    pub unknown_ns: u64,
    /// Wall time of each kind of call on this thread.
    pub calls_ns: BTreeMap<CallKind, u64>,
    /// Files computed by this thread.
    pub files: u64,
    /// Time in every state, nanoseconds; `None` where the evidence of the run cannot tell the state
    /// apart: the table of the thread's role says why. Empty where states were not asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states_ns: BTreeMap<State, Option<u64>>,
}

/// A span: one call on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What was called.
    pub kind: CallKind,
    /// Start, nanoseconds after the start of the run.
    pub start_ns: u64,
    /// Length, nanoseconds.
    pub ns: u64,
    /// Index of the file in the list.
    pub file: u32,
}

/// What limited a run, in one word and one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// `device`, `metadata`, `compute`, `hand-over`, `memory` or `unknown`.
    pub word: String,
    /// The evidence in one sentence.
    pub sentence: String,
}

/// What a finished run measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// From the start barrier to the last result.
    pub elapsed_ns: u64,
    /// Files whose function returned a value.
    pub files: u64,
    /// Bytes that the function saw.
    pub bytes: u64,
    /// Order-independent proof of consumption, 16 digits: equal for every plan on the same set.
    pub digest: String,
    /// Files that failed, and the first few in words.
    pub errors: u64,
    /// The first failures in words, at most ten.
    pub error_samples: Vec<String>,
    /// Cost of each kind of call.
    pub calls: BTreeMap<CallKind, CallStats>,
    /// Where each thread's time went.
    pub threads: Vec<ThreadTime>,
    /// When the last read call was issued, after the start.
    pub calls_end_ns: Option<u64>,
    /// When the first function started.
    pub first_compute_ns: Option<u64>,
    /// When the last function started.
    pub last_compute_ns: Option<u64>,
    /// Processor time of the process, user and kernel.
    pub cpu_user_ns: u64,
    /// Processor time in the kernel.
    pub cpu_kernel_ns: u64,
    /// Page faults that needed no device.
    pub faults_minor: u64,
    /// Page faults that did.
    pub faults_major: u64,
    /// Context switches by waiting.
    pub switches_voluntary: u64,
    /// Context switches by being pushed out.
    pub switches_involuntary: u64,
    /// Highest resident memory of the process.
    pub memory_peak_bytes: u64,
    /// Anonymous part of the resident memory at the end.
    pub memory_anon_bytes: Option<u64>,
    /// File-mapped part of the resident memory at the end.
    pub memory_file_bytes: Option<u64>,
    /// Highest use of the memory budget.
    pub budget_peak_bytes: u64,
    /// Reads in flight over time: nanoseconds after the start, and the number then.
    pub in_flight: Vec<(u64, u32)>,
    /// Mean number in flight, weighted by time.
    pub in_flight_mean: f64,
    /// Highest number in flight.
    pub in_flight_max: u32,
    /// Share of the time in which the device had at least one request, 0 to 1, from the samples
    /// of the device's own counter; `None` without one.
    pub device_busy: Option<f64>,
    /// Processor time of other processes during the run over elapsed × processors.
    pub others_cpu: Option<f64>,
    /// What limited the run.
    pub bottleneck: Option<Bottleneck>,
    /// Spans, if they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Vec<Span>>,
    /// Spans that did not fit the budget.
    pub spans_lost: u64,
    /// Time in every state by role, with what each number rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleStates>,
    /// What the states rest on: level, sources with their losses, self-checks, estimated cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Numbers that only one experiment has, by name with the unit last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
    /// Curves that only one experiment has: name, then points.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Measured {
    /// Files per second.
    pub fn files_per_s(&self) -> f64 {
        self.files as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    /// Bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    /// A number by its name: a field, `calls.KIND.p50_ns` and the like, a share such as
    /// `share.io`, `files_per_s`, `bytes_per_s`, or an entry of `extra`. `None` if there is none.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let parts: Vec<&str> = name.split('.').collect();
        match parts.as_slice() {
            ["calls", kind, field] => {
                let (_, stats) = self.calls.iter().find(|(k, _)| k.name() == *kind)?;
                Some(match *field {
                    "count" => stats.count as f64,
                    "total_ns" => stats.total_ns as f64,
                    "mean_ns" => stats.mean_ns(),
                    "min_ns" => stats.min_ns as f64,
                    "p50_ns" => stats.p50_ns as f64,
                    "p90_ns" => stats.p90_ns as f64,
                    "p99_ns" => stats.p99_ns as f64,
                    "max_ns" => stats.max_ns as f64,
                    _ => return None,
                })
            }
            ["share", state] => self.share(state),
            ["extra", key] => self.extra.get(*key).copied(),
            [field] => self.field(field).or_else(|| self.extra.get(*field).copied()),
            _ => None,
        }
    }

    /// Share of all threads' elapsed time in a state, 0 to 1: `on-cpu`, `ready`, `io`, `sync`,
    /// `compute-blocked` or `unknown`.
    pub fn share(&self, state: &str) -> Option<f64> {
        let total: u64 = self.threads.iter().map(|t| t.elapsed_ns).sum();
        if total == 0 {
            return None;
        }
        let mut sum = 0;
        for thread in &self.threads {
            sum += match state {
                "on-cpu" => thread.on_cpu_ns,
                "ready" => thread.ready_ns?,
                "io" => thread.io_ns,
                "sync" => thread.sync_ns,
                "compute-blocked" => thread.compute_blocked_ns,
                "unknown" => thread.unknown_ns,
                _ => return None,
            };
        }
        Some(sum as f64 / total as f64)
    }

    fn field(&self, name: &str) -> Option<f64> {
        Some(match name {
            "elapsed_ns" => self.elapsed_ns as f64,
            "files_per_s" => self.files_per_s(),
            "bytes_per_s" => self.bytes_per_s(),
            "calls_end_ns" => self.calls_end_ns? as f64,
            "first_compute_ns" => self.first_compute_ns? as f64,
            "last_compute_ns" => self.last_compute_ns? as f64,
            "cpu_user_ns" => self.cpu_user_ns as f64,
            "cpu_kernel_ns" => self.cpu_kernel_ns as f64,
            "cpu_ns" => (self.cpu_user_ns + self.cpu_kernel_ns) as f64,
            "faults_minor" => self.faults_minor as f64,
            "faults_major" => self.faults_major as f64,
            "switches_voluntary" => self.switches_voluntary as f64,
            "switches_involuntary" => self.switches_involuntary as f64,
            "memory_peak_bytes" => self.memory_peak_bytes as f64,
            "budget_peak_bytes" => self.budget_peak_bytes as f64,
            "in_flight_mean" => self.in_flight_mean,
            "in_flight_max" => f64::from(self.in_flight_max),
            "device_busy" => self.device_busy?,
            "others_cpu" => self.others_cpu?,
            _ => return None,
        })
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// Finished; the numbers.
    Done {
        /// What was measured.
        measured: Box<Measured>,
    },
    /// The plan cannot run as asked here.
    Refused {
        /// Why.
        reason: String,
    },
    /// It started and failed.
    Failed {
        /// Why.
        reason: String,
    },
    /// It was killed at its deadline.
    TimedOut {
        /// The deadline, seconds.
        seconds: f64,
    },
}

/// Which run of a study this is: the key under which it is found again after a kill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunKey {
    /// Name of the study.
    pub study: String,
    /// Identifier of this execution of the study.
    pub session: String,
    /// Name of the experiment in the study.
    pub experiment: String,
    /// Name of the arm in the experiment, factors filled in.
    pub arm: String,
    /// Name of the file set.
    pub set: String,
    /// Word of the medium: `work` unless the study ran on several.
    pub medium: String,
    /// Condition asked for.
    pub condition: Condition,
    /// Work on the bytes.
    pub compute: Compute,
    /// Number of the block, from 0.
    pub block: u32,
    /// Position in the ordered list of runs, from 0.
    pub position: u32,
    /// The factors of the arm by name.
    pub factors: BTreeMap<String, f64>,
}

/// One run: one line of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`RECORD_SCHEMA`].
    pub schema: u32,
    /// Which run.
    pub key: RunKey,
    /// The plan that ran.
    pub plan: AnyPlan,
    /// The files.
    pub set: FileSetRealised,
    /// The condition and its proof.
    pub proof: Option<Proof>,
    /// How it ended.
    pub outcome: Outcome,
    /// Reasons to distrust it.
    pub doubts: Vec<Doubt>,
    /// Fingerprint of the machine.
    pub machine: String,
    /// Version and commit of the program.
    pub version: String,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Seed of the study.
    pub seed: u64,
}

impl RunRecord {
    /// The numbers, if the run finished.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Done { measured } => Some(measured),
            _ => None,
        }
    }
}

/// What the child process of a run is told, as one JSON document on its standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOrder {
    /// What to run.
    pub plan: AnyPlan,
    /// What to do with the bytes.
    pub compute: Compute,
    /// Directory of the set; every regular file below it is an item, in bytewise order of paths
    /// unless `list` is given.
    pub dir: PathBuf,
    /// How the set was made; `None` for a directory of the user's.
    pub set: Option<FileSetSpec>,
    /// At most this many files of the set, from the start of the list; `None` is all.
    pub files_max: Option<u64>,
    /// Seed of drawn compute times.
    pub seed: u64,
    /// Keep spans, up to this many in all; 0 keeps totals only.
    pub spans_max: u64,
    /// How closely it is watched.
    #[serde(default)]
    pub observe: Observe,
}

/// How closely a run is watched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Observe {
    /// Watch by a session of events at the level given, or at the highest that works. Without it the
    /// threads' own accounts speak (level 0), whose cost does not grow with the number of switches.
    pub events: bool,
    /// Pin the level of the session; one that does not work refuses the run.
    pub level: Option<Level>,
    /// Keep the trace in this file, which is made.
    pub trace: Option<PathBuf>,
}

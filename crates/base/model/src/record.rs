//! Records of runs, as stored and reported.

use crate::evidence::RoleStates;
use crate::{
    AnyPlan, Compute, Condition, Doubt, Evidence, FileSetRealised, FileSetSpec, Level, Proof,
    State, Tuned,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version of [`RunRecord`] and of everything inside it; `docs/reference/json.md` documents it.
pub const RECORD_SCHEMA: u32 = 1;
/// Curves of a reclaim run: remaining clean, dirty and unwritten bytes by bytes of allocated memory.
pub const RECLAIM_CURVES: [&str; 3] =
    ["clean by memory taken", "changed by memory taken", "unwritten by memory taken"];

/// The kinds of calls whose cost is measured separately, named as in source study 000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// Opening a file.
    Open,
    /// Reading its metadata.
    Stat,
    /// The read call: a blocking read, or the submission of an asynchronous one.
    Read,
    /// Waiting for a completion, or a blocking read of a miss that was started earlier.
    Completion,
    /// Handing a file to a compute thread: waiting on a queue or for a permit.
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
    /// Waiting for the next path of the input list.
    Input,
}

impl CallKind {
    /// Every kind, in the order in which they occur for a file.
    pub const ALL: [Self; 11] = [
        Self::Input,
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

    /// Returns the text form.
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
            Self::Input => "input",
        }
    }
}

/// Counts and times of one kind of call over a run, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CallStats {
    /// Number of calls.
    pub count: u64,
    /// Number of calls that were timed; the others were only counted. If 0, the minimum, the
    /// percentiles and the maximum are 0.
    #[serde(default)]
    pub timed: u64,
    /// Total time, extrapolated if not all calls were timed.
    pub total_ns: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Median, within 3 % (from a log-linear histogram).
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Maximum of the timed calls, exact.
    pub max_ns: u64,
}

impl CallStats {
    /// Reports whether any call was timed. Old results do not have the number.
    pub const fn has_times(&self) -> bool {
        self.timed > 0 || self.max_ns > 0
    }

    /// Returns the mean in nanoseconds; zero without calls.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_ns as f64 / self.count as f64 }
    }
}

/// Whether a number is left out of a record, as it is in records of earlier versions.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Time of one thread by activity (level 0: spans, thread clock and schedstat).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ThreadTime {
    /// Name of the thread, by role and number: `ioloom-read-0`.
    pub name: String,
    /// Role: `worker`, `reader`, `hybrid`, `computer`.
    pub role: String,
    /// Time from the start barrier to the end of its work.
    pub elapsed_ns: u64,
    /// Time on a processor.
    pub on_cpu_ns: u64,
    /// Time waiting for a processor; `None` without /proc/thread-self/schedstat, and if a run over a few
    /// files ended before it was measured.
    pub ready_ns: Option<u64>,
    /// Time blocked in calls that read data.
    pub io_ns: u64,
    /// Time blocked on queues, permits or memory.
    pub sync_ns: u64,
    /// Time blocked until the input list had a next path.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_ns: u64,
    /// Time blocked in the user's function (page faults of a mapping, sleep, its locks).
    pub compute_blocked_ns: u64,
    /// Part of `compute_blocked_ns`: until the reader of results took them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_ns: u64,
    /// Part of `compute_blocked_ns`: until the memory budget had room for a reservation of the function.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve_ns: u64,
    /// Part of `compute_blocked_ns`: until child processes had taken their input or ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub child_ns: u64,
    /// Time in which the child processes that this thread waited for were ready to run without running.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub child_ready_ns: u64,
    /// Processor time of threads on which the library ran the function while this one waited for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub helper_ns: u64,
    /// Elapsed time that none of the above explains.
    pub unknown_ns: u64,
    /// Wall time of each kind of call on this thread.
    pub calls_ns: BTreeMap<CallKind, u64>,
    /// Files computed by this thread.
    pub files: u64,
    /// Time in every state, in nanoseconds; `None` if the evidence of the run cannot separate the
    /// state. The table of the role has the reason. Empty if states were not requested.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states_ns: BTreeMap<State, Option<u64>>,
}

/// A span: one call on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The kind of call.
    pub kind: CallKind,
    /// Start, nanoseconds after the start of the run.
    pub start_ns: u64,
    /// Duration, nanoseconds.
    pub ns: u64,
    /// Index of the file in the list.
    pub file: u32,
}

/// What limited a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bottleneck {
    /// `device`, `metadata`, `compute`, `hand-over`, `memory`, `input list`, `other programs`,
    /// `processor quota`, `child processes`, `function waits`, `output`, `object store` or `unknown`.
    pub word: String,
    /// The evidence, in one sentence.
    pub sentence: String,
    /// The second limit, if its share is within 10 percentage points of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<String>,
    /// Percentages of the usable processor time by limit; they add up to 100. Empty if the run was
    /// not judged by shares.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, u32>,
}

/// Unit in which the kernel counted processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuCount {
    /// Each slice of a task, in nanoseconds.
    Nanoseconds,
    /// Clock ticks, usually 10 ms.
    Ticks,
}

/// Measurements of a finished run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Time from the start barrier to the last result.
    pub elapsed_ns: u64,
    /// Number of files whose function returned a value.
    pub files: u64,
    /// Bytes passed to the function.
    pub bytes: u64,
    /// Order-independent digest of the data, 16 digits: equal for every plan on the same set.
    pub digest: String,
    /// Number of files that failed.
    pub errors: u64,
    /// Messages of the first failures, at most ten.
    pub error_samples: Vec<String>,
    /// Bytes of the largest file, if it has at least 1 MiB.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub largest_file_bytes: u64,
    /// Time from the start to the end of that file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub largest_file_ns: u64,
    /// Cost of each kind of call.
    pub calls: BTreeMap<CallKind, CallStats>,
    /// Time of each thread by activity.
    pub threads: Vec<ThreadTime>,
    /// Time of the last read call, after the start.
    pub calls_end_ns: Option<u64>,
    /// Start of the first function call.
    pub first_compute_ns: Option<u64>,
    /// Start of the last function call.
    pub last_compute_ns: Option<u64>,
    /// Processor time of the process in user mode.
    pub cpu_user_ns: u64,
    /// Processor time in the kernel.
    pub cpu_kernel_ns: u64,
    /// Page faults without I/O.
    pub faults_minor: u64,
    /// Page faults with I/O.
    pub faults_major: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Peak resident memory of the process.
    pub memory_peak_bytes: u64,
    /// Anonymous part of the resident memory at the end.
    pub memory_anon_bytes: Option<u64>,
    /// File-mapped part of the resident memory at the end.
    pub memory_file_bytes: Option<u64>,
    /// Peak use of the memory budget.
    pub budget_peak_bytes: u64,
    /// Reads in flight over time: nanoseconds after the start, and number.
    pub in_flight: Vec<(u64, u32)>,
    /// Mean number of reads in flight, weighted by time.
    pub in_flight_mean: f64,
    /// Peak number of reads in flight. Without `in_flight`, an upper bound: the sum of the peaks of
    /// the threads.
    pub in_flight_max: u32,
    /// Share of the time in which the device had at least one request, 0 to 1, from samples of its
    /// counter; `None` without a counter.
    pub device_busy: Option<f64>,
    /// Processor time of other processes during the run, divided by elapsed × processors. Child
    /// processes that ended during the run are not others.
    pub others_cpu: Option<f64>,
    /// How `others_cpu` was counted. A run that is shorter than ten ticks is not counted in ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu_in: Option<CpuCount>,
    /// Share of the time in which at least one thread of the machine waited for a processor, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<f64>,
    /// Processor time that the hypervisor took for other guests, divided by elapsed × processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_cpu: Option<f64>,
    /// Time for which processor quotas kept the control groups of the process from running, summed
    /// over processors. Other processes of the groups count, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub throttled_ns: u64,
    /// Processor time of child processes that ended during the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children_cpu_ns: u64,
    /// Page faults of child processes that ended during the run; a process cannot start without
    /// some.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children_faults: u64,
    /// Bytes that the process and its ended children read from devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_read_bytes: Option<u64>,
    /// Bytes that the process and its ended children wrote to devices, or to memory that is written
    /// to devices later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_written_bytes: Option<u64>,
    /// Bytes that devices read for other processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_read_bytes: Option<u64>,
    /// Bytes that devices wrote for other processes, including what the file system wrote for this
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_written_bytes: Option<u64>,
    /// Share of the bytes that devices moved for other processes, 0 to 1; `None` if no device moved
    /// any, or if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_device: Option<f64>,
    /// What limited the run.
    pub bottleneck: Option<Bottleneck>,
    /// Spans, if they were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Vec<Span>>,
    /// Number of spans that exceeded the budget.
    pub spans_lost: u64,
    /// Time in every state by role, with the source of each number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleStates>,
    /// Evidence for the states: level, sources with their losses, self-checks, estimated overhead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The decisions of the controller, if the plan had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuned: Option<Tuned>,
    /// Numbers specific to one experiment, by name with the unit last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, f64>,
    /// Curves specific to one experiment, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Measured {
    /// Returns the files per second.
    pub fn files_per_s(&self) -> f64 {
        self.files as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    /// Returns the bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    /// Returns a number by its name: a field, a statistic such as `calls.KIND.p50_ns`, a share such
    /// as `share.io`, `files_per_s`, `bytes_per_s`, or an entry of `extra`.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let parts: Vec<&str> = name.split('.').collect();
        match parts.as_slice() {
            ["calls", kind, field] => {
                let (_, stats) = self.calls.iter().find(|(k, _)| k.name() == *kind)?;
                Some(match *field {
                    "count" => stats.count as f64,
                    _ if !stats.has_times() => return None,
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

    /// Returns the share of the elapsed time of all threads in a state, 0 to 1. States are
    /// `on-cpu`, `ready`, `io`, `sync`, `input`, `compute-blocked` and `unknown`.
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
                "input" => thread.input_ns,
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
            "steal_cpu" => self.steal_cpu?,
            "cpu_pressure" => self.cpu_pressure?,
            "largest_file_bytes" => self.largest_file_bytes as f64,
            "largest_file_ns" => self.largest_file_ns as f64,
            "throttled_ns" => self.throttled_ns as f64,
            "children_cpu_ns" => self.children_cpu_ns as f64,
            "others_device" => self.others_device?,
            _ => return None,
        })
    }
}

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// The run finished.
    Done {
        /// Its measurements.
        measured: Box<Measured>,
    },
    /// The plan cannot run as given on this machine.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The run started and failed.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The run was killed at its deadline.
    TimedOut {
        /// The deadline, seconds.
        seconds: f64,
    },
}

/// Identifies a run in a study. An interrupted study is resumed by these keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunKey {
    /// Name of the study.
    pub study: String,
    /// Identifier of this execution of the study.
    pub session: String,
    /// Name of the experiment in the study.
    pub experiment: String,
    /// Name of the arm in the experiment, with factors filled in.
    pub arm: String,
    /// Name of the file set.
    pub set: String,
    /// Name of the medium: `work` unless the study ran on several.
    pub medium: String,
    /// Required condition.
    pub condition: Condition,
    /// Work on the data.
    pub compute: Compute,
    /// Number of the block, from 0.
    pub block: u32,
    /// Position in the ordered list of runs, from 0.
    pub position: u32,
    /// Factors of the arm, by name.
    pub factors: BTreeMap<String, f64>,
}

/// A run: one line of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`RECORD_SCHEMA`].
    pub schema: u32,
    /// Identification of the run.
    pub key: RunKey,
    /// The plan.
    pub plan: AnyPlan,
    /// The files.
    pub set: FileSetRealised,
    /// Evidence for the condition.
    pub proof: Option<Proof>,
    /// The outcome.
    pub outcome: Outcome,
    /// Reasons to distrust it.
    pub doubts: Vec<Doubt>,
    /// Fingerprint of the machine.
    pub machine: String,
    /// Version and commit of the program.
    pub version: String,
    /// Start time, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Seed of the study.
    pub seed: u64,
}

impl RunRecord {
    /// Returns the measurements, if the run finished.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Done { measured } => Some(measured),
            _ => None,
        }
    }
}

/// Request to the child process of a run, sent as one JSON document on its standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOrder {
    /// The plan.
    pub plan: AnyPlan,
    /// Work on the data.
    pub compute: Compute,
    /// Directory of the set. All regular files below it are processed, in bytewise order of paths.
    pub dir: PathBuf,
    /// Description of the set; `None` for a directory of the user.
    pub set: Option<FileSetSpec>,
    /// Limit on the number of files, from the start of the list; `None` is all.
    pub files_max: Option<u64>,
    /// Seed of random compute times.
    pub seed: u64,
    /// Limit on the number of recorded spans; 0 records only totals.
    pub spans_max: u64,
    /// How the run is observed.
    #[serde(default)]
    pub observe: Observe,
}

/// How a run is observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Observe {
    /// Record events, at the given level or the highest one available. Otherwise threads only read
    /// their clocks (level 0), whose cost does not grow with the number of context switches.
    pub events: bool,
    /// Required level of events; the run is refused if it is not available.
    pub level: Option<Level>,
    /// Write the trace to this new file.
    pub trace: Option<PathBuf>,
}

//! The facts that decide what limited a run.

use ioloom_model::{CallKind, Measured};
use serde::{Deserialize, Serialize};

/// A file that takes this many per cent of the elapsed time takes almost the whole run.
const ONE_FILE_MIN_PERCENT: u64 = 80;

/// Facts about a finished run. Times are nanoseconds, summed over threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Elapsed time of the run.
    pub elapsed_ns: u64,
    /// Usable processors: at most as many as the plan lets run the function at once.
    pub cores: u32,
    /// Whether the plan leaves processors unused.
    pub fewer_permits: bool,
    /// Files whose function returned a value.
    pub files: u64,
    /// Bytes that the function saw.
    pub bytes: u64,
    /// Wall time of the largest file, if it has at least half of the bytes.
    pub largest_ns: u64,
    /// Threads of the run.
    pub threads: u32,
    /// Elapsed time of the threads.
    pub threads_ns: u64,
    /// On a processor.
    pub on_cpu_ns: u64,
    /// Ready to run; `None` if unknown.
    pub ready_ns: Option<u64>,
    /// Blocked in calls that fetch data.
    pub io_ns: u64,
    /// Blocked on other threads.
    pub hand_over_ns: u64,
    /// Blocked on the memory budget.
    pub memory_ns: u64,
    /// Blocked until there was a path.
    pub input_ns: u64,
    /// Blocked inside the function, except for the waits below and the time of helpers.
    pub function_ns: u64,
    /// Blocked inside the function until results were taken.
    pub output_ns: u64,
    /// Blocked inside the function until the memory budget had room for a reservation.
    pub reserve_ns: u64,
    /// Blocked inside the function until child processes had taken their input or ended.
    pub child_ns: u64,
    /// Children that threads waited for were ready to run without running.
    pub child_ready_ns: u64,
    /// On a processor: other threads on which the library ran the function.
    pub helper_ns: u64,
    /// Not explained.
    pub unknown_ns: u64,
    /// Wall time of the calls that fetch data.
    pub fetch_wall_ns: u64,
    /// Wall time of the function.
    pub function_wall_ns: u64,
    /// Calls of the function.
    pub calls: u64,
    /// Whether files were mapped.
    pub mapped: bool,
    /// Processor time of the process in user mode.
    pub user_ns: u64,
    /// Processor time of the process in the kernel.
    pub kernel_ns: u64,
    /// Processor time of children that ended.
    pub children_ns: u64,
    /// Page faults of children that ended.
    pub children_faults: u64,
    /// Processor time of other programs; `None` if unknown.
    pub others_ns: Option<u64>,
    /// Processor time that the hypervisor took.
    pub steal_ns: u64,
    /// Time for which quotas of control groups kept the groups of the process from running, summed over
    /// processors.
    pub throttled_ns: u64,
    /// Bytes read from devices for this process; `None` if unknown.
    pub device_bytes: Option<u64>,
    /// Share of the bytes that devices moved for others.
    pub others_device: f64,
    /// Kind of call that fetches data with the most time.
    pub costliest: Option<CallKind>,
}

/// Kinds of calls that fetch data.
const FETCH: [CallKind; 7] = [
    CallKind::Open,
    CallKind::Stat,
    CallKind::Read,
    CallKind::Completion,
    CallKind::Map,
    CallKind::Unmap,
    CallKind::Close,
];

impl Facts {
    /// Takes the facts from a run on `cores` usable processors of `cpus` online.
    pub fn of(m: &Measured, cores: u32, cpus: u32) -> Self {
        let wall = |kind| m.calls.get(&kind).map_or(0, |calls| calls.total_ns);
        let capacity = m.elapsed_ns as f64 * f64::from(cpus.max(1));
        let machine = |share: Option<f64>| share.map(|share| (share * capacity) as u64);
        let is_most = m.largest_file_bytes.saturating_mul(2) >= m.bytes;
        let mut facts = Self {
            elapsed_ns: m.elapsed_ns,
            cores: cores.max(1),
            files: m.files,
            bytes: m.bytes,
            largest_ns: if is_most { m.largest_file_ns } else { 0 },
            threads: u32::try_from(m.threads.len()).unwrap_or(u32::MAX),
            ready_ns: Some(0),
            fetch_wall_ns: FETCH.map(wall).iter().sum(),
            function_wall_ns: wall(CallKind::Compute),
            calls: m.calls.get(&CallKind::Compute).map_or(0, |calls| calls.count),
            mapped: wall(CallKind::Map) > 0,
            user_ns: m.cpu_user_ns,
            kernel_ns: m.cpu_kernel_ns,
            children_ns: m.children_cpu_ns,
            children_faults: m.children_faults,
            others_ns: machine(m.others_cpu),
            steal_ns: machine(m.steal_cpu).unwrap_or(0),
            throttled_ns: m.throttled_ns,
            device_bytes: m.device_read_bytes,
            others_device: m.others_device.unwrap_or(0.0),
            costliest: FETCH.into_iter().filter(|k| wall(*k) > 0).max_by_key(|k| wall(*k)),
            ..Self::default()
        };
        for thread in &m.threads {
            let of = |kind| thread.calls_ns.get(&kind).copied().unwrap_or(0);
            let (memory, both) =
                (of(CallKind::Memory), of(CallKind::Memory) + of(CallKind::HandOver));
            let part = u128::from(thread.sync_ns) * u128::from(memory) / u128::from(both.max(1));
            let memory_ns = part as u64;
            facts.threads_ns += thread.elapsed_ns;
            facts.on_cpu_ns += thread.on_cpu_ns;
            facts.ready_ns = facts.ready_ns.zip(thread.ready_ns).map(|(sum, ns)| sum + ns);
            facts.io_ns += thread.io_ns;
            facts.memory_ns += memory_ns;
            facts.hand_over_ns += thread.sync_ns - memory_ns;
            facts.input_ns += thread.input_ns;
            let output_ns = thread.output_ns.min(thread.compute_blocked_ns);
            let reserve_ns = thread.reserve_ns.min(thread.compute_blocked_ns - output_ns);
            let rest_ns = thread.compute_blocked_ns - output_ns - reserve_ns;
            let child_ns = thread.child_ns.min(rest_ns);
            let other_ns = rest_ns - child_ns;
            // The thread waited while they ran.
            facts.function_ns += other_ns.saturating_sub(thread.helper_ns);
            facts.helper_ns += thread.helper_ns;
            facts.output_ns += output_ns;
            facts.reserve_ns += reserve_ns;
            facts.child_ns += child_ns;
            facts.child_ready_ns += thread.child_ready_ns;
            facts.unknown_ns += thread.unknown_ns;
        }
        facts
    }

    /// Returns the share of the run that one file took, in per cent, if it took almost the whole run.
    pub(super) fn one_file_percent(&self) -> Option<u64> {
        let percent = self.largest_ns.saturating_mul(100) / self.elapsed_ns.max(1);
        (percent >= ONE_FILE_MIN_PERCENT).then_some(percent.min(100))
    }

    /// Returns the processor time that the run could use. If one file took almost the whole run, other
    /// threads could do nothing for it, and only as many processors count as had work on average.
    pub(super) fn cores_ns(&self) -> f64 {
        let elapsed = self.elapsed_ns as f64;
        let cores = f64::from(self.cores.max(1));
        if self.one_file_percent().is_none() {
            return elapsed * cores;
        }
        let worked = self.fetch_wall_ns as f64 + self.function_wall_ns as f64;
        elapsed * (worked / elapsed.max(1.0)).round().clamp(1.0, cores)
    }

    /// Returns the facts of a run in which at most `permits` threads could run the function at once.
    pub fn permitted(self, permits: Option<u32>) -> Self {
        match permits {
            Some(permits) if permits < self.cores => {
                Self { cores: permits.max(1), fewer_permits: true, ..self }
            }
            _ => self,
        }
    }
}

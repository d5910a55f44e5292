//! Resources used by the process and the machine between two points in time.

use crate::neighbours::{Counters, Others, counts_device_bytes, cpu_ns};
use ioloom_model::Measured;
use ioloom_model::record::CpuCount;
use ioloom_sys::cgroup;
use ioloom_sys::proc::parse::grown_ms;
use ioloom_sys::proc::{self, UsageOf};

/// Counters at one point in time; unreadable ones are `None`.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    process: proc::Usage,
    /// Children that have ended.
    children: proc::Usage,
    machine: Option<Counters>,
    /// Time that processor quotas took.
    throttled_ns: Option<u64>,
    block_device: Option<(String, u64)>,
}

/// Returns what this process and its ended children have used.
fn own() -> (proc::Usage, proc::Usage) {
    let of = |who| proc::usage(who).unwrap_or_default();
    (of(UsageOf::Process), of(UsageOf::Children))
}

/// Difference between two points in time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UsageDelta {
    /// Processor time in user mode.
    pub user_ns: u64,
    /// Processor time in the kernel.
    pub kernel_ns: u64,
    /// Page faults without and with I/O.
    pub faults: (u64, u64),
    /// Voluntary and involuntary context switches.
    pub switches: (u64, u64),
    /// Bytes that this process and its ended children read from devices; `None` if the kernel does
    /// not count them.
    pub device_bytes: Option<u64>,
    /// Bytes that this process and its ended children wrote to devices, or will write.
    pub written_bytes: Option<u64>,
    /// What others used.
    pub others: Option<Others>,
    /// Time for which processor quotas kept the control groups of this process from running, summed
    /// over processors.
    pub throttled_ns: u64,
    /// Processor time and page faults of children that ended.
    pub children: (u64, u64),
    /// Time during which the block device had at least one request.
    pub device_busy_ns: Option<u64>,
    /// Whether the run was long enough to read what costs as much as a few small files: see
    /// [`Usage::begin`].
    pub complete: bool,
}

impl Usage {
    /// Reads the counters; `block_device` names the device whose busy time is read.
    pub fn now(block_device: Option<&str>) -> Self {
        let disk = block_device
            .and_then(|name| proc::disk_stat(name).ok().map(|d| (name.to_owned(), d.busy_ms)));
        let (process, children) = own();
        let machine = Counters::now((&process, &children), true);
        let throttled_ns = Some(cgroup::throttled_ns());
        Self { process, children, machine, throttled_ns, block_device: disk }
    }

    /// Reads the counters of the process only, which takes two system calls. For a run that may be
    /// short: [`Usage::complete`] adds the others once it has lasted a while.
    pub fn begin() -> Self {
        let (process, children) = own();
        Self { process, children, ..Self::default() }
    }

    /// Reads the counters of the machine after [`Usage::begin`]. What they count is extrapolated to
    /// the whole run.
    pub fn complete(&mut self) {
        let (process, children) = own();
        self.machine = Counters::now((&process, &children), false);
        self.throttled_ns = Some(cgroup::throttled_ns());
    }

    /// Reports whether the counters of the machine were read.
    pub fn is_complete(&self) -> bool {
        self.machine.is_some()
    }

    /// Reads the counters that `before` has, and returns the resources used since then, in
    /// `elapsed_ns`.
    pub fn used_since(before: &Self, elapsed_ns: u64) -> UsageDelta {
        if !before.is_complete() && before.block_device.is_none() {
            return Self::begin().difference(before, elapsed_ns);
        }
        let device = before.block_device.as_ref().map(|(name, _)| name.as_str());
        Self::now(device).difference(before, elapsed_ns)
    }

    /// Returns the resources used since `before`.
    pub fn since(&self, before: &Self) -> UsageDelta {
        self.difference(before, 0)
    }

    fn difference(&self, before: &Self, elapsed_ns: u64) -> UsageDelta {
        let (a, b) = (&before.process, &self.process);
        let machines = self.machine.zip(before.machine);
        let others = machines.map(|(now, before)| now.since(before, elapsed_ns));
        let throttled = self.throttled_ns.zip(before.throttled_ns);
        let (c, d) = (&before.children, &self.children);
        let faults = |usage: &proc::Usage| usage.minor_faults + usage.major_faults;
        let children = (cpu_ns(d).saturating_sub(cpu_ns(c)), faults(d).saturating_sub(faults(c)));
        let device_busy_ns = match (&before.block_device, &self.block_device) {
            (Some((_, a)), Some((_, b))) => Some(grown_ms(*a, *b) * 1_000_000),
            _ => None,
        };
        UsageDelta {
            user_ns: b.user_ns - a.user_ns,
            kernel_ns: b.system_ns - a.system_ns,
            faults: (b.minor_faults - a.minor_faults, b.major_faults - a.major_faults),
            switches: (
                b.voluntary_switches - a.voluntary_switches,
                b.involuntary_switches - a.involuntary_switches,
            ),
            device_bytes: counts_device_bytes()
                .then(|| (b.read_bytes + d.read_bytes).saturating_sub(a.read_bytes + c.read_bytes)),
            written_bytes: counts_device_bytes().then(|| {
                (b.written_bytes + d.written_bytes)
                    .saturating_sub(a.written_bytes + c.written_bytes)
            }),
            others,
            throttled_ns: throttled.map_or(0, |(now, before)| now.saturating_sub(before)),
            children,
            device_busy_ns,
            complete: machines.is_some(),
        }
    }
}

/// Minimum number of clock ticks in a run whose shares of processor time are counted in ticks.
const TICKS_MIN: u64 = 10;

/// Reports whether a run is long enough for counters in ticks.
fn in_ticks(elapsed_ns: u64, ticks_per_second: u64) -> bool {
    elapsed_ns >= TICKS_MIN * 1_000_000_000 / ticks_per_second.max(1)
}

impl UsageDelta {
    /// Writes the values into a record whose `elapsed_ns` is set; `cpus` is the number of online
    /// processors.
    pub fn fill(&self, measured: &mut Measured, cpus: u32) {
        let elapsed = measured.elapsed_ns.max(1) as f64;
        measured.cpu_user_ns = self.user_ns;
        measured.cpu_kernel_ns = self.kernel_ns;
        (measured.faults_minor, measured.faults_major) = self.faults;
        (measured.switches_voluntary, measured.switches_involuntary) = self.switches;
        let of_machine = |ns: u64| ns as f64 / (elapsed * f64::from(cpus.max(1)));
        // A tick is a tenth of a shorter run or more, and shows chance rather than load.
        let in_ticks = in_ticks(measured.elapsed_ns, proc::ticks_per_second());
        let exact = |others: &Others| others.counted == Some(CpuCount::Nanoseconds);
        let counted = self.others.filter(|others| in_ticks || exact(others));
        measured.others_cpu = counted.map(|others| of_machine(others.cpu_ns));
        measured.others_cpu_in = counted.and_then(|others| others.counted);
        measured.steal_cpu = self.others.filter(|_| in_ticks).map(|o| of_machine(o.steal_ns));
        let waiting = self.others.and_then(|others| others.waiting_ns);
        measured.cpu_pressure = waiting.map(|ns| (ns as f64 / elapsed).min(1.0));
        measured.throttled_ns = self.throttled_ns;
        (measured.children_cpu_ns, measured.children_faults) = self.children;
        measured.device_read_bytes = self.device_bytes;
        measured.device_written_bytes = self.written_bytes;
        let moved = self.others.and_then(|others| others.moved);
        measured.others_read_bytes = moved.map(|moved| moved.read);
        measured.others_written_bytes = moved.map(|moved| moved.written);
        measured.others_device = self.others.and_then(|others| others.device);
        measured.device_busy = self.device_busy_ns.map(|ns| (ns as f64 / elapsed).min(1.0));
        if !self.complete {
            return;
        }
        let status = proc::status().unwrap_or_default();
        measured.memory_peak_bytes = status.peak_rss_bytes.unwrap_or(0);
        measured.memory_anon_bytes = status.rss_anon_bytes;
        measured.memory_file_bytes = status.rss_file_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_do_not_judge_short_runs() {
        for (elapsed_ns, counted) in [(30_000_000, false), (99_999_999, false), (100_000_000, true)]
        {
            assert_eq!(in_ticks(elapsed_ns, 100), counted, "{elapsed_ns}");
            for (unit, judged) in [(CpuCount::Ticks, counted), (CpuCount::Nanoseconds, true)] {
                let others = Others {
                    cpu_ns: 5_000_000,
                    counted: Some(unit),
                    steal_ns: 10_000_000,
                    waiting_ns: Some(3_000_000),
                    ..Others::default()
                };
                let delta = UsageDelta { others: Some(others), ..UsageDelta::default() };
                let mut measured = Measured { elapsed_ns, ..Measured::default() };
                delta.fill(&mut measured, 1);
                assert_eq!(measured.cpu_pressure, Some(3_000_000.0 / elapsed_ns as f64));
                if proc::ticks_per_second() == 100 {
                    assert_eq!(measured.others_cpu.is_some(), judged, "{elapsed_ns} {unit:?}");
                    assert_eq!(measured.others_cpu_in, judged.then_some(unit));
                    assert_eq!(measured.steal_cpu.is_some(), counted, "{elapsed_ns}");
                }
            }
        }
    }

    #[test]
    fn time_that_quotas_took_is_that_between_two_points() {
        let at = |throttled_ns| Usage { throttled_ns, ..Usage::default() };
        let took = |before, now| at(now).since(&at(before)).throttled_ns;
        assert_eq!(took(Some(3), Some(10)), 7);
        assert_eq!((took(None, Some(10)), took(Some(3), None), took(Some(3), Some(2))), (0, 0, 0));
        let delta = UsageDelta { throttled_ns: 7, ..UsageDelta::default() };
        let mut measured = Measured { elapsed_ns: 10, ..Measured::default() };
        delta.fill(&mut measured, 1);
        assert_eq!(measured.throttled_ns, 7);
    }

    #[test]
    fn children_count_when_they_have_ended() {
        let before = Usage::now(None);
        assert!(std::process::Command::new("true").status().unwrap().success());
        let delta = Usage::now(None).since(&before);
        assert!(delta.children.0 > 0 && delta.children.1 > 0, "{delta:?}");
        let counted = std::path::Path::new("/proc/self/io").exists();
        assert_eq!(
            (delta.device_bytes.is_some(), delta.written_bytes.is_some()),
            (counted, counted)
        );
    }

    #[test]
    fn our_work_is_counted_and_not_that_of_others() {
        let before = Usage::now(None);
        let until = ioloom_sys::clock::thread_cpu_ns() + 30_000_000;
        while ioloom_sys::clock::thread_cpu_ns() < until {}
        let delta = Usage::now(None).since(&before);
        assert!(delta.user_ns + delta.kernel_ns >= 25_000_000, "{delta:?}");
        let mut measured = Measured { elapsed_ns: 30_000_000, ..Measured::default() };
        delta.fill(&mut measured, 1);
        assert!(measured.memory_peak_bytes > 1 << 20);
        assert_eq!(measured.device_busy, None);
    }
}

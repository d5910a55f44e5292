//! Resources used by the process and the machine between two points in time.

use ioloom_model::Measured;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{self, DiskStat, UsageOf};

/// Counters at one point in time; unreadable ones are `None`.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    process: proc::Usage,
    /// Children that have ended.
    children: proc::Usage,
    machine: Option<Machine>,
    block_device: Option<(String, u64)>,
}

/// Processor time and device bytes of the machine, and of this process and its ended children at the
/// same time.
#[derive(Debug, Clone, Copy)]
struct Machine {
    at_ns: u64,
    busy_ticks: u64,
    steal_ticks: u64,
    own_ns: u64,
    device_bytes: Option<u64>,
    own_bytes: u64,
}

impl Machine {
    fn now() -> Option<Self> {
        let total = proc::system_stat().ok()?.total;
        let device_bytes = proc::diskstats().ok().map(|disks| whole_devices(&disks));
        let (process, children) = own();
        Some(Self {
            at_ns: monotonic_ns(),
            busy_ticks: total.busy(),
            steal_ticks: total.steal,
            own_ns: cpu_ns(&process) + cpu_ns(&children),
            device_bytes,
            own_bytes: moved_bytes(&process) + moved_bytes(&children),
        })
    }

    /// Returns the processor time of other processes and of the hypervisor since `before`,
    /// extrapolated to `elapsed_ns`.
    fn others_ns(self, before: Self, elapsed_ns: u64) -> (u64, u64) {
        let tick_ns = 1_000_000_000 / proc::ticks_per_second().max(1);
        let busy_ns = self.busy_ticks.saturating_sub(before.busy_ticks) * tick_ns;
        let others_ns = busy_ns.saturating_sub(self.own_ns.saturating_sub(before.own_ns));
        let steal_ns = self.steal_ticks.saturating_sub(before.steal_ticks) * tick_ns;
        let observed_ns = self.at_ns.saturating_sub(before.at_ns).max(1);
        let whole =
            |ns: u64| (ns as f64 * (elapsed_ns as f64 / observed_ns as f64).max(1.0)) as u64;
        (whole(others_ns), whole(steal_ns))
    }

    /// Returns the share of the bytes that devices moved for others since `before`.
    fn others_device(self, before: Self) -> Option<f64> {
        let all = self.device_bytes?.saturating_sub(before.device_bytes?);
        let own = self.own_bytes.saturating_sub(before.own_bytes).min(all);
        (all > 0).then(|| 1.0 - own as f64 / all as f64)
    }
}

/// Returns what this process and its ended children have used.
fn own() -> (proc::Usage, proc::Usage) {
    let of = |who| proc::usage(who).unwrap_or_default();
    (of(UsageOf::Process), of(UsageOf::Children))
}

fn cpu_ns(usage: &proc::Usage) -> u64 {
    usage.user_ns + usage.system_ns
}

fn moved_bytes(usage: &proc::Usage) -> u64 {
    usage.read_bytes + usage.written_bytes
}

/// Returns the bytes moved by whole devices that are not made of others. Partitions and devices such
/// as `loop0`, `dm-0` or `md0` would count the same bytes again; memory is not a device.
fn whole_devices(disks: &[DiskStat]) -> u64 {
    let stacked = ["loop", "dm-", "md", "ram", "zram", "drbd", "bcache"];
    let is_partition = |name: &str| {
        disks.iter().any(|other| {
            let rest = name.strip_prefix(other.name.as_str()).unwrap_or("");
            let digits = rest.strip_prefix('p').unwrap_or(rest);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        })
    };
    let whole = |disk: &&DiskStat| {
        !stacked.iter().any(|kind| disk.name.starts_with(kind)) && !is_partition(&disk.name)
    };
    disks.iter().filter(whole).map(|disk| disk.read_bytes + disk.written_bytes).sum()
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
    /// Bytes that this process and its ended children read from devices.
    pub device_bytes: Option<u64>,
    /// Processor time of all other processes.
    pub others_ns: Option<u64>,
    /// Processor time that the hypervisor took.
    pub steal_ns: Option<u64>,
    /// Processor time and page faults of children that ended.
    pub children: (u64, u64),
    /// Share of the bytes that devices moved for others.
    pub others_device: Option<f64>,
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
        Self { process, children, machine: Machine::now(), block_device: disk }
    }

    /// Reads the counters of the process only, which takes two system calls. For a run that may be
    /// short: [`Usage::complete`] adds the others once it has lasted a while.
    pub fn begin() -> Self {
        let (process, children) = own();
        Self { process, children, machine: None, block_device: None }
    }

    /// Reads the counters of the machine after [`Usage::begin`]. What they count is extrapolated to
    /// the whole run.
    pub fn complete(&mut self) {
        self.machine = Machine::now();
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
        let others = machines.map(|(now, before)| now.others_ns(before, elapsed_ns));
        let (c, d) = (&before.children, &self.children);
        let faults = |usage: &proc::Usage| usage.minor_faults + usage.major_faults;
        let children = (cpu_ns(d).saturating_sub(cpu_ns(c)), faults(d).saturating_sub(faults(c)));
        let device_busy_ns = match (&before.block_device, &self.block_device) {
            (Some((_, a)), Some((_, b))) => Some(b.saturating_sub(*a) * 1_000_000),
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
            device_bytes: Some(
                (b.read_bytes + d.read_bytes).saturating_sub(a.read_bytes + c.read_bytes),
            ),
            others_ns: others.map(|(ns, _)| ns),
            steal_ns: others.map(|(_, ns)| ns),
            children,
            others_device: machines.and_then(|(now, before)| now.others_device(before)),
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
        // The kernel counts the time of others in ticks. In a shorter run, one tick is a tenth of the
        // time or more, and shows chance rather than load.
        let counted = in_ticks(measured.elapsed_ns, proc::ticks_per_second());
        measured.others_cpu = self.others_ns.filter(|_| counted).map(of_machine);
        measured.steal_cpu = self.steal_ns.filter(|_| counted).map(of_machine);
        (measured.children_cpu_ns, measured.children_faults) = self.children;
        measured.device_read_bytes = self.device_bytes;
        measured.others_device = self.others_device;
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
    fn bytes_are_counted_once_where_devices_share_them() {
        let disk = |name: &str, read_bytes| DiskStat {
            name: name.to_owned(),
            read_bytes,
            ..DiskStat::default()
        };
        let names =
            ["sda", "sda1", "sdaa", "nvme0n1", "nvme0n1p2", "dm-0", "loop3", "zram0", "vda"];
        let disks: Vec<_> = names.iter().enumerate().map(|(i, n)| disk(n, 1 << i)).collect();
        assert_eq!(whole_devices(&disks), 1 + 4 + 8 + 256);
    }

    #[test]
    fn ticks_do_not_judge_short_runs() {
        for (elapsed_ns, counted) in [(30_000_000, false), (99_999_999, false), (100_000_000, true)]
        {
            assert_eq!(in_ticks(elapsed_ns, 100), counted, "{elapsed_ns}");
            let delta = UsageDelta {
                others_ns: Some(10_000_000),
                steal_ns: Some(10_000_000),
                ..UsageDelta::default()
            };
            let mut measured = Measured { elapsed_ns, ..Measured::default() };
            delta.fill(&mut measured, 1);
            if proc::ticks_per_second() == 100 {
                assert_eq!(measured.others_cpu.is_some(), counted, "{elapsed_ns}");
                assert_eq!(measured.steal_cpu.is_some(), counted, "{elapsed_ns}");
            }
        }
    }

    #[test]
    fn children_count_when_they_have_ended() {
        let before = Usage::now(None);
        assert!(std::process::Command::new("true").status().unwrap().success());
        let delta = Usage::now(None).since(&before);
        assert!(delta.children.0 > 0 && delta.children.1 > 0, "{delta:?}");
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

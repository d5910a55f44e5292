//! What other programs and other guests of the hypervisor used during a run.
//!
//! The processor time of other programs is that of all tasks minus our own. Two files count all tasks
//! in nanoseconds: that of the topmost control group, unless it is only the group of a container, and
//! /proc/schedstat. Without them it is counted in ticks, and a tick is too coarse for a short run. The
//! time during which tasks waited for a processor is known in microseconds on most systems, but tasks
//! of the run wait for each other too. Steal is known in ticks only.

use ioloom_model::record::CpuCount;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::{self, DiskStat};
use std::sync::OnceLock;
use std::time::Duration;

/// Bytes read from and written to devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Moved {
    fn since(self, before: Self) -> Self {
        Self {
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
        }
    }

    const fn sum(self) -> u64 {
        self.read + self.written
    }

    fn plus(self, other: Self) -> Self {
        Self { read: self.read + other.read, written: self.written + other.written }
    }

    fn larger(self, other: Self) -> Self {
        Self { read: self.read.max(other.read), written: self.written.max(other.written) }
    }

    /// Returns what a process moved.
    pub(crate) fn by(usage: &proc::Usage) -> Self {
        Self { read: usage.read_bytes, written: usage.written_bytes }
    }
}

/// Counters of the machine, and of this process and its ended children at the same time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    at_ns: u64,
    busy_ticks: u64,
    steal_ticks: u64,
    /// Processor time of all tasks; `None` if it is known in ticks only.
    exact_ns: Option<u64>,
    /// Time during which a task waited for a processor.
    waiting_us: Option<u64>,
    devices: Option<Moved>,
    own_ns: u64,
    own_moved: Moved,
}

/// What others used between two points in time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Others {
    /// Processor time of other processes.
    pub cpu_ns: u64,
    /// How it was counted.
    pub counted: Option<CpuCount>,
    /// Processor time that the hypervisor took.
    pub steal_ns: u64,
    /// Time during which at least one task of the machine waited for a processor.
    pub waiting_ns: Option<u64>,
    /// Bytes that devices moved for other processes.
    pub moved: Option<Moved>,
    /// Share of these bytes in all bytes that devices moved; `None` if they moved none.
    pub device: Option<f64>,
}

/// A pause after which the running slice of this thread is counted in /proc/schedstat.
const PAUSE: Duration = Duration::from_micros(20);

impl Counters {
    /// Reads the counters. `exact` also reads those that take a pause.
    pub(crate) fn now(own: (&proc::Usage, &proc::Usage), exact: bool) -> Option<Self> {
        let total = proc::system_stat().ok()?.total;
        let group = proc::group_ran_ns().ok().filter(|ns| is_machine(*ns, total.busy(), tick_ns()));
        let exact_ns = group.or_else(|| {
            exact.then(|| std::thread::sleep(PAUSE));
            proc::ran_ns().ok().filter(|_| exact)
        });
        // Without the bytes of this process, those of others are unknown.
        let disks = proc::diskstats().ok().filter(|_| counts_device_bytes());
        let devices = disks.map(|disks| whole_devices(&disks));
        let (process, children) = own;
        Some(Self {
            at_ns: monotonic_ns(),
            busy_ticks: total.busy(),
            steal_ticks: total.steal,
            exact_ns,
            waiting_us: proc::cpu_pressure().ok().map(|pressure| pressure.some_us),
            devices,
            own_ns: cpu_ns(process) + cpu_ns(children),
            own_moved: Moved::by(process).plus(Moved::by(children)),
        })
    }

    /// Returns what others used since `before`. Times are extrapolated to `elapsed_ns` if that is
    /// longer.
    pub(crate) fn since(self, before: Self, elapsed_ns: u64) -> Others {
        let own_ns = self.own_ns.saturating_sub(before.own_ns);
        let exact =
            self.exact_ns.zip(before.exact_ns).map(|(now, before)| now.saturating_sub(before));
        let ticks = |now: u64, before: u64| now.saturating_sub(before) * tick_ns();
        let all_ns = exact.unwrap_or_else(|| ticks(self.busy_ticks, before.busy_ticks));
        let observed_ns = self.at_ns.saturating_sub(before.at_ns).max(1);
        let whole =
            |ns: u64| (ns as f64 * (elapsed_ns as f64 / observed_ns as f64).max(1.0)) as u64;
        let waiting = self.waiting_us.zip(before.waiting_us);
        let all = self.devices.zip(before.devices).map(|(now, before)| now.since(before));
        let own = self.own_moved.since(before.own_moved);
        let moved = all.map(|all| all.since(own));
        let device = all.filter(|all| all.sum() > 0);
        Others {
            cpu_ns: whole(all_ns.saturating_sub(own_ns)),
            counted: Some(exact.map_or(CpuCount::Ticks, |_| CpuCount::Nanoseconds)),
            steal_ns: whole(ticks(self.steal_ticks, before.steal_ticks)),
            waiting_ns: waiting.map(|(now, before)| whole(now.saturating_sub(before) * 1000)),
            moved,
            device: device.map(|all| 1.0 - own.sum().min(all.sum()) as f64 / all.sum() as f64),
        }
    }
}

fn tick_ns() -> u64 {
    1_000_000_000 / proc::ticks_per_second().max(1)
}

/// Reports whether a control group that has run for so long contains all tasks of the machine, which was
/// busy for these ticks. Interrupts belong to no group.
fn is_machine(group_ns: u64, busy_ticks: u64, tick_ns: u64) -> bool {
    group_ns / 9 >= (busy_ticks * tick_ns) / 10
}

/// Reports whether the kernel counts the bytes of processes on devices. Without
/// CONFIG_TASK_IO_ACCOUNTING, getrusage returns zero and /proc/self/io does not exist.
pub(crate) fn counts_device_bytes() -> bool {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    // A program with file capabilities cannot read it, although the kernel counts.
    let missing = |e: std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    *COUNTS.get_or_init(|| !proc::process_io().is_err_and(missing))
}

pub(crate) fn cpu_ns(usage: &proc::Usage) -> u64 {
    usage.user_ns + usage.system_ns
}

/// Returns the bytes moved by whole devices that are not made of others. Partitions and devices such
/// as `loop0`, `dm-0` or `md0` would count the same bytes again; memory is not a device. A disk with
/// several paths counts once: some kernels count its bytes only on the paths.
fn whole_devices(disks: &[DiskStat]) -> Moved {
    let stacked = ["loop", "dm-", "md", "ram", "zram", "zd", "drbd", "bcache"];
    let is_path = |name: &str| {
        head_of_path(name).is_some_and(|head| disks.iter().any(|other| other.name == head))
    };
    let whole = |disk: &&DiskStat| {
        !stacked.iter().any(|kind| disk.name.starts_with(kind))
            && !disks.iter().any(|other| is_partition(&disk.name, &other.name))
            && !is_path(&disk.name)
    };
    let sum = |moved: Moved, disk: &DiskStat| {
        moved.plus(Moved { read: disk.read_bytes, written: disk.written_bytes })
    };
    let with_paths = |disk: &DiskStat| {
        let paths =
            disks.iter().filter(|path| head_of_path(&path.name).as_ref() == Some(&disk.name));
        sum(Moved::default(), disk).larger(paths.fold(Moved::default(), sum))
    };
    disks.iter().filter(whole).map(with_paths).fold(Moved::default(), Moved::plus)
}

/// Returns the name of the disk that an NVMe path belongs to: `nvme0n1` for `nvme0c3n1`.
fn head_of_path(name: &str) -> Option<String> {
    let (disk, path) = name.strip_prefix("nvme")?.split_once('c')?;
    let (controller, space) = path.split_once('n')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    [disk, controller, space].into_iter().all(number).then(|| format!("nvme{disk}n{space}"))
}

/// Reports whether a name is that of a partition of `disk`. As in the kernel, a `p` separates the number
/// of a partition from that of a disk: `nbd1p0`, but `sda10`.
fn is_partition(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let has_number = disk.ends_with(|c: char| c.is_ascii_digit());
    let digits = if has_number { rest.strip_prefix('p').unwrap_or("") } else { rest };
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn bytes_are_counted_once_where_devices_share_them() {
        let disk = |name: &str, read_bytes| DiskStat {
            name: name.to_owned(),
            read_bytes,
            written_bytes: 2 * read_bytes,
            ..DiskStat::default()
        };
        let names =
            ["sda", "sda1", "sdaa", "nvme0n1", "nvme0n1p2", "dm-0", "loop3", "zram0", "vda"];
        let disks: Vec<_> = names.iter().enumerate().map(|(i, n)| disk(n, 1 << i)).collect();
        let sum = 1 + 4 + 8 + 256;
        assert_eq!(whole_devices(&disks), Moved { read: sum, written: 2 * sum });
    }

    #[test]
    fn disks_with_several_paths_are_counted_once() {
        let disk = |name: &str, read_bytes| DiskStat {
            name: name.to_owned(),
            read_bytes,
            ..DiskStat::default()
        };
        let read = |disks: &[DiskStat]| whole_devices(disks).read;
        let paths = [disk("nvme0c0n1", 30), disk("nvme0c1n1", 20)];
        let with = |others: &[DiskStat]| [&paths[..], others].concat();
        assert_eq!(read(&with(&[disk("nvme0n1", 50), disk("nvme0n1p1", 50)])), 50);
        assert_eq!(read(&with(&[disk("nvme0n1", 0)])), 50, "a kernel that counts on paths only");
        assert_eq!(read(&with(&[disk("nvme0n2", 1), disk("zd0", 7)])), 51, "no head is listed");
    }

    #[test]
    fn disks_whose_number_continues_that_of_another_are_no_partitions() {
        for (name, disk) in [("nbd1p2", "nbd1"), ("nvme0n1p12", "nvme0n1"), ("sda10", "sda")] {
            assert!(is_partition(name, disk), "{name}");
        }
        for (name, disk) in [
            ("nbd10", "nbd1"),
            ("rbd10", "rbd1"),
            ("mmcblk10", "mmcblk1"),
            ("mmcblk10p1", "mmcblk1"),
            ("nvme0n10", "nvme0n1"),
            ("mmcblk0boot0", "mmcblk0"),
            ("sdap1", "sda"),
            ("sda", "sda"),
        ] {
            assert!(!is_partition(name, disk), "{name}");
        }
    }

    #[test]
    fn a_group_of_a_container_is_not_the_machine() {
        assert!(is_machine(497_219_850_045, 49_523, 10 * MS), "a virtual machine");
        assert!(is_machine(480_000_000_000, 49_523, 10 * MS), "the rest was interrupts");
        assert!(!is_machine(300_000_000_000, 49_523, 10 * MS));
        assert!(is_machine(0, 0, 10 * MS));
    }

    /// A run of 20 ms on one processor during which a tick ended, although others ran for 0.3 ms only.
    #[test]
    fn a_tick_during_a_short_run_is_no_neighbour() {
        let before = Counters { at_ns: 1, busy_ticks: 100, ..Counters::default() };
        let after =
            Counters { at_ns: 1 + 20 * MS, busy_ticks: 101, own_ns: 2 * MS, ..Counters::default() };
        let in_ticks = after.since(before, 20 * MS);
        assert_eq!(in_ticks.counted, Some(CpuCount::Ticks));
        assert!(in_ticks.cpu_ns > 5 * MS, "ticks show a third of the run: {in_ticks:?}");
        let exactly = Counters { exact_ns: Some(7_000 * MS + 2_300_000), ..after }
            .since(Counters { exact_ns: Some(7_000 * MS), ..before }, 20 * MS);
        assert_eq!(exactly.counted, Some(CpuCount::Nanoseconds));
        assert_eq!(exactly.cpu_ns, 300_000);
    }

    #[test]
    fn reads_and_writes_of_others_are_apart() {
        let moved = |read, written| Moved { read, written };
        let before = Counters { devices: Some(moved(1000, 500)), ..Counters::default() };
        let after = Counters {
            devices: Some(moved(1600, 900)),
            own_moved: moved(500, 700),
            waiting_us: Some(7),
            ..Counters::default()
        };
        let others = after.since(before, 0);
        assert_eq!(others.moved, Some(moved(100, 0)), "own writes may still be in memory");
        assert_eq!(others.device, Some(0.0), "own bytes are more than those of devices");
        assert_eq!(others.waiting_ns, None, "unknown before");
        assert_eq!(Counters::default().since(Counters::default(), 0).device, None);
    }
}

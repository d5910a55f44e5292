//! Parses the texts of /proc and /sys. Pure functions, separate from reading.
//!
//! A field that is missing or not a number becomes `None` or makes the whole record `None`. Nothing
//! is guessed and nothing panics: kernels add fields, and a captured tree can contain anything.

/// I/O counters of a process (/proc/PID/io).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessIo {
    /// Bytes read with read calls, from the cache or a device.
    pub read_chars: u64,
    /// Bytes written with write calls.
    pub written_chars: u64,
    /// Number of read calls.
    pub read_calls: u64,
    /// Number of write calls.
    pub write_calls: u64,
    /// Bytes read from devices for the process.
    pub read_bytes: u64,
    /// Bytes written, or still to be written, to devices.
    pub written_bytes: u64,
    /// Bytes whose write was cancelled, such as those of a removed file.
    pub cancelled_bytes: u64,
}

/// Parses /proc/PID/io; `None` if a field present in every kernel is missing.
pub fn parse_io(text: &str) -> Option<ProcessIo> {
    Some(ProcessIo {
        read_chars: field(text, "rchar")?,
        written_chars: field(text, "wchar")?,
        read_calls: field(text, "syscr")?,
        write_calls: field(text, "syscw")?,
        read_bytes: field(text, "read_bytes")?,
        written_bytes: field(text, "write_bytes")?,
        cancelled_bytes: field(text, "cancelled_write_bytes")?,
    })
}

/// Memory, context switches and capabilities of a process (/proc/PID/status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Peak resident size in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Resident size in bytes.
    pub rss_bytes: Option<u64>,
    /// Resident anonymous memory in bytes.
    pub rss_anon_bytes: Option<u64>,
    /// Resident pages of mapped files in bytes.
    pub rss_file_bytes: Option<u64>,
    /// Resident shared memory in bytes.
    pub rss_shmem_bytes: Option<u64>,
    /// Swapped-out memory in bytes.
    pub swap_bytes: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
    /// Switches because the thread waited.
    pub voluntary_switches: Option<u64>,
    /// Switches because the thread was preempted.
    pub involuntary_switches: Option<u64>,
    /// Bit set of effective capabilities.
    pub capabilities: Option<u64>,
}

impl Status {
    /// Reports whether the process is allowed to mount and drop caches (`CAP_SYS_ADMIN`).
    pub fn has_sys_admin(&self) -> bool {
        self.capabilities.is_some_and(|bits| bits & (1 << 21) != 0)
    }
}

/// Parses /proc/PID/status.
pub fn parse_status(text: &str) -> Status {
    let kib = |name| field(text, name).and_then(|kib: u64| kib.checked_mul(1024));
    Status {
        peak_rss_bytes: kib("VmHWM"),
        rss_bytes: kib("VmRSS"),
        rss_anon_bytes: kib("RssAnon"),
        rss_file_bytes: kib("RssFile"),
        rss_shmem_bytes: kib("RssShmem"),
        swap_bytes: kib("VmSwap"),
        threads: field(text, "Threads"),
        voluntary_switches: field(text, "voluntary_ctxt_switches"),
        involuntary_switches: field(text, "nonvoluntary_ctxt_switches"),
        capabilities: value(text, "CapEff").and_then(|hex| u64::from_str_radix(hex, 16).ok()),
    }
}

/// Exact memory of a process (/proc/PID/smaps_rollup).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SmapsRollup {
    /// Resident size in bytes.
    pub rss_bytes: Option<u64>,
    /// Proportional set size in bytes: shared pages are divided among their users.
    pub pss_bytes: Option<u64>,
    /// Anonymous part of the proportional set size in bytes.
    pub pss_anon_bytes: Option<u64>,
    /// Mapped-file part of the proportional set size in bytes.
    pub pss_file_bytes: Option<u64>,
    /// Anonymous memory in huge pages in bytes.
    pub anon_huge_bytes: Option<u64>,
    /// Locked memory in bytes.
    pub locked_bytes: Option<u64>,
}

/// Parses /proc/PID/smaps_rollup.
pub fn parse_smaps_rollup(text: &str) -> SmapsRollup {
    let kib = |name| field(text, name).and_then(|kib: u64| kib.checked_mul(1024));
    SmapsRollup {
        rss_bytes: kib("Rss"),
        pss_bytes: kib("Pss"),
        pss_anon_bytes: kib("Pss_Anon"),
        pss_file_bytes: kib("Pss_File"),
        anon_huge_bytes: kib("AnonHugePages"),
        locked_bytes: kib("Locked"),
    }
}

/// Parses device and inode of a process's mapped files (/proc/PID/maps), in address order; a file
/// with several mappings occurs several times.
pub fn parse_mapped_files(text: &str) -> impl Iterator<Item = ((u32, u32), u64)> + '_ {
    text.lines().filter_map(|line| {
        // address, permissions, offset, device, inode, path
        let mut words = line.split_ascii_whitespace().skip(3);
        let (major, minor) = words.next()?.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = words.next()?.parse().ok().filter(|inode| *inode != 0)?;
        Some((device, inode))
    })
}

/// Scheduler statistics of a thread (/proc/PID/task/TID/schedstat).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedStat {
    /// On-CPU time in nanoseconds.
    pub on_cpu_ns: u64,
    /// Time in nanoseconds spent ready to run but waiting for a processor.
    pub run_delay_ns: u64,
    /// Number of time slices.
    pub slices: u64,
}

impl SchedStat {
    /// Reports whether the kernel counts: a thread that runs has begun a time slice.
    pub const fn is_counted(&self) -> bool {
        self.slices > 0
    }
}

/// Parses a schedstat file. All values are zero if the kernel does not record them.
pub fn parse_schedstat(text: &str) -> Option<SchedStat> {
    let mut numbers = numbers(text);
    Some(SchedStat {
        on_cpu_ns: numbers.next()??,
        run_delay_ns: numbers.next()??,
        slices: numbers.next()??,
    })
}

/// Parses /proc/schedstat and returns the nanoseconds that tasks have run on all processors. A slice
/// is counted when its task leaves the processor.
pub fn parse_ran_ns(text: &str) -> Option<u64> {
    // Lines have nine numbers since version 15 of the format; the seventh is the time.
    let mut cpus = text.lines().filter(|line| {
        let number = line.strip_prefix("cpu").and_then(|rest| rest.chars().next());
        number.is_some_and(|first| first.is_ascii_digit())
    });
    let ran = |line: &str| {
        let all: Option<Vec<u64>> = numbers(line.split_once(' ')?.1).collect();
        all.filter(|all| all.len() == 9).map(|all| all[6])
    };
    let first = ran(cpus.next()?)?;
    cpus.try_fold(first, |sum, line| sum.checked_add(ran(line)?))
}

/// Processor time in clock ticks (100 per second nearly everywhere).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    /// User mode.
    pub user: u64,
    /// User mode with low priority.
    pub nice: u64,
    /// Kernel mode.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while a thread waited for I/O.
    pub iowait: u64,
    /// Interrupts.
    pub irq: u64,
    /// Soft interrupts.
    pub softirq: u64,
    /// Given to other guests by the hypervisor.
    pub steal: u64,
}

impl CpuTicks {
    /// Returns the number of ticks during which a processor was busy.
    pub fn busy(&self) -> u64 {
        [self.user, self.nice, self.system, self.irq, self.softirq]
            .iter()
            .fold(0, |sum, ticks| sum.saturating_add(*ticks))
    }

    /// Returns the sum of all ticks.
    pub fn total(&self) -> u64 {
        self.busy().saturating_add(self.idle).saturating_add(self.iowait).saturating_add(self.steal)
    }
}

/// Processor times of the machine (/proc/stat).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemStat {
    /// All processors together.
    pub total: CpuTicks,
    /// Each processor, by number.
    pub cpus: Vec<(u32, CpuTicks)>,
    /// Context switches since boot.
    pub switches: Option<u64>,
    /// Threads currently running or ready.
    pub running: Option<u64>,
    /// Threads currently waiting for I/O.
    pub blocked: Option<u64>,
}

/// Parses /proc/stat; `None` without the line for all processors.
pub fn parse_system_stat(text: &str) -> Option<SystemStat> {
    let mut stat = SystemStat::default();
    let mut found = false;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let number = || rest.trim().parse().ok();
        match (name, name.strip_prefix("cpu")) {
            (_, Some("")) => {
                stat.total = cpu_ticks(rest);
                found = true;
            }
            (_, Some(cpu)) => {
                if let Ok(cpu) = cpu.parse() {
                    stat.cpus.push((cpu, cpu_ticks(rest)));
                }
            }
            ("ctxt", _) => stat.switches = number(),
            ("procs_running", _) => stat.running = number(),
            ("procs_blocked", _) => stat.blocked = number(),
            _ => {}
        }
    }
    found.then_some(stat)
}

fn cpu_ticks(rest: &str) -> CpuTicks {
    let mut numbers = numbers(rest);
    let mut next = || numbers.next().flatten().unwrap_or(0);
    CpuTicks {
        user: next(),
        nice: next(),
        system: next(),
        idle: next(),
        iowait: next(),
        irq: next(),
        softirq: next(),
        steal: next(),
    }
}

/// A process or thread (/proc/PID/stat).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStat {
    /// Process or thread ID.
    pub pid: u32,
    /// Name, truncated by the kernel to 15 bytes.
    pub name: String,
    /// State letter.
    pub state: char,
    /// Process ID of the parent.
    pub parent: u32,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// Ticks in user mode.
    pub user_ticks: u64,
    /// Ticks in the kernel.
    pub system_ticks: u64,
    /// Start time in ticks since boot, which distinguishes processes that reused an ID.
    pub start_ticks: u64,
    /// Processor on which it last ran.
    pub cpu: Option<u32>,
    /// Ticks spent waiting for I/O, if the kernel records them.
    pub blocked_ticks: Option<u64>,
}

/// Parses /proc/PID/stat. The name may contain spaces and parentheses.
pub fn parse_process_stat(text: &str) -> Option<ProcessStat> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The manual page numbers the fields; the state is field 3.
    let number = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok());
    Some(ProcessStat {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: number(4)?.try_into().ok()?,
        minor_faults: number(10)?,
        major_faults: number(12)?,
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        start_ticks: number(22)?,
        cpu: number(39).and_then(|cpu| cpu.try_into().ok()),
        blocked_ticks: number(42),
    })
}

/// Counters of a block device (/proc/diskstats, or /sys/block/NAME/stat).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskStat {
    /// Device number.
    pub device: (u32, u32),
    /// Name, such as `vda1`.
    pub name: String,
    /// Reads completed.
    pub reads: u64,
    /// Reads merged with others.
    pub reads_merged: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Total time of all reads in milliseconds.
    pub read_ms: u64,
    /// Writes completed.
    pub writes: u64,
    /// Writes merged with others.
    pub writes_merged: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Total time of all writes in milliseconds.
    pub write_ms: u64,
    /// Requests currently in flight.
    pub in_flight: u64,
    /// Time with at least one request in flight, in milliseconds.
    pub busy_ms: u64,
    /// Number of requests in flight integrated over time, in milliseconds.
    pub weighted_ms: u64,
}

/// Sector size in these files, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;

/// Parses /proc/diskstats; rows that are too short are skipped.
pub fn parse_diskstats(text: &str) -> Vec<DiskStat> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let device = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let name = fields.next()?.to_owned();
            Some(DiskStat { device, name, ..disk_counters(fields)? })
        })
        .collect()
}

/// Parses /sys/block/NAME/stat, which contains neither name nor device number.
pub fn parse_disk_stat(text: &str) -> Option<DiskStat> {
    disk_counters(text.split_ascii_whitespace())
}

fn disk_counters<'a>(fields: impl Iterator<Item = &'a str>) -> Option<DiskStat> {
    let mut numbers = fields.map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    Some(DiskStat {
        reads: next()?,
        reads_merged: next()?,
        read_bytes: next()?.saturating_mul(SECTOR_BYTES),
        read_ms: next()?,
        writes: next()?,
        writes_merged: next()?,
        written_bytes: next()?.saturating_mul(SECTOR_BYTES),
        write_ms: next()?,
        in_flight: next()?,
        busy_ms: next()?,
        weighted_ms: next()?,
        ..DiskStat::default()
    })
}

/// All counters of a block device in the kernel's units: sectors of 512 bytes and milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Reads, writes and discards completed.
    pub requests: [u64; 3],
    /// Sectors read, written and discarded.
    pub sectors: [u64; 3],
    /// Total time of all reads, writes and discards in milliseconds.
    pub request_ms: [u64; 3],
    /// Requests currently in flight.
    pub in_flight: u64,
    /// Time with at least one request in flight, in milliseconds.
    pub busy_ms: u64,
    /// Number of requests in flight integrated over time, in milliseconds.
    pub weighted_ms: u64,
    /// Completed flushes of the device cache; 0 before Linux 5.5.
    pub flushes: u64,
}

/// Parses /sys/block/NAME/stat, or a row of /proc/diskstats after the name, without allocating.
/// Discards are 0 before Linux 4.18.
pub fn parse_disk_counters(text: &str) -> Option<DiskCounters> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut fields = [0; 17];
    let mut count = 0;
    for field in &mut fields {
        let Some(number) = numbers.next() else { break };
        *field = number.ok()?;
        count += 1;
    }
    let of = |first: usize| [fields[first], fields[first + 4], fields[first + 11]];
    (count >= 11).then_some(DiskCounters {
        requests: of(0),
        sectors: of(2),
        request_ms: of(3),
        in_flight: fields[8],
        busy_ms: fields[9],
        weighted_ms: fields[10],
        flushes: fields[15],
    })
}

/// Returns the growth of a time in the counters of a block device, in milliseconds. The kernel counts in
/// 32 bits, which overflow after 50 days of requests. If a value decreased otherwise, another device got
/// the name, and the growth is unknown: usually 0.
pub fn grown_ms(before: u64, now: u64) -> u64 {
    match (u32::try_from(before), u32::try_from(now)) {
        (Ok(before), Ok(now)) if now < before => {
            let grown = now.wrapping_sub(before);
            if grown < 1 << 31 { grown.into() } else { 0 }
        }
        _ => now.saturating_sub(before),
    }
}

/// Total time during which tasks were stalled (/proc/pressure/...), in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Time with at least one task stalled.
    pub some_us: u64,
    /// Time with all tasks stalled; `None` if the kernel does not report it.
    pub full_us: Option<u64>,
}

/// Parses a pressure file.
pub fn parse_pressure(text: &str) -> Option<Pressure> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    Some(Pressure { some_us: total("some ")?, full_us: total("full ") })
}

/// Parses /sys/block/NAME/inflight: reads and writes in flight.
pub fn parse_inflight(text: &str) -> Option<(u64, u64)> {
    let mut numbers = numbers(text);
    Some((numbers.next()??, numbers.next()??))
}

/// Returns the value in a line `NAME: VALUE …` or `NAME VALUE …`, without its unit.
pub fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix([' ', '\t']))?;
        rest.split_ascii_whitespace().next()
    })
}

/// Returns the number in a line `NAME: NUMBER …` or `NAME NUMBER …`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    value(text, name)?.parse().ok()
}

fn numbers(text: &str) -> impl Iterator<Item = Option<u64>> {
    text.split_ascii_whitespace().map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn io_and_status_are_parsed() {
        let io = "rchar: 6976\nwchar: 1\nsyscr: 10\nsyscw: 2\nread_bytes: 4096\n\
                  write_bytes: 8192\ncancelled_write_bytes: 3\n";
        let io = parse_io(io).unwrap();
        assert_eq!((io.read_chars, io.read_calls, io.read_bytes), (6976, 10, 4096));
        assert_eq!((io.written_bytes, io.cancelled_bytes), (8192, 3));
        assert_eq!(parse_io("rchar: 1\n"), None);
        let text = "Name:\tx\nVmHWM:\t    1692 kB\nRssAnon:\t 112 kB\nThreads:\t3\n\
                    CapEff:\t000001ffffffffff\nvoluntary_ctxt_switches:\t7\n";
        let status = parse_status(text);
        assert_eq!(status.peak_rss_bytes, Some(1692 << 10));
        assert_eq!((status.threads, status.voluntary_switches), (Some(3), Some(7)));
        assert_eq!(status.rss_file_bytes, None);
        assert!(status.has_sys_admin());
        assert!(!parse_status("CapEff:\t0000000000000000").has_sys_admin());
        let rollup = parse_smaps_rollup("5575-7ffd ---p 0 0:0 0 [rollup]\nPss_Anon:   112 kB\n");
        assert_eq!(rollup.pss_anon_bytes, Some(112 << 10));
        assert_eq!(rollup.rss_bytes, None);
    }

    #[test]
    fn processor_times_are_parsed() {
        let text = "cpu  50 1 7 900 4 5 6 8 0 0\ncpu0 20 0 3 400 1 0 1 2 0 0\ncpu1 30 1 4 500\n\
                    intr 1 2 3\nctxt 99\nprocs_running 4\nprocs_blocked 1\n";
        let stat = parse_system_stat(text).unwrap();
        assert_eq!(stat.total.busy(), 50 + 1 + 7 + 5 + 6);
        assert_eq!(stat.total.total(), 50 + 1 + 7 + 900 + 4 + 5 + 6 + 8);
        assert_eq!(stat.cpus.len(), 2);
        assert_eq!(stat.cpus[1].1.idle, 500);
        assert_eq!((stat.switches, stat.running, stat.blocked), (Some(99), Some(4), Some(1)));
        assert_eq!(parse_system_stat("ctxt 1\n"), None);
        let sched = parse_schedstat("290536 59069 1\n").unwrap();
        assert_eq!((sched.on_cpu_ns, sched.run_delay_ns, sched.slices), (290_536, 59_069, 1));
        assert!(sched.is_counted() && parse_schedstat("0 0 1\n").unwrap().is_counted());
        assert!(!parse_schedstat("0 0 0\n").unwrap().is_counted());
        assert_eq!(parse_schedstat("1 2"), None);
    }

    #[test]
    fn the_time_of_all_tasks_is_parsed() {
        let text = "version 15\ntimestamp 4295\ncpu0 0 0 0 0 0 0 500000000 70 900\n\
                    domain0 03 1 2 3\ncpu1 0 0 0 0 0 0 25 8 9\ndomain0 03 1 2 3\n";
        assert_eq!(parse_ran_ns(text), Some(500_000_025));
        assert_eq!(parse_ran_ns("version 15\ncpu0 0 0 0\n"), None, "another format");
        assert_eq!(parse_ran_ns("cpu0 0 0 0 0 0 0 1 2 3\ncpu1 0 0 0\n"), None, "half of it");
        assert_eq!(parse_ran_ns("cpufreq 1\n"), None);
    }

    #[test]
    fn a_process_name_may_look_like_fields() {
        let text = "19521 (a) R (b) S 19498 19498 6045 0 -1 4194304 99 0 2 0 11 12 0 0 20 0 1 0 \
                    177292 3133440 405 18446744073709551615 9 9 9 0 0 0 0 0 0 0 0 0 17 5 0 0 6 0 0";
        let stat = parse_process_stat(text).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.state), (19521, "a) R (b", 'S'));
        assert_eq!((stat.parent, stat.minor_faults, stat.major_faults), (19498, 99, 2));
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.start_ticks), (11, 12, 177_292));
        assert_eq!((stat.cpu, stat.blocked_ticks), (Some(5), Some(6)));
    }

    #[test]
    fn disk_counters_of_old_kernels_are_parsed() {
        let text = "109421 31362 9975474 46577 16854 38908 4823760 17306 2 15116 64939 16517 39 \
                    665848 1005 1468 49";
        let all = parse_disk_counters(text).unwrap();
        assert_eq!(all.requests, [109_421, 16_854, 16_517]);
        assert_eq!(all.sectors, [9_975_474, 4_823_760, 665_848]);
        assert_eq!(all.request_ms, [46_577, 17_306, 1005]);
        assert_eq!((all.in_flight, all.busy_ms, all.weighted_ms), (2, 15_116, 64_939));
        assert_eq!(all.flushes, 1468);
        let old = parse_disk_counters("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((old.requests, old.flushes), ([1, 5, 0], 0));
        assert_eq!(parse_disk_counters("1 2 3"), None);
        assert_eq!(parse_disk_counters("1 2 3 4 5 6 7 8 x 10 11"), None);
    }

    #[test]
    fn pressure_is_parsed() {
        let text = "some avg10=1.00 avg60=0.10 avg300=0.00 total=13580127\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        let pressure = parse_pressure(text).unwrap();
        assert_eq!(pressure, Pressure { some_us: 13_580_127, full_us: Some(99) });
        assert_eq!(parse_pressure(&text[..60]).unwrap().full_us, None);
        assert_eq!(parse_pressure("none"), None);
    }

    #[test]
    fn mapped_files_are_parsed() {
        let text = "55d0-55d1 r-xp 00001000 fe:01 1234   /usr/bin/a b\n\
                    7f00-7f01 rw-p 00000000 00:00 0\n7f02-7f03 r--s 00000000 00:1c 7  /dev/shm/x\n";
        let found: Vec<_> = parse_mapped_files(text).collect();
        assert_eq!(found, [((0xfe, 1), 1234), ((0, 0x1c), 7)]);
    }

    #[test]
    fn times_of_disks_overflow_at_32_bits() {
        let largest = u64::from(u32::MAX);
        assert_eq!((grown_ms(5, 7), grown_ms(7, 7)), (2, 0));
        assert_eq!(grown_ms(largest - 9, 20), 30);
        assert_eq!(grown_ms(largest - 9, largest + 20), 29, "counted in more bits");
        assert_eq!(grown_ms(largest + 20, 7), 0);
        assert_eq!(grown_ms(90_000, 7), 0, "another device");
    }

    #[test]
    fn disk_rows_are_parsed() {
        let text = " 254 0 vda 109421 31362 9975474 46577 16854 38908 4823760 17306 2 15116 64939 \
                    16517 39 665848 1005 1468 49\n 7 0 loop0 0 0\n";
        let rows = parse_diskstats(text);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].device, rows[0].name.as_str()), ((254, 0), "vda"));
        assert_eq!((rows[0].reads, rows[0].read_bytes), (109_421, 9_975_474 * 512));
        assert_eq!((rows[0].in_flight, rows[0].weighted_ms), (2, 64_939));
        let own = parse_disk_stat("1 2 3 4 5 6 7 8 9 10 11\n").unwrap();
        assert_eq!((own.read_bytes, own.in_flight), (3 * 512, 9));
        assert_eq!(parse_inflight("       3        4\n"), Some((3, 4)));
        assert_eq!(parse_inflight("3"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = (parse_io(&text), parse_status(&text), parse_smaps_rollup(&text));
            let _ = (parse_schedstat(&text), parse_system_stat(&text), parse_inflight(&text));
            let _ = (parse_ran_ns(&text), parse_pressure(&text));
            let _ = (parse_process_stat(&text), parse_diskstats(&text), parse_disk_stat(&text));
        }
        #[test]
        fn near_texts_do_not_panic(
            text in "(cpu[0-9]{0,12}|1 \\(a\\) R|[0-9]{1,25}|VmHWM:|CapEff:|read_bytes:| |\n|-){0,60}"
        ) {
            let _ = (parse_io(&text), parse_status(&text), parse_smaps_rollup(&text));
            if let Some(stat) = parse_system_stat(&text) {
                let _ = stat.total.total();
            }
            let _ = (parse_process_stat(&text), parse_diskstats(&text), parse_disk_stat(&text));
            let _ = parse_ran_ns(&text);
        }
        #[test]
        fn disk_counters_read_back(row in proptest::collection::vec(0u64..1 << 50, 11)) {
            let text = row.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let stat = parse_disk_stat(&text).unwrap();
            prop_assert_eq!(stat.written_bytes, row[6] * 512);
            prop_assert_eq!([stat.reads, stat.read_ms, stat.weighted_ms], [row[0], row[3], row[10]]);
        }
    }
}

//! Reading all counters once.

use super::field::{Field, Origin};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::parse::{parse_disk_counters, parse_io, parse_pressure};
use ioloom_sys::proc::{DiskCounters, Kept, Keyed, Pressure};
use std::io;
use std::path::{Path, PathBuf};

/// Devices that are sampled at most: those that moved the most bytes so far.
pub const DEVICES_MAX: usize = 4;
/// Readings without a change after which a device is idle.
const IDLE_READS: u32 = 10;
/// Processes whose input and output is sampled at most.
const PROCESSES_MAX: usize = 64;
/// Bytes by which the numbers before the last wanted one may grow from one sample to the next; where
/// they grow more, the whole text is read again.
const GROWTH_BYTES: usize = 64;
/// What stands for an unknown number: no counter reaches it.
const UNKNOWN: u64 = u64::MAX;

const VMSTAT: [&str; 23] = keys(Origin::Vmstat);
const MEMINFO: [&str; 11] = keys(Origin::Meminfo);

/// The names of the fields of an origin, in their order.
const fn keys<const N: usize>(origin: Origin) -> [&'static str; N] {
    let mut found = [""; N];
    let (mut field, mut count) = (0, 0);
    while field < Field::COUNT {
        if Field::ALL[field].origin() as u8 == origin as u8 {
            found[count] = Field::ALL[field].key();
            count += 1;
        }
        field += 1;
    }
    assert!(count == N, "the number of fields of this origin");
    found
}

/// How much of it all is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// What changes from one hundredth of a second to the next: paging, busy devices, tasks.
    Quick,
    /// Pressure as well: the kernel sums it up over all processors for each reader.
    Pressure,
    /// Everything: /proc/meminfo and idle devices too.
    All,
}

/// All counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The middle of the reading, nanoseconds on the monotonic clock.
    pub at_ns: u64,
    /// How long the reading took, nanoseconds.
    pub width_ns: u32,
    /// Index of the mark that it was taken for.
    pub mark: Option<u16>,
    fields: [u64; Field::COUNT],
    disks: [Option<DiskCounters>; DEVICES_MAX],
}

impl Sample {
    const NONE: Self = Self {
        at_ns: 0,
        width_ns: 0,
        mark: None,
        fields: [UNKNOWN; Field::COUNT],
        disks: [None; DEVICES_MAX],
    };

    /// A counter; `None` if it was not read this time or is not there.
    pub fn get(&self, field: Field) -> Option<u64> {
        Some(self.fields[field.at()]).filter(|value| *value != UNKNOWN)
    }

    /// The counters of device `index` of the reader's devices.
    pub fn disk(&self, index: usize) -> Option<&DiskCounters> {
        self.disks.get(index)?.as_ref()
    }

    pub(super) fn set(&mut self, field: Field, value: Option<u64>) {
        self.fields[field.at()] = value.unwrap_or(UNKNOWN);
    }

    #[cfg(test)]
    pub(super) fn for_test(
        at_ns: u64,
        fields: &[(Field, u64)],
        disk: Option<DiskCounters>,
    ) -> Self {
        let mut sample = Self { at_ns, ..Self::NONE };
        fields.iter().for_each(|(field, value)| sample.set(*field, Some(*value)));
        sample.disks[0] = disk;
        sample
    }
}

/// A block device that is sampled.
#[derive(Debug)]
struct Device {
    name: String,
    file: Kept,
    last: Option<DiskCounters>,
    /// Readings since it last did something.
    idle: u32,
    /// Read each time, also when it is idle.
    always: bool,
}

impl Device {
    fn new(name: String, file: Kept, always: bool) -> Self {
        Self { name, file, last: None, idle: 0, always }
    }

    /// Its counters; those of an idle one are as they were, unless `all` are read.
    fn read(&mut self, all: bool) -> Option<DiskCounters> {
        if self.idle < IDLE_READS || self.always || all {
            let now = self.file.read().ok().and_then(parse_disk_counters);
            self.idle = if now == self.last { self.idle.saturating_add(1) } else { 0 };
            self.last = now;
        }
        self.last
    }
}

/// The open files of all sources.
#[derive(Debug)]
pub struct Reader {
    root: PathBuf,
    vmstat: Option<(Kept, Keyed)>,
    meminfo: Option<(Kept, Keyed)>,
    /// Pressure files with their fields for `some` and `full`.
    pressures: Vec<(Kept, Field, Option<Field>)>,
    devices: Vec<Device>,
    processes: Vec<(u32, Kept)>,
    /// Largest sums seen: a process that ended and was not waited for takes its own along.
    task_most: [u64; 3],
    missing: Vec<String>,
    numbers: Vec<Option<u64>>,
}

impl Reader {
    /// Opens all sources below `root` (`/` but for tests). What cannot be opened is noted in
    /// [`missing`](Self::missing).
    pub fn open(root: &Path) -> Self {
        let mut missing = Vec::new();
        let mut kept = |path: &str, bytes_max: usize| {
            let path = root.join(path);
            // Pressure files open where they are switched off and fail only when read.
            let opened = Kept::open(&path, bytes_max).and_then(|mut file| {
                file.read().map(str::len)?;
                Ok(file)
            });
            opened.map_err(|e| missing.push(format!("{}: {e}", path.display()))).ok()
        };
        let vmstat = kept("proc/vmstat", 32 << 10).map(|file| (file, Keyed::new(&VMSTAT)));
        let meminfo = kept("proc/meminfo", 16 << 10).map(|file| (file, Keyed::new(&MEMINFO)));
        let pressures = [
            ("proc/pressure/cpu", Field::CpuSome, None),
            ("proc/pressure/io", Field::IoSome, Some(Field::IoFull)),
            ("proc/pressure/memory", Field::MemorySome, Some(Field::MemoryFull)),
        ]
        .into_iter()
        .filter_map(|(path, some, full)| Some((kept(path, 512)?, some, full)))
        .collect();
        let mut reader = Self {
            root: root.to_owned(),
            vmstat,
            meminfo,
            pressures,
            devices: Vec::new(),
            processes: Vec::new(),
            task_most: [0; 3],
            missing: Vec::new(),
            numbers: vec![None; VMSTAT.len().max(MEMINFO.len())],
        };
        reader.missing = missing;
        reader.find_devices();
        reader
    }

    /// Names of the devices, in the order of [`Sample::disk`].
    pub fn devices(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.name.clone()).collect()
    }

    /// Sources that are not there, with the system's reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    fn find_devices(&mut self) {
        let dir = self.root.join("sys/block");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(mut stat) = Kept::open(&entry.path().join("stat"), 512) else { continue };
            let counters = stat.read().ok().and_then(parse_disk_counters);
            let moved = counters.map_or(0, |c| c.sectors.iter().sum::<u64>());
            found.push((moved, name, stat));
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        if found.is_empty() {
            self.missing.push(format!("{}: no block device", dir.display()));
        }
        let kept = found.into_iter().filter(|(moved, ..)| *moved > 0).take(DEVICES_MAX);
        self.devices = kept.map(|(_, name, stat)| Device::new(name, stat, false)).collect();
    }

    /// Puts a device first, whatever others moved; one that is not there is noted as missing.
    pub fn watch_device(&mut self, name: &str) {
        let found = self.devices.iter().position(|device| device.name == name);
        let mut device = match found {
            Some(index) => self.devices.remove(index),
            None => {
                let path = self.root.join("sys/block").join(name).join("stat");
                match Kept::open(&path, 512) {
                    Ok(stat) => Device::new(name.to_owned(), stat, true),
                    Err(e) => return self.missing.push(format!("{}: {e}", path.display())),
                }
            }
        };
        device.always = true;
        self.devices.insert(0, device);
        self.devices.truncate(DEVICES_MAX);
    }

    /// From now on sums the input and output of these processes. A process that was known stays
    /// open; one that has gone is left out.
    pub fn follow(&mut self, pids: &[u32]) {
        self.processes.retain(|(pid, _)| pids.contains(pid));
        for pid in pids.iter().take(PROCESSES_MAX) {
            if self.processes.iter().all(|(known, _)| known != pid) {
                let path = self.root.join(format!("proc/{pid}/io"));
                self.processes.extend(Kept::open(&path, 512).ok().map(|file| (*pid, file)));
            }
        }
    }

    /// Reads as much as `scope` says; what is not read is unknown in the sample, but for an idle
    /// device, which stays as it was.
    pub fn read(&mut self, scope: Scope) -> Sample {
        let all = scope == Scope::All;
        let start_ns = monotonic_ns();
        let mut sample = Sample::NONE;
        if let Some((file, keyed)) = &mut self.vmstat {
            keyed_into(file, keyed, Origin::Vmstat, &mut self.numbers, &mut sample);
        }
        if let Some((file, keyed)) = self.meminfo.as_mut().filter(|_| all) {
            keyed_into(file, keyed, Origin::Meminfo, &mut self.numbers, &mut sample);
        }
        let pressures = if scope >= Scope::Pressure { &mut self.pressures[..] } else { &mut [] };
        for (file, some, full) in pressures {
            let found: Option<Pressure> = file.read().ok().and_then(parse_pressure);
            sample.set(*some, found.map(|found| found.some_us));
            if let Some(full) = full {
                sample.set(*full, found.and_then(|found| found.full_us));
            }
        }
        for (device, into) in self.devices.iter_mut().zip(&mut sample.disks) {
            *into = device.read(all);
        }
        self.read_tasks(&mut sample);
        let end_ns = monotonic_ns();
        sample.at_ns = start_ns + (end_ns - start_ns) / 2;
        sample.width_ns = u32::try_from(end_ns - start_ns).unwrap_or(u32::MAX);
        sample
    }

    fn read_tasks(&mut self, sample: &mut Sample) {
        let mut sums = [0_u64; 3];
        let mut read = false;
        self.processes.retain_mut(|(_, file)| {
            let found: io::Result<_> = file.read().map(parse_io);
            let Ok(Some(io)) = found else { return false };
            read = true;
            for (sum, more) in
                sums.iter_mut().zip([io.read_bytes, io.written_bytes, io.cancelled_bytes])
            {
                *sum = sum.saturating_add(more);
            }
            true
        });
        if !read && self.task_most == [0; 3] {
            return;
        }
        let fields = [Field::TaskRead, Field::TaskWritten, Field::TaskCancelled];
        for ((most, sum), field) in self.task_most.iter_mut().zip(sums).zip(fields) {
            *most = sum.max(*most);
            sample.set(field, Some(*most));
        }
    }
}

fn keyed_into(
    file: &mut Kept,
    keyed: &mut Keyed,
    origin: Origin,
    numbers: &mut [Option<u64>],
    sample: &mut Sample,
) {
    let fields = Field::ALL.iter().filter(|field| field.origin() == origin);
    let count = match origin {
        Origin::Vmstat => VMSTAT.len(),
        _ => MEMINFO.len(),
    };
    let numbers = &mut numbers[..count];
    let reach = keyed.reach() + GROWTH_BYTES;
    if !file.read_first(reach).is_ok_and(|text| keyed.read_part(text, numbers)) {
        let Ok(text) = file.read_again() else { return };
        keyed.read(text, numbers);
    }
    for (field, number) in fields.zip(numbers) {
        sample.set(*field, *number);
    }
}

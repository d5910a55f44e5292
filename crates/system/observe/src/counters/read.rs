//! Reads all counters once.

use super::field::{Field, Origin};
use ioloom_failure::{quoted, reason};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc::parse::{parse_disk_counters, parse_io, parse_pressure};
use ioloom_sys::proc::{DiskCounters, Keyed, Pressure, ProcFile};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of devices to sample: those that have transferred the most bytes so far.
pub const DEVICES_MAX: usize = 4;
/// Maximum number of processes whose I/O is sampled.
const PROCESSES_MAX: usize = 64;
/// Number of bytes by which the text before the last wanted number can grow between two samples;
/// beyond that the whole text is read again.
const GROWTH_BYTES: usize = 64;
/// Represents an unknown number: no counter reaches it.
const UNKNOWN: u64 = u64::MAX;

const VMSTAT: [&str; 13] = keys(Origin::Vmstat);
const VMSTAT_BELOW: [&str; 10] = keys(Origin::VmstatBelow);
const MEMINFO: [&str; 11] = keys(Origin::Meminfo);
/// Maximum number of names per source.
const NAMES_MAX: usize = VMSTAT.len();

/// Returns the field names of a source, in their order.
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
    assert!(count == N, "N must be the number of fields of this source");
    found
}

/// How much to read; each variant includes the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Paging only: pages read and written, dirty and under writeback.
    Paging,
    /// Everything.
    All,
}

/// The values of all counters at one point in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Midpoint of the reading, in nanoseconds on the monotonic clock.
    pub at_ns: u64,
    /// Duration of the reading in nanoseconds.
    pub width_ns: u32,
    /// Index of the mark for which it was taken.
    pub mark: Option<u16>,
    /// How much was read.
    pub scope: Scope,
    fields: [u64; Field::COUNT],
    disks: [Option<DiskCounters>; DEVICES_MAX],
}

impl Sample {
    const NONE: Self = Self {
        at_ns: 0,
        width_ns: 0,
        mark: None,
        scope: Scope::All,
        fields: [UNKNOWN; Field::COUNT],
        disks: [None; DEVICES_MAX],
    };

    /// Returns a counter; `None` if it was not read in this sample or does not exist.
    pub fn get(&self, field: Field) -> Option<u64> {
        Some(self.fields[field.at()]).filter(|value| *value != UNKNOWN)
    }

    /// Returns the counters of device `index` of the reader's devices; `None` if they were not read
    /// in this sample.
    pub fn disk(&self, index: usize) -> Option<&DiskCounters> {
        self.disks.get(index)?.as_ref()
    }

    pub(super) fn set(&mut self, field: Field, value: Option<u64>) {
        self.fields[field.at()] = value.unwrap_or(UNKNOWN);
    }

    /// Sets all fields of a source, in order.
    fn set_all(&mut self, origin: Origin, values: &[Option<u64>]) {
        let fields = Field::ALL.iter().filter(|field| field.origin() == origin);
        fields.zip(values).for_each(|(field, value)| self.set(*field, *value));
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

/// A text of `name value` lines, with the wanted names.
#[derive(Debug)]
struct Named {
    file: ProcFile,
    /// Names by source. Those read most often come first, both here and in the text.
    groups: Vec<(Origin, Keyed)>,
}

impl Named {
    /// Stores the numbers of the first `groups` in the sample. Reads no more of the text than
    /// necessary, unless its layout has changed.
    fn read(&mut self, groups: usize, sample: &mut Sample) {
        let groups = &mut self.groups[..groups];
        let reach = groups.iter().map(|(_, keyed)| keyed.reach()).max().unwrap_or(0) + GROWTH_BYTES;
        let mut numbers = [None; NAMES_MAX];
        let mut part = |text: &str| {
            groups.iter_mut().all(|(origin, keyed)| {
                let numbers = &mut numbers[..keyed.count()];
                let found = keyed.read_part(text, numbers);
                sample.set_all(*origin, numbers);
                found
            })
        };
        if self.file.read_first(reach).is_ok_and(&mut part) {
            return;
        }
        let Ok(text) = self.file.read_again() else { return };
        for (origin, keyed) in groups {
            let numbers = &mut numbers[..keyed.count()];
            keyed.read(text, numbers);
            sample.set_all(*origin, numbers);
        }
    }
}

/// All sources, kept open.
#[derive(Debug)]
pub struct Reader {
    root: PathBuf,
    vmstat: Option<Named>,
    meminfo: Option<Named>,
    /// Pressure files, with the fields for their `some` and `full` lines.
    pressures: Vec<(ProcFile, Field, Option<Field>)>,
    /// Block devices by name.
    devices: Vec<(String, ProcFile)>,
    processes: Vec<(u32, ProcFile)>,
    /// Largest sums so far: the counters of a process are lost if it exits without being waited
    /// for.
    task_most: [u64; 3],
    missing: Vec<String>,
}

impl Reader {
    /// Opens all sources below `root` (`/` except in tests). Sources that cannot be opened are
    /// listed in [`missing`](Self::missing).
    pub fn open(root: &Path) -> Self {
        let mut missing = Vec::new();
        let mut kept = |path: &str, bytes_max: usize| {
            let path = root.join(path);
            // If pressure accounting is disabled, its files can be opened but not read.
            let opened = ProcFile::open(&path, bytes_max).and_then(|mut file| {
                file.read().map(str::len)?;
                Ok(file)
            });
            opened.map_err(|e| missing.push(format!("{}: {e}", path.display()))).ok()
        };
        let vmstat = kept("proc/vmstat", 32 << 10).map(|file| {
            let often = (Origin::Vmstat, Keyed::new(&VMSTAT));
            Named { file, groups: vec![often, (Origin::VmstatBelow, Keyed::new(&VMSTAT_BELOW))] }
        });
        let meminfo = kept("proc/meminfo", 16 << 10);
        let meminfo = meminfo
            .map(|file| Named { file, groups: vec![(Origin::Meminfo, Keyed::new(&MEMINFO))] });
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
        };
        reader.missing = missing;
        reader.find_devices();
        reader
    }

    /// Returns the names of the devices, in the order of [`Sample::disk`].
    pub fn devices(&self) -> Vec<String> {
        self.devices.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the missing sources with the system's reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    fn find_devices(&mut self) {
        let dir = self.root.join("sys/block");
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) => {
                let why = format!("cannot read directory {}: {}", quoted(&dir), reason(&e));
                return self.missing.push(why);
            }
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(mut stat) = ProcFile::open(&entry.path().join("stat"), 512) else { continue };
            let counters = stat.read().ok().and_then(parse_disk_counters);
            let moved = counters.map_or(0, |c| c.sectors.iter().sum::<u64>());
            found.push((moved, name, stat));
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        if found.is_empty() {
            self.missing.push(format!("no block devices in {}", quoted(&dir)));
        }
        let kept = found.into_iter().filter(|(moved, ..)| *moved > 0).take(DEVICES_MAX);
        self.devices = kept.map(|(_, name, stat)| (name, stat)).collect();
    }

    /// Puts a device first, regardless of how much it transferred. A missing device is added to the
    /// missing sources.
    pub fn watch_device(&mut self, name: &str) {
        let found = self.devices.iter().position(|(known, _)| known == name);
        let device = match found {
            Some(index) => self.devices.remove(index),
            None => {
                let path = self.root.join("sys/block").join(name).join("stat");
                match ProcFile::open(&path, 512) {
                    Ok(stat) => (name.to_owned(), stat),
                    Err(e) => return self.missing.push(format!("{}: {e}", path.display())),
                }
            }
        };
        self.devices.insert(0, device);
        self.devices.truncate(DEVICES_MAX);
    }

    /// From now on, sums the I/O of exactly these processes. Files of known processes stay open;
    /// processes that have exited are skipped.
    pub fn follow(&mut self, pids: &[u32]) {
        self.processes.retain(|(pid, _)| pids.contains(pid));
        for pid in pids.iter().take(PROCESSES_MAX) {
            if self.processes.iter().all(|(known, _)| known != pid) {
                let path = self.root.join(format!("proc/{pid}/io"));
                self.processes.extend(ProcFile::open(&path, 512).ok().map(|file| (*pid, file)));
            }
        }
    }

    /// Takes a sample with the specified scope; all other values are unknown.
    pub fn read(&mut self, scope: Scope) -> Sample {
        let start_ns = monotonic_ns();
        let mut sample = Sample { scope, ..Sample::NONE };
        if let Some(vmstat) = &mut self.vmstat {
            vmstat.read(if scope == Scope::All { 2 } else { 1 }, &mut sample);
        }
        if scope == Scope::All {
            self.read_rest(&mut sample);
        }
        let end_ns = monotonic_ns();
        sample.at_ns = start_ns + (end_ns - start_ns) / 2;
        sample.width_ns = u32::try_from(end_ns - start_ns).unwrap_or(u32::MAX);
        sample
    }

    /// Reads everything except /proc/vmstat.
    fn read_rest(&mut self, sample: &mut Sample) {
        for ((_, file), into) in self.devices.iter_mut().zip(&mut sample.disks) {
            *into = file.read().ok().and_then(parse_disk_counters);
        }
        self.read_tasks(sample);
        if let Some(meminfo) = &mut self.meminfo {
            meminfo.read(1, sample);
        }
        for (file, some, full) in &mut self.pressures {
            let found: Option<Pressure> = file.read().ok().and_then(parse_pressure);
            sample.set(*some, found.map(|found| found.some_us));
            if let Some(full) = full {
                sample.set(*full, found.and_then(|found| found.full_us));
            }
        }
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

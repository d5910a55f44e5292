//! Limits on reads and memory that control groups set for this process, the memory pressure of its
//! group, and the time that processor quotas took from it.
//!
//! Version 1 (such as `blkio.throttle.read_iops_device`) and version 2 (such as `io.max`). A limit of
//! a group holds for those below it, so all groups above are read, too, as far as they are visible.

use crate::disks::{disks_of, parse_number};
use crate::mount::mount_of;
use crate::proc::parse::field;
use crate::proc::read_text;
use std::path::{Path, PathBuf};

/// What control groups allow a process to read from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadLimits {
    /// Reads per second, if they are limited.
    pub reads_per_s: Option<u64>,
    /// Bytes per second, if they are limited.
    pub bytes_per_s: Option<u64>,
}

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// Returns what the control groups of a process, the text of its `/proc/PID/cgroup`, allow to read from the
/// file system of a path: the smallest limit of its disk and of those of which that consists. Where a disk
/// is not reported but may exist, as below overlay, it may be any disk, and the smallest limit counts.
pub fn limits_of(path: &Path, groups: &str) -> ReadLimits {
    // Finding the disks takes longer, and most groups limit none.
    if limits_in(Path::new(ROOT), groups, None) == ReadLimits::default() {
        return ReadLimits::default();
    }
    let Ok(mount) = mount_of(path) else { return ReadLimits::default() };
    let disks: Vec<_> = disks_of(&mount).into_iter().map(|disk| disk.number).collect();
    if disks.is_empty() && !mount.may_hide_disks() {
        return ReadLimits::default();
    }
    limits_in(Path::new(ROOT), groups, (!disks.is_empty()).then_some(&disks[..]))
}

/// Returns the smallest limits on these whole disks, or on any, that the hierarchies below `root` set,
/// given the text of `/proc/PID/cgroup`.
pub fn limits_in(root: &Path, groups: &str, disks: Option<&[(u32, u32)]>) -> ReadLimits {
    let mut limits = ReadLimits::default();
    for (controllers, group) in hierarchies(groups) {
        if controllers.split(',').any(|name| name == "blkio") {
            let least = |name| {
                let texts = files(&root.join("blkio"), group, name);
                texts.iter().filter_map(|text| version_1(text, disks)).min()
            };
            keep(&mut limits.reads_per_s, least("blkio.throttle.read_iops_device"));
            keep(&mut limits.bytes_per_s, least("blkio.throttle.read_bps_device"));
        } else if controllers.is_empty() {
            for point in [root.to_owned(), root.join("unified")] {
                let texts = files(&point, group, "io.max");
                let least =
                    |name| texts.iter().filter_map(|text| version_2(text, disks, name)).min();
                keep(&mut limits.reads_per_s, least("riops="));
                keep(&mut limits.bytes_per_s, least("rbps="));
            }
        }
    }
    limits
}

/// Returns the controllers, none in version 2, and the group for each hierarchy in the text of
/// `/proc/PID/cgroup`.
fn hierarchies(groups: &str) -> impl Iterator<Item = (&str, &str)> {
    groups.lines().filter_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        Some((words.next()?, words.next()?))
    })
}

/// Returns the memory in bytes that the control groups of this process allow; `None` if they set no
/// limit.
pub fn memory_limit_bytes() -> Option<u64> {
    memory_limit_in(Path::new(ROOT), &own_groups())
}

/// Returns the smallest memory limit in bytes that the hierarchies below `root` set, given the text of
/// `/proc/PID/cgroup`.
pub fn memory_limit_in(root: &Path, groups: &str) -> Option<u64> {
    memory_groups(root, groups).iter().filter_map(|(dir, files)| files.limit_of(dir)).min()
}

/// Returns the memory in bytes that this process can use without swapping: what the machine has
/// available, such as `MemAvailable`, or what the limits of control groups leave, whichever is less.
pub fn memory_available_bytes(machine_bytes: Option<u64>) -> Option<u64> {
    memory_available_in(Path::new(ROOT), &own_groups(), machine_bytes)
}

/// Like [`memory_available_bytes`], for the hierarchies below `root`, given the text of
/// `/proc/PID/cgroup`.
pub fn memory_available_in(root: &Path, groups: &str, machine_bytes: Option<u64>) -> Option<u64> {
    let groups = memory_groups(root, groups);
    let left = groups.iter().filter_map(|(dir, files)| files.left_of(dir));
    left.chain(machine_bytes).min()
}

/// Names of the files of a group with its memory limits and its memory in use, and of the fields of
/// `memory.stat` that count the page cache in use.
struct MemoryFiles {
    limits: &'static [&'static str],
    used: &'static str,
    cache: [&'static str; 2],
}

const MEMORY_1: MemoryFiles = MemoryFiles {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const MEMORY_2: MemoryFiles = MemoryFiles {
    // Above the second one, the kernel slows the processes down.
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cache: ["inactive_file", "active_file"],
};

impl MemoryFiles {
    /// Returns the smallest limit of the group in `dir`.
    fn limit_of(&self, dir: &Path) -> Option<u64> {
        // `max` is not a number, and version 1 represents "no limit" as a huge one.
        let limits = self.limits.iter().filter_map(|name| number_in(&dir.join(name)));
        limits.filter(|bytes| *bytes < 1 << 60).min()
    }

    /// Returns what the limit of the group in `dir` leaves. As in `MemAvailable`, page cache counts as
    /// available, because the kernel drops it first.
    fn left_of(&self, dir: &Path) -> Option<u64> {
        let limit = self.limit_of(dir)?;
        let used = number_in(&dir.join(self.used)).unwrap_or(0);
        let stat = read_text(&dir.join("memory.stat")).unwrap_or_default();
        let cache = self.cache.iter().filter_map(|name| field(&stat, name));
        let cache = cache.fold(0, u64::saturating_add);
        Some(limit.saturating_sub(used.saturating_sub(cache)))
    }
}

fn number_in(file: &Path) -> Option<u64> {
    read_text(file).ok()?.trim().parse().ok()
}

/// Returns the directories of the groups whose memory limits hold, and the names of their files.
fn memory_groups(root: &Path, groups: &str) -> Vec<(PathBuf, &'static MemoryFiles)> {
    groups_with(root, groups, "memory", [&MEMORY_1, &MEMORY_2])
}

/// Returns the directories of the groups whose settings of a controller hold, and the names of their files,
/// which depend on the version.
fn groups_with<T>(
    root: &Path,
    groups: &str,
    controller: &str,
    [files_1, files_2]: [&'static T; 2],
) -> Vec<(PathBuf, &'static T)> {
    // Without its own group, the limits of all groups still hold.
    let all = format!("0::/\n1:{controller}:/\n");
    let groups = if groups.is_empty() { all.as_str() } else { groups };
    let mut found = Vec::new();
    for (controllers, group) in hierarchies(groups) {
        let below = Path::new(group.trim_start_matches('/'));
        let mut add = |point: &Path, files: &'static T| {
            found.extend(below.ancestors().map(|part| (point.join(part), files)));
        };
        if controllers.split(',').any(|name| name == controller) {
            add(&root.join(controller), files_1);
        } else if controllers.is_empty() {
            add(root, files_2);
            add(&root.join("unified"), files_2);
        }
    }
    found
}

/// Names of the file of a group with its processor quota, and of the field of `cpu.stat` that counts
/// the time that the quota took, with its unit in nanoseconds.
struct QuotaFiles {
    quota: &'static str,
    throttled: &'static str,
    unit_ns: u64,
}

const QUOTA_1: QuotaFiles =
    QuotaFiles { quota: "cpu.cfs_quota_us", throttled: "throttled_time", unit_ns: 1 };
const QUOTA_2: QuotaFiles =
    QuotaFiles { quota: "cpu.max", throttled: "throttled_usec", unit_ns: 1000 };

impl QuotaFiles {
    /// Returns the time that the quota of the group in `dir` took; `None` if it has no quota.
    fn throttled_ns(&self, dir: &Path) -> Option<u64> {
        let quota = read_text(&dir.join(self.quota)).ok()?;
        // Without a quota it is -1 or `max`.
        quota.split_whitespace().next()?.parse::<u64>().ok()?;
        let stat = read_text(&dir.join("cpu.stat")).ok()?;
        Some(field(&stat, self.throttled)?.saturating_mul(self.unit_ns))
    }
}

/// Returns how long processor quotas kept the control groups of this process from running so far, in
/// nanoseconds, summed over processors; 0 without a quota. Other processes of the groups count, too.
pub fn throttled_ns() -> u64 {
    throttled_in(Path::new(ROOT), &own_groups())
}

/// Like [`throttled_ns`], for the hierarchies below `root`, given the text of `/proc/PID/cgroup`.
pub fn throttled_in(root: &Path, groups: &str) -> u64 {
    let groups = groups_with(root, groups, "cpu", [&QUOTA_1, &QUOTA_2]);
    let throttled = groups.iter().filter_map(|(dir, files)| files.throttled_ns(dir));
    throttled.fold(0, u64::saturating_add)
}

/// Returns the text of `/proc/self/cgroup`, empty if it cannot be read.
pub fn own_groups() -> String {
    read_text(Path::new("/proc/self/cgroup")).unwrap_or_default()
}

/// Returns the file with the memory pressure of the group (version 2) of a process, given the text of its
/// `/proc/PID/cgroup`, or of the machine where groups have none.
pub fn memory_pressure(groups: &str) -> PathBuf {
    let machine = || PathBuf::from("/proc/pressure/memory");
    memory_pressure_in(Path::new(ROOT), groups).unwrap_or_else(machine)
}

/// Returns the file with the memory pressure of a group, if there is one, for the hierarchies below
/// `root`, given the text of `/proc/PID/cgroup`.
pub fn memory_pressure_in(root: &Path, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = Path::new(group.trim_start_matches('/')).join("memory.pressure");
    [root.join(&file), root.join("unified").join(file)].into_iter().find(|file| file.exists())
}

/// Returns the contents of a file of a group and of those above it.
fn files(point: &Path, group: &str, name: &str) -> Vec<String> {
    let below = Path::new(group.trim_start_matches('/'));
    let places = below.ancestors().map(|part| -> PathBuf { point.join(part).join(name) });
    places.filter_map(|place| read_text(&place).ok()).collect()
}

/// Keeps the smaller limit.
fn keep(limit: &mut Option<u64>, other: Option<u64>) {
    *limit = [*limit, other].into_iter().flatten().min();
}

/// Reports whether a limit is that of one of these disks, or of any.
fn is_of(device: &str, disks: Option<&[(u32, u32)]>) -> bool {
    parse_number(device).is_some_and(|number| disks.is_none_or(|disks| disks.contains(&number)))
}

/// Returns the smallest limit of these disks in a file of version 1.
fn version_1(text: &str, disks: Option<&[(u32, u32)]>) -> Option<u64> {
    let limits = text.lines().filter_map(|line| line.split_once(' '));
    limits
        .filter(|(of, _)| is_of(of, disks))
        .filter_map(|(_, limit)| limit.trim().parse().ok())
        .min()
}

/// Returns the smallest limit of these disks with this name in `io.max`.
fn version_2(text: &str, disks: Option<&[(u32, u32)]>, name: &str) -> Option<u64> {
    let lines = text.lines().map(str::split_whitespace);
    // `max` is not a number.
    let limits = lines.filter_map(|mut words| {
        let own = is_of(words.next()?, disks);
        own.then(|| words.find_map(|word| word.strip_prefix(name)?.parse().ok()))?
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Returns the reads and bytes per second allowed.
    fn of(dir: &Path, groups: &str, device: (u32, u32)) -> (Option<u64>, Option<u64>) {
        of_all(dir, groups, Some(&[device]))
    }

    fn of_all(
        dir: &Path,
        groups: &str,
        disks: Option<&[(u32, u32)]>,
    ) -> (Option<u64>, Option<u64>) {
        let limits = limits_in(dir, groups, disks);
        (limits.reads_per_s, limits.bytes_per_s)
    }

    #[test]
    fn version_1_limits_of_all_groups_above_hold() {
        let dir = tempfile::tempdir().unwrap();
        let (reads, bytes) = ("blkio.throttle.read_iops_device", "blkio.throttle.read_bps_device");
        write(dir.path(), &format!("blkio/a/{reads}"), "254:0 600\n");
        write(dir.path(), &format!("blkio/a/b/{reads}"), "254:0 3000\n8:0 200\n");
        write(dir.path(), &format!("blkio/a/{bytes}"), "254:0 52428800\n");
        write(dir.path(), &format!("blkio/a/b/{bytes}"), "254:0 1048576\n");
        let groups = "12:cpu,cpuacct:/x\n5:blkio:/a/b\n0::/\n";
        assert_eq!(of(dir.path(), groups, (254, 0)), (Some(600), Some(1_048_576)));
        assert_eq!(of(dir.path(), groups, (8, 0)), (Some(200), None));
        assert_eq!(of(dir.path(), groups, (8, 16)), (None, None), "another device");
        let stacked = of_all(dir.path(), groups, Some(&[(253, 0), (254, 0), (8, 0)]));
        assert_eq!(stacked, (Some(200), Some(1_048_576)), "the smallest of the disks below");
        assert_eq!(of_all(dir.path(), groups, None), stacked, "an unknown disk may be any");
        assert_eq!(of(dir.path(), "5:blkio:/c\n", (254, 0)), (None, None));
    }

    #[test]
    fn version_2_limits_of_all_groups_above_hold() {
        let dir = tempfile::tempdir().unwrap();
        let (above, below) = ("rbps=max wbps=max riops=600", "rbps=1048576 wbps=max riops=max");
        write(dir.path(), "a/io.max", &format!("8:0 riops=5\n254:0 {above} wiops=max\n"));
        write(dir.path(), "a/b/io.max", &format!("254:0 {below} wiops=max\n"));
        assert_eq!(of(dir.path(), "0::/a/b\n", (254, 0)), (Some(600), Some(1_048_576)));
        write(dir.path(), "unified/c/io.max", "8:16 riops=250\n");
        assert_eq!(of(dir.path(), "0::/c\n", (8, 16)), (Some(250), None));
        assert_eq!(of(dir.path(), "0::/\n", (254, 0)), (None, None));
    }

    #[test]
    fn memory_limits_of_all_groups_above_hold() {
        let dir = tempfile::tempdir().unwrap();
        let of = |groups| memory_limit_in(dir.path(), groups);
        write(dir.path(), "a/memory.max", "1073741824\n");
        write(dir.path(), "a/b/memory.max", "max\n");
        assert_eq!(of("0::/a/b\n"), Some(1 << 30), "of the group above");
        write(dir.path(), "a/b/memory.max", "4096\n");
        assert_eq!(
            (of("0::/a/b\n"), of("0::/a\n"), of("0::/\n")),
            (Some(4096), Some(1 << 30), None)
        );
        write(dir.path(), "e/memory.max", "max\n");
        write(dir.path(), "e/memory.high", "2048\n");
        write(dir.path(), "e/f/memory.max", "1024\n");
        write(dir.path(), "e/f/memory.high", "max\n");
        assert_eq!((of("0::/e\n"), of("0::/e/f\n")), (Some(2048), Some(1024)));
        let file = "memory.limit_in_bytes";
        write(dir.path(), &format!("memory/{file}"), "9223372036854771712\n");
        write(dir.path(), &format!("memory/c/{file}"), "8192\n");
        write(dir.path(), &format!("memory/c/d/{file}"), "9223372036854771712\n");
        assert_eq!(of("4:cpu:/\n3:memory:/c/d\n0::/\n"), Some(8192));
        assert_eq!(of("3:memory:/\n"), None);
        // In a container, the root of the visible hierarchy is the group of the container.
        write(dir.path(), &format!("memory/{file}"), "12288\n");
        assert_eq!(of("3:memory:/docker/x\n"), Some(12288));
    }

    #[test]
    fn limits_of_groups_reduce_the_available_memory() {
        let dir = tempfile::tempdir().unwrap();
        let of = |groups, machine| memory_available_in(dir.path(), groups, machine);
        let machine = Some(9000);
        assert_eq!((of("0::/a/b\n", machine), of("", machine)), (machine, machine), "no group");
        write(dir.path(), "a/memory.max", "5000\n");
        write(dir.path(), "a/memory.current", "4000\n");
        write(dir.path(), "a/memory.stat", "anon 1\ninactive_file 1500\nactive_file 500\n");
        write(dir.path(), "a/b/memory.max", "max\n");
        assert_eq!(of("0::/a/b\n", machine), Some(3000), "page cache is available");
        assert_eq!(of("0::/a/b\n", Some(2999)), Some(2999), "the machine has less");
        assert_eq!(of("0::/a/b\n", None), Some(3000));
        write(dir.path(), "a/b/memory.max", "2000\n");
        assert_eq!(of("0::/a/b\n", machine), Some(2000), "nothing known of its use");
        write(dir.path(), "a/b/memory.current", "2500\n");
        assert_eq!(of("0::/a/b\n", machine), Some(0));
        write(dir.path(), "memory/c/memory.limit_in_bytes", "6000\n");
        write(dir.path(), "memory/c/memory.usage_in_bytes", "3000\n");
        write(dir.path(), "memory/c/memory.stat", "active_file 9\ntotal_active_file 1000\n");
        write(dir.path(), "memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of("3:memory:/c\n", Some(u64::MAX)), Some(4000));
        assert_eq!(of("3:memory:/\n", Some(u64::MAX)), Some(u64::MAX), "no limit");
    }

    #[test]
    fn quotas_of_all_groups_above_take_time() {
        let dir = tempfile::tempdir().unwrap();
        let of = |groups| throttled_in(dir.path(), groups);
        let stat = |ns: &str| format!("nr_periods 9\nnr_throttled 7\nthrottled_time {ns}\n");
        write(dir.path(), "cpu/a/cpu.cfs_quota_us", "30000\n");
        write(dir.path(), "cpu/a/cpu.stat", &stat("5000"));
        write(dir.path(), "cpu/a/b/cpu.cfs_quota_us", "-1\n");
        write(dir.path(), "cpu/a/b/cpu.stat", &stat("7"));
        assert_eq!(of("4:cpu,cpuacct:/a/b\n3:memory:/\n"), 5000, "of the group above");
        assert_eq!((of("4:cpuset:/a\n"), of("4:cpu:/\n"), of("")), (0, 0, 0), "no quota");
        write(dir.path(), "cpu/a/b/cpu.cfs_quota_us", "50000\n");
        assert_eq!(of("4:cpu:/a/b\n"), 5007);

        let stat = |us: &str| format!("usage_usec 1\nnr_throttled 2\nthrottled_usec {us}\n");
        write(dir.path(), "c/cpu.max", "30000 100000\n");
        write(dir.path(), "c/cpu.stat", &stat("6"));
        write(dir.path(), "c/d/cpu.max", "max 100000\n");
        write(dir.path(), "c/d/cpu.stat", &stat("8"));
        write(dir.path(), "c/e/cpu.max", "50000 100000\n");
        assert_eq!((of("0::/c/d\n"), of("0::/c/e\n"), of("0::/\n")), (6000, 6000, 0));
        // In a container, the root of the visible hierarchy is the group of the container.
        write(dir.path(), "cpu.max", "30000 100000\n");
        write(dir.path(), "cpu.stat", &stat("9"));
        assert_eq!((of("0::/docker/x\n"), of("")), (9000, 9000));
    }

    #[test]
    fn odd_texts_are_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "io.max", "254:0\n\nriops=5\n254:0 riops= rbps=x\n");
        write(dir.path(), "memory.max", "\n");
        for groups in ["", "x", "0::/", "0:", "::"] {
            assert_eq!(memory_limit_in(dir.path(), groups), None, "{groups:?}");
            assert_eq!(of(dir.path(), groups, (254, 0)), (None, None), "{groups:?}");
            assert_eq!(of_all(dir.path(), groups, None), (None, None), "{groups:?}");
        }
    }

    #[test]
    fn what_has_no_disk_has_no_limits() {
        for path in ["/no/such/path", "/proc/self"] {
            assert_eq!(limits_of(Path::new(path), &own_groups()), ReadLimits::default(), "{path}");
        }
    }

    #[test]
    fn the_memory_pressure_is_that_of_the_own_group() {
        let dir = tempfile::tempdir().unwrap();
        let of = |groups| memory_pressure_in(dir.path(), groups);
        let groups = "4:memory:/x\n0::/a/b\n";
        assert_eq!(of(groups), None);
        write(dir.path(), "unified/a/b/memory.pressure", "");
        assert_eq!(of(groups), Some(dir.path().join("unified/a/b/memory.pressure")));
        write(dir.path(), "a/b/memory.pressure", "");
        assert_eq!(of(groups), Some(dir.path().join("a/b/memory.pressure")));
        assert_eq!(of("4:memory:/a/b\n"), None);
    }
}

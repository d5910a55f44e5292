//! Limits on reads that control groups set for this process.
//!
//! Version 1 (`blkio.throttle.read_iops_device`) and version 2 (`io.max`). A limit of a group holds
//! for those below it, so all groups above are read, too, as far as they are visible.

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

/// Returns what the control groups of this process allow to read from a device, given by the number of
/// a whole disk, which is what control groups limit.
pub fn limits(device: (u32, u32)) -> ReadLimits {
    let groups = read_text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    limits_in(Path::new("/sys/fs/cgroup"), &groups, device)
}

/// Returns the same for the hierarchies below `root`, given the text of `/proc/PID/cgroup`.
pub fn limits_in(root: &Path, groups: &str, (major, minor): (u32, u32)) -> ReadLimits {
    let device = format!("{major}:{minor}");
    let mut limits = ReadLimits::default();
    for line in groups.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (words.next(), words.next()) else { continue };
        if controllers.split(',').any(|name| name == "blkio") {
            let least = |name| {
                let texts = files(&root.join("blkio"), group, name);
                texts.iter().filter_map(|text| version_1(text, &device)).min()
            };
            keep(&mut limits.reads_per_s, least("blkio.throttle.read_iops_device"));
            keep(&mut limits.bytes_per_s, least("blkio.throttle.read_bps_device"));
        } else if controllers.is_empty() {
            for point in [root.to_owned(), root.join("unified")] {
                let texts = files(&point, group, "io.max");
                let least =
                    |name| texts.iter().filter_map(|text| version_2(text, &device, name)).min();
                keep(&mut limits.reads_per_s, least("riops="));
                keep(&mut limits.bytes_per_s, least("rbps="));
            }
        }
    }
    limits
}

/// Returns the number of the whole disk of a path; `None` if the system does not report one.
pub fn disk_of(path: &Path) -> Option<(u32, u32)> {
    let disk = crate::mount::medium(path).ok()?.disk?;
    let text = read_text(&Path::new("/sys/class/block").join(disk).join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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

/// Returns the limit of a device in a file of version 1.
fn version_1(text: &str, device: &str) -> Option<u64> {
    let limits = text.lines().filter_map(|line| line.split_once(' '));
    limits.filter(|(of, _)| *of == device).find_map(|(_, limit)| limit.trim().parse().ok())
}

/// Returns the limit of a device with this name in `io.max`.
fn version_2(text: &str, device: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    // `max` is not a number.
    lines.find_map(|mut words| {
        let own = words.next() == Some(device);
        own.then(|| words.find_map(|word| word.strip_prefix(name)?.parse().ok()))?
    })
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
        let limits = limits_in(dir, groups, device);
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
    fn odd_texts_are_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "io.max", "254:0\n\nriops=5\n254:0 riops= rbps=x\n");
        for groups in ["", "x", "0::/", "0:", "::"] {
            assert_eq!(of(dir.path(), groups, (254, 0)), (None, None), "{groups:?}");
        }
    }

    #[test]
    fn the_disk_of_a_path_is_a_block_device() {
        if let Some((major, minor)) = disk_of(Path::new("/")) {
            assert!(Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists());
        }
        assert_eq!(disk_of(Path::new("/no/such/path")), None);
    }
}

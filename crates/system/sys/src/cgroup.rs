//! Limits on reads that control groups set for this process.
//!
//! Version 1 (`blkio.throttle.read_iops_device`) and version 2 (`io.max`). A limit of a group holds
//! for those below it, so all groups above are read, too, as far as they are visible.

use crate::proc::read_text;
use std::path::{Path, PathBuf};

/// Returns the number of reads per second that the control groups of this process allow from a device,
/// or, if the device is not known, the largest number that they allow from any that they limit; `None`
/// without a limit. `device` is the number of a whole disk, which is what control groups limit.
pub fn reads_per_s(device: Option<(u32, u32)>) -> Option<u64> {
    let groups = read_text(Path::new("/proc/self/cgroup")).ok()?;
    reads_per_s_in(Path::new("/sys/fs/cgroup"), &groups, device)
}

/// Returns the same for the hierarchies below `root`, given the text of `/proc/PID/cgroup`.
pub fn reads_per_s_in(root: &Path, groups: &str, device: Option<(u32, u32)>) -> Option<u64> {
    let mut limits: Vec<(String, u64)> = Vec::new();
    for line in groups.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (words.next(), words.next()) else { continue };
        if controllers.split(',').any(|name| name == "blkio") {
            let files = files(&root.join("blkio"), group, "blkio.throttle.read_iops_device");
            files.iter().for_each(|text| version_1(text, &mut limits));
        } else if controllers.is_empty() {
            for point in [root.to_owned(), root.join("unified")] {
                let files = files(&point, group, "io.max");
                files.iter().for_each(|text| version_2(text, &mut limits));
            }
        }
    }
    let wanted = device.map(|(major, minor)| format!("{major}:{minor}"));
    let limits = limits.into_iter().filter(|(of, _)| wanted.as_ref().is_none_or(|one| one == of));
    limits.map(|(_, limit)| limit).max()
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

/// Keeps the smallest limit of each device.
fn keep(limits: &mut Vec<(String, u64)>, device: &str, limit: u64) {
    match limits.iter_mut().find(|(known, _)| known == device) {
        Some((_, least)) => *least = limit.min(*least),
        None => limits.push((device.to_owned(), limit)),
    }
}

fn version_1(text: &str, limits: &mut Vec<(String, u64)>) {
    for line in text.lines() {
        if let Some((device, limit)) = line.split_once(' ')
            && let Ok(limit) = limit.trim().parse()
        {
            keep(limits, device, limit);
        }
    }
}

fn version_2(text: &str, limits: &mut Vec<(String, u64)>) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(device) = words.next() else { continue };
        // `max` is not a number.
        if let Some(limit) = words.find_map(|word| word.strip_prefix("riops=")?.parse().ok()) {
            keep(limits, device, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn version_1_limits_of_all_groups_above_hold() {
        let dir = tempfile::tempdir().unwrap();
        let file = "blkio.throttle.read_iops_device";
        write(dir.path(), &format!("blkio/a/{file}"), "254:0 600\n");
        write(dir.path(), &format!("blkio/a/b/{file}"), "254:0 3000\n8:0 200\n");
        let groups = "12:cpu,cpuacct:/x\n5:blkio:/a/b\n0::/\n";
        assert_eq!(reads_per_s_in(dir.path(), groups, None), Some(600));
        let of = |device| reads_per_s_in(dir.path(), groups, Some(device));
        assert_eq!((of((254, 0)), of((8, 0)), of((8, 16))), (Some(600), Some(200), None));
        assert_eq!(reads_per_s_in(dir.path(), "5:blkio:/c\n", None), None);
    }

    #[test]
    fn version_2_limits_of_all_groups_above_hold() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a/io.max", "254:0 rbps=max wbps=max riops=600 wiops=max\n");
        write(dir.path(), "a/b/io.max", "254:0 rbps=1048576 wbps=max riops=max wiops=max\n");
        assert_eq!(reads_per_s_in(dir.path(), "0::/a/b\n", None), Some(600));
        write(dir.path(), "unified/c/io.max", "8:16 riops=250\n");
        assert_eq!(reads_per_s_in(dir.path(), "0::/c\n", None), Some(250));
        assert_eq!(reads_per_s_in(dir.path(), "0::/\n", None), None);
    }

    #[test]
    fn odd_texts_are_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "io.max", "254:0\n\nriops=5\n254:0 riops=\n");
        for groups in ["", "x", "0::/", "0:", "::"] {
            assert_eq!(reads_per_s_in(dir.path(), groups, None), None, "{groups:?}");
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

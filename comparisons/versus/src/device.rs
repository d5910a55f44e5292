//! The block device of a directory and how much it has read.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// The mount of a directory and its device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Medium {
    /// Type of the file system.
    pub fs: String,
    /// Options of the mount.
    pub options: String,
    /// Name in /proc/diskstats; `None` for memory and network file systems.
    pub device: Option<String>,
    /// `queue/rotational`, `queue/scheduler` and `queue/read_ahead_kb` of the device.
    pub rotational: Option<String>,
    /// See `rotational`.
    pub scheduler: Option<String>,
    /// See `rotational`.
    pub read_ahead_kib: Option<String>,
}

impl Medium {
    /// Finds the mount of `dir`. Unknown facts are empty.
    pub fn of(dir: &Path) -> Self {
        let mut medium = Self::default();
        let Ok(stat) = rustix::fs::stat(dir) else { return medium };
        let mut number = numbers(stat.st_dev);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // The device number of a btrfs subvolume is in no line; the path is then.
        let by_path = || path_mount(&mounts, dir.canonicalize().ok()?.as_path());
        if let Some(mount) = mount_of(&mounts, number).or_else(by_path) {
            medium.fs = mount.fs.to_owned();
            medium.options = mount.options.to_owned();
            // A file system with an anonymous device number (btrfs) names its device here.
            if number.0 == 0
                && let Ok(source) = rustix::fs::stat(mount.source)
                && rustix::fs::FileType::from_raw_mode(source.st_mode).is_block_device()
            {
                number = numbers(source.st_rdev);
            }
        }
        let disks = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
        medium.device = name_of(&disks, number).map(str::to_owned);
        let setting = |name: &str| {
            let base = format!("/sys/dev/block/{}:{}", number.0, number.1);
            // The queue of a partition is one level up.
            ["queue", "../queue"].iter().find_map(|queue| {
                let text = std::fs::read_to_string(format!("{base}/{queue}/{name}")).ok()?;
                Some(text.trim().to_owned())
            })
        };
        if medium.device.is_some() {
            medium.rotational = setting("rotational");
            medium.scheduler = setting("scheduler");
            medium.read_ahead_kib = setting("read_ahead_kb");
        }
        medium
    }

    /// Returns a description of the medium.
    pub fn words(&self) -> String {
        let or_unknown = |text: &Option<String>| text.as_deref().unwrap_or("unknown").to_owned();
        format!(
            "{} ({}), device {}, rotational {}, scheduler {}, read-ahead {} KiB",
            self.fs,
            self.options,
            or_unknown(&self.device),
            or_unknown(&self.rotational),
            or_unknown(&self.scheduler),
            or_unknown(&self.read_ahead_kib),
        )
    }

    /// Returns the bytes that the device has read since boot, for all processes.
    pub fn read_bytes(&self) -> Option<u64> {
        let disks = std::fs::read_to_string("/proc/diskstats").ok()?;
        read_bytes_of(&disks, self.device.as_deref()?)
    }
}

type Number = (u32, u32);

fn numbers(device: u64) -> Number {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

struct Mount<'a> {
    fs: &'a str,
    source: &'a str,
    options: &'a str,
}

/// Returns the last mount of a device number in mountinfo.
fn mount_of(mounts: &str, number: Number) -> Option<Mount<'_>> {
    let wanted = format!("{}:{}", number.0, number.1);
    let (_, mount) =
        each_mount(mounts).rev().find(|(head, _)| head.split(' ').nth(2) == Some(&wanted))?;
    Some(mount)
}

/// Returns the mount with the longest path above `dir`, and the last of several on the same one.
fn path_mount<'a>(mounts: &'a str, dir: &Path) -> Option<Mount<'a>> {
    let point = |head: &'a str| head.split(' ').nth(4).filter(|point| dir.starts_with(point));
    let above = each_mount(mounts).filter_map(|(head, mount)| Some((point(head)?.len(), mount)));
    above.max_by_key(|(length, _)| *length).map(|(_, mount)| mount)
}

/// Returns the fields before the lone dash of each line, and the mount in those after it.
fn each_mount(mounts: &str) -> impl DoubleEndedIterator<Item = (&str, Mount<'_>)> {
    mounts.lines().filter_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut tail = tail.split(' ');
        let (fs, source) = (tail.next()?, tail.next()?);
        Some((head, Mount { fs, source, options: tail.next().unwrap_or("") }))
    })
}

fn name_of(disks: &str, number: Number) -> Option<&str> {
    disks.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let found = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (found == number).then(|| fields.next())?
    })
}

/// The sixth field counts 512-byte sectors regardless of the device's sector size.
fn read_bytes_of(disks: &str, device: &str) -> Option<u64> {
    disks
        .lines()
        .find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.get(2) == Some(&device)).then(|| fields.get(5)?.parse::<u64>().ok())?
        })
        .map(|sectors| sectors * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: &str = "   7       0 loop0 1 0 8 0 0 0 0 0 0 0 0\n 254       0 vda 106346 30567 \
                         9374738 41860 15665 34586 3747856 11608 0 13792 53989\n";
    const MOUNTS: &str = "22 27 0:21 / /proc rw - proc proc rw\n\
                          27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n";

    #[test]
    fn diskstats_and_mountinfo_are_read() {
        assert_eq!(name_of(DISKS, (254, 0)), Some("vda"));
        assert_eq!(name_of(DISKS, (8, 0)), None);
        assert_eq!(read_bytes_of(DISKS, "vda"), Some(9_374_738 * 512));
        assert_eq!(read_bytes_of(DISKS, "sda"), None);
        let mount = mount_of(MOUNTS, (254, 0)).expect("the root is mounted");
        assert_eq!((mount.fs, mount.source, mount.options), ("ext4", "/dev/vda", "rw,discard"));
        assert!(mount_of(MOUNTS, (1, 1)).is_none());
        let below = |path: &str| path_mount(MOUNTS, Path::new(path)).map(|mount| mount.fs);
        assert_eq!((below("/proc/self"), below("/process")), (Some("proc"), Some("ext4")));
    }
}

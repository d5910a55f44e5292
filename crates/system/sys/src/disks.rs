//! The disks that hold the files of a path, also below LVM, LUKS and md.
//!
//! Control groups limit whole disks, and only the queue of a real disk has an I/O scheduler that orders
//! requests. `/sys/dev/block/M:m/slaves` names what a stacked device consists of.

use crate::mount::{Mount, device_numbers, selected};
use crate::proc::read_text;
use std::path::Path;

/// A whole disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `sda` or `dm-0`.
    pub name: String,
    /// Device number.
    pub number: (u32, u32),
    /// Current I/O scheduler.
    pub scheduler: Option<String>,
    /// Whether it consists of other devices, which follow it in the list.
    pub is_stacked: bool,
}

/// Returns the disk of a mount, followed by the disks of which it consists; empty if the system does not
/// report one.
pub fn disks_of(mount: &Mount) -> Vec<Disk> {
    device_numbers(mount).map_or_else(Vec::new, |number| disks_in(Path::new("/sys"), number))
}

/// Returns the same for a block device, a whole disk or a partition, given where sysfs is mounted.
pub fn disks_in(sys: &Path, (major, minor): (u32, u32)) -> Vec<Disk> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut next = vec![sys.join(format!("dev/block/{major}:{minor}"))];
    while let Some(link) = next.pop() {
        let Ok(dir) = std::fs::canonicalize(link) else { continue };
        let disk = match (dir.join("partition").exists(), dir.parent()) {
            (true, Some(disk)) => disk,
            _ => &dir,
        };
        let number = read_text(&disk.join("dev")).ok().and_then(|text| parse_number(text.trim()));
        let (Some(number), Some(name)) = (number, disk.file_name()) else { continue };
        if disks.iter().any(|known| known.number == number) {
            continue;
        }
        let slaves = std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
        let before = next.len();
        next.extend(slaves.map(|slave| slave.path()));
        let scheduler = read_text(&disk.join("queue/scheduler")).ok();
        disks.push(Disk {
            name: name.to_string_lossy().into_owned(),
            number,
            scheduler: scheduler.map(|text| selected(&text)),
            is_stacked: next.len() > before,
        });
    }
    disks
}

/// Parses a device number such as `8:0`.
pub(crate) fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Adds a device below `sys`, which consists of those with the paths `below`.
    fn device(sys: &Path, path: &str, number: &str, below: &[&str]) {
        let dir = sys.join(path);
        std::fs::create_dir_all(dir.join("slaves")).unwrap();
        std::fs::write(dir.join("dev"), format!("{number}\n")).unwrap();
        std::fs::create_dir_all(sys.join("dev/block")).unwrap();
        symlink(&dir, sys.join("dev/block").join(number)).unwrap();
        for slave in below {
            let name = Path::new(slave).file_name().unwrap();
            symlink(sys.join(slave), dir.join("slaves").join(name)).unwrap();
        }
    }

    #[test]
    fn a_stacked_device_is_followed_by_its_whole_disks() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        device(sys, "devices/sda", "8:0", &[]);
        device(sys, "devices/sda/sda2", "8:2", &[]);
        std::fs::write(sys.join("devices/sda/sda2/partition"), "2\n").unwrap();
        std::fs::create_dir(sys.join("devices/sda/queue")).unwrap();
        std::fs::write(sys.join("devices/sda/queue/scheduler"), "none [bfq]\n").unwrap();
        // LVM on LUKS on a partition.
        device(sys, "devices/dm-0", "253:0", &["devices/sda/sda2"]);
        device(sys, "devices/dm-1", "253:1", &["devices/dm-0"]);
        let found = disks_in(sys, (253, 1));
        let names: Vec<_> = found.iter().map(|disk| (disk.name.as_str(), disk.number)).collect();
        assert_eq!(names, [("dm-1", (253, 1)), ("dm-0", (253, 0)), ("sda", (8, 0))]);
        assert_eq!(
            found.iter().map(|disk| disk.is_stacked).collect::<Vec<_>>(),
            [true, true, false]
        );
        assert_eq!(found[2].scheduler.as_deref(), Some("bfq"));
        assert_eq!(
            disks_in(sys, (8, 2)),
            disks_in(sys, (8, 0)),
            "a partition belongs to a whole disk"
        );
        assert!(disks_in(sys, (9, 9)).is_empty());
    }

    #[test]
    fn the_disk_of_a_path_is_a_block_device() {
        let mount = crate::mount::mount_of(Path::new("/")).unwrap();
        for disk in disks_of(&mount) {
            let (major, minor) = disk.number;
            assert!(Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists());
        }
    }
}

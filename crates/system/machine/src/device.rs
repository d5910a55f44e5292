//! Block devices and their mount points.

use crate::source::Source;
use ioloom_model::machine::DeviceFacts;
use ioloom_sys::mount::{Mount, parse_mountinfo, selected};
use std::path::Path;

/// Sector size in sysfs, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;

/// Returns all block devices that can hold data, which excludes RAM disks and empty loop devices.
pub(crate) fn all(source: &Source<'_>) -> Vec<DeviceFacts> {
    let text = source.bytes("proc/self/mountinfo");
    let mounts = parse_mountinfo(&text);
    source
        .names("sys/block")
        .iter()
        .map(|name| device(source, name, &mounts))
        .filter(|device| device.bytes != Some(0) && !device.name.starts_with("ram"))
        .collect()
}

fn device(source: &Source<'_>, name: &str, mounts: &[Mount]) -> DeviceFacts {
    let dir = format!("sys/block/{name}");
    let queue = |file: &str| format!("{dir}/queue/{file}");
    DeviceFacts {
        name: name.to_owned(),
        bytes: source.number(&format!("{dir}/size")).and_then(|n| n.checked_mul(SECTOR_BYTES)),
        rotational: source.number(&queue("rotational")).map(|flag| flag == 1),
        scheduler: source.word(&queue("scheduler")).map(|text| selected(&text)),
        queue_requests: source.number(&queue("nr_requests")),
        read_ahead_kib: source.number(&queue("read_ahead_kb")),
        mounts: mounts_of(source, name, mounts),
    }
}

/// Returns where the device or one of its partitions is mounted, without duplicates.
fn mounts_of(source: &Source<'_>, name: &str, mounts: &[Mount]) -> Vec<(String, String)> {
    let dir = format!("sys/block/{name}");
    let partitions = source.names(&dir);
    let partitions = partitions
        .iter()
        .filter(|part| source.word(&format!("{dir}/{part}/partition")).is_some())
        .map(|part| (part.as_str(), format!("{dir}/{part}/dev")));
    // Mounts name a device of the device mapper, such as LUKS or LVM, by its text name.
    let mapped = source.word(&format!("{dir}/dm/name"));
    let mapped = mapped.map(|name| Path::new("/dev/mapper").join(name));
    let mut found = Vec::new();
    for (name, numbers) in std::iter::once((name, format!("{dir}/dev"))).chain(partitions) {
        let numbers = source.word(&numbers);
        let source = Path::new("/dev").join(name);
        for mount in mounts {
            let own = Some(format!("{}:{}", mount.device.0, mount.device.1));
            // A file system that spans several devices has its own number but names one device as
            // its source.
            let is_named = mount.source == source || mapped.as_ref() == Some(&mount.source);
            if (numbers.is_some() && own == numbers) || is_named {
                let entry = (mount.point.display().to_string(), mount.file_system.clone());
                if !found.contains(&entry) {
                    found.push(entry);
                }
            }
        }
    }
    found
}

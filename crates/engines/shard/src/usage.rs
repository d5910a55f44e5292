//! The disk usage of one shard, as lines.
//!
//! `total APPARENT DISK INODES`, in which an inode with several links counts once; `link DEVICE INODE
//! LINKS APPARENT DISK` for each of these inodes, because other shards can have links to it, too; and
//! `failed MESSAGE` with the message as a JSON string. The device is `-` if it is that of the first
//! argument of the plan: its number can differ between hosts.

use std::io::Write;

/// An inode with several links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The device, or nothing for that of the first argument of the plan.
    pub device: Option<u64>,
    /// The inode.
    pub inode: u64,
    /// Its links, also those elsewhere.
    pub links: u32,
    /// Its length in bytes.
    pub apparent_bytes: u64,
    /// Its disk usage in bytes.
    pub disk_bytes: u64,
}

/// The disk usage of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Length of all entries in bytes.
    pub apparent_bytes: u64,
    /// Disk usage of all entries in bytes.
    pub disk_bytes: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Inodes with several links, which the totals contain once.
    pub links: Vec<Link>,
    /// Why entries are missing.
    pub errors: Vec<String>,
}

/// Returns the lines of a usage.
pub fn encode(usage: &Usage) -> Vec<u8> {
    let mut out = Vec::new();
    let Usage { apparent_bytes, disk_bytes, inodes, links, errors } = usage;
    // Writing to memory cannot fail.
    let _ = writeln!(out, "total {apparent_bytes} {disk_bytes} {inodes}");
    for Link { device, inode, links, apparent_bytes, disk_bytes } in links {
        let device = device.map_or_else(|| "-".to_owned(), |device| device.to_string());
        let _ = writeln!(out, "link {device} {inode} {links} {apparent_bytes} {disk_bytes}");
    }
    for error in errors {
        let _ = writeln!(out, "failed {}", serde_json::Value::from(error.as_str()));
    }
    out
}

/// Parses lines of a usage. Returns `None` if a line is none, or if there is not exactly one total.
pub fn decode(body: &[u8]) -> Option<Usage> {
    let mut usage = None;
    let mut rest = Usage::default();
    for line in std::str::from_utf8(body).ok()?.lines() {
        let (kind, text) = line.split_once(' ')?;
        let words: Vec<&str> = text.split(' ').collect();
        match (kind, &*words) {
            ("total", [apparent, disk, inodes]) if usage.is_none() => {
                let (apparent_bytes, disk_bytes) = (apparent.parse().ok()?, disk.parse().ok()?);
                let inodes = inodes.parse().ok()?;
                usage = Some(Usage { apparent_bytes, disk_bytes, inodes, ..Usage::default() });
            }
            ("link", [device, inode, links, apparent, disk]) => rest.links.push(Link {
                device: match *device {
                    "-" => None,
                    number => Some(number.parse().ok()?),
                },
                inode: inode.parse().ok()?,
                links: links.parse().ok()?,
                apparent_bytes: apparent.parse().ok()?,
                disk_bytes: disk.parse().ok()?,
            }),
            ("failed", _) => rest.errors.push(serde_json::from_str(text).ok()?),
            _ => return None,
        }
    }
    usage.map(|usage| Usage { links: rest.links, errors: rest.errors, ..usage })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_link() -> impl Strategy<Value = Link> {
        let numbers =
            (any::<Option<u64>>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
        numbers.prop_map(|(device, inode, links, apparent_bytes, disk_bytes)| Link {
            device,
            inode,
            links,
            apparent_bytes,
            disk_bytes,
        })
    }

    proptest! {
        #[test]
        fn a_usage_is_read_as_written(
            (apparent_bytes, disk_bytes, inodes) in any::<(u64, u64, u64)>(),
            links in proptest::collection::vec(any_link(), 0..9),
            errors in proptest::collection::vec(any::<String>(), 0..9),
        ) {
            let usage = Usage { apparent_bytes, disk_bytes, inodes, links, errors };
            prop_assert_eq!(decode(&encode(&usage)).unwrap(), usage);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for wrong in [
            "",
            "total",
            "total 1 2",
            "total 1 2 x",
            "total 1 2 3 4",
            "total 1 2 3\ntotal 1 2 3",
            "total 1 2 3\nlink - 1 2 3",
            "total 1 2 3\nlink x 1 2 3 4",
            "total 1 2 3\nfailed x",
            "total 1 2 3\nfailed",
            "link - 1 2 3 4",
        ] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}

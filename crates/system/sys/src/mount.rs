//! Mounts and their underlying devices.
//!
//! The mount of a path is identified by the mount ID that `statx` reports because a file system on
//! several devices reports its own device numbers. On kernels without mount IDs, it is the mount
//! with the longest mount point that contains the path. Device properties come from /sys/dev/block.

use crate::fault::{call, retry_on_interrupt};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Space on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Total size in bytes.
    pub total_bytes: u64,
    /// Bytes available to this user.
    pub available_bytes: u64,
    /// Number of files that can still be created; `None` if the file system has no such limit.
    pub available_files: Option<u64>,
    /// Block size in bytes: files occupy whole blocks.
    pub block_bytes: u64,
}

/// Returns the space on the file system that contains `path`.
pub fn space(path: &Path) -> io::Result<Space> {
    let s = retry_on_interrupt(|| call("statvfs", || Ok(rustix::fs::statvfs(path)?)))?;
    let block = s.f_frsize.max(1);
    Ok(Space {
        total_bytes: s.f_blocks.saturating_mul(block),
        available_bytes: s.f_bavail.saturating_mul(block),
        available_files: (s.f_files > 0).then_some(s.f_favail),
        block_bytes: block,
    })
}

/// An entry of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Mount ID.
    pub id: u64,
    /// ID of the mount that contains the mount point.
    pub parent: u64,
    /// Device number.
    pub device: (u32, u32),
    /// Mount point.
    pub point: PathBuf,
    /// Mount options.
    pub options: String,
    /// File-system type.
    pub file_system: String,
    /// Mounted device or other source, such as `/dev/vda`.
    pub source: PathBuf,
}

/// Types of file systems whose files the kernel makes up.
const KERNEL: [&str; 22] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];

/// Types of file systems whose files are served by another computer or by a process, as in
/// [`FileSystem::remote`](crate::attr::FileSystem), and that which mounts them on demand.
const REMOTE: [&str; 20] = [
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gpfs", "lustre",
    "nfs", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
];

impl Mount {
    /// Returns true if another computer or a process serves the files, or if such a file system may
    /// be mounted here on demand.
    pub fn is_remote(&self) -> bool {
        let name = self.file_system.as_str();
        REMOTE.contains(&name) || name.starts_with("fuse.")
    }

    /// Returns true if the kernel makes up the files, so that no user has stored any.
    pub fn is_made_up(&self) -> bool {
        KERNEL.contains(&self.file_system.as_str())
    }

    /// Returns true if files exist in memory only.
    pub fn is_in_memory(&self) -> bool {
        ["tmpfs", "ramfs", "devtmpfs"].contains(&self.file_system.as_str())
    }

    /// Returns true if reads may reach a local disk although the system reports none, as below overlay.
    pub fn may_hide_disks(&self) -> bool {
        !(self.is_remote() || self.is_made_up() || self.is_in_memory())
    }
}

/// Parses /proc/PID/mountinfo; malformed lines are skipped.
pub fn parse_mountinfo(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let id = utf8(fields.next()?)?.parse().ok()?;
    let parent = utf8(fields.next()?)?.parse().ok()?;
    let (major, minor) = utf8(fields.next()?)?.split_once(':')?;
    let point = unescaped(fields.nth(1)?);
    let options = utf8(fields.next()?)?.to_owned();
    // A single dash ends the optional fields.
    fields.find(|field| *field == b"-")?;
    Some(Mount {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        point,
        options,
        file_system: utf8(fields.next()?)?.to_owned(),
        source: unescaped(fields.next()?),
    })
}

fn utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Decodes the kernel's `\ooo` escapes for spaces, newlines and backslashes.
fn unescaped(bytes: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match octal.filter(|_| *first == b'\\') {
            Some(digits) => {
                let value = digits.iter().fold(0u32, |v, d| v * 8 + u32::from(d - b'0'));
                out.push(value as u8);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// Returns all mounts visible to this process.
pub fn mounts() -> io::Result<Vec<Mount>> {
    let text =
        retry_on_interrupt(|| call("read-mountinfo", || std::fs::read("/proc/self/mountinfo")))?;
    Ok(parse_mountinfo(&text))
}

/// Returns the mount that contains `path`.
pub fn mount_of(path: &Path) -> io::Result<Mount> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let s = retry_on_interrupt(|| {
        call("statx", || Ok(rustix::fs::statx(CWD, path, AtFlags::empty(), mask)?))
    })?;
    let mounts = mounts()?;
    let has_id = s.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let by_id = || mounts.iter().find(|mount| has_id && mount.id == s.stx_mnt_id);
    if let Some(mount) = by_id() {
        return Ok(mount.clone());
    }
    let real = retry_on_interrupt(|| call("realpath", || std::fs::canonicalize(path)))?;
    longest_above(&mounts, &real)
        .cloned()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no mount in /proc/self/mountinfo"))
}

/// Returns the mount whose mount point is the longest prefix of `path`; if several are equal, the
/// last one, which hides the others.
fn longest_above<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len())
}

/// The storage of a path, as far as the system reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Medium {
    /// The mount.
    pub mount: Mount,
    /// Block device (partition) name, if there is one.
    pub block_device: Option<String>,
    /// Whole disk name, if there is one.
    pub disk: Option<String>,
    /// Current I/O scheduler.
    pub scheduler: Option<String>,
    /// The rotational flag, which is often wrong on virtual disks.
    pub rotational: Option<bool>,
    /// Readahead in KiB.
    pub read_ahead_kib: Option<u64>,
}

/// Returns the storage of `path`.
pub fn medium(path: &Path) -> io::Result<Medium> {
    let mount = mount_of(path)?;
    let numbers = device_numbers(&mount);
    let mut medium = Medium {
        mount,
        block_device: None,
        disk: None,
        scheduler: None,
        rotational: None,
        read_ahead_kib: None,
    };
    let Some((major, minor)) = numbers else { return Ok(medium) };
    let Ok(dir) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return Ok(medium);
    };
    let name = |dir: &Path| Some(dir.file_name()?.to_string_lossy().into_owned());
    medium.block_device = name(&dir);
    let disk = match (dir.join("partition").exists(), dir.parent()) {
        (true, Some(disk)) => disk,
        _ => &dir,
    };
    medium.disk = name(disk);
    let queue = |file: &str| crate::proc::read_text(&disk.join("queue").join(file)).ok();
    medium.scheduler = queue("scheduler").map(|text| selected(&text));
    medium.rotational = queue("rotational").map(|text| text.trim() == "1");
    medium.read_ahead_kib = queue("read_ahead_kb").and_then(|text| text.trim().parse().ok());
    Ok(medium)
}

/// Returns the /dev file of a block device, as named by /sys. The name proves nothing: after
/// opening it, check [`crate::file::block_device_number`].
///
/// # Errors
/// Fails with [`io::ErrorKind::NotFound`] if the system has no such block device.
pub fn device_file((major, minor): (u32, u32)) -> io::Result<PathBuf> {
    let event = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/uevent"));
    let event = crate::proc::read_text(&event)?;
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let name = name
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the device has no name in /dev"))?;
    Ok(Path::new("/dev").join(name))
}

/// Returns the device of a mount; file systems that span several devices name one of them as their
/// source.
pub(crate) fn device_numbers(mount: &Mount) -> Option<(u32, u32)> {
    if mount.device.0 != 0 {
        return Some(mount.device);
    }
    let s = mount.source.as_os_str().as_bytes().starts_with(b"/dev/").then(|| {
        rustix::fs::statx(CWD, &mount.source, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()
    })??;
    (s.stx_rdev_major != 0).then_some((s.stx_rdev_major, s.stx_rdev_minor))
}

/// Returns the bracketed word in a list such as `none [mq-deadline] kyber`, or the whole line.
pub fn selected(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"27 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw,discard\n\
        30 27 0:25 /sub /mnt/with\\040space ro,nosuid shared:7 master:2 - btrfs /dev/sda2 ro\n\
        31 27 0:27 / /mnt rw - tmpfs none rw\nnot a mount\n32 27 x:1 / /x rw - ext4 none rw\n";

    #[test]
    fn mountinfo_is_parsed() {
        let mounts = parse_mountinfo(TEXT);
        assert_eq!(mounts.len(), 3);
        assert_eq!((mounts[0].id, mounts[0].parent, mounts[0].device), (27, 1, (254, 1)));
        assert_eq!(
            (mounts[0].options.as_str(), mounts[0].source.to_str()),
            ("rw,relatime", Some("/dev/vda1"))
        );
        assert_eq!(mounts[1].point, Path::new("/mnt/with space"));
        assert_eq!(mounts[1].file_system, "btrfs");
    }

    #[test]
    fn the_longest_mount_point_wins() {
        let mounts = parse_mountinfo(TEXT);
        let id = |path: &str| longest_above(&mounts, Path::new(path)).unwrap().id;
        assert_eq!(id("/mnt/with space/f"), 30);
        assert_eq!(id("/mnt/f"), 31);
        assert_eq!(id("/mnt2/f"), 27, "a common prefix is not a parent directory");
    }

    #[test]
    fn the_temporary_directory_has_a_mount() {
        let temp = tempfile::tempdir().unwrap();
        let medium = medium(temp.path()).unwrap();
        let real = std::fs::canonicalize(temp.path()).unwrap();
        assert!(real.starts_with(&medium.mount.point), "{medium:?}");
        let room = space(temp.path()).unwrap();
        assert!(room.total_bytes >= room.available_bytes && room.block_bytes > 0);
        assert_eq!(mount_of(Path::new("/proc/self")).unwrap().file_system, "proc");
        assert!(space(&temp.path().join("no")).is_err());
    }

    #[test]
    fn the_scheduler_in_use_is_in_brackets() {
        assert_eq!(selected("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(selected("none\n"), "none");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse_mountinfo(&bytes);
        }
        #[test]
        fn near_lines_do_not_panic(text in "([0-9]{1,3}|:| |/|\\\\[0-9]{0,4}|-|ext4|\n){0,40}") {
            parse_mountinfo(text.as_bytes());
        }
        #[test]
        fn escapes_read_back(name in proptest::collection::vec(1u8..=255, 1..20)) {
            let mut text = Vec::new();
            for b in &name {
                if b" \t\n\\#".contains(b) {
                    text.extend_from_slice(format!("\\{b:03o}").as_bytes());
                } else {
                    text.push(*b);
                }
            }
            let back = unescaped(&text);
            prop_assert_eq!(back.as_os_str().as_bytes(), &name[..]);
        }
    }
}

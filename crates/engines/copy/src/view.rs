//! Recognises a file that has other inode numbers elsewhere: through an overlay, FUSE or a network mount.
//!
//! Such a view shows a file that also has another path, with numbers of its own. Two descriptors lead to the same file if a
//! time that is set through one of them appears through the other. This costs about eight calls and is tried only where
//! one of the file systems can show files of others, and if times of modification agree.

use ioloom_sys::attr;
use ioloom_sys::dir::Kind;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Types of file systems that show only files of their own: ext2 to ext4, XFS, btrfs, F2FS, ZFS, bcachefs,
/// tmpfs, ramfs.
const PLAIN: [u64; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x0102_1994,
    0x8584_58f6,
];

/// How far to set back the time of access, in seconds: more than the granularity of any file system.
const SHIFT_SECONDS: i64 = 400 * 24 * 3600;

/// Maximum number of attempts to see a changed time; another program can change it, too.
const TRIES: u32 = 3;

/// How long to wait until the current time has another value in a file system.
const TICK: Duration = Duration::from_millis(10);

/// Device numbers of a file system.
pub(crate) type Device = (u32, u32);

/// What a copy knows about the file systems of its files.
#[derive(Default)]
pub(crate) struct FileSystems {
    /// Whether a file system can show files of another one.
    shows: Mutex<HashMap<Device, bool>>,
    /// File systems that do not store the times that they accept. Locked while the times of a target are changed for a
    /// moment.
    timeless: Mutex<HashSet<Device>>,
}

impl FileSystems {
    /// Returns true if the file system of an open file can show files of another one. Costs one call per device.
    pub(crate) fn shows_others(&self, device: Device, file: impl AsFd) -> bool {
        let mut shows = self.shows.lock().unwrap_or_else(PoisonError::into_inner);
        *shows.entry(device).or_insert_with(|| shows_others(file))
    }

    /// Returns true if a file system is known to show only files of its own.
    pub(crate) fn is_plain(&self, device: Device) -> bool {
        let shows = self.shows.lock().unwrap_or_else(PoisonError::into_inner);
        shows.get(&device) == Some(&false)
    }

    /// Returns true if a source and a target on `device` are the same; false if that cannot be seen.
    pub(crate) fn is_same(&self, from: impl AsFd, to: impl AsFd, device: Device) -> bool {
        let mut timeless = self.timeless.lock().unwrap_or_else(PoisonError::into_inner);
        // Each attempt would wait.
        if timeless.contains(&device) {
            return false;
        }
        match is_same(from, to) {
            Ok(Some(same)) => same,
            Ok(None) => {
                timeless.insert(device);
                false
            }
            Err(_) => false,
        }
    }
}

/// Returns true if the file system of an open file can show files of another one.
pub(crate) fn shows_others(file: impl AsFd) -> bool {
    attr::file_system(file).is_ok_and(|system| !PLAIN.contains(&system.kind))
}

/// Returns true if a source and a target are the same file or directory. Changes the times of the target and restores
/// them. Without permission to set them, they become the current time, which is possible in append-only directories, too.
/// Returns `None` if the file system of the target does not store the times that it accepts.
fn is_same(from: impl AsFd, to: impl AsFd) -> io::Result<Option<bool>> {
    let mut is_stored = false;
    for _ in 0..TRIES {
        let before = attr::uncached_of_file(&to)?;
        let seen = attr::uncached_of_file(&from)?;
        let later = attr::uncached_of_file(&to)?.modified.0;
        let agree = before.kind == seen.kind
            && (seen.kind != Kind::Regular || before.bytes == seen.bytes)
            && (before.modified.0..=later).contains(&seen.modified.0);
        if !agree {
            return Ok(Some(false));
        }
        let other = (before.accessed.0.saturating_sub(SHIFT_SECONDS), before.accessed.1);
        let is_set = attr::set_accessed(&to, other).is_ok();
        if !is_set {
            attr::touch(&to)?;
        }
        let (shown, now) = (attr::uncached_of_file(&to), attr::uncached_of_file(&from));
        if is_set {
            // Ignore a failure: only a time of access differs.
            let _ = attr::set_accessed(&to, before.accessed);
        }
        let (shown, now) = (shown?.accessed, now?.accessed);
        if shown != before.accessed {
            if now == shown && seen.accessed != shown {
                return Ok(Some(true));
            }
            if now == seen.accessed {
                return Ok(Some(false));
            }
        }
        // The current time can be the one that was there.
        is_stored |= !is_set || shown != before.accessed;
        std::thread::sleep(TICK);
    }
    Ok(is_stored.then_some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;

    /// Goal: only the same file is taken for one, and its times stay. Method: two files with equal times and sizes, and
    /// their directory.
    #[test]
    fn the_same_file_is_recognised_and_keeps_its_times() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (a, b) = (place.path().join("a"), place.path().join("b"));
        let when = (1_600_000_000, 7);
        for path in [&a, &b] {
            fs::write(path, "same").unwrap();
            attr::set_times(File::open(path).unwrap(), when, when).unwrap();
        }
        let open = |path: &Path| File::open(path).unwrap();
        assert_eq!(is_same(open(&a), open(&a)).unwrap(), Some(true));
        assert_eq!(is_same(open(&a), open(&b)).unwrap(), Some(false));
        let dir = place.path().to_owned();
        assert_eq!(is_same(open(&dir), open(&dir)).unwrap(), Some(true));
        assert_eq!(is_same(open(&dir), open(&a)).unwrap(), Some(false));
        let attr = attr::of_file(open(&b)).unwrap();
        assert_eq!((attr.accessed, attr.modified), (when, when));
    }
}

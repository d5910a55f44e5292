//! Cold and warm names and inodes, for walks.
//!
//! No system call evicts the names and inodes of a few directories. They are evicted by dropping
//! the whole machine's page cache, by unmounting their file system, or by a reboot. Therefore, a
//! cold run is refused unless the user permits dropping the cache (`drop_caches`) or the files are
//! in an image created by ioloom. Warm is established by a plain walk.
//!
//! The proof is the number of bytes that the child read from the device. The shortest directory
//! entry takes more than [`COLD_BYTES_PER_NAME`], so a walk that reads less did not read the
//! directories. A walk that reads more than [`WARM_BYTES_PER_NAME`] was not warm. Nothing is
//! queried before the run because a query would load names and inodes.

use ioloom_failure::{Operation, PathError};
use ioloom_model::Condition;
use std::io;
use std::path::{Path, PathBuf};

/// Minimum bytes per name that a cold run reads from the device.
pub const COLD_BYTES_PER_NAME: f64 = 8.0;
/// Maximum bytes per name that a warm run reads from the device.
pub const WARM_BYTES_PER_NAME: f64 = 0.5;

pub(crate) const NEEDS_EITHER: &str = "names and inodes cannot be made cold here; run as root to \
    remount a generated image, or as root with --drop-caches";
pub(crate) const NEEDS_IMAGE: &str =
    "remounting requires an image created by ioloom; run as root with --image";
pub(crate) const NEEDS_DROP: &str =
    "the arm drops the machine's page cache; allow it with --drop-caches as root";

/// Reads every name below `root` and its inode.
///
/// # Errors
/// The first directory or inode that cannot be read.
pub(crate) fn warm(root: &Path) -> Result<(), PathError> {
    let mut open: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let fail = PathError::on(Operation::ReadDir, &dir);
        for entry in std::fs::read_dir(&dir).map_err(&fail)? {
            let entry = entry.map_err(&fail)?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => open.push(entry.path()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(PathError::new(Operation::Stat, entry.path(), source));
                }
            }
        }
    }
    Ok(())
}

/// Determines from the bytes read from devices whether a run over `names` names met the condition.
pub(crate) fn judge(asked: Condition, device: Option<u64>, names: u64) -> (Option<bool>, String) {
    let Some(device) = device else {
        return (None, "device reads cannot be observed here".to_owned());
    };
    let each = device as f64 / names.max(1) as f64;
    let proved = match asked {
        Condition::Cold => each >= COLD_BYTES_PER_NAME,
        Condition::Warm => each <= WARM_BYTES_PER_NAME,
        Condition::AsIs => true,
    };
    let evidence = format!("{each:.1} bytes per name came from the device");
    let not = if proved { "" } else { "not " };
    (Some(proved), format!("names and inodes {not}{asked}: {evidence}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_each_name_prove_cold_and_warm() {
        for (asked, device, names, proved) in [
            (Condition::Cold, Some(13_000), 1000, Some(true)),
            (Condition::Cold, Some(4096), 1000, Some(false)),
            (Condition::Warm, Some(0), 1000, Some(true)),
            (Condition::Warm, Some(4096), 1000, Some(false)),
            (Condition::Warm, None, 1000, None),
            (Condition::AsIs, Some(4096), 0, Some(true)),
        ] {
            let (found, reason) = judge(asked, device, names);
            assert_eq!(found, proved, "{asked} {device:?}: {reason}");
        }
    }
}

//! Names and inodes as the thing that is cold or warm: what a walk needs, and nothing else.
//!
//! No call makes the names and inodes of a few directories cold; they go with the cache of the whole
//! machine, with the mount of their file system, or with a new start. So without the user's word
//! (`drop_caches`) and without an image of ours a cold run is refused. Warm is made by a plain walk.
//!
//! The proof is what the child had from the device. The shortest entry of any directory takes more
//! than [`COLD_BYTES_PER_NAME`], so a walk that had less did not read the directories; one that had
//! more than [`WARM_BYTES_PER_NAME`] was not warm. Nothing is looked at before the run: looking
//! would make it warm.

use ioloom_failure::{Operation, PathError};
use ioloom_model::Condition;
use std::io;
use std::path::{Path, PathBuf};

/// Least bytes from the device for each name in a cold run.
pub const COLD_BYTES_PER_NAME: f64 = 8.0;
/// Most bytes from the device for each name in a warm run.
pub const WARM_BYTES_PER_NAME: f64 = 0.5;

pub(crate) const NEEDS_EITHER: &str = "names and inodes cannot be made cold here; remedy: run as root \
     (an image of our own is then mounted anew), or with --drop-caches as root";
pub(crate) const NEEDS_IMAGE: &str =
    "mounting anew needs an image of our own; remedy: run as root with --image";
pub(crate) const NEEDS_DROP: &str =
    "the cache of the machine is dropped only on request; remedy: --drop-caches as root";

/// Asks for every name below `root` once, and for its inode.
///
/// # Errors
/// The first directory that cannot be read.
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

/// Whether a run over so many names was in the condition asked for, by what it had from devices.
pub(crate) fn judge(asked: Condition, device: Option<u64>, names: u64) -> (Option<bool>, String) {
    let Some(device) = device else {
        return (None, "the device's bytes cannot be seen here".to_owned());
    };
    let each = device as f64 / names.max(1) as f64;
    let proved = match asked {
        Condition::Cold => each >= COLD_BYTES_PER_NAME,
        Condition::Warm => each <= WARM_BYTES_PER_NAME,
        Condition::AsIs => true,
    };
    let evidence = format!("the device gave {each:.1} bytes for each name");
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

//! Whether the directories that the shards of a copy share, and their copies, are still those of the shards.
//!
//! The last step gives copies the attributes of these directories. On a host on which source or target is not mounted,
//! and after a directory was replaced, they would be those of another directory, or given to another one.

use super::{Flat, entries, is_now_empty, looks_empty};
use ioloom_failure::quoted;
use ioloom_shard::copied::{Identity, Shared};
use ioloom_shard::plan::Plan;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Network file systems can truncate times of creation: SMB has units of 100 ns.
const CREATED_STEP_NS: u64 = 1000;

/// The directories that shards copied without the directories in them: the shard, and what identifies the directory.
pub(crate) type Seen = HashMap<PathBuf, (u64, Shared)>;

/// Returns what identifies a directory, or nothing if it cannot be queried.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    let found = path.symlink_metadata().ok()?;
    let created = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let created_ns = created.and_then(|time| u64::try_from(time.as_nanos()).ok());
    let created_ns = created_ns.filter(|ns| *ns > 0);
    Some(Identity { inode: found.ino(), created_ns })
}

/// Returns the directories that are probably not those that the shards copied, or whose copies are not, and the error of
/// each. `names` are all directories of the plan, and `copy_of` returns the path of a copy.
pub(crate) fn strangers(
    plan: &Plan,
    names: &[(PathBuf, bool)],
    seen: &Seen,
    copy_of: impl Fn(&Path) -> Option<PathBuf>,
) -> BTreeMap<PathBuf, String> {
    let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
    for (path, _) in names.iter().filter(|(_, alone)| *alone) {
        let Some((shard, was)) = seen.get(path) else {
            unknown.push(path.as_path());
            continue;
        };
        let compare = |was: &Identity, path: &Path| is_same(was, &identity(path)?);
        let (same, copy) = (compare(&was.source, path), copy_of(path));
        let with_copy = was.copy.as_ref().zip(copy.as_deref());
        let is_other_copy = with_copy.and_then(|(was, copy)| compare(was, copy)) == Some(false);
        if same == Some(false) {
            found.insert(path.clone(), replaced(plan, *shard, path));
        } else if let Some(copy) = copy.filter(|_| is_other_copy) {
            found.insert(path.clone(), replaced_copy(*shard, &copy));
        } else if same.is_none() {
            unknown.push(path.as_path());
        }
    }
    // Only these can lack planned directories; listing all of them can take long.
    let above: HashSet<&Path> =
        names.iter().flat_map(|(path, _)| path.ancestors().skip(1)).collect();
    let mut flat =
        Flat::of(unknown.iter().filter(|path| above.contains(**path)).map(PathBuf::from));
    names.iter().for_each(|(path, _)| flat.note(path));
    for path in flat.planned() {
        let error = looks_empty(plan, "copy", &path);
        found.insert(path, error);
    }
    let filled: HashSet<&Path> = plan.header.filled.iter().map(|root| root.path()).collect();
    for path in unknown.into_iter().filter(|path| filled.contains(path)) {
        if entries(path) == Some(0) {
            found.insert(path.to_owned(), is_now_empty(plan, "copy", path));
        }
    }
    found
}

/// Returns whether two directories at one path are the same one, or nothing if that is unknown. Inodes can differ between
/// hosts, on FUSE for example. Times of creation do not, but overlayfs changes that of a directory whose entries
/// change; and the inode of a mount point can be that of the root of its file system.
fn is_same(was: &Identity, now: &Identity) -> Option<bool> {
    let created = was.created_ns.zip(now.created_ns);
    let created = created.map(|(was, now)| was.abs_diff(now) < CREATED_STEP_NS);
    match (was.inode == now.inode, created) {
        (_, Some(true)) | (true, None) => Some(true),
        (false, Some(false)) => Some(false),
        (true, Some(false)) | (false, None) => None,
    }
}

fn replaced(plan: &Plan, shard: u64, path: &Path) -> String {
    format!(
        "cannot complete the copy: {} is not the directory that shard {shard} copied; mount the tree of '{}' here, or \
         run the shard again with --redo if the directory was replaced",
        quoted(path),
        crate::out::readable(plan.header.host.as_bytes())
    )
}

/// All shards that copied to the directory have to run again, not only the one that copied its files.
fn replaced_copy(shard: u64, path: &Path) -> String {
    format!(
        "cannot complete the copy: {} is not the directory to which shard {shard} copied; mount the target here, or \
         run the shards again with --redo if the directory was replaced",
        quoted(path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_compared_by_inode_and_time_of_creation() {
        let of = |inode, created_ns| Identity { inode, created_ns };
        for (was, now, same) in [
            (of(1, Some(5)), of(1, Some(5)), Some(true)),
            (of(1, Some(5)), of(2, Some(5)), Some(true)),
            (of(1, None), of(1, Some(5)), Some(true)),
            (of(1, Some(1_234_567)), of(2, Some(1_234_500)), Some(true)),
            (of(1, Some(5)), of(2, Some(1005)), Some(false)),
            (of(1, Some(5)), of(1, Some(1005)), None),
            (of(1, None), of(2, None), None),
        ] {
            assert_eq!(is_same(&was, &now), same, "{was:?} {now:?}");
        }
    }
}

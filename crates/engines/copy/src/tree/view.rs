//! Finds the target of a source in the source, through a view with other inode numbers.
//!
//! An overlay, FUSE or a network mount can show a directory that has another path with numbers of its own. The
//! walk of a source that contains its target would find whatever the copy creates there, and never end. Two
//! directories are the same one if a time that is set on the target appears on the other. This is tried only if their
//! times of modification agree, and one of them is on a file system that can show others. Elsewhere, it costs no call
//! per directory.

use super::{Worker, locked};
use crate::context::Device;
use crate::dirs::CopyDir;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_walk::NewDir;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Types of file systems that show only directories of their own: ext2 to ext4, XFS, btrfs, F2FS, ZFS, bcachefs,
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

/// Maximum difference of the times of modification of one directory that a cache reports, in seconds.
const CACHED_SECONDS_MAX: u64 = 120;

/// How far to set back the time of access, in seconds: more than the granularity of any file system.
const SHIFT_SECONDS: i64 = 400 * 24 * 3600;

/// Maximum number of attempts to see a changed time; another program can change it meanwhile.
const TRIES: u32 = 3;

/// How long to wait until the current time has another value in a file system.
const TICK: Duration = Duration::from_millis(10);

/// What a thread knows about file systems.
#[derive(Default)]
pub(super) struct Views {
    /// The source in which directories were found last, and whether the file system of its target can show directories
    /// of others; `None` while the target has a hidden name.
    target: Option<(usize, Option<bool>)>,
    /// Whether a file system can show directories of others.
    shows: HashMap<Device, bool>,
}

impl Worker<'_> {
    /// Returns true if a directory found in a source is the target of that source. What this copy creates is hidden
    /// until the walk ends, or in a target that has its final name now.
    pub(super) fn shows_target(
        &mut self,
        new: &NewDir<'_, CopyDir>,
        from: &Dir,
        found: &Attr,
    ) -> bool {
        // A source that is its own target ends.
        if new.parent.is_none() {
            return false;
        }
        let Some(target_shows) = self.target_shows_others(new.root) else { return false };
        let shows = || shows_others(from);
        if !target_shows && !*self.views.shows.entry(found.device).or_insert_with(shows) {
            return false;
        }
        let to = &self.roots.to[new.root];
        let above = &self.roots.parents[to.parent].dir;
        let Ok(now) = attr::of_name(above, &to.name, false) else { return false };
        if now.modified.0.abs_diff(found.modified.0) > CACHED_SECONDS_MAX {
            return false;
        }
        let _one = locked(&self.context.marking);
        is_same(from, above, &to.name).unwrap_or(false)
    }

    /// Returns whether the file system of the target of a source can show directories of others; `None` while the
    /// target has a hidden name.
    fn target_shows_others(&mut self, root: usize) -> Option<bool> {
        if let Some((at, shows)) = self.views.target
            && at == root
        {
            return shows;
        }
        let to = &self.roots.to[root];
        let above = &self.roots.parents[to.parent].dir;
        let opened = above.open_child_path_only(&to.name, false);
        let shows = opened.ok().map(|dir| shows_others(&dir));
        self.views.target = Some((root, shows));
        shows
    }
}

fn shows_others(file: impl AsFd) -> bool {
    attr::file_system(file).is_ok_and(|system| !PLAIN.contains(&system.kind))
}

/// Returns true if the directory `from` is the directory `name` in `above`, whose times are changed and restored.
/// Without permission to set them, they become the current time, which is possible in append-only directories, too.
fn is_same(from: &Dir, above: &Dir, name: &CStr) -> io::Result<bool> {
    let target = || attr::uncached_of_name(above, name);
    for _ in 0..TRIES {
        let before = target()?;
        let seen = attr::uncached_of_file(from)?;
        let later = target()?.modified.0;
        if before.kind != Kind::Directory || !(before.modified.0..=later).contains(&seen.modified.0)
        {
            return Ok(false);
        }
        let other = (before.accessed.0.saturating_sub(SHIFT_SECONDS), before.accessed.1);
        let is_set = attr::set_accessed_at(above, name, other).is_ok();
        if !is_set {
            attr::touch_at(above, name)?;
        }
        let (shown, now) = (target(), attr::uncached_of_file(from));
        if is_set {
            // Ignore a failure: the copy sets the times of a new directory at its end.
            let _ = attr::set_accessed_at(above, name, before.accessed);
        }
        let (shown, now) = (shown?.accessed, now?.accessed);
        if shown != before.accessed {
            if now == shown && seen.accessed != shown {
                return Ok(true);
            }
            if now == seen.accessed {
                return Ok(false);
            }
        }
        std::thread::sleep(TICK);
    }
    Ok(false)
}

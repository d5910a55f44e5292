//! Finds the target of a source in the source, through a view with other inode numbers.
//!
//! The walk of a source that contains its target would find whatever the copy creates there, and never end. Where a
//! file system can show directories of others, each directory costs one more statx, and more calls only if its time
//! of modification is near that of the target. Elsewhere, it costs nothing.

use super::Worker;
use crate::dirs::CopyDir;
use crate::view::shows_others;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Dir;
use ioloom_walk::NewDir;

/// Maximum difference of the times of modification of one directory that a cache reports, in seconds.
const CACHED_SECONDS_MAX: u64 = 120;

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
        let file_systems = &self.context.file_systems;
        if !target_shows && !file_systems.shows_others(found.device, from) {
            return false;
        }
        let to = &self.roots.to[new.root];
        let above = &self.roots.parents[to.parent].dir;
        let Ok(now) = attr::of_name(above, &to.name, false) else { return false };
        if now.modified.0.abs_diff(found.modified.0) > CACHED_SECONDS_MAX {
            return false;
        }
        let Ok(target) = above.open_child_path_only(&to.name, false) else { return false };
        file_systems.is_same(from, &target, now.device)
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

//! Counts the bytes to copy with a separate walk that runs in parallel with the copy.
//!
//! The count excludes files whose target is kept, files on excluded file systems, and further names
//! of a file that become hard links. Because the copy is already running, a target counts as
//! existing only if it has not changed since the copy started. The cost is one stat per file, plus
//! one for its target with [`Existing::Keep`] and [`Existing::Update`]. Files completed by an
//! earlier copy are included, and files that are kept because a server or FUSE exports FAT: asking would write.

use crate::newer;
use crate::options::{CopyOptions, Existing, Follow};
use crate::target::{self, Target};
use ioloom_sys::attr::{self, Time};
use ioloom_sys::dir::Dir;
use ioloom_walk::{Control, DirRef, Fields, Found, Kind, Meta, NewDir, Visitor, Walk};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts the bytes that a copy of `sources` to `target`, started at `since`, has to transfer.
/// Returns `None` if `stop` was set or if the count cannot be computed. Skips unreadable files.
pub fn bytes_to_copy(
    sources: &[PathBuf],
    target: &Target,
    options: &CopyOptions,
    since: SystemTime,
    stop: &Arc<AtomicBool>,
) -> Option<u64> {
    let since = since.duration_since(UNIX_EPOCH).ok()?;
    let walk = Walk {
        fields: Fields::BYTES | Fields::LINKS | Fields::MTIME,
        follow: options.follow,
        cancel: Some(stop.clone()),
        ..Walk::default()
    };
    let mut counting = Counting {
        options,
        targets: target::targets_of(sources, target),
        since: (since.as_secs() as i64, since.subsec_nanos()),
        met: HashSet::new(),
        bytes: 0,
    };
    let walked = walk.run_here(sources, &mut counting).ok()?;
    (!walked.stopped).then_some(counting.bytes)
}

struct Counting<'a> {
    options: &'a CopyOptions,
    /// The target of each source.
    targets: Vec<PathBuf>,
    since: Time,
    /// Files with several names that have been counted.
    met: HashSet<((u32, u32), u64)>,
    bytes: u64,
}

/// A directory being counted.
struct Counted {
    /// The device of the source.
    device: (u32, u32),
    /// The target, if existing targets affect the count.
    target: Option<PathBuf>,
}

impl Counting<'_> {
    /// Returns true if existing targets affect the count.
    fn asks(&self) -> bool {
        matches!(self.options.existing, Existing::Keep | Existing::Update)
    }

    /// Returns true if the target of a file is kept.
    fn stays(&self, source: &Meta, target: &Path) -> bool {
        let Ok(there) = attr::of_path(target, false) else { return false };
        let was_there = there.changed < self.since;
        let is_fat = || {
            let above = target.parent().filter(|above| !above.as_os_str().is_empty());
            let above = Dir::open_path_only(above.unwrap_or(Path::new(".")));
            above.is_ok_and(|above| newer::is_on_fat(&above))
        };
        let cuts = self.options.preserve.times;
        let is_newer = || newer::is_newer(source.mtime, &there, cuts, is_fat);
        was_there && (self.options.existing == Existing::Keep || !is_newer())
    }

    fn add(&mut self, found: &Found<'_>, target: impl FnOnce() -> Option<PathBuf>, linked: bool) {
        let Some(meta) = found.meta.filter(|meta| meta.kind == Kind::Regular) else { return };
        if self.asks() && target().is_some_and(|target| self.stays(meta, &target)) {
            return;
        }
        let again = self.options.preserve.links
            && (meta.links > 1 || linked)
            && !self.met.insert((meta.device, meta.inode));
        if !again {
            self.bytes += meta.bytes;
        }
    }
}

impl Visitor for Counting<'_> {
    type Dir = Counted;

    fn enter(&mut self, dir: &NewDir<'_, Counted>) -> Option<Counted> {
        let device = dir.meta.map_or((0, 0), |meta| meta.device);
        let below = dir.parent.map(|parent| parent.data());
        let elsewhere = below.is_some_and(|below| below.device != device);
        if !self.options.recursive || self.options.one_file_system && elsewhere {
            return None;
        }
        let target = match below {
            None => self.asks().then(|| self.targets[dir.root].clone()),
            Some(below) => below.target.as_ref().map(|at| at.join(OsStr::from_bytes(dir.name))),
        };
        Some(Counted { device, target })
    }

    fn entry(&mut self, dir: DirRef<'_, Counted>, found: &Found<'_>) -> Control {
        let target = || Some(dir.data().target.as_ref()?.join(OsStr::from_bytes(found.name)));
        self.add(found, target, self.options.follow == Follow::Always);
        Control::Continue
    }

    fn root_entry(&mut self, root: usize, _path: &Path, found: &Found<'_>) -> Control {
        let target = self.targets[root].clone();
        self.add(found, || Some(target), self.options.follow != Follow::Never);
        Control::Continue
    }
}

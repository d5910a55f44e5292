//! The worker as the visitor of a walk.

use super::Worker;
use super::directory::{into_itself, not_recursive};
use super::location::Location;
use crate::dirs::{CopyDir, new_target_path, shown_source};
use crate::error::CopyError;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::dir::Kind;
use ioloom_walk::{Control, DirRef, Found, NewDir, Visitor};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Worker<'_> {
    /// Returns true if a directory in the source has the hidden name of one that this copy creates. Through another view,
    /// such as an overlay, it has another identity.
    fn is_own_hidden(&self, new: &NewDir<'_, CopyDir>) -> bool {
        let in_target = new.parent.is_some_and(|above| !above.data().absent);
        in_target && self.context.is_hidden_dir(new.name)
    }
}

impl Visitor for Worker<'_> {
    type Dir = CopyDir;

    fn wants(&mut self, dir: DirRef<'_, CopyDir>, _name: &[u8], _kind: Kind) -> bool {
        !dir.data().empty
    }

    fn enter(&mut self, new: &NewDir<'_, CopyDir>) -> Option<CopyDir> {
        if self.context.cancelled() {
            return None;
        }
        if !self.context.options.recursive {
            self.context.failed(not_recursive(&new.path()));
            return None;
        }
        if self.context.alone && new.parent.is_some_and(|above| !self.is_elsewhere(new, above)) {
            return None;
        }
        if self.is_own_hidden(new) {
            let (from, to) = (&self.roots.from[new.root], &self.roots.to[new.root].path);
            self.context.failed(into_itself(from, to));
            return None;
        }
        match self.begin_dir(new) {
            Ok(Some(dir)) => {
                if dir.absent {
                    return Some(dir);
                }
                self.counts.directories += 1;
                self.context.progress.entries.fetch_add(1, Ordering::Relaxed);
                if self.context.watcher.wants_names() && !dir.made.is_old {
                    let to = new_target_path(self.roots, new);
                    let from = shown_source(self.roots, new.root, new.path());
                    self.context.watcher.copied(&from, &to, None);
                }
                Some(dir)
            }
            Ok(None) => {
                self.counts.skipped += 1;
                self.context.progress.entries.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => {
                self.context.failed(error);
                None
            }
        }
    }

    fn entry(&mut self, dir: DirRef<'_, CopyDir>, found: &Found<'_>) -> Control {
        self.entry_of(Location::In(dir), found.name, found.kind)
    }

    fn root_entry(&mut self, root: usize, path: &Path, found: &Found<'_>) -> Control {
        self.entry_of(Location::Root(root, path), found.name, found.kind)
    }

    fn leave(&mut self, dir: DirRef<'_, CopyDir>) {
        if let Err(error) = self.end_dir(dir) {
            self.context.failed(error);
        }
        let above = dir.parent().filter(|_| dir.data().hidden_name.is_none());
        if let Some(above) = above.filter(|above| above.data().hidden) {
            above.data().tally.add_all(&dir.data().tally);
        }
        self.close_pair(dir);
    }

    fn failed(&mut self, _dir: Option<DirRef<'_, CopyDir>>, error: &PathError) {
        let source = match error.source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => error.source.kind().into(),
        };
        self.context.failed(CopyError::io(error.operation, error.path.clone(), source));
    }

    fn vanished(&mut self, dir: DirRef<'_, CopyDir>, name: &[u8]) {
        let path = dir.path_of(name);
        self.context.failed(CopyError::io(Operation::Stat, path, Errno::NOENT.into()));
    }

    fn looped(&mut self, dir: DirRef<'_, CopyDir>, name: &[u8]) {
        let path = dir.path_of(name);
        let text = format!("cannot copy cyclic symbolic link {}", quoted(&path));
        self.context.failed(CopyError::whole(&path, text));
    }
}

//! The worker as the visitor of a walk.

use super::location::Location;
use super::{CopyDir, Worker, locked};
use crate::dirs::new_target_path;
use crate::error::CopyError;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir::Kind;
use ioloom_walk::{Control, DirRef, Found, NewDir, Visitor};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Visitor for Worker<'_> {
    type Dir = CopyDir;

    fn wants(&mut self, dir: DirRef<'_, CopyDir>, _name: &[u8], _kind: Kind) -> bool {
        !dir.data().empty
    }

    fn enter(&mut self, new: &NewDir<'_, CopyDir>) -> Option<CopyDir> {
        if self.context.ends() {
            return None;
        }
        if !self.context.options.recursive {
            let why = "it is a directory; use -r to copy it and its contents";
            self.failed(CopyError::cannot(Operation::Copy, &new.path(), why));
            return None;
        }
        match self.begin_dir(new) {
            Ok(dir) => {
                self.counts.directories += 1;
                self.context.progress.entries.fetch_add(1, Ordering::Relaxed);
                if self.context.watcher.wants_names() {
                    let to = new_target_path(self.roots, new);
                    self.context.watcher.copied(&new.path(), &to);
                }
                Some(dir)
            }
            Err(error) => {
                self.failed(error);
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
            self.failed(error);
        }
        if let Some(above) = dir.parent().filter(|_| dir.data().hidden_name.is_none()) {
            above.data().add_bytes(dir.data().bytes.load(Ordering::Relaxed));
        }
        if self.last_pair.as_ref().is_some_and(|(at, _)| *at == dir.data().id) {
            self.last_pair = None;
        }
        if locked(&dir.data().pair).take().is_some() {
            self.dirs.pairs.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn failed(&mut self, _dir: Option<DirRef<'_, CopyDir>>, error: &PathError) {
        let source = match error.source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => error.source.kind().into(),
        };
        Worker::failed(self, CopyError::io(error.operation, error.path.clone(), source));
    }

    fn looped(&mut self, dir: DirRef<'_, CopyDir>, name: &[u8]) {
        let why = "it contains itself through a symbolic link";
        self.failed(CopyError::cannot(Operation::Copy, &dir.path_of(name), why));
    }
}

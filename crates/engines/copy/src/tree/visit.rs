//! The worker as the visitor of a walk: what is told to it, in the words of a copy.

use super::{At, CopyDir, Worker, locked};
use crate::dirs::new_target_path;
use crate::error::CopyError;
use ioloom_failure::PathError;
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
        if self.run.ends() {
            return None;
        }
        if !self.run.options.recursive {
            let why = "it is a directory; give -r to copy it with all that is in it";
            self.failed(CopyError::cannot("copy", &new.path(), why));
            return None;
        }
        match self.begin(new) {
            Ok(dir) => {
                self.counts.directories += 1;
                self.run.progress.entries.fetch_add(1, Ordering::Relaxed);
                if self.run.watcher.wants_names() {
                    let to = new_target_path(self.roots, new);
                    self.run.watcher.copied(&new.path(), &to);
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
        self.entry_of(At::In(dir), found.name, found.kind)
    }

    fn root_entry(&mut self, root: usize, path: &Path, found: &Found<'_>) -> Control {
        self.entry_of(At::Root(root, path), found.name, found.kind)
    }

    fn leave(&mut self, dir: DirRef<'_, CopyDir>) {
        if let Err(error) = self.end(dir) {
            self.failed(error);
        }
        if let Some(above) = dir.parent().filter(|_| dir.data().hidden_name.is_none()) {
            above.data().holds(dir.data().bytes.load(Ordering::Relaxed));
        }
        if self.at.as_ref().is_some_and(|(at, _)| *at == dir.data().id) {
            self.at = None;
        }
        if locked(&dir.data().pair).take().is_some() {
            self.held.pairs.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn failed(&mut self, _dir: Option<DirRef<'_, CopyDir>>, error: &PathError) {
        let source = match error.source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => error.source.kind().into(),
        };
        Worker::failed(self, CopyError::io(error.operation.verb(), error.path.clone(), source));
    }

    fn looped(&mut self, dir: DirRef<'_, CopyDir>, name: &[u8]) {
        let why = "it lies within itself";
        self.failed(CopyError::cannot("copy", &dir.path_of(name), why));
    }
}

//! Opens roots and waiting directories, and handles those that do not open.

use crate::node::{Node, path_from};
use crate::task::{DirTask, Task};
use crate::visit::{Control, DirRef, Found, NewDir, Visitor};
use crate::walk::Follow;
use crate::worker::Worker;
use crate::{Fields, Meta};
use ioloom_failure::{Operation, is_out_of_descriptors};
use ioloom_sys::dir::{self, Dir, Kind};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Attempts to open a directory while there is no free descriptor, a millisecond apart.
const DESCRIPTOR_TRIES: u32 = 200;

impl<V: Visitor> Worker<'_, '_, V> {
    pub(crate) fn root(&mut self, index: usize, path: &Path) {
        let bytes = path.as_os_str().as_bytes();
        let follow = self.context.walk.follow != Follow::Never;
        let fields = self.dir_fields | Fields::IDENTITY;
        let meta = match dir::meta(bytes, follow, fields) {
            // With all links followed, a broken link is an entry itself.
            Err(e) if is_gone(&e) && self.context.walk.follow == Follow::Always => {
                dir::meta(bytes, false, fields)
            }
            meta => meta,
        };
        match meta {
            Err(error) => self.fail(None, Operation::Stat, path.to_owned(), error),
            Ok(meta) if meta.kind == Kind::Directory => self.root_dir(index, path, &meta),
            Ok(meta) => {
                let name = path.file_name().map_or(bytes, OsStrExt::as_bytes);
                let asked = (!self.fields.is_none()).then_some(&meta);
                let Meta { kind, inode, .. } = meta;
                let found = Found { name, kind, inode, meta: asked, linked: follow };
                self.part.entries += 1;
                if self.visitor.root_entry(index, path, &found) == Control::Stop {
                    self.context.pool.stop();
                }
            }
        }
    }

    fn root_dir(&mut self, index: usize, path: &Path, meta: &Meta) {
        let opened = self.open_patiently(false, || Dir::open(path));
        let meta = match &opened {
            // Opening it can mount a file system on it.
            Ok(dir) if !self.dir_fields.is_none() => match dir.meta(self.dir_fields) {
                Ok(meta) => Some(meta),
                Err(error) => return self.fail(None, Operation::Stat, path.to_owned(), error),
            },
            _ => (!self.dir_fields.is_none()).then_some(*meta),
        };
        let name = path.as_os_str().as_bytes();
        let new = NewDir { name, meta: meta.as_ref(), parent: None, root: index, linked: false };
        let Some(data) = self.visitor.enter(&new) else { return };
        let node = Node::new(None, name.into(), index as u32, meta, data);
        self.part.directories += 1;
        self.read(node, opened);
    }

    /// Opens, enters and reads a directory that was found.
    pub(crate) fn directory(&mut self, task: DirTask<V::Dir>) {
        let opened = match self.open(&task) {
            // The first worker opens it when the others have closed their directories.
            Err(e) if is_out_of_descriptors(&e) && self.yields() => {
                return self.local.push(Task::Dir(task));
            }
            opened => opened,
        };
        let (parent, linked) = (task.parent.clone(), task.linked);
        let meta = match &opened {
            Ok(dir) if !self.dir_fields.is_none() => dir.meta(self.dir_fields).map(Some),
            Ok(_) => Ok(None),
            Err(_) => self.meta_unopened(&task),
        };
        let gone = |e: &io::Error| is_gone(e);
        if opened.as_ref().is_err_and(gone) || meta.as_ref().is_err_and(gone) {
            self.part.vanished += 1;
            self.visitor.vanished(DirRef(&parent), task.name.to_bytes());
            return self.finish(parent);
        }
        let meta = match meta {
            Ok(meta) => meta,
            // Without search permission on the parent, it can be neither opened nor queried.
            Err(error) if opened.is_ok() || !self.dir_fields.is_none() => {
                return self.lost(&task, Operation::Stat, error);
            }
            Err(_) => None,
        };
        if meta.is_some_and(|meta| meta.kind != Kind::Directory) {
            // The directory was replaced after its name was read.
            let error = opened.err().unwrap_or_else(|| io::ErrorKind::NotADirectory.into());
            return self.lost(&task, Operation::OpenDir, error);
        }
        if self.context.walk.follow == Follow::Always && meta.is_some_and(|m| parent.is_within(&m))
        {
            self.part.loops += 1;
            self.visitor.looped(DirRef(&parent), task.name.to_bytes());
            return self.finish(parent);
        }
        let new = NewDir {
            name: task.name.to_bytes(),
            meta: meta.as_ref(),
            parent: Some(DirRef(&parent)),
            root: parent.root as usize,
            linked,
        };
        let Some(data) = self.visitor.enter(&new) else { return self.finish(parent) };
        let DirTask { parent, name, via, .. } = task;
        drop(via);
        let root = parent.root;
        let name = name.into_bytes().into_boxed_slice();
        self.part.directories += 1;
        self.read(Node::new(Some(parent), name, root, meta, data), opened);
    }

    /// Records a directory that cannot be entered as an error of its parent.
    fn lost(&mut self, task: &DirTask<V::Dir>, operation: Operation, error: io::Error) {
        let parent = Arc::clone(&task.parent);
        let path = path_from(parent.whole_path(task.name.to_bytes()));
        self.fail(Some(&parent), operation, path, error);
        self.finish(parent);
    }

    /// Returns what is known of a directory that cannot be opened.
    fn meta_unopened(&mut self, task: &DirTask<V::Dir>) -> io::Result<Option<Meta>> {
        let fields = self.dir_fields | Fields::IDENTITY;
        let asked = match &task.via {
            Some(held) => held.dir.meta_at(&task.name, task.linked, fields),
            None => {
                let path = task.parent.whole_path(task.name.to_bytes());
                dir::meta(&path, task.linked, fields)
            }
        };
        asked.map(Some)
    }

    fn open(&mut self, task: &DirTask<V::Dir>) -> io::Result<Dir> {
        let (follow, yields) = (self.context.walk.follow, self.yields());
        self.open_patiently(yields, || match &task.via {
            Some(held) => held.dir.open_child(&task.name, task.linked, true),
            None => reopen(&task.parent, &task.name, task.linked, follow),
        })
    }

    /// Retries when the process has no descriptors left, after closing what is not needed. Gives
    /// up after the first attempt if this worker yields.
    fn open_patiently(
        &mut self,
        yields: bool,
        open: impl Fn() -> io::Result<Dir>,
    ) -> io::Result<Dir> {
        let held_dirs = &self.context.held_dirs;
        let mut tries = 0;
        loop {
            match open() {
                Err(e) if is_out_of_descriptors(&e) => {
                    held_dirs.exhaust();
                    self.save_descriptors();
                    let most = if held_dirs.gave_up() { 1 } else { DESCRIPTOR_TRIES };
                    if tries > 0 && yields {
                        return Err(e);
                    }
                    if tries >= most {
                        held_dirs.waited(true);
                        return Err(e);
                    }
                    if tries > 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    tries += 1;
                }
                opened => {
                    if tries > 0 {
                        held_dirs.waited(false);
                    }
                    return opened;
                }
            }
        }
    }

    /// Reports whether this worker hands its tasks to the first one, which walks alone after the
    /// descriptors ran out.
    fn yields(&self) -> bool {
        !self.is_first() && !self.context.pool.stopped()
    }
}

/// Opens a directory whose parent is no longer open, by its path from the root. The path may lead
/// through symbolic links only if all links are followed.
fn reopen<D>(parent: &Node<D>, name: &CStr, linked: bool, follow: Follow) -> io::Result<Dir> {
    let mut path = Vec::new();
    parent.write_path(&mut path);
    let mut above = Dir::open(&path_from(parent.root_path().to_vec()))?;
    if follow == Follow::Always {
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            above = above.open_child(&CString::new(name)?, true, true)?;
        }
    } else if let Some((_slash, path)) = path.split_last() {
        above = above.open_below(path)?;
    }
    above.open_child(name, linked, true)
}

/// Opens a directory again by its path.
pub(crate) fn reopen_node<D>(node: &Node<D>, follow: Follow) -> io::Result<Dir> {
    match &node.parent {
        Some(parent) => {
            reopen(parent, &CString::new(&*node.name)?, follow == Follow::Always, follow)
        }
        None => Dir::open(&path_from(node.name.to_vec())),
    }
}

/// Reports whether a path no longer exists.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

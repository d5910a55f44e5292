//! One worker: its stack of directories, and the reading of one directory.

use crate::error::Errors;
use crate::node::{Node, path_from};
use crate::run::{Follow, Ground};
use crate::visit::{Control, DirRef, Found, NewDir, Visitor};
use crate::watch::Gauge;
use crate::{Fields, Meta, Method, WalkError};
use ioloom_sys::dir::{self, BUFFER_BYTES, Block, Dir, Kind, Record, Records};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of records that are worth a gift: about 16 names.
const SPLIT_BYTES_MIN: usize = 16 * 32;

/// Entries between two looks at the outside: the cancel flag, the clock.
const LOOK_ENTRIES: u32 = 64;

/// How often an open that finds no free descriptor is tried, a millisecond apart.
const DESCRIPTOR_TRIES: u32 = 200;

/// Directories that may be held open for their children.
#[derive(Debug)]
pub(crate) struct Holds {
    held: AtomicUsize,
    most: AtomicUsize,
    squeezed: AtomicBool,
}

impl Holds {
    pub(crate) fn new(most: usize) -> Self {
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(most));
        Self { held, most, squeezed: AtomicBool::new(false) }
    }

    fn try_hold(self: &Arc<Self>) -> Option<Arc<Self>> {
        if self.held.fetch_add(1, Ordering::Relaxed) < self.most.load(Ordering::Relaxed) {
            return Some(Arc::clone(self));
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// The process has no descriptors left: from now on none is held.
    fn squeeze(&self) {
        self.most.store(0, Ordering::Relaxed);
        self.squeezed.store(true, Ordering::Relaxed);
    }
}

/// An open directory; counted while children may be opened through it.
#[derive(Debug)]
pub(crate) struct Held {
    dir: Dir,
    counted: Option<Arc<Holds>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(holds) = &self.counted {
            holds.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A directory that was found and waits.
pub(crate) struct DirTask<D> {
    parent: Arc<Node<D>>,
    name: CString,
    /// The open parent, if it could be held.
    via: Option<Arc<Held>>,
    linked: bool,
}

/// Names of a wide directory that wait for another worker.
pub(crate) struct PartTask<D> {
    node: Arc<Node<D>>,
    held: Arc<Held>,
    records: Box<[u8]>,
}

pub(crate) enum Task<D> {
    Dir(DirTask<D>),
    Part(PartTask<D>),
}

/// What one worker counted.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) entries: u64,
    pub(crate) directories: u64,
    pub(crate) vanished: u64,
    pub(crate) loops: u64,
    pub(crate) errors: Errors,
    pub(crate) stopped: bool,
    pub(crate) ring_workers: Option<usize>,
}

pub(crate) struct Worker<'a, 'w, V: Visitor> {
    ground: &'a Ground<'w, V::Dir>,
    number: usize,
    visitor: &'a mut V,
    /// Starts another worker.
    start: &'a dyn Fn(usize),
    local: Vec<Task<V::Dir>>,
    block: Option<Block>,
    path: Vec<u8>,
    part: Part,
    until_look: u32,
    /// What is asked about files and about directories.
    fields: Fields,
    dir_fields: Fields,
    let_go: bool,
    gauge: Option<Gauge>,
}

impl<'a, 'w, V: Visitor> Worker<'a, 'w, V> {
    pub(crate) fn new(
        ground: &'a Ground<'w, V::Dir>,
        number: usize,
        visitor: &'a mut V,
        start: &'a dyn Fn(usize),
    ) -> Self {
        let names_only = ground.walk.method == Method::NamesOnly;
        let fields = if names_only { Fields::NONE } else { ground.walk.fields };
        let mut dir_fields = fields;
        if ground.walk.follow == Follow::Always {
            dir_fields = dir_fields | Fields::IDENTITY;
        }
        Self {
            ground,
            number,
            visitor,
            start,
            local: Vec::new(),
            block: None,
            path: Vec::new(),
            part: Part::default(),
            until_look: LOOK_ENTRIES,
            fields,
            dir_fields,
            let_go: false,
            gauge: ground.watch.is_some().then(Gauge::new),
        }
    }

    pub(crate) fn run(mut self) -> Part {
        loop {
            self.look();
            if let Some(task) = self.local.pop() {
                self.task(task);
            } else if self.ground.pool.try_take(self.number, &mut self.local) {
                continue;
            } else if let Some((index, path)) = self.next_root() {
                self.root(index, path);
            } else if !self.wait() {
                break;
            }
            self.share_tasks();
        }
        self.part.stopped = self.ground.pool.stopped();
        self.part
    }

    /// Waits for tasks of others; false when all is over.
    fn wait(&mut self) -> bool {
        let since = self.gauge.is_some().then(Instant::now);
        let goes_on = self.ground.pool.take(self.number, &mut self.local);
        if let (Some(gauge), Some(since)) = (&mut self.gauge, since) {
            gauge.was_hungry(since);
        }
        goes_on
    }

    fn next_root(&self) -> Option<(usize, &'w Path)> {
        let feeds = self.number < self.ground.pool.active();
        (feeds && !self.ground.pool.stopped()).then(|| self.ground.take_root()).flatten()
    }

    /// Looks at what comes from outside, now and then.
    fn look(&mut self) {
        self.until_look = LOOK_ENTRIES;
        if self.ground.walk.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed)) {
            self.ground.pool.stop();
        }
        if let (Some(gauge), Some(watch)) = (&mut self.gauge, &self.ground.watch)
            && let Some(active) = gauge.look(watch, self.part.entries)
            && active != self.ground.pool.active()
        {
            self.ground.pool.set_active(active);
        }
        if !self.let_go && self.ground.holds.squeezed.load(Ordering::Relaxed) {
            self.let_go_of_parents();
        }
    }

    fn task(&mut self, task: Task<V::Dir>) {
        match task {
            Task::Dir(task) if self.ground.pool.stopped() => {
                task.parent.miss();
                self.finish(task.parent);
            }
            Task::Dir(task) => self.directory(task),
            Task::Part(PartTask { node, held, records }) => {
                self.entries(&node, &held, &mut Records::new(&records));
                drop(held);
                self.visitor.part(DirRef(&node));
                self.finish(node);
            }
        }
    }

    /// One part or subdirectory of `node` is done; leaves it if it was the last, and so on upward.
    fn finish(&mut self, node: Arc<Node<V::Dir>>) {
        let mut at = node;
        while at.end() {
            self.visitor.leave(DirRef(&at));
            let Some(parent) = at.parent.clone() else { break };
            if !at.is_whole() {
                parent.miss();
            }
            at = parent;
        }
    }

    // ---- giving away

    /// Gives the oldest half of the tasks away while somebody is hungry; all, if this worker is to
    /// rest.
    fn share_tasks(&mut self) {
        let pool = &self.ground.pool;
        if self.local.is_empty() {
            return;
        }
        let give = if self.number >= pool.active() && !pool.stopped() {
            self.local.len()
        } else if pool.hungry() > 0 {
            self.local.len() / 2
        } else {
            return;
        };
        if give > 0 {
            let born = pool.give(self.local.drain(..give));
            self.bear(born);
        }
    }

    fn bear(&self, born: Option<usize>) {
        if let Some(number) = born {
            (self.start)(number);
        }
    }

    /// Somebody is hungry while this worker reads a directory: gives half of the tasks, the last one
    /// too, or half of the names that are left.
    #[cold]
    fn share_within(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        records: &mut Records<'_>,
    ) {
        let half = self.local.len().div_ceil(2);
        let born = if half > 0 {
            self.ground.pool.give(self.local.drain(..half))
        } else if let Some(later) = records.split(SPLIT_BYTES_MIN) {
            self.ground.pool.give([part_of(node, held, later.into())])
        } else {
            None
        };
        self.bear(born);
    }

    // ---- opening

    fn root(&mut self, index: usize, path: &Path) {
        let bytes = path.as_os_str().as_bytes();
        let follow = self.ground.walk.follow != Follow::Never;
        let fields = self.dir_fields | Fields::IDENTITY;
        let meta = match dir::meta(bytes, follow, fields) {
            // A link that leads nowhere is an entry of its own when all links are followed.
            Err(e) if is_gone(&e) && self.ground.walk.follow == Follow::Always => {
                dir::meta(bytes, false, fields)
            }
            meta => meta,
        };
        match meta {
            Err(error) => self.fail(None, "ask for", path.to_owned(), error),
            Ok(meta) if meta.kind == Kind::Directory => self.root_dir(index, path, &meta),
            Ok(meta) => {
                let name = path.file_name().map_or(bytes, OsStrExt::as_bytes);
                let asked = (!self.fields.is_none()).then_some(&meta);
                let found = Found { name, kind: meta.kind, inode: meta.inode, meta: asked };
                self.part.entries += 1;
                if self.visitor.root_entry(index, path, &found) == Control::Stop {
                    self.ground.pool.stop();
                }
            }
        }
    }

    fn root_dir(&mut self, index: usize, path: &Path, meta: &Meta) {
        let opened = self.open_patiently(|| Dir::open(path));
        let meta = (!self.dir_fields.is_none()).then_some(meta);
        let name = path.as_os_str().as_bytes();
        let new = NewDir { name, meta, parent: None, root: index, linked: false };
        let Some(data) = self.visitor.enter(&new) else { return };
        let node = Node::new(None, name.into(), index as u32, meta.copied(), data);
        self.part.directories += 1;
        self.read(node, opened);
    }

    fn directory(&mut self, task: DirTask<V::Dir>) {
        let opened = self.open(&task);
        let (parent, linked) = (task.parent.clone(), task.linked);
        let meta = match &opened {
            Ok(dir) if !self.dir_fields.is_none() => dir.meta(self.dir_fields).map(Some),
            Ok(_) => Ok(None),
            Err(_) => self.meta_unopened(&task),
        };
        let gone = |e: &io::Error| is_gone(e);
        if opened.as_ref().is_err_and(gone) || meta.as_ref().is_err_and(gone) {
            self.part.vanished += 1;
            return self.finish(parent);
        }
        let meta = match (meta, &opened) {
            (Ok(meta), _) => meta,
            (Err(_), Err(_)) => None,
            (Err(error), Ok(_)) => return self.lost(&task, "ask for", error),
        };
        if meta.is_some_and(|meta| meta.kind != Kind::Directory) {
            // It was replaced after its name was read.
            let error = opened.err().unwrap_or_else(|| io::ErrorKind::NotADirectory.into());
            return self.lost(&task, "open directory", error);
        }
        if self.ground.walk.follow == Follow::Always && meta.is_some_and(|m| parent.is_within(&m)) {
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

    /// A directory that cannot be entered is an error of the one it lies in.
    fn lost(&mut self, task: &DirTask<V::Dir>, operation: &'static str, error: io::Error) {
        let parent = Arc::clone(&task.parent);
        let path = path_from(parent.whole_path(task.name.to_bytes()));
        self.fail(Some(&parent), operation, path, error);
        self.finish(parent);
    }

    /// What is known of a directory that does not open.
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
        let follow = self.ground.walk.follow;
        self.open_patiently(|| match &task.via {
            Some(held) => held.dir.open_child(&task.name, task.linked, true),
            None => reopen(&task.parent, &task.name, task.linked, follow),
        })
    }

    /// Tries again for a while when the process has no descriptors left, after letting go of what
    /// can be reopened.
    fn open_patiently(&mut self, open: impl Fn() -> io::Result<Dir>) -> io::Result<Dir> {
        let mut tries = 0;
        loop {
            match open() {
                Err(e) if is_out_of_descriptors(&e) && tries < DESCRIPTOR_TRIES => {
                    self.ground.holds.squeeze();
                    self.let_go_of_parents();
                    if tries > 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    tries += 1;
                }
                opened => return opened,
            }
        }
    }

    fn let_go_of_parents(&mut self) {
        self.let_go = true;
        for task in &mut self.local {
            if let Task::Dir(task) = task {
                task.via = None;
            }
        }
    }

    // ---- reading

    fn read(&mut self, node: Node<V::Dir>, opened: io::Result<Dir>) {
        let node = Arc::new(node);
        match opened {
            Err(error) => {
                self.fail(Some(&node), "open directory", path_from(node.whole_path(b"")), error);
            }
            Ok(dir) => {
                let held = Arc::new(Held { dir, counted: self.ground.holds.try_hold() });
                let mut block = self.block.take().unwrap_or_else(|| Block::new(BUFFER_BYTES));
                self.blocks(&node, &held, &mut block);
                self.block = Some(block);
                self.visitor.part(DirRef(&node));
            }
        }
        self.finish(node);
    }

    fn blocks(&mut self, node: &Arc<Node<V::Dir>>, held: &Arc<Held>, block: &mut Block) {
        loop {
            match block.fill(&held.dir) {
                Ok(true) => {}
                Ok(false) => return,
                // A directory that is removed while it is read has no more names.
                Err(error) if is_gone(&error) => return,
                Err(error) => {
                    let path = path_from(node.whole_path(b""));
                    return self.fail(Some(node), "read directory", path, error);
                }
            }
            if block.is_full() && self.local.is_empty() && self.ground.pool.hungry() > 0 {
                // A wide directory: this thread goes on reading names, others ask for them.
                let born = self.ground.pool.give([part_of(node, held, block.filled().into())]);
                self.bear(born);
                continue;
            }
            if !self.entries(node, held, &mut Records::new(block.filled())) {
                return;
            }
        }
    }

    /// Visits names; false when the walk is to end.
    fn entries(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        records: &mut Records<'_>,
    ) -> bool {
        if self.ground.walk.method == Method::Lstat {
            self.path = node.whole_path(b"");
            if self.path.last() != Some(&b'/') {
                self.path.push(b'/');
            }
        }
        while let Some(record) = records.next() {
            if self.ground.pool.stopped() {
                node.miss();
                return false;
            }
            if !self.entry(node, held, &record) {
                self.ground.pool.stop();
                node.miss();
                return false;
            }
            if self.ground.pool.hungry() > 0 {
                self.share_within(node, held, records);
            }
            self.until_look -= 1;
            if self.until_look == 0 {
                self.look();
            }
        }
        true
    }

    /// Visits one name; false when the visitor ends the walk.
    fn entry(&mut self, node: &Arc<Node<V::Dir>>, held: &Arc<Held>, record: &Record<'_>) -> bool {
        let name = record.name.to_bytes();
        if !self.visitor.wants(DirRef(node), name, record.kind) {
            return true;
        }
        let follow = record.kind == Kind::Symlink && self.ground.walk.follow == Follow::Always;
        match record.kind {
            Kind::Directory => {
                self.found_dir(node, held, record.name, false);
                return true;
            }
            Kind::Unknown => return self.entry_unknown(node, held, record),
            _ if follow => return self.entry_linked(node, held, record),
            _ => {}
        }
        if self.fields.is_none() {
            let (kind, inode) = (record.kind, record.inode);
            self.part.entries += 1;
            let found = Found { name, kind, inode, meta: None };
            return self.visitor.entry(DirRef(node), &found) == Control::Continue;
        }
        let meta = match self.ground.walk.method {
            Method::Lstat => self.lstat(held, record.name),
            _ => held.dir.meta_at(record.name, false, self.fields),
        };
        self.answered(node, held, record.name, meta, false)
    }

    /// What was asked of a name is here.
    fn answered(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        name: &CStr,
        meta: io::Result<Meta>,
        linked: bool,
    ) -> bool {
        match meta {
            Ok(meta) if meta.kind == Kind::Directory => {
                self.found_dir(node, held, name, linked);
                true
            }
            Ok(meta) => {
                self.part.entries += 1;
                let asked = (!self.fields.is_none()).then_some(&meta);
                let name = name.to_bytes();
                let found = Found { name, kind: meta.kind, inode: meta.inode, meta: asked };
                self.visitor.entry(DirRef(node), &found) == Control::Continue
            }
            Err(error) if is_gone(&error) => {
                self.part.vanished += 1;
                true
            }
            Err(error) => {
                let path = path_from(node.whole_path(name.to_bytes()));
                self.fail(Some(node), "ask for", path, error);
                true
            }
        }
    }

    #[cold]
    fn entry_unknown(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        record: &Record<'_>,
    ) -> bool {
        match held.dir.meta_at(record.name, false, self.fields | Fields::IDENTITY) {
            Ok(meta) if meta.kind == Kind::Symlink && self.ground.walk.follow == Follow::Always => {
                self.entry_linked(node, held, record)
            }
            meta => self.answered(node, held, record.name, meta, false),
        }
    }

    fn entry_linked(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        record: &Record<'_>,
    ) -> bool {
        let fields = self.fields | Fields::IDENTITY;
        let meta = match held.dir.meta_at(record.name, true, fields) {
            Err(e) if is_gone(&e) => held.dir.meta_at(record.name, false, fields),
            meta => meta,
        };
        self.answered(node, held, record.name, meta, true)
    }

    fn lstat(&mut self, held: &Held, name: &CStr) -> io::Result<Meta> {
        let base = self.path.len();
        self.path.extend_from_slice(name.to_bytes());
        let meta = dir::meta(&self.path, false, self.fields);
        self.path.truncate(base);
        match meta {
            Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
                held.dir.meta_at(name, false, self.fields)
            }
            meta => meta,
        }
    }

    fn found_dir(&mut self, node: &Arc<Node<V::Dir>>, held: &Arc<Held>, name: &CStr, linked: bool) {
        node.begin();
        let via = held.counted.is_some().then(|| Arc::clone(held));
        let parent = Arc::clone(node);
        self.local.push(Task::Dir(DirTask { parent, name: name.to_owned(), via, linked }));
    }

    fn fail(
        &mut self,
        node: Option<&Arc<Node<V::Dir>>>,
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    ) {
        let error = WalkError { operation, path, source };
        if let Some(node) = node {
            node.miss();
        }
        self.visitor.failed(node.map(DirRef), &error);
        self.part.errors.add(error);
    }
}

fn part_of<D>(node: &Arc<Node<D>>, held: &Arc<Held>, records: Box<[u8]>) -> Task<D> {
    node.begin();
    Task::Part(PartTask { node: Arc::clone(node), held: Arc::clone(held), records })
}

/// Opens a directory whose parent is not open any more, from the root by its path. Only if all
/// links are followed may the path lead through one.
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

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    // EMFILE and ENFILE.
    matches!(error.raw_os_error(), Some(23 | 24))
}

//! The stacks of waiting directories and the threads that empty them.
//!
//! Each worker takes the directory it found last, so that what waits stays small. When others have
//! nothing to do (`hungry`), it gives away the older half of what it holds. A directory stays open
//! only while children wait that were found when a descriptor was free; the others are opened from
//! the root by their path.

use crate::{Control, Entry, Options, Summary};
use ioloom_sys::dir::{Dir, DirEntry, Kind, ReadBuffer};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A directory by its name and its parent, so that deep paths share their beginnings.
struct Node {
    parent: Option<Arc<Node>>,
    name: Box<[u8]>,
}

impl Drop for Node {
    /// Lets go of the chain in a loop: by recursion a deep tree would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(parent) = next {
            next = Arc::into_inner(parent).and_then(|mut node| node.parent.take());
        }
    }
}

impl Node {
    /// Writes the path relative to the root, with a final slash; the root itself is empty.
    fn write_path(&self, path: &mut Vec<u8>) {
        path.clear();
        let mut bytes = 0;
        let mut at = Some(self);
        while let Some(node) = at {
            bytes += node.name.len() + usize::from(!node.name.is_empty());
            at = node.parent.as_deref();
        }
        path.resize(bytes, b'/');
        let mut end = bytes;
        let mut at = Some(self);
        while let Some(node) = at {
            if !node.name.is_empty() {
                let start = end - 1 - node.name.len();
                path[start..end - 1].copy_from_slice(&node.name);
                end = start;
            }
            at = node.parent.as_deref();
        }
    }
}

/// An open directory that counts against the limit while its children wait.
struct Held {
    dir: Dir,
    held: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Task {
    node: Arc<Node>,
    /// The open parent, if it could be held.
    via: Option<Arc<Held>>,
}

struct Shared<'a> {
    root: &'a Path,
    root_dir: Dir,
    descriptors_max: usize,
    held: Arc<AtomicUsize>,
    stack: Mutex<Vec<Task>>,
    changed: Condvar,
    /// Directories found and not yet finished; zero is the end.
    pending: AtomicUsize,
    hungry: AtomicUsize,
    stop: AtomicBool,
}

impl<'a> Shared<'a> {
    fn new(root: &'a Path, root_dir: Dir, options: &Options) -> Self {
        let node = Arc::new(Node { parent: None, name: Box::default() });
        Self {
            root,
            root_dir,
            descriptors_max: options.descriptors_max,
            held: Arc::default(),
            stack: Mutex::new(vec![Task { node, via: None }]),
            changed: Condvar::new(),
            pending: AtomicUsize::new(1),
            hungry: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    fn stack(&self) -> MutexGuard<'_, Vec<Task>> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next directory for a worker that has none; `None` when the walk is over.
    fn next(&self) -> Option<Task> {
        let mut stack = self.stack();
        self.hungry.fetch_add(1, Ordering::Relaxed);
        let task = loop {
            if self.stop.load(Ordering::Relaxed) || self.pending.load(Ordering::Acquire) == 0 {
                break None;
            }
            if let Some(task) = stack.pop() {
                break Some(task);
            }
            stack = self.changed.wait(stack).unwrap_or_else(PoisonError::into_inner);
        };
        self.hungry.fetch_sub(1, Ordering::Relaxed);
        task
    }

    fn finish_one(&self) {
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        // Under the lock, so that no worker is between its check and its wait.
        let _stack = self.stack();
        self.changed.notify_all();
    }
}

/// Ends the walk for all when its worker panics, so that no other waits for ever.
struct Alarm<'a, 'r>(&'a Shared<'r>);

impl Drop for Alarm<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
            self.0.wake_all();
        }
    }
}

struct Worker<'a, 'r> {
    shared: &'a Shared<'r>,
    local: Vec<Task>,
    buffer: ReadBuffer,
    path: Vec<u8>,
    summary: Summary,
}

impl<'a, 'r> Worker<'a, 'r> {
    fn new(shared: &'a Shared<'r>) -> Self {
        Self {
            shared,
            local: Vec::new(),
            buffer: ReadBuffer::new(),
            path: Vec::new(),
            summary: Summary::default(),
        }
    }

    fn run(mut self, visit: &mut dyn FnMut(Entry<'_>) -> Control) -> Summary {
        let _alarm = Alarm(self.shared);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let Some(task) = self.local.pop().or_else(|| self.shared.next()) else { break };
            let goes_on = self.directory(task, visit);
            self.shared.finish_one();
            if !goes_on {
                self.summary.stopped = true;
                self.shared.stop.store(true, Ordering::Relaxed);
                self.shared.wake_all();
                break;
            }
            self.share();
        }
        self.summary
    }

    /// Gives the older half away while others have nothing.
    fn share(&mut self) {
        if self.local.len() > 1 && self.shared.hungry.load(Ordering::Relaxed) > 0 {
            let half = self.local.len() / 2;
            self.shared.stack().extend(self.local.drain(..half));
            self.shared.changed.notify_all();
        }
    }

    fn open(&self, task: &Task) -> io::Result<Dir> {
        match (&task.via, self.path.split_last()) {
            (Some(parent), _) => parent.dir.open_at(&task.node.name),
            (None, None) => self.shared.root_dir.open_at(b"."),
            (None, Some((_slash, path))) => self.shared.root_dir.open_below(path),
        }
    }

    /// Reads one directory; false when the visitor ends the walk.
    fn directory(&mut self, task: Task, visit: &mut dyn FnMut(Entry<'_>) -> Control) -> bool {
        task.node.write_path(&mut self.path);
        let opened = self.open(&task);
        let Task { node, via } = task;
        drop(via);
        let dir = match opened {
            Ok(dir) => dir,
            Err(error) => {
                self.fail("open directory", b"", error);
                return true;
            }
        };
        self.summary.directories += 1;
        let (first, base) = (self.local.len(), self.path.len());
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = dir.read(&mut buffer, &mut |entry| {
            let goes_on = self.entry(&dir, &node, entry, visit);
            self.path.truncate(base);
            goes_on
        });
        self.buffer = buffer;
        self.hold(dir, first);
        match result {
            Ok(goes_on) => goes_on,
            Err(error) => {
                self.fail("read directory", b"", error);
                true
            }
        }
    }

    fn entry(
        &mut self,
        dir: &Dir,
        node: &Arc<Node>,
        entry: DirEntry<'_>,
        visit: &mut dyn FnMut(Entry<'_>) -> Control,
    ) -> bool {
        let (mut kind, mut inode) = (entry.kind, entry.inode);
        if kind == Kind::Unknown {
            match dir.stat_at(entry.name) {
                Ok(stat) => (kind, inode) = (stat.kind, stat.inode),
                Err(error) => {
                    self.fail("ask for", entry.name, error);
                    return !self.shared.stop.load(Ordering::Relaxed);
                }
            }
        }
        match kind {
            Kind::Regular => {
                let name_at = self.path.len();
                self.path.extend_from_slice(entry.name);
                self.summary.files += 1;
                let control = visit(Entry { path: &self.path, name_at, inode });
                control == Control::Continue && !self.shared.stop.load(Ordering::Relaxed)
            }
            Kind::Directory => {
                self.shared.pending.fetch_add(1, Ordering::Relaxed);
                let node = Node { parent: Some(Arc::clone(node)), name: entry.name.into() };
                self.local.push(Task { node: Arc::new(node), via: None });
                true
            }
            other => {
                self.summary.skip(other, 1);
                true
            }
        }
    }

    /// Keeps the directory open for the children found in it, if the limit allows.
    fn hold(&mut self, dir: Dir, first: usize) {
        let shared = self.shared;
        if self.local.len() == first {
            return;
        }
        if shared.held.fetch_add(1, Ordering::Relaxed) >= shared.descriptors_max {
            shared.held.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let held = Arc::new(Held { dir, held: Arc::clone(&shared.held) });
        for task in &mut self.local[first..] {
            task.via = Some(Arc::clone(&held));
        }
    }

    fn fail(&mut self, operation: &'static str, name: &[u8], error: io::Error) {
        let relative = [&self.path, name].concat();
        let relative = relative.strip_suffix(b"/").unwrap_or(&relative);
        let path = match relative {
            b"" => self.shared.root.to_owned(),
            relative => self.shared.root.join(Path::new(OsStr::from_bytes(relative))),
        };
        self.summary.fail(operation, path, error);
    }
}

pub(crate) fn walk_alone(
    root: &Path,
    dir: Dir,
    options: &Options,
    visit: &mut dyn FnMut(Entry<'_>) -> Control,
) -> Summary {
    let shared = Shared::new(root, dir, options);
    let mut summary = Worker::new(&shared).run(visit);
    summary.base = PathBuf::from(root);
    summary
}

pub(crate) fn walk_together<S: Send>(
    root: &Path,
    dir: Dir,
    options: &Options,
    make: &impl Fn(usize) -> S,
    visit: &(impl Fn(&mut S, Entry<'_>) -> Control + Sync),
) -> (Vec<S>, Summary) {
    let shared = Shared::new(root, dir, options);
    let mut states: Vec<S> = (0..options.threads.max(1)).map(make).collect();
    let mut summary = Summary { base: PathBuf::from(root), ..Summary::default() };
    let work = |state: &mut S| Worker::new(&shared).run(&mut |entry| visit(state, entry));
    let (own, others) = states.split_at_mut(1);
    let panics = std::thread::scope(|scope| {
        let threads: Vec<_> = others
            .iter_mut()
            .map_while(|state| {
                // A thread that the system refuses is done without: its state stays empty.
                std::thread::Builder::new()
                    .name("ioloom-walk".to_owned())
                    .spawn_scoped(scope, || work(state))
                    .ok()
            })
            .collect();
        summary.merge(work(&mut own[0]));
        let mut panics = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(part) => summary.merge(part),
                Err(panic) => panics.push(panic),
            }
        }
        panics
    });
    if let Some(panic) = panics.into_iter().next() {
        std::panic::resume_unwind(panic);
    }
    summary.skipped.sort_by_key(|skipped| skipped.kind);
    (states, summary)
}

//! One worker: its stack of tasks, when it hands some over, and how a directory ends.

use crate::context::WalkContext;
use crate::held::HeldDir;
use crate::node::Node;
use crate::report::Part;
use crate::sweep_order::Batch;
use crate::task::{PartTask, Task};
use crate::visit::{DirRef, Visitor};
use crate::walk::Follow;
use crate::watch::WorkerClock;
use crate::{Fields, Method};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir::{Block, Records, StatRing, ring_workers};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Smallest size of records that is worth handing over: about 16 names.
const SPLIT_BYTES_MIN: usize = 16 * 32;

/// Entries between two checks of the cancel flag and the clock.
const POLL_ENTRIES: u32 = 64;

pub(crate) struct Worker<'a, 'w, V: Visitor> {
    pub(crate) context: &'a WalkContext<'w, V::Dir>,
    number: usize,
    pub(crate) visitor: &'a mut V,
    /// Starts the thread of another worker.
    start: &'a dyn Fn(usize),
    pub(crate) local: Vec<Task<V::Dir>>,
    pub(crate) block: Option<Block>,
    /// The path of a directory with a final slash, for methods that query by path.
    pub(crate) path: Vec<u8>,
    pub(crate) part: Part,
    until_poll: u32,
    /// Attributes to query for files and for directories.
    pub(crate) fields: Fields,
    pub(crate) dir_fields: Fields,
    by_path: bool,
    clock: Option<WorkerClock>,
    pub(crate) ring: Option<StatRing>,
    /// Names that wait for a sweep.
    pub(crate) batch: Batch<V::Dir>,
}

impl<'a, 'w, V: Visitor> Worker<'a, 'w, V> {
    pub(crate) fn new(
        context: &'a WalkContext<'w, V::Dir>,
        number: usize,
        visitor: &'a mut V,
        start: &'a dyn Fn(usize),
    ) -> Self {
        let names_only = context.walk.method == Method::NamesOnly;
        let fields = if names_only { Fields::NONE } else { context.walk.fields };
        let mut dir_fields = fields | context.walk.dir_fields;
        if context.walk.follow == Follow::Always {
            dir_fields = dir_fields | Fields::IDENTITY;
        }
        Self {
            context,
            number,
            visitor,
            start,
            local: Vec::new(),
            block: None,
            path: Vec::new(),
            part: Part::default(),
            until_poll: POLL_ENTRIES,
            fields,
            dir_fields,
            by_path: false,
            clock: context.watch.as_ref().map(WorkerClock::new),
            ring: None,
            batch: Batch::default(),
        }
    }

    pub(crate) fn run(mut self) -> Part {
        loop {
            self.poll();
            if let Some(task) = self.local.pop() {
                self.task(task);
            } else if self.context.pool.try_take(self.number, &mut self.local) {
                continue;
            } else if let Some((index, path)) = self.next_root() {
                self.root(index, path);
            } else if !self.wait() {
                break;
            }
            self.share_tasks();
        }
        self.part.stopped = self.context.pool.stopped();
        self.part.ring_workers = self.ring.is_some().then(ring_workers);
        self.part
    }

    /// Waits for tasks of other workers. Returns false when the walk is over.
    fn wait(&mut self) -> bool {
        self.hand_in_batch();
        if !self.local.is_empty() {
            return true;
        }
        let since = self.clock.is_some().then(Instant::now);
        let context = self.context;
        // With no task left anywhere, the names that wait become the last tasks.
        let refill = || {
            let Some(order) = context.batches.take_rest().map(Arc::new) else { return Vec::new() };
            let tasks = context.pool.active().min(order.chunks()).max(1);
            (0..tasks).map(|_| Task::Sweep(Arc::clone(&order))).collect()
        };
        let goes_on = context.pool.take(self.number, &mut self.local, refill);
        if let (Some(clock), Some(since)) = (&mut self.clock, since) {
            clock.was_idle(since);
        }
        goes_on
    }

    fn next_root(&self) -> Option<(usize, &'w Path)> {
        let feeds = self.number < self.context.pool.active();
        (feeds && !self.context.pool.stopped()).then(|| self.context.take_root()).flatten()
    }

    /// Checks the cancel flag, the clock and the limit of open directories.
    pub(crate) fn poll(&mut self) {
        self.until_poll = POLL_ENTRIES;
        if self.context.walk.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed)) {
            self.context.pool.stop();
        }
        if !self.by_path && self.context.held_dirs.is_exhausted() {
            self.save_descriptors();
        }
        if let (Some(clock), Some(watch)) = (&mut self.clock, &self.context.watch)
            && let Some(active) = clock.poll(watch, self.part.entries)
            && active != self.context.pool.active()
            && !self.context.held_dirs.is_exhausted()
        {
            self.context.pool.set_active(active);
        }
    }

    /// Counts an entry, and polls after every [`POLL_ENTRIES`].
    #[inline]
    pub(crate) fn step(&mut self) {
        self.until_poll -= 1;
        if self.until_poll == 0 {
            self.poll();
        }
    }

    /// Reports whether this is the worker of the calling thread, which always runs.
    pub(crate) fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Opens directories of this worker by their paths from now on, closes held parents, the worker's
    /// clock and its ring, and leaves the tasks to the first worker.
    pub(crate) fn save_descriptors(&mut self) {
        self.by_path = true;
        self.clock = None;
        self.ring = None;
        if self.context.pool.active() > 1 && !self.context.pool.stopped() {
            self.context.pool.set_active(1);
        }
        for task in &mut self.local {
            if let Task::Dir(task) = task {
                task.via = None;
            }
        }
    }

    fn task(&mut self, task: Task<V::Dir>) {
        match task {
            Task::Dir(task) if self.context.pool.stopped() => {
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
            Task::Sweep(order) => match &self.context.tables {
                Some(tables) => self.look_up(tables, &order),
                None => self.sweep(&order),
            },
        }
    }

    /// Finishes one part or subdirectory of `node`. Leaves the directory if it was the last one,
    /// then continues with its parent.
    pub(crate) fn finish(&mut self, node: Arc<Node<V::Dir>>) {
        self.finish_many(node, 1);
    }

    /// Finishes several parts at once.
    pub(crate) fn finish_many(&mut self, node: Arc<Node<V::Dir>>, parts: u32) {
        let (mut at, mut parts) = (node, parts);
        while at.end(parts) {
            self.visitor.leave(DirRef(&at));
            let Some(parent) = at.parent.clone() else { break };
            if !at.is_whole() {
                parent.miss();
            }
            (at, parts) = (parent, 1);
        }
    }

    // ---- handing over

    /// Hands over the oldest half of the tasks while workers are idle, or all of them if this
    /// worker is to rest.
    fn share_tasks(&mut self) {
        let pool = &self.context.pool;
        if self.local.is_empty() {
            return;
        }
        let give = if self.number >= pool.active() && !pool.stopped() {
            self.local.len()
        } else if pool.idle() > 0 {
            self.local.len() / 2
        } else {
            return;
        };
        if give > 0 {
            let number = pool.give(self.local.drain(..give));
            self.start_worker(number);
        }
    }

    pub(crate) fn start_worker(&self, number: Option<usize>) {
        if let Some(number) = number {
            (self.start)(number);
        }
    }

    /// Hands over while this worker reads a directory, because a worker is idle: half of the tasks,
    /// rounded up, or half of the remaining names.
    #[cold]
    pub(crate) fn share_within(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<HeldDir>,
        records: &mut Records<'_>,
    ) {
        let half = self.local.len().div_ceil(2);
        let number = if half > 0 {
            self.context.pool.give(self.local.drain(..half))
        } else if let Some(later) = records.split(SPLIT_BYTES_MIN) {
            self.context.pool.give([Task::Part(PartTask::new(node, held, later.into()))])
        } else {
            None
        };
        self.start_worker(number);
    }

    /// Reports an error to the visitor and keeps it. `node` becomes incomplete.
    pub(crate) fn fail(
        &mut self,
        node: Option<&Arc<Node<V::Dir>>>,
        operation: Operation,
        path: PathBuf,
        source: io::Error,
    ) {
        let error = PathError::new(operation, path, source);
        if let Some(node) = node {
            node.miss();
        }
        self.visitor.failed(node.map(DirRef), &error);
        self.part.errors.add(error);
    }
}

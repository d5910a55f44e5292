//! One worker: its stack of tasks, when it gives some away, and how a directory ends.

use crate::error::Errors;
use crate::node::Node;
use crate::run::{Follow, Ground};
use crate::sweep::Batch;
use crate::tables_use::Counts;
use crate::task::{Held, PartTask, Task};
use crate::visit::{DirRef, Visitor};
use crate::watch::Gauge;
use crate::{Fields, Method};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::dir::{Block, Records, StatRing, ring_workers};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Bytes of records that are worth a gift: about 16 names.
const SPLIT_BYTES_MIN: usize = 16 * 32;

/// Entries between two looks at the outside: the cancel flag, the clock.
const LOOK_ENTRIES: u32 = 64;

/// What one worker counted.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) entries: u64,
    pub(crate) directories: u64,
    pub(crate) vanished: u64,
    pub(crate) loops: u64,
    pub(crate) errors: Errors<PathError>,
    pub(crate) stopped: bool,
    pub(crate) ring_workers: Option<usize>,
    pub(crate) tables: Counts,
}

pub(crate) struct Worker<'a, 'w, V: Visitor> {
    pub(crate) ground: &'a Ground<'w, V::Dir>,
    number: usize,
    pub(crate) visitor: &'a mut V,
    /// Starts another worker.
    start: &'a dyn Fn(usize),
    pub(crate) local: Vec<Task<V::Dir>>,
    pub(crate) block: Option<Block>,
    /// The path of a directory with a slash, for methods that ask by path.
    pub(crate) path: Vec<u8>,
    pub(crate) part: Part,
    until_look: u32,
    /// What is asked about files and about directories.
    pub(crate) fields: Fields,
    pub(crate) dir_fields: Fields,
    let_go: bool,
    gauge: Option<Gauge>,
    pub(crate) ring: Option<StatRing>,
    /// Names that wait for a sweep.
    pub(crate) batch: Batch<V::Dir>,
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
            gauge: ground.watch.as_ref().map(Gauge::new),
            ring: None,
            batch: Batch::default(),
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
        self.part.ring_workers = self.ring.is_some().then(ring_workers);
        self.part
    }

    /// Waits for tasks of others; false when all is over.
    fn wait(&mut self) -> bool {
        self.hand_in_batch();
        if !self.local.is_empty() {
            return true;
        }
        let since = self.gauge.is_some().then(Instant::now);
        let ground = self.ground;
        let late = || ground.sweeps.plan_rest(ground.pool.active());
        let goes_on = ground.pool.take(self.number, &mut self.local, late);
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
        if !self.let_go && self.ground.holds.is_squeezed() {
            self.let_go_of_parents();
        }
    }

    /// Counts an entry towards the next look outside.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.until_look -= 1;
        if self.until_look == 0 {
            self.look();
        }
    }

    /// From now on directories of this worker are opened by their paths, not through open parents.
    pub(crate) fn let_go_of_parents(&mut self) {
        self.let_go = true;
        for task in &mut self.local {
            if let Task::Dir(task) = task {
                task.via = None;
            }
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
            Task::Sweep(plan) => match &self.ground.tables {
                Some(tables) => self.look_up(tables, &plan),
                None => self.sweep(&plan),
            },
        }
    }

    /// One part or subdirectory of `node` is done; leaves it if it was the last, and so on upward.
    pub(crate) fn finish(&mut self, node: Arc<Node<V::Dir>>) {
        self.finish_many(node, 1);
    }

    /// The same for several parts at once.
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

    pub(crate) fn bear(&self, born: Option<usize>) {
        if let Some(number) = born {
            (self.start)(number);
        }
    }

    /// Somebody is hungry while this worker reads a directory: gives half of the tasks, the last one
    /// too, or half of the names that are left.
    #[cold]
    pub(crate) fn share_within(
        &mut self,
        node: &Arc<Node<V::Dir>>,
        held: &Arc<Held>,
        records: &mut Records<'_>,
    ) {
        let half = self.local.len().div_ceil(2);
        let born = if half > 0 {
            self.ground.pool.give(self.local.drain(..half))
        } else if let Some(later) = records.split(SPLIT_BYTES_MIN) {
            self.ground.pool.give([Task::Part(PartTask::new(node, held, later.into()))])
        } else {
            None
        };
        self.bear(born);
    }

    /// Tells the visitor and keeps an error; `node` misses something by it.
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

pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

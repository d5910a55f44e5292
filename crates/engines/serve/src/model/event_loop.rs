//! One thread, many connections: wait, read what is ready, execute it all together, write.
//!
//! All requests of a turn are executed together, so they share one lock and one commit: the busier
//! the loop, the larger the batch. All four ways to wait share this loop. With edge triggering, a
//! connection with unread bytes continues in the next turn without waiting. If answers depend on
//! the disk and many clients have requests, [`super::commits`] does the waiting.

mod accepting;

use super::commits::Commits;
use super::executor::{Executor, JobBatch};
use super::port::{PORTS_MAX, Port};
use super::spin::SpinPolicy;
use crate::connection::{Connection, Next};
use crate::error::{ServeError, SystemOperation};
use crate::metrics::Cut;
use crate::service::{GRACE_CHECK, Service};
use crate::sharing::Job;
use ioloom_exchange::Settings;
use ioloom_sys::clock;
use ioloom_sys_net::wait::{Interest, Ready, Waiter};
use ioloom_sys_net::{Socket, SpareDescriptor};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Interval between checks for timed-out connections.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Events to wait for while jobs are with other threads.
const NO_INTEREST: Interest = Interest { read: false, write: false };
const WAKER: usize = 0;
/// Smallest token of a connection; smaller ones identify the waker and the listeners.
const CONNECTIONS: usize = PORTS_MAX + 1;

/// Connections accepted by another loop.
pub(super) struct Inbox(pub(super) Receiver<(Socket, Settings)>);

/// Where connections come from.
pub(super) enum Incoming {
    /// Listeners of this loop.
    Own(Vec<Port>),
    /// Listeners of this loop, which distributes connections over all loops.
    Handing(Vec<Port>, Vec<Sender<(Socket, Settings)>>),
    /// Connections from another loop.
    Inbox(Inbox),
}

struct Slot {
    connection: Connection,
    /// Whether its jobs are with other threads or its answers wait for a commit.
    is_away: bool,
    /// Latest turn in which it had a request.
    active_turn: u64,
    /// Whether to close it once they are back.
    is_dead: bool,
}

impl Slot {
    /// Continues reading, with the time that the client was given before.
    fn come_back(&mut self, now_ns: u64) {
        self.is_away = false;
        self.connection.renew_deadline(now_ns);
    }
}

pub(super) struct EventLoop<'a> {
    service: &'a Arc<Service>,
    number: usize,
    waiter: Box<dyn Waiter>,
    spin: SpinPolicy,
    ports: Vec<Port>,
    hand_to: Vec<Sender<(Socket, Settings)>>,
    handed: usize,
    inbox: Option<Inbox>,
    executor: Executor,
    /// Deferred commits, if answers depend on the disk.
    commits: Option<Commits>,
    /// Number of turns with requests.
    turns: u64,
    reserve: Option<SpareDescriptor>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    open: usize,
    /// Connections of this turn.
    turn: Vec<usize>,
    /// Connections that continue in the next turn without waiting.
    queue: Vec<usize>,
    /// Listeners that may have more pending connections.
    more_to_accept: Vec<usize>,
    /// The same, but file descriptors have run out: retried periodically.
    starved: Vec<usize>,
    jobs: Vec<Job>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    checked_ns: u64,
    now_ns: u64,
    /// Time when a stopping loop closes unfinished connections.
    stop_ns: Option<u64>,
}

impl<'a> EventLoop<'a> {
    pub(super) fn new(
        service: &'a Arc<Service>,
        number: usize,
        mut waiter: Box<dyn Waiter>,
        incoming: Incoming,
        executor: Executor,
    ) -> Result<Self, ServeError> {
        let (ports, hand_to, inbox) = match incoming {
            Incoming::Own(ports) => (ports, Vec::new(), None),
            Incoming::Handing(ports, senders) => (ports, senders, None),
            Incoming::Inbox(inbox) => (Vec::new(), Vec::new(), Some(inbox)),
        };

        waiter
            .add(&**service.waker(number), WAKER, Interest::READ)
            .map_err(ServeError::system(SystemOperation::Wait))?;
        assert!(
            ports.len() < CONNECTIONS,
            "a listener's token could be mistaken for a connection's"
        );
        for (at, port) in ports.iter().enumerate() {
            waiter
                .add(&port.listener, at + 1, Interest::READ)
                .map_err(ServeError::system(SystemOperation::Wait))?;
        }
        let now_ns = clock::monotonic_ns();
        // Several polling loops would compete with one another and with the clients for processors.
        let spins = matches!(executor, Executor::Inline)
            && service.loops() == 1
            && waiter.has_constant_cost();
        let spin_ns = if spins { service.limits.spin.as_nanos() as u64 } else { 0 };
        let commits = (matches!(executor, Executor::Inline) && service.commits_late())
            .then(|| Commits::start(service, number))
            .transpose()
            .map_err(ServeError::system(SystemOperation::StartThread))?;
        Ok(Self {
            service,
            number,
            waiter,
            spin: SpinPolicy::new(spin_ns),
            ports,
            hand_to,
            handed: 0,
            inbox,
            executor,
            commits,
            turns: 0,
            reserve: SpareDescriptor::new().ok(),
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            turn: Vec::new(),
            queue: Vec::new(),
            more_to_accept: Vec::new(),
            starved: Vec::new(),
            jobs: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            scratch: Vec::new(),
            checked_ns: now_ns,
            now_ns,
            stop_ns: None,
        })
    }

    pub(super) fn run(mut self) -> Result<(), ServeError> {
        let mut ready = Vec::new();
        loop {
            let goes_on = !self.queue.is_empty() || !self.more_to_accept.is_empty();
            let is_grace = self.service.is_stopping() && self.stop_ns.is_none();
            let timeout = match goes_on {
                true => Duration::ZERO,
                false if is_grace => GRACE_CHECK,
                false => CHECK_INTERVAL,
            };
            self.wait(&mut ready, timeout).map_err(ServeError::system(SystemOperation::Wait))?;
            self.now_ns = clock::monotonic_ns();
            if self.service.is_stopping() {
                self.begin_stop();
            }
            self.gather(&ready);
            if !(self.release_committed() && self.work()) {
                // The store failed: pending requests must not be answered.
                self.close_all();
                return Ok(());
            }
            self.cut_overdue();
            if self.stop_ns.is_some_and(|stop_ns| self.open == 0 || self.now_ns >= stop_ns) {
                self.close_all();
                return Ok(());
            }
        }
    }

    /// Waits for events. If the next request is expected soon, polls first.
    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return self.waiter.wait(ready, Some(timeout));
        }
        let start = clock::monotonic_ns();
        let spin_ns = self.spin.spin_ns();
        if spin_ns == 0 {
            self.waiter.wait(ready, Some(timeout))?;
            self.spin.slept(clock::monotonic_ns() - start);
            return Ok(());
        }
        while clock::monotonic_ns() - start < spin_ns {
            self.waiter.wait(ready, Some(Duration::ZERO))?;
            if !ready.is_empty() {
                self.spin.found();
                return Ok(());
            }
        }
        self.spin.missed();
        self.waiter.wait(ready, Some(timeout))
    }

    /// Adds ready connections to the turn and accepts new ones.
    fn gather(&mut self, ready: &[Ready]) {
        std::mem::swap(&mut self.turn, &mut self.queue);
        let mut accept = std::mem::take(&mut self.more_to_accept);
        for event in ready {
            if event.token == WAKER {
                self.service.waker(self.number).clear();
                self.take_inbox();
                self.take_answered();
            } else if event.token < CONNECTIONS {
                if !accept.contains(&(event.token - 1)) {
                    accept.push(event.token - 1);
                }
            } else if let Some(slot) = self.slots[event.token - CONNECTIONS].as_mut() {
                if slot.is_away
                    && slot.connection.interest == NO_INTEREST
                    && !self.waiter.is_edge_triggered()
                {
                    // The client has disconnected. Level triggering would keep reporting this until
                    // its answers are back.
                    let _ = self.waiter.remove(&slot.connection.socket);
                    continue;
                }
                if event.can_read {
                    slot.connection.set_readable();
                }
                if !slot.connection.is_queued {
                    slot.connection.is_queued = true;
                    self.turn.push(event.token - CONNECTIONS);
                }
            }
        }
        for port in accept {
            self.accept(port);
        }
    }

    /// Receives answered jobs from other threads and sends their answers.
    fn take_answered(&mut self) {
        loop {
            let Executor::Workers { done, .. } = &self.executor else { return };
            let Ok(batch) = done.try_recv() else { return };
            let Some(slot) = self.slots[batch.slot].as_mut() else { continue };
            debug_assert!(slot.is_away, "answers for a connection without outstanding requests");
            slot.come_back(self.now_ns);
            let gone = slot.is_dead
                || slot.connection.give(&batch.jobs, &mut self.scratch, self.now_ns).is_err();
            if gone {
                self.close(batch.slot);
            } else {
                self.settle(batch.slot);
            }
        }
    }

    /// Reads, executes and writes for every connection of the turn; returns false if the store
    /// failed.
    fn work(&mut self) -> bool {
        let turn = std::mem::take(&mut self.turn);
        let mut jobs = std::mem::take(&mut self.jobs);
        for at in &turn {
            let Some(slot) = self.slots[*at].as_mut() else { continue };
            slot.connection.is_queued = false;
            if slot.is_away {
                // It sent more data before it received its answers; until then, its events are not
                // waited for.
                self.settle(*at);
                continue;
            }
            let (service, buffer) = (self.service, &mut self.buffer);
            if slot.connection.take(*at, service, buffer, &mut jobs, self.now_ns).is_err() {
                self.close(*at);
            }
        }
        let is_healthy = self.execute(&mut jobs, &turn);
        jobs.clear();
        self.jobs = jobs;
        self.turn = turn;
        self.turn.clear();
        is_healthy
    }

    fn execute(&mut self, jobs: &mut Vec<Job>, turn: &[usize]) -> bool {
        if let Executor::Workers { .. } = self.executor {
            self.send_to_workers(jobs, turn);
            return true;
        }
        if jobs.is_empty() {
            self.write_all(jobs, turn);
            return true;
        }
        let count = jobs.len();
        let began_ns = clock::monotonic_ns();
        self.service.times.queue.observe(began_ns.saturating_sub(self.now_ns), count);
        let Ok(seq) = self.service.execute(jobs) else { return false };
        let others = self.note_turn(jobs);
        if seq != 0 && self.commits.as_mut().is_some_and(|commits| commits.takes(seq, others)) {
            return self.defer(jobs, turn, seq);
        }
        let executed_ns = clock::monotonic_ns();
        if self.service.wait(seq).is_err() {
            return false;
        }
        let mut ended_ns = executed_ns;
        let has_waited = self.service.waits_for(seq);
        if has_waited {
            ended_ns = clock::monotonic_ns();
            if let Some(commits) = self.commits.as_mut() {
                commits.took(seq, ended_ns - executed_ns);
            }
        }
        self.service.took(count, self.now_ns, executed_ns, ended_ns);
        self.service.count(jobs);
        // These clients have their time from now on; others may have sent data during the wait.
        let turn_ns = std::mem::replace(&mut self.now_ns, ended_ns);
        self.write_all(jobs, turn);
        self.now_ns = turn_ns;
        if has_waited || self.service.waits_for_threads() {
            self.renew_deadlines(jobs, ended_ns);
        }
        true
    }

    /// Restarts the timeouts of clients that waited for a commit or for another thread.
    fn renew_deadlines(&mut self, jobs: &[Job], now_ns: u64) {
        let mut latest = None;
        for job in jobs {
            if latest.replace(job.token) == Some(job.token) {
                continue;
            }
            if let Some(slot) = self.slots[job.token].as_mut() {
                slot.connection.renew_deadline(now_ns);
            }
        }
    }

    /// Records the connections with requests in this turn. Returns how many had none in the
    /// previous turn.
    fn note_turn(&mut self, jobs: &[Job]) -> usize {
        self.turns += 1;
        let (now, mut others) = (self.turns, 0);
        for job in jobs {
            let Some(slot) = self.slots[job.token].as_mut() else { continue };
            if slot.active_turn != now {
                others += usize::from(slot.active_turn + 1 != now);
                slot.active_turn = now;
            }
        }
        others
    }

    /// Writes the answers of a turn.
    fn write_all(&mut self, jobs: &[Job], turn: &[usize]) {
        let mut rest = jobs;
        for at in turn {
            let mine = rest.iter().take_while(|job| job.token == *at).count();
            let (mine, others) = rest.split_at(mine);
            rest = others;
            self.write(*at, mine);
        }
        debug_assert!(rest.is_empty(), "answers must be grouped in the order of the turn");
    }

    /// Defers the answers of a turn until they are stored; returns false if that can no longer
    /// happen.
    fn defer(&mut self, jobs: &mut Vec<Job>, turn: &[usize], seq: u64) -> bool {
        let Some(mut batch) = self.commits.as_mut().map(Commits::batch) else { return false };
        batch.arrived_ns = self.now_ns;
        let mut rest = jobs.as_slice();
        for at in turn {
            let mine = rest.iter().take_while(|job| job.token == *at).count();
            rest = &rest[mine..];
            if mine == 0 {
                self.write(*at, &[]);
            } else if let Some(slot) = self.slots[*at].as_mut() {
                debug_assert!(!slot.is_away, "answers of two batches could be reordered");
                slot.is_away = true;
                batch.slots.push(*at);
            }
        }
        std::mem::swap(&mut batch.jobs, jobs);
        self.commits.as_mut().is_some_and(|commits| commits.defer(batch, seq))
    }

    /// Writes deferred answers that have been stored; returns false if the store failed.
    fn release_committed(&mut self) -> bool {
        loop {
            let Some(commits) = self.commits.as_mut() else { return true };
            let batch = match commits.next() {
                Ok(None) => return true,
                Ok(Some(batch)) => batch,
                Err(_) => return false,
            };
            let arrived_ns = batch.arrived_ns;
            self.service.took(batch.jobs.len(), arrived_ns, arrived_ns, self.now_ns);
            self.service.count(&batch.jobs);
            for at in &batch.slots {
                let Some(slot) = self.slots[*at].as_mut() else { continue };
                slot.come_back(self.now_ns);
                if slot.is_dead {
                    self.close(*at);
                }
            }
            self.write_all(&batch.jobs, &batch.slots);
            if let Some(commits) = self.commits.as_mut() {
                commits.recycle(batch);
            }
        }
    }

    fn write(&mut self, at: usize, jobs: &[Job]) {
        let Some(slot) = self.slots[at].as_mut() else { return };
        let connection = &mut slot.connection;
        let given = connection.give(jobs, &mut self.scratch, self.now_ns);
        if given.and_then(|()| connection.flush(self.now_ns)).is_err() {
            self.close(at);
        } else {
            self.settle(at);
        }
    }

    fn send_to_workers(&mut self, jobs: &mut Vec<Job>, turn: &[usize]) {
        let mut jobs = std::mem::take(jobs).into_iter().peekable();
        for at in turn {
            let mut mine = Vec::new();
            while let Some(job) = jobs.next_if(|job| job.token == *at) {
                mine.push(job);
            }
            if mine.is_empty() {
                self.write(*at, &[]);
                continue;
            }
            let Executor::Workers { send, .. } = &self.executor else { return };
            match send(JobBatch { slot: *at, jobs: mine, arrived_ns: self.now_ns }) {
                Ok(()) => {
                    if let Some(slot) = self.slots[*at].as_mut() {
                        slot.is_away = true;
                    }
                    self.settle(*at);
                }
                Err(mut refused) => {
                    refused.refuse();
                    self.write(*at, &refused.jobs);
                }
            }
        }
    }

    /// Decides what to do next with a connection. Does nothing while its jobs are with other
    /// threads.
    fn settle(&mut self, at: usize) {
        let Some(slot) = self.slots[at].as_mut() else { return };
        let connection = &mut slot.connection;
        let mut wanted = NO_INTEREST;
        if !slot.is_away {
            match connection.next(self.service, self.now_ns) {
                Next::Close => return self.close(at),
                Next::Again => {
                    if !connection.is_queued {
                        connection.is_queued = true;
                        self.queue.push(at);
                    }
                }
                Next::Wait => {}
            }
            wanted = connection.wanted(self.service);
        }
        if !self.waiter.is_edge_triggered() && wanted != connection.interest {
            connection.interest = wanted;
            if self.waiter.change(&connection.socket, at + CONNECTIONS, wanted).is_err() {
                self.close(at);
            }
        }
    }

    fn close(&mut self, at: usize) {
        let Some(slot) = self.slots[at].as_mut() else { return };
        if slot.is_away {
            slot.is_dead = true;
            return;
        }
        // Remove the descriptor from the set before it is closed.
        let _ = self.waiter.remove(&slot.connection.socket);
        let seat = slot.connection.socket.mark();
        self.slots[at] = None;
        debug_assert!(!self.free.contains(&at), "two connections would share a slot");
        self.free.push(at);
        self.open -= 1;
        self.service.leave(seat);
    }

    /// Periodically closes connections that timed out.
    fn cut_overdue(&mut self) {
        if u128::from(self.now_ns - self.checked_ns) < CHECK_INTERVAL.as_nanos() {
            return;
        }
        self.checked_ns = self.now_ns;
        self.more_to_accept.append(&mut self.starved);
        for at in 0..self.slots.len() {
            // A dead connection was already counted when it was closed.
            let Some(slot) = self.slots[at].as_ref().filter(|slot| !slot.is_dead) else { continue };
            let why = slot.connection.overdue(self.service, self.now_ns);
            // A client that waits for the server is neither idle nor slow, but it may have no token yet.
            let is_excused = slot.is_away && !slot.connection.is_in_handshake();
            if let Some(why) = why.filter(|why| !is_excused || *why == Cut::Drain) {
                self.service.cut(why);
                self.close(at);
            }
        }
    }

    /// Stops accepting connections and, after a moment if another program takes over, reading new
    /// requests.
    fn begin_stop(&mut self) {
        for port in self.ports.drain(..) {
            let _ = self.waiter.remove(&port.listener);
        }
        self.more_to_accept.clear();
        self.starved.clear();
        if self.stop_ns.is_some() || !self.service.ends_reading(self.now_ns) {
            return;
        }
        self.stop_ns = Some(self.now_ns + self.service.limits.stop.as_nanos() as u64);
        for at in 0..self.slots.len() {
            let Some(slot) = self.slots[at].as_mut() else { continue };
            slot.connection.finish();
            if !slot.connection.is_queued {
                slot.connection.is_queued = true;
                self.queue.push(at);
            }
        }
    }

    fn close_all(&mut self) {
        for at in 0..self.slots.len() {
            if let Some(slot) = self.slots[at].as_mut() {
                slot.is_away = false;
            }
            self.close(at);
        }
    }
}

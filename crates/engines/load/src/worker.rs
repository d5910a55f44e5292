//! A load thread: its connections, one epoll set, and one queue of due requests.
//!
//! Nothing is computed in advance or allocated per request: the next arrival is drawn when the
//! previous one has been sent. If the thread is late, missed arrivals are sent with their original
//! due times. The delay counts as the thread's own if a connection was free; otherwise the server
//! was late.
//!
//! A thread with a dedicated processor does not sleep when the next request is due very soon,
//! because falling asleep and waking up would take longer, many times as long on virtual
//! processors. It polls instead; unsuccessful polls count as idle time.

mod answers;

use crate::arrivals::Arrivals;
use crate::channel::CLOSED_IN_HANDSHAKE;
use crate::client_codec::{Expected, Response};
use crate::connection::Connection;
use crate::draw::Draw;
use crate::error::{LoadError, SystemOperation};
use crate::judge::Verdict;
use crate::plan::{LoadPlan, Pace, Think};
use crate::shared::Shared;
use crate::tally::{Busy, Tally};
use ioloom_sys::clock;
use ioloom_sys::proc::ThreadSched;
use ioloom_sys_net::wait::{EpollLevel, Interest, Ready, Waiter};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// Interval between checks for timed-out answers, in nanoseconds.
const CHECK_INTERVAL_NS: u64 = 100_000_000;
/// Pause after a connection failed or was rejected, in nanoseconds.
const PAUSE_NS: u64 = 10_000_000;
/// A thread with a dedicated processor does not sleep if the next request is due within this time,
/// in nanoseconds.
const SPIN_NS: u64 = 200_000;
/// Number of unsent arrivals to draw one by one.
const DRAWN_MAX: u64 = 1 << 20;
/// Size of the read buffer.
const BUFFER_BYTES: usize = 64 * 1024;

pub(crate) struct Worker<'a> {
    shared: &'a Shared<'a>,
    plan: &'a LoadPlan,
    waiter: EpollLevel,
    connections: Vec<Connection>,
    /// Connections with room for a request, and the time since when they have it; in an open loop.
    free: VecDeque<(usize, u64)>,
    /// Due times of the connections' next requests, in a closed loop.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    arrivals: Option<Arrivals>,
    arrival_ns: u64,
    tally: Tally,
    buffer: Vec<u8>,
    ready: Vec<Ready>,
    start_ns: u64,
    count_from_ns: u64,
    end_ns: u64,
    /// End of the latest wait.
    woke_ns: u64,
    is_exhausted: bool,
    /// Whether no other load thread is pinned to its processor.
    is_alone: bool,
    /// Time spent on unsuccessful polls, in nanoseconds.
    rest_ns: u64,
}

impl<'a> Worker<'a> {
    /// Creates a thread with its share of the connections.
    pub(crate) fn new(shared: &'a Shared<'a>, index: usize) -> Result<Self, LoadError> {
        let plan = shared.plan;
        let stocks = shared.known.ids.len();
        let mine = (index..plan.connections).step_by(plan.threads);
        let connection = |number| {
            let draw = Draw::new(plan, &shared.known.ids, number as u64);
            Connection::new(number, plan, draw, stocks)
        };
        let connections: Vec<Connection> = mine.map(connection).collect();
        let arrivals = match plan.pace {
            Pace::Closed { .. } => None,
            Pace::Open { rate_per_s: rate, arrival }
            | Pace::PartlyOpen { sessions_per_s: rate, arrival, .. } => Some(Arrivals::new(
                arrival,
                rate,
                plan.ramp.as_secs_f64(),
                (index, plan.threads),
                plan.random,
            )),
        };
        Ok(Self {
            shared,
            plan,
            waiter: EpollLevel::new().map_err(LoadError::system(SystemOperation::CreateEpoll))?,
            connections,
            free: VecDeque::new(),
            due: BinaryHeap::new(),
            arrivals,
            arrival_ns: u64::MAX,
            tally: Tally::new(stocks),
            buffer: vec![0; BUFFER_BYTES],
            ready: Vec::new(),
            start_ns: 0,
            count_from_ns: 0,
            end_ns: u64::MAX,
            woke_ns: 0,
            is_exhausted: false,
            is_alone: plan.cpus.len() >= plan.threads,
            rest_ns: 0,
        })
    }

    /// Runs until the load is finished and returns the counters.
    pub(crate) fn run(mut self) -> Result<Tally, LoadError> {
        clock::minimize_timer_slack();
        let prepared = self.prepare();
        self.shared.ready.wait();
        self.shared.ready.wait();
        prepared?;
        self.begin();
        let mut account = ThreadSched::open().ok();
        let mut read = || account.as_mut().and_then(|account| account.read().ok());
        let (before, began_ns) = (read(), clock::monotonic_ns());
        self.rest_ns = 0;
        self.send_and_receive()?;
        let over_ns = clock::monotonic_ns();
        if let (Some(before), Some(after)) = (before, read()) {
            self.tally.busy = Busy {
                on_cpu_ns: after.on_cpu_ns - before.on_cpu_ns,
                ready_ns: after.run_delay_ns - before.run_delay_ns,
                rest_ns: self.rest_ns,
                elapsed_ns: over_ns - began_ns,
            };
        }
        self.drain(over_ns.min(self.end_ns))?;
        Ok(self.tally)
    }

    /// Connects before the run. With a ramp, and in a partly open loop, connections are opened on
    /// demand.
    fn prepare(&mut self) -> Result<(), LoadError> {
        let later = matches!(self.plan.pace, Pace::PartlyOpen { .. })
            || (matches!(self.plan.pace, Pace::Closed { .. }) && !self.plan.ramp.is_zero());
        if later {
            return Ok(());
        }
        let began_ns = clock::monotonic_ns();
        for at in 0..self.connections.len() {
            self.open(at, began_ns);
            // Open a bounded number at a time; otherwise the server's backlog overflows.
            if at % 64 == 63 {
                self.turn(Duration::from_millis(1))?;
            }
        }
        let limit_ns = began_ns + self.plan.timeout.as_nanos() as u64;
        while clock::monotonic_ns() < limit_ns && !self.shared.is_broken() {
            let pending = |c: &Connection| {
                c.is_connecting
                    || (c.socket.is_some() && c.is_handshaking())
                    || !c.flight.is_empty()
            };
            if !self.connections.iter().any(pending) {
                break;
            }
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.start_ns = self.shared.start_ns.load(SeqCst);
        let from_start = |time: Duration| self.start_ns.saturating_add(time.as_nanos() as u64);
        self.count_from_ns = from_start(self.plan.warm_up);
        self.end_ns = from_start(self.plan.duration);
        let pipeline = self.plan.pipeline;
        match self.plan.pace {
            Pace::Closed { .. } => {
                let all = self.plan.connections as u64;
                for (at, connection) in self.connections.iter().enumerate() {
                    let ramp_ns = self.plan.ramp.as_nanos() as u64;
                    let due_ns = self.start_ns + ramp_ns * connection.number as u64 / all;
                    self.due.extend(std::iter::repeat_n(Reverse((due_ns, at)), pipeline));
                }
            }
            Pace::Open { .. } => {
                for _ in 0..pipeline {
                    self.free.extend((0..self.connections.len()).map(|at| (at, self.start_ns)));
                }
            }
            Pace::PartlyOpen { .. } => {
                self.free.extend((0..self.connections.len()).map(|at| (at, self.start_ns)));
            }
        }
        self.draw_arrival();
    }

    fn draw_arrival(&mut self) {
        if let Some(arrivals) = &mut self.arrivals {
            self.arrival_ns = self.start_ns.saturating_add(arrivals.next_ns());
        }
    }

    fn send_and_receive(&mut self) -> Result<(), LoadError> {
        let mut check_ns = self.start_ns + CHECK_INTERVAL_NS;
        loop {
            let now_ns = clock::monotonic_ns();
            let over = now_ns >= self.end_ns || self.shared.stop.load(Relaxed);
            if over || self.is_exhausted || self.shared.is_broken() {
                return Ok(());
            }
            self.send_due(now_ns);
            self.send_arrivals(now_ns);
            if now_ns >= check_ns {
                check_ns = now_ns + CHECK_INTERVAL_NS;
                self.cut_overdue(now_ns);
            }
            let arrival_ns = if self.free.is_empty() { u64::MAX } else { self.arrival_ns };
            let timer_ns = self.due.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
            let due_ns = arrival_ns.min(timer_ns);
            let next_ns = due_ns.min(check_ns).min(self.end_ns);
            let wait = Duration::from_nanos(next_ns.saturating_sub(clock::monotonic_ns()));
            // Only due times require microsecond precision.
            if next_ns == due_ns { self.turn_precisely(wait)? } else { self.turn(wait)? }
        }
    }

    /// Waits for outstanding answers, and counts those that never arrive.
    fn drain(&mut self, over_ns: u64) -> Result<(), LoadError> {
        self.free.clear();
        self.due.clear();
        let limit_ns = over_ns.saturating_add(self.plan.timeout.as_nanos() as u64);
        while self.connections.iter().any(|c| c.flight.iter().any(|f| f.asked != Expected::Hello)) {
            if clock::monotonic_ns() >= limit_ns || self.shared.is_broken() {
                break;
            }
            self.turn(Duration::from_millis(20))?;
        }
        for at in 0..self.connections.len() {
            self.give_up(at, limit_ns);
        }
        self.count_unsent(over_ns);
        Ok(())
    }

    /// Counts the arrivals that were due but never sent. There may be billions, so from
    /// [`DRAWN_MAX`] on, each drawn arrival counts for more of them.
    fn count_unsent(&mut self, over_ns: u64) {
        let (mut drawn, mut stride) = (0_u64, 1_u64);
        while self.arrival_ns < over_ns && !self.is_exhausted && !self.shared.is_broken() {
            if self.arrival_ns >= self.count_from_ns {
                let op = self.connections[0].draw.op();
                self.tally.unsent_times(op, over_ns - self.arrival_ns, stride);
            }
            drawn += 1;
            if drawn.is_multiple_of(DRAWN_MAX) {
                stride *= 2;
            }
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.skip(stride - 1);
            }
            self.draw_arrival();
        }
    }

    /// Waits once and handles the events.
    fn turn(&mut self, wait: Duration) -> Result<(), LoadError> {
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.waiter.wait(&mut ready, Some(wait));
        self.take_in(waited, ready)
    }

    fn turn_precisely(&mut self, wait: Duration) -> Result<(), LoadError> {
        let mut ready = std::mem::take(&mut self.ready);
        let spin = Duration::from_nanos(SPIN_NS);
        let waited = if !self.is_alone {
            self.waiter.wait_precise(&mut ready, wait)
        } else if wait <= spin {
            self.poll_until(&mut ready, wait.as_nanos() as u64)
        } else {
            // Wake up before the request is due.
            self.waiter.wait_precise(&mut ready, wait - spin)
        };
        self.take_in(waited, ready)
    }

    /// Polls for answers until one arrives or the time is over.
    fn poll_until(&mut self, ready: &mut Vec<Ready>, wait_ns: u64) -> io::Result<()> {
        let mut now_ns = clock::monotonic_ns();
        let until_ns = now_ns + wait_ns;
        loop {
            self.waiter.wait(ready, Some(Duration::ZERO))?;
            let polled_ns = std::mem::replace(&mut now_ns, clock::monotonic_ns());
            if !ready.is_empty() {
                return Ok(());
            }
            self.rest_ns += now_ns - polled_ns;
            if now_ns >= until_ns {
                return Ok(());
            }
        }
    }

    fn take_in(&mut self, waited: io::Result<()>, ready: Vec<Ready>) -> Result<(), LoadError> {
        waited.map_err(LoadError::system(SystemOperation::Wait))?;
        self.woke_ns = clock::monotonic_ns();
        for event in &ready {
            self.handle(*event);
        }
        self.ready = ready;
        Ok(())
    }

    fn send_due(&mut self, now_ns: u64) {
        while let Some(Reverse((due_ns, at))) = self.due.peek().copied() {
            if due_ns > now_ns || self.is_exhausted {
                return;
            }
            self.due.pop();
            self.tally.late.saturating_record((now_ns - due_ns).max(1));
            // Send all due requests of a connection together.
            self.ask(at, due_ns, now_ns);
            while self.due.peek().is_some_and(|Reverse((due, next))| *next == at && *due <= now_ns)
            {
                let due_ns = self.due.pop().map_or(now_ns, |Reverse((due_ns, _))| due_ns);
                self.ask(at, due_ns, now_ns);
            }
            self.flush(at, now_ns);
        }
    }

    fn send_arrivals(&mut self, now_ns: u64) {
        while self.arrival_ns <= now_ns && !self.is_exhausted {
            let Some((at, free_ns)) = self.free.pop_front() else { return };
            let due_ns = self.arrival_ns;
            self.tally.late.saturating_record((now_ns - due_ns.max(free_ns).min(now_ns)).max(1));
            if let Pace::PartlyOpen { requests_mean, .. } = self.plan.pace {
                let connection = &mut self.connections[at];
                connection.session_left = connection.draw.session(requests_mean);
                self.tally.outcomes.sessions += 1;
            }
            self.ask(at, due_ns, now_ns);
            self.flush(at, now_ns);
            self.draw_arrival();
        }
    }

    /// Appends a request to a connection, opening it if necessary.
    fn ask(&mut self, at: usize, due_ns: u64, now_ns: u64) {
        if self.plan.requests_max != u64::MAX
            && self.shared.tickets.fetch_add(1, Relaxed) >= self.plan.requests_max
        {
            self.is_exhausted = true;
            return;
        }
        if self.connections[at].socket.is_none() && !self.open(at, now_ns) {
            // In a closed loop the request is repeated; in an open loop the arrival is lost.
            if !matches!(self.plan.pace, Pace::Closed { .. }) && due_ns >= self.count_from_ns {
                let op = self.connections[at].draw.op();
                self.tally.unsent(op, now_ns.saturating_sub(due_ns));
            }
            self.free_again(at, 1, now_ns);
            return;
        }
        let connection = &mut self.connections[at];
        let op = connection.draw.op();
        connection.ask(self.plan, op, due_ns, now_ns);
        self.tally.outcomes.sent += 1;
    }

    fn open(&mut self, at: usize, now_ns: u64) -> bool {
        let connection = &mut self.connections[at];
        let opened = connection.open(self.plan, now_ns).and_then(|()| {
            connection.waits_to_write = true;
            connection
                .socket
                .as_ref()
                .map_or(Ok(()), |socket| self.waiter.add(socket, at, Interest::BOTH))
        });
        match opened {
            Ok(()) => true,
            Err(reason) => {
                self.fail(at, &reason.to_string(), now_ns);
                false
            }
        }
    }

    fn flush(&mut self, at: usize, now_ns: u64) {
        match self.connections[at].flush() {
            Ok(sent) => self.tally.outcomes.sent_bytes += sent as u64,
            Err(reason) => return self.fail(at, &reason.to_string(), now_ns),
        }
        let connection = &mut self.connections[at];
        let wants = connection.wants_to_write();
        if wants != connection.waits_to_write
            && let Some(socket) = &connection.socket
        {
            connection.waits_to_write = wants;
            let interest = if wants { Interest::BOTH } else { Interest::READ };
            // This fails only for a descriptor outside the set, which the next read reports.
            let _ = self.waiter.change(socket, at, interest);
        }
    }

    fn handle(&mut self, event: Ready) {
        let at = event.token;
        let connection = &mut self.connections[at];
        if connection.is_connecting {
            let connected = connection.socket.as_ref().map_or(Ok(()), |socket| socket.connected());
            if let Err(reason) = connected {
                return self.fail(at, &reason.to_string(), self.woke_ns);
            }
            connection.is_connecting = false;
        }
        if event.can_write {
            self.flush(at, self.woke_ns);
        }
        if !event.can_read {
            return;
        }
        let read = self.connections[at].read(&mut self.buffer);
        let now_ns = clock::monotonic_ns();
        match read {
            Ok(None) => return,
            Ok(Some(0)) if self.connections[at].is_handshaking() => {
                return self.fail(at, CLOSED_IN_HANDSHAKE, now_ns);
            }
            Ok(Some(0)) => return self.fail(at, "the server closed the connection", now_ns),
            Err(reason) => return self.fail(at, &reason.to_string(), now_ns),
            Ok(Some(read)) => self.tally.outcomes.received_bytes += read as u64,
        }
        self.tally.pickup.saturating_record((now_ns - self.woke_ns).max(1));
        while let Some((flight, reply)) = self.connections[at].next() {
            match flight {
                Some(flight) => self.answered(at, flight, reply, now_ns),
                None => self.unrequested(at, &reply),
            }
        }
        if self.connections[at].socket.is_some() {
            self.flush(at, now_ns);
        }
    }

    /// Decides what a connection does after an answer.
    fn next_request(&mut self, at: usize, now_ns: u64) {
        let think = match self.plan.pace {
            Pace::Open { .. } => return self.free.push_back((at, now_ns)),
            Pace::Closed { think } => think,
            Pace::PartlyOpen { think, .. } => {
                let connection = &mut self.connections[at];
                connection.session_left = connection.session_left.saturating_sub(1);
                if connection.session_left == 0 {
                    self.close(at);
                    return self.free.push_back((at, now_ns));
                }
                think
            }
        };
        let over = now_ns >= self.end_ns || self.shared.stop.load(Relaxed) || self.is_exhausted;
        if think == Think::None && !over {
            return self.ask(at, now_ns, now_ns);
        }
        let think_ns = self.connections[at].draw.think_ns(think);
        self.due.push(Reverse((now_ns.saturating_add(think_ns), at)));
    }

    /// Makes the slots of failed requests available again after a pause.
    fn free_again(&mut self, at: usize, requests: usize, now_ns: u64) {
        let later_ns = now_ns + PAUSE_NS;
        match self.plan.pace {
            Pace::Closed { .. } => {
                self.due.extend(std::iter::repeat_n(Reverse((later_ns, at)), requests));
            }
            _ => {
                self.connections[at].session_left = 0;
                self.free.extend(std::iter::repeat_n((at, now_ns), requests));
            }
        }
    }

    /// Makes the slot of a rejected request available again. A session ends with it, so the next
    /// one has its own connection.
    fn end_session(&mut self, at: usize, now_ns: u64) {
        if matches!(self.plan.pace, Pace::PartlyOpen { .. }) {
            self.close(at);
        }
        self.free_again(at, 1, now_ns);
    }

    fn close(&mut self, at: usize) {
        if let Some(socket) = self.connections[at].socket.take() {
            let _ = self.waiter.remove(&socket);
        }
        self.connections[at].is_connecting = false;
    }

    /// Handles a connection that closed unexpectedly.
    fn fail(&mut self, at: usize, reason: &str, now_ns: u64) {
        let connection = &self.connections[at];
        let (had_room, was_served) = (!connection.was_busy, connection.was_served);
        let is_connected = connection.socket.is_some() && !connection.is_connecting;
        let in_handshake = is_connected && connection.is_handshaking();
        self.tally.outcomes.lost += u64::from(had_room);
        self.tally.outcomes.lost_in_handshake += u64::from(had_room && in_handshake);
        // A live server can close any number of connections that it has served.
        if had_room && !was_served {
            self.shared.unserved(reason, now_ns);
        }
        self.give_up(at, now_ns);
    }

    /// Closes a connection; its outstanding answers will never arrive.
    fn give_up(&mut self, at: usize, now_ns: u64) {
        // Until the connection and its TLS session are established, no request is sent.
        let was_sent = !self.connections[at].is_starting();
        let verdict = if was_sent { Verdict::Refused } else { Verdict::TurnedAway };
        self.close(at);
        let mut requests = 0;
        while let Some(flight) = self.connections[at].flight.pop_front() {
            let Expected::Op(op) = flight.asked else { continue };
            requests += 1;
            self.unanswered(&flight);
            self.keep(at, flight, None, &verdict, &Response::Busy);
            if was_sent {
                self.record_unsure(op);
            }
        }
        self.free_again(at, requests, now_ns);
    }

    fn cut_overdue(&mut self, now_ns: u64) {
        let limit_ns = self.plan.timeout.as_nanos() as u64;
        for at in 0..self.connections.len() {
            let since = self.connections[at].waits_since_ns();
            if since.is_some_and(|since| now_ns.saturating_sub(since) > limit_ns) {
                self.tally.outcomes.timed_out += 1;
                self.give_up(at, now_ns);
            }
        }
    }
}

//! One thread with an io_uring.
//!
//! The turn is the same as in the event loop, with completions instead of readiness: when an event
//! arrives, the bytes have already been received. With single-shot requests, each connection waits
//! with a buffer of its own and is not read while its output limit is reached. With multishot
//! requests, the connections of a ring share buffers; if a client does not accept its answers, its
//! receive request is cancelled, which bounds the amount of data that can accumulate.

use super::port::{Port, connections_max, turn_away};
use crate::connection::{Connection, Next};
use crate::error::{ServeError, SystemOperation};
use crate::metrics::Rejected;
use crate::service::{GRACE_CHECK, Service};
use crate::sharing::Job;
use ioloom_exchange::Settings;
use ioloom_sys::clock;
use ioloom_sys_net::ring::{Event, NetRing, Request, is_transient};
use ioloom_sys_net::{Listener, Socket, SpareDescriptor, is_out_of_sockets};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Interval between checks for timed-out connections.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

struct Slot {
    connection: Connection,
    /// The receive request, if one is in flight.
    reading: Option<Request>,
    /// Whether it was cancelled but has not completed yet.
    is_cancelled: bool,
    is_sending: bool,
    /// Whether to close it once nothing is in flight.
    is_dead: bool,
    is_in_turn: bool,
}

/// Everything but the ring, to allow handling completions while the ring is borrowed.
struct RingLoop<'a> {
    service: &'a Arc<Service>,
    listeners: Vec<(Arc<Listener>, Settings)>,
    /// Listeners without an accept request.
    to_accept: Vec<usize>,
    /// The accept requests by listener.
    accepting: Vec<Option<Request>>,
    /// The same, but file descriptors have run out: retried when one becomes free.
    starved: Vec<usize>,
    reserve: Option<SpareDescriptor>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    open: usize,
    turn: Vec<usize>,
    jobs: Vec<Job>,
    woken: bool,
    now_ns: u64,
}

/// Serves with a ring until a stop is requested.
pub(super) fn run(
    service: &Arc<Service>,
    number: usize,
    ports: Vec<Port>,
    many: bool,
) -> Result<(), ServeError> {
    let mut ring = NetRing::new(many).map_err(ServeError::system(SystemOperation::CreateRing))?;
    let mut listeners = Vec::new();
    for port in ports {
        port.listener
            .set_may_block()
            .map_err(ServeError::system(SystemOperation::PrepareListener))?;
        listeners.push((Arc::new(port.listener), port.settings));
    }
    let mut ring_loop = RingLoop::new(service, listeners);
    let (mut checked_ns, mut stop_ns) = (ring_loop.now_ns, None);
    loop {
        if std::mem::take(&mut ring_loop.woken) {
            service.waker(number).clear();
            ring.watch(service.waker(number));
        }
        if service.is_stopping() {
            // Connections that the kernel accepted before this are served.
            ring_loop.accepting.drain(..).flatten().for_each(|request| ring.cancel(request));
        } else {
            for at in std::mem::take(&mut ring_loop.to_accept) {
                ring_loop.accepting[at] = Some(ring.accept(&ring_loop.listeners[at].0, at));
            }
        }
        let timeout = match ring_loop.turn.is_empty() {
            false => Duration::ZERO,
            true if service.is_stopping() && stop_ns.is_none() => GRACE_CHECK,
            true => CHECK_INTERVAL,
        };
        ring_loop.reap(&mut ring, timeout).map_err(ServeError::system(SystemOperation::Wait))?;
        if service.ends_reading(ring_loop.now_ns) && stop_ns.is_none() {
            stop_ns = Some(ring_loop.now_ns + service.limits.stop.as_nanos() as u64);
            ring_loop.begin_stop();
        }
        if !ring_loop.work(&mut ring) {
            return Ok(());
        }
        if u128::from(ring_loop.now_ns - checked_ns) >= CHECK_INTERVAL.as_nanos() {
            checked_ns = ring_loop.now_ns;
            ring_loop.cut_overdue();
        }
        if stop_ns.is_some_and(|stop_ns| ring_loop.open == 0 || ring_loop.now_ns >= stop_ns) {
            return Ok(());
        }
    }
}

impl<'a> RingLoop<'a> {
    fn new(service: &'a Arc<Service>, listeners: Vec<(Arc<Listener>, Settings)>) -> Self {
        Self {
            service,
            to_accept: (0..listeners.len()).collect(),
            accepting: listeners.iter().map(|_| None).collect(),
            listeners,
            starved: Vec::new(),
            reserve: SpareDescriptor::new().ok(),
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            turn: Vec::new(),
            jobs: Vec::new(),
            woken: true,
            now_ns: clock::monotonic_ns(),
        }
    }
}

impl RingLoop<'_> {
    /// Waits for completions and handles them, with the time after the wait.
    fn reap(&mut self, ring: &mut NetRing, timeout: Duration) -> io::Result<()> {
        let mut is_current = false;
        ring.reap(timeout, &mut |event| {
            if !std::mem::replace(&mut is_current, true) {
                self.now_ns = clock::monotonic_ns();
            }
            self.handle(event);
        })?;
        self.now_ns = clock::monotonic_ns();
        Ok(())
    }

    /// Handles a completion.
    fn handle(&mut self, event: Event<'_>) {
        match event {
            Event::Woken => self.woken = true,
            Event::Accepted { token, socket, more } => {
                let mut is_starved = false;
                match socket {
                    Ok(socket) => self.admit(socket, token),
                    Err(e) if is_out_of_sockets(&e) => {
                        let listener = &self.listeners[token].0;
                        let reserve = self.reserve.as_mut();
                        is_starved = !reserve.is_some_and(|r| r.reject_one(listener));
                        if !is_starved {
                            self.service.rejected(Rejected::Descriptors);
                        }
                    }
                    Err(_) => {}
                }
                if !more {
                    if let Some(request) = self.accepting.get_mut(token) {
                        *request = None;
                    }
                    let again = if is_starved { &mut self.starved } else { &mut self.to_accept };
                    again.push(token);
                }
            }
            Event::Received { token, bytes, more } => {
                let Some(slot) = self.slots[token].as_mut() else { return };
                if !more {
                    (slot.reading, slot.is_cancelled) = (None, false);
                }
                let (service, now_ns) = (self.service, self.now_ns);
                match bytes {
                    Ok(bytes) => {
                        slot.connection.arrived(
                            token,
                            service,
                            Some(bytes),
                            &mut self.jobs,
                            now_ns,
                        );
                    }
                    // The request was cancelled, or no shared buffer was free; it is submitted
                    // again later.
                    Err(e) if is_transient(&e) => {}
                    Err(_) => slot.is_dead = true,
                }
                self.enter_turn(token);
            }
            Event::Sent { token, bytes, sent } => {
                let Some(slot) = self.slots[token].as_mut() else { return };
                debug_assert!(slot.is_sending, "the completion belongs to an earlier connection");
                slot.is_sending = false;
                match sent {
                    Ok(sent) => slot.connection.sent(bytes, sent, self.now_ns),
                    Err(_) => slot.is_dead = true,
                }
                self.enter_turn(token);
            }
        }
    }
}

impl RingLoop<'_> {
    fn admit(&mut self, mut socket: Socket, port: usize) {
        let settings = self.listeners[port].1;
        let most = connections_max(self.service);
        let Some(seat) = self.service.admit(most, || socket.peer()) else {
            turn_away(self.service, &settings, &socket);
            return;
        };
        if self.service.ends_reading(self.now_ns) {
            self.service.leave(seat);
            return;
        }
        socket.set_mark(seat);
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let transport = (self.service.transport(), settings);
        self.slots[at] = Some(Slot {
            connection: Connection::new(socket, transport, false, self.now_ns),
            reading: None,
            is_cancelled: false,
            is_sending: false,
            is_dead: false,
            is_in_turn: false,
        });
        self.open += 1;
        self.enter_turn(at);
    }

    fn enter_turn(&mut self, at: usize) {
        if let Some(slot) = self.slots[at].as_mut()
            && !slot.is_in_turn
        {
            slot.is_in_turn = true;
            self.turn.push(at);
        }
    }

    /// Answers what has arrived and submits the next requests; returns false if the store failed.
    fn work(&mut self, ring: &mut NetRing) -> bool {
        let turn = std::mem::take(&mut self.turn);
        let mut jobs = std::mem::take(&mut self.jobs);
        for at in &turn {
            let Some(slot) = self.slots[*at].as_mut() else { continue };
            slot.is_in_turn = false;
            if !slot.is_dead && slot.connection.has_more() {
                slot.connection.arrived(*at, self.service, None, &mut jobs, self.now_ns);
            }
        }
        if self.service.answer(&mut jobs, self.now_ns).is_err() {
            return false;
        }
        // These clients have their time from now on. The next check uses the time of the turn:
        // others may have sent data while a commit was waited for.
        let turn_ns = self.now_ns;
        if !jobs.is_empty() {
            self.now_ns = clock::monotonic_ns();
        }
        for job in jobs.drain(..) {
            if let Some(slot) = self.slots[job.token].as_mut() {
                slot.connection.renew_deadline(self.now_ns);
                slot.connection.push_answers(std::slice::from_ref(&job), self.now_ns);
            }
        }
        self.jobs = jobs;
        for at in turn {
            self.settle(at, ring);
        }
        self.now_ns = turn_ns;
        true
    }

    fn settle(&mut self, at: usize, ring: &mut NetRing) {
        let Some(slot) = self.slots[at].as_mut() else { return };
        let connection = &mut slot.connection;
        // A handshake sends data without a request.
        connection.push_answers(&[], self.now_ns);
        if !slot.is_sending
            && !slot.is_dead
            && let Some(bytes) = connection.take_output()
        {
            slot.is_sending = true;
            ring.send(&connection.socket, at, bytes);
        }
        if !slot.is_dead {
            match connection.next(self.service, self.now_ns) {
                Next::Close => slot.is_dead = true,
                Next::Again => return self.enter_turn(at),
                Next::Wait => {}
            }
        }
        if slot.is_dead {
            return self.close(at);
        }
        let wants = connection.wanted(self.service).read && !connection.has_more();
        match slot.reading {
            None if wants => slot.reading = Some(ring.recv(&connection.socket, at)),
            Some(request) if !wants && !slot.is_cancelled => {
                slot.is_cancelled = true;
                ring.cancel(request);
            }
            _ => {}
        }
    }

    /// Closes a connection. While something is in flight, only shuts the socket down.
    fn close(&mut self, at: usize) {
        let Some(slot) = self.slots[at].as_mut() else { return };
        slot.is_dead = true;
        // Reusing the slot now would deliver a late completion to another connection.
        if slot.reading.is_some() || slot.is_sending {
            let _ = slot.connection.socket.shutdown_read();
            let _ = slot.connection.socket.shutdown_write();
            return;
        }
        let seat = slot.connection.socket.mark();
        self.slots[at] = None;
        debug_assert!(!self.free.contains(&at), "two connections would share a slot");
        self.free.push(at);
        self.open -= 1;
        self.to_accept.append(&mut self.starved);
        self.service.leave(seat);
    }

    fn cut_overdue(&mut self) {
        self.to_accept.append(&mut self.starved);
        for at in 0..self.slots.len() {
            let slot = self.slots[at].as_ref().filter(|slot| !slot.is_dead);
            if let Some(why) =
                slot.and_then(|slot| slot.connection.overdue(self.service, self.now_ns))
            {
                self.service.cut(why);
                self.close(at);
            }
        }
    }

    fn begin_stop(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            slot.connection.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::live::Reload;
    use crate::service::NullStore;

    #[test]
    fn timeouts_exclude_the_turn_that_answers_and_the_wait_for_completions() {
        let service = Service::with_store(Box::new(NullStore));
        let limits = Limits { idle: Duration::from_secs(60), ..Limits::default() };
        service.live.reload(&Reload { access: None, tls: None, limits }, None).unwrap();
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 1).unwrap();
        listener.set_may_block().unwrap();
        let client = Socket::connect(listener.address().unwrap()).unwrap();
        let socket = listener.accept(true).unwrap();
        let Ok(mut ring) = NetRing::new(false) else {
            return; // io_uring is not available.
        };
        let mut ring_loop =
            RingLoop::new(&service, vec![(Arc::new(listener), Settings::default())]);
        let overdue = |ring_loop: &RingLoop<'_>| {
            let slot = ring_loop.slots[0].as_ref().unwrap();
            slot.connection.overdue(&service, clock::monotonic_ns())
        };
        // The turn began long ago.
        ring_loop.now_ns = 1;
        ring_loop.admit(socket, 0);
        let bytes = Ok(&b"show\nsho"[..]);
        ring_loop.handle(Event::Received { token: 0, bytes, more: false });
        assert!(overdue(&ring_loop).is_some());
        assert!(ring_loop.work(&mut ring));
        assert_eq!(overdue(&ring_loop), None);
        assert_eq!(ring_loop.now_ns, 1, "others may have sent data since");
        // The completion of the answer.
        ring_loop.reap(&mut ring, Duration::from_secs(10)).unwrap();
        assert_eq!(overdue(&ring_loop), None);
        drop(client);
    }
}

//! Blocking threads: one connection at a time, one thread per connection, or a [pool](super::pool).
//!
//! A thread serves a connection until it closes. In the pool and in the iterative server, an idle
//! client keeps others waiting. If others are waiting, a connection that is idle for longer than
//! [`Limits::hog`](crate::Limits) is therefore closed.

use super::port::{Port, connections_max};
use super::stop::wait_for_stop;
use crate::error::{ServeError, SystemOperation};
use crate::metrics::{Cut, Rejected};
use crate::service::Service;
use crate::sharing::Job;
use crate::transport::{Stage, Transport};
use ioloom_exchange::{Settings, encode};
use ioloom_sys::clock;
use ioloom_sys_net::wait::{Interest, Poll, Ready, Waiter};
use ioloom_sys_net::{Socket, SpareDescriptor, Waker, concerns_one_connection, is_out_of_sockets};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Interval at which a blocked read checks for timeouts.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which a blocked read without a timeout checks whether a reload has set one.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long to wait for the client to close after shutting down writing.
const LINGER: Duration = Duration::from_secs(1);
/// Stack size of a thread that serves one connection, without and with TLS.
const STACK_BYTES: usize = 128 * 1024;
const STACK_TLS_BYTES: usize = 512 * 1024;

/// Sockets of threads that may be blocked on their clients, so a stop can interrupt them: first
/// their reads and, after the stop timeout, also their writes.
#[derive(Default)]
pub(super) struct OpenSockets {
    state: Mutex<OpenState>,
    ended: Condvar,
}

#[derive(Default)]
struct OpenState {
    sockets: HashMap<usize, Arc<Socket>>,
    /// Number of threads that are serving a connection.
    serving: usize,
    /// Whether the stop timeout has expired.
    is_late: bool,
}

impl OpenSockets {
    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.state.lock().expect("the lock must not be poisoned")
    }

    fn enter(&self, key: usize, socket: &Arc<Socket>, service: &Service) {
        let mut state = self.lock();
        state.sockets.insert(key, Arc::clone(socket));
        // A stop before this point has not seen the socket.
        if service.ends_reading(clock::monotonic_ns()) {
            let _ = socket.shutdown_read();
        }
        if state.is_late {
            let _ = socket.shutdown_write();
        }
    }

    fn leave(&self, key: usize) {
        self.lock().sockets.remove(&key);
    }

    pub(super) fn end_reading(&self) {
        for socket in self.lock().sockets.values() {
            let _ = socket.shutdown_read();
        }
    }

    /// Also shuts down writing, for threads blocked on clients that do not accept their answers.
    fn end_writing(&self) {
        let mut state = self.lock();
        state.is_late = true;
        for socket in state.sockets.values() {
            let _ = socket.shutdown_write();
        }
    }

    /// Waits until no thread is serving a connection, and shuts down writing after `limit`.
    pub(super) fn give_time(&self, limit: Duration) {
        let is_on = |state: &mut OpenState| state.serving > 0;
        let waited = self.ended.wait_timeout_while(self.lock(), limit, is_on);
        let is_late = waited.expect("the lock must not be poisoned").1.timed_out();
        if is_late {
            self.end_writing();
        }
    }

    /// Registers a thread that serves a connection.
    pub(super) fn begin(&self) {
        self.lock().serving += 1;
    }

    /// Unregisters a thread that served a connection.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        assert!(state.serving > 0, "a stop would return while threads are still serving");
        state.serving -= 1;
        drop(state);
        self.ended.notify_all();
    }
}

/// State shared between the threads of a blocking model.
pub(super) struct Handler<'a> {
    pub(super) service: &'a Service,
    pub(super) open: &'a OpenSockets,
    /// Returns true if others wait for a thread, in models where an idle client can block them.
    pub(super) others_wait: Option<&'a dyn Fn() -> bool>,
}

impl Handler<'_> {
    /// Serves one connection, including registration and counting.
    pub(super) fn serve(&self, key: usize, socket: Socket, settings: &Settings) {
        let socket = Arc::new(socket);
        self.open.enter(key, &socket, self.service);
        if let Ok(Some(why)) = serve(self.service, &socket, settings, self.others_wait) {
            self.service.cut(why);
        }
        self.open.leave(key);
        let seat = socket.mark();
        drop(socket);
        self.service.leave(seat);
    }
}

/// Serves a connection until it closes; returns the timeout that closed it, if any.
fn serve(
    service: &Service,
    socket: &Socket,
    settings: &Settings,
    others_wait: Option<&dyn Fn() -> bool>,
) -> io::Result<Option<Cut>> {
    let mut connection = BlockingConnection::new(service, socket);
    let (mut out, mut jobs) = (Vec::new(), Vec::new());
    loop {
        let read = match connection.read(others_wait)? {
            ReadOutcome::Bytes(read) => read,
            ReadOutcome::End => return connection.send_end().map(|()| None),
            ReadOutcome::Late(why) => return Ok(Some(why)),
        };
        if !connection.take(read, &mut jobs) {
            return Ok(Some(Cut::Request));
        }
        if service.answer(&mut jobs, connection.active_ns).is_err() {
            return Ok(None);
        }
        out.clear();
        for job in jobs.drain(..) {
            if let Some(answer) = &job.answer {
                encode(job.request.form, settings, answer, &mut out);
            }
        }
        connection.transport.seal(&mut out, 0);
        if !send_all(service, socket, &out)? {
            return Ok(Some(Cut::Drain));
        }
        connection.renew_deadline(&out);
        // An idle client must not occupy memory for earlier answers.
        if out.capacity() > BUFFER_BYTES && !connection.transport.has_more() {
            out = Vec::new();
        }
        if connection.transport.is_over() {
            connection.send_end()?;
            return linger(socket, &mut connection.buffer).map(|()| None);
        }
    }
}

/// Result of waiting for bytes.
enum ReadOutcome {
    /// Number of bytes received; 0 if there are requests left in the buffer.
    Bytes(usize),
    /// The client has closed its side of the stream.
    End,
    /// A timeout expired.
    Late(Cut),
}

/// A connection served by a blocking thread.
struct BlockingConnection<'a> {
    service: &'a Service,
    socket: &'a Socket,
    transport: Transport,
    buffer: Vec<u8>,
    /// Whether reads check often for timeouts; `None` before the first read.
    checking: Option<bool>,
    /// Time when the client last sent data.
    active_ns: u64,
    /// Start time of the incomplete request or handshake; 0 if there is none.
    begun_ns: u64,
}

impl<'a> BlockingConnection<'a> {
    fn new(service: &'a Service, socket: &'a Socket) -> Self {
        let (transport, now_ns) = (service.transport(), clock::monotonic_ns());
        let begun_ns = if transport.stage() == Stage::Idle { 0 } else { now_ns };
        let buffer = vec![0; BUFFER_BYTES];
        Self { service, socket, transport, buffer, checking: None, active_ns: now_ns, begun_ns }
    }

    /// Waits for bytes until a timeout expires.
    fn read(&mut self, others_wait: Option<&dyn Fn() -> bool>) -> io::Result<ReadOutcome> {
        let (limits, live) = (&self.service.limits, &self.service.live);
        let check = others_wait.is_some() || self.begun_ns != 0 || !live.idle().is_zero();
        if self.checking != Some(check) {
            let interval = if check { CHECK_INTERVAL } else { RELOAD_INTERVAL };
            self.socket.set_timeouts(Some(interval), Some(limits.drain))?;
            self.checking = Some(check);
        }
        if self.transport.has_ended() && !self.transport.has_more() {
            return Ok(ReadOutcome::End);
        }
        loop {
            let read =
                if self.transport.has_more() { Ok(0) } else { self.socket.recv(&mut self.buffer) };
            let now_ns = clock::monotonic_ns();
            match read {
                Ok(0) if !self.transport.has_more() => return Ok(ReadOutcome::End),
                Ok(read) => {
                    self.active_ns = now_ns;
                    return Ok(ReadOutcome::Bytes(read));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let late = self.begun_ns != 0 && passed(self.begun_ns, live.request(), now_ns);
                    let limit = live.idle();
                    let idle = !limit.is_zero() && passed(self.active_ns, limit, now_ns);
                    let waited_for = || others_wait.is_some_and(|others_wait| others_wait());
                    let hogs = passed(self.active_ns, limits.hog, now_ns) && waited_for();
                    for (is_over, why) in
                        [(late, Cut::Request), (idle, Cut::Idle), (hogs, Cut::Waiting)]
                    {
                        if is_over {
                            return Ok(ReadOutcome::Late(why));
                        }
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Parses the received bytes; returns false if a request takes too long.
    fn take(&mut self, read: usize, jobs: &mut Vec<Job>) -> bool {
        let had = self.transport.stage();
        let most = self.service.requests_at_once();
        let fed = self.transport.feed(&self.buffer[..read], most, &mut |request| {
            jobs.push(Service::job(0, request));
        });
        if let Err(reason) = fed {
            self.service.tls_failed(&reason);
        }
        self.service.live.peers.charge(self.socket.mark(), read, jobs, self.active_ns);
        match self.transport.stage() {
            Stage::Idle => self.begun_ns = 0,
            has if has.begins_after(had, !jobs.is_empty()) => self.begun_ns = self.active_ns,
            _ if passed(self.begun_ns, self.service.live.request(), self.active_ns) => {
                return false;
            }
            _ => {}
        }
        true
    }

    /// Restarts the idle and the request timeout after sending answers, because nothing was read
    /// during that time.
    fn renew_deadline(&mut self, sent: &[u8]) {
        if sent.is_empty() {
            return;
        }
        self.active_ns = clock::monotonic_ns();
        if self.begun_ns != 0 && self.transport.stage() == Stage::Request {
            self.begun_ns = self.active_ns;
        }
    }

    /// Announces the end of the stream if the transport has a message for this.
    fn send_end(&mut self) -> io::Result<()> {
        let mut last = Vec::new();
        if self.transport.end(&mut last) {
            // A client that does not accept this has disconnected.
            send_all(self.service, self.socket, &last)?;
        }
        Ok(())
    }
}

fn passed(since_ns: u64, limit: Duration, now_ns: u64) -> bool {
    u128::from(now_ns.saturating_sub(since_ns)) > limit.as_nanos()
}

/// Sends all bytes; returns false if the client takes too long.
fn send_all(service: &Service, socket: &Socket, mut bytes: &[u8]) -> io::Result<bool> {
    let began_ns = clock::monotonic_ns();
    while !bytes.is_empty() {
        match socket.send(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
        if !bytes.is_empty() && passed(began_ns, service.limits.drain, clock::monotonic_ns()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Shuts down writing and keeps reading for a moment; see `connection`.
fn linger(socket: &Socket, buffer: &mut [u8]) -> io::Result<()> {
    socket.shutdown_write()?;
    socket.set_timeouts(Some(CHECK_INTERVAL), None)?;
    let began = clock::monotonic_ns();
    while u128::from(clock::monotonic_ns() - began) < LINGER.as_nanos() {
        match socket.recv(buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Delays accepting: connections wait in the backlog of the kernel until there is room.
pub(super) struct Gate<'a> {
    /// Wakes the accepting thread when there may be room again.
    pub(super) waker: &'a Waker,
    pub(super) has_room: &'a dyn Fn() -> bool,
}

/// Accepts connections until a stop is requested. `take` receives the registered connections.
pub(super) fn accept_all(
    service: &Service,
    ports: &[Port],
    gate: Option<&Gate<'_>>,
    mut take: impl FnMut(Socket, &Port) -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let mut waiter = Poll::default();
    let has_room = || gate.is_none_or(|gate| (gate.has_room)());
    let mut is_open = true;
    let mut reserve = SpareDescriptor::new().ok();
    waiter
        .add(&**service.waker(0), ports.len(), Interest::READ)
        .map_err(ServeError::system(SystemOperation::Wait))?;
    for (at, port) in ports.iter().enumerate() {
        waiter
            .add(&port.listener, at, Interest::READ)
            .map_err(ServeError::system(SystemOperation::Wait))?;
    }
    if let Some(gate) = gate {
        waiter
            .add(gate.waker, ports.len() + 1, Interest::READ)
            .map_err(ServeError::system(SystemOperation::Wait))?;
    }
    let mut ready: Vec<Ready> = Vec::new();
    while !service.is_stopping() {
        if has_room() != is_open {
            is_open = !is_open;
            let interest = Interest { read: is_open, write: false };
            for (at, port) in ports.iter().enumerate() {
                waiter
                    .change(&port.listener, at, interest)
                    .map_err(ServeError::system(SystemOperation::Wait))?;
            }
        }
        waiter.wait(&mut ready, None).map_err(ServeError::system(SystemOperation::Wait))?;
        for event in &ready {
            if let Some(gate) = gate.filter(|_| event.token == ports.len() + 1) {
                gate.waker.clear();
            }
            let Some(port) = ports.get(event.token).filter(|_| has_room()) else { continue };
            match port.listener.accept(true) {
                Ok(mut socket) => match service.admit(connections_max(service), || socket.peer()) {
                    None => port.turn_away(service, &socket),
                    Some(seat) => {
                        socket.set_mark(seat);
                        take(socket, port)?;
                    }
                },
                Err(e) if is_out_of_sockets(&e) => {
                    if reserve.as_mut().is_some_and(|r| r.reject_one(&port.listener)) {
                        service.rejected(Rejected::Descriptors);
                    }
                }
                Err(e) if concerns_one_connection(&e) => {}
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// One connection at a time.
pub(super) fn iterative(service: &Arc<Service>, ports: &[Port]) -> Result<(), ServeError> {
    let open = OpenSockets::default();
    let has_pending = || {
        let mut waiter = Poll::default();
        let mut ready = Vec::new();
        let added = ports.iter().all(|port| waiter.add(&port.listener, 0, Interest::READ).is_ok());
        added && waiter.wait(&mut ready, Some(Duration::ZERO)).is_ok() && !ready.is_empty()
    };
    let handler = Handler { service, open: &open, others_wait: Some(&has_pending) };
    open.begin();
    std::thread::scope(|scope| {
        // The serving thread may be blocked in a read when the stop arrives.
        let stopper = scope.spawn(|| {
            wait_for_stop(service, 1);
            service.wait_for_end_of_reading();
            open.end_reading();
            open.give_time(service.limits.stop);
        });
        let ended = accept_all(service, ports, None, |socket, port| {
            handler.serve(0, socket, &port.settings);
            Ok(())
        });
        service.end();
        open.end();
        stopper.join().expect("the waiting thread must not panic");
        ended
    })
}

/// One thread per connection.
pub(super) fn thread_per_connection(
    service: &Arc<Service>,
    ports: &[Port],
) -> Result<(), ServeError> {
    let open = Arc::new(OpenSockets::default());
    let stack_bytes = if service.is_sealed() { STACK_TLS_BYTES } else { STACK_BYTES };
    let mut key = 0;
    let ended = accept_all(service, ports, None, |socket, port| {
        key += 1;
        let (key, settings, seat) = (key, port.settings, socket.mark());
        open.begin();
        let socket = Arc::new(Mutex::new(Some(socket)));
        let (for_thread, service_too, open_too) =
            (Arc::clone(&socket), Arc::clone(service), Arc::clone(&open));
        let spawned = std::thread::Builder::new().stack_size(stack_bytes).spawn(move || {
            let socket = for_thread.lock().expect("the lock must not be poisoned").take();
            if let Some(socket) = socket {
                let handler = Handler { service: &service_too, open: &open_too, others_wait: None };
                handler.serve(key, socket, &settings);
            }
            open_too.end();
        });
        if spawned.is_err() {
            // The thread could not be started: reject this connection and continue.
            if let Some(socket) = socket.lock().expect("the lock must not be poisoned").take() {
                port.turn_away(service, &socket);
            }
            service.rejected(Rejected::Thread);
            service.leave(seat);
            open.end();
        }
        Ok(())
    });
    service.wait_for_end_of_reading();
    open.end_reading();
    open.give_time(service.limits.stop);
    ended
}

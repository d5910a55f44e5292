//! Threads that block: one connection after the other, one thread for each, or a pool.
//!
//! A thread reads a connection until it ends. In the pool and in the iterative server a silent client
//! keeps others waiting; while somebody waits, a connection that says nothing for longer than
//! [`Limits::hog`](crate::Limits) is therefore ended. The pool's buffer of waiting connections is
//! bounded; when it is full a client is told `BUSY` at once, so nobody waits for ever unnoticed.

use super::port::{Port, connections_max};
use super::stop::wait_for_stop;
use crate::error::{ServeError, SystemOperation};
use crate::service::Service;
use crate::sharing::Job;
use crate::transport::{Stage, Transport};
use ioloom_exchange::{Settings, encode};
use ioloom_sys::clock;
use ioloom_sys_net::wait::{Interest, Poll, Ready, Waiter};
use ioloom_sys_net::{Socket, SpareDescriptor, concerns_one_connection, is_out_of_sockets};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a read blocks while there is something to look at now and then.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long the end of a client is waited for after ours.
const LINGER: Duration = Duration::from_secs(1);
/// Stack of a thread that serves one connection, and of one that shakes hands before.
const STACK_BYTES: usize = 128 * 1024;
const STACK_TLS_BYTES: usize = 512 * 1024;

/// Sockets of threads that may be waiting for their clients, so that a stop can end that: at first
/// their reads, and when the time of the stop is over their writes too.
#[derive(Default)]
struct OpenSockets {
    state: Mutex<OpenState>,
    ended: Condvar,
}

#[derive(Default)]
struct OpenState {
    sockets: HashMap<usize, Arc<Socket>>,
    /// Threads that serve.
    serving: usize,
    /// The time of the stop is over.
    is_late: bool,
}

impl OpenSockets {
    fn lock(&self) -> MutexGuard<'_, OpenState> {
        self.state.lock().expect("no panic under this lock")
    }

    fn enter(&self, key: usize, socket: &Arc<Socket>, service: &Service) {
        let mut state = self.lock();
        state.sockets.insert(key, Arc::clone(socket));
        // A stop before this moment has not seen the socket.
        if service.is_stopping() {
            let _ = socket.shutdown_read();
        }
        if state.is_late {
            let _ = socket.shutdown_write();
        }
    }

    fn leave(&self, key: usize) {
        self.lock().sockets.remove(&key);
    }

    fn end_reading(&self) {
        for socket in self.lock().sockets.values() {
            let _ = socket.shutdown_read();
        }
    }

    /// Ends writes too: who waits for a client that does not take its answers is done with it.
    fn end_writing(&self) {
        let mut state = self.lock();
        state.is_late = true;
        for socket in state.sockets.values() {
            let _ = socket.shutdown_write();
        }
    }

    /// Waits until no thread serves any more, and ends writes when that takes longer than a stop may.
    fn give_time(&self, limit: Duration) {
        let is_on = |state: &mut OpenState| state.serving > 0;
        let waited = self.ended.wait_timeout_while(self.lock(), limit, is_on);
        let is_late = waited.expect("no panic under this lock").1.timed_out();
        if is_late {
            self.end_writing();
        }
    }

    /// A thread begins to serve.
    fn begin(&self) {
        self.lock().serving += 1;
    }

    /// A thread does not serve any more.
    fn end(&self) {
        self.lock().serving -= 1;
        self.ended.notify_all();
    }
}

/// What the threads of a blocking model share.
struct Handler<'a> {
    service: &'a Service,
    open: &'a OpenSockets,
    /// Whether others wait for a thread, in models in which a silent client can keep them waiting.
    others_wait: Option<&'a dyn Fn() -> bool>,
}

impl Handler<'_> {
    /// Serves one connection, with everything around it.
    fn serve(&self, key: usize, socket: Socket, settings: &Settings) {
        let socket = Arc::new(socket);
        self.open.enter(key, &socket, self.service);
        if let Ok(true) = serve(self.service, &socket, settings, self.others_wait) {
            self.service.counts.cut.fetch_add(1, Ordering::Relaxed);
        }
        self.open.leave(key);
        drop(socket);
        self.service.leave();
    }
}

/// Serves a connection until its end; true if it was cut.
fn serve(
    service: &Service,
    socket: &Socket,
    settings: &Settings,
    others_wait: Option<&dyn Fn() -> bool>,
) -> io::Result<bool> {
    let mut connection = BlockingConnection::new(service, socket);
    let (mut out, mut jobs) = (Vec::new(), Vec::new());
    loop {
        let read = match connection.read(others_wait)? {
            ReadOutcome::Bytes(read) => read,
            ReadOutcome::End => return connection.send_end().map(|()| false),
            ReadOutcome::Late => return Ok(true),
        };
        if !connection.take(read, &mut jobs) {
            return Ok(true);
        }
        if service.answer(&mut jobs).is_err() {
            return Ok(false);
        }
        out.clear();
        for job in jobs.drain(..) {
            if let Some(answer) = &job.answer {
                encode(job.request.form, settings, answer, &mut out);
            }
        }
        connection.transport.seal(&mut out, 0);
        if !send_all(service, socket, &out, connection.active_ns)? {
            return Ok(true);
        }
        connection.renew_deadline(&out);
        // Who is silent now holds no memory for what it once asked.
        if out.capacity() > BUFFER_BYTES && !connection.transport.has_more() {
            out = Vec::new();
        }
        if connection.transport.is_over() {
            connection.send_end()?;
            return linger(socket, &mut connection.buffer).map(|()| false);
        }
    }
}

/// What has come of waiting for bytes.
enum ReadOutcome {
    /// So many bytes; none if requests of earlier ones are left.
    Bytes(usize),
    /// The client sends no more.
    End,
    /// It took too long.
    Late,
}

/// One connection of a thread that blocks in it.
struct BlockingConnection<'a> {
    service: &'a Service,
    socket: &'a Socket,
    transport: Transport,
    buffer: Vec<u8>,
    /// Whether reads are interrupted now and then; not decided yet at first.
    checking: Option<bool>,
    /// When the client last said something.
    active_ns: u64,
    /// When the request or the handshake that is incomplete began; 0 if none is.
    begun_ns: u64,
}

impl<'a> BlockingConnection<'a> {
    fn new(service: &'a Service, socket: &'a Socket) -> Self {
        let (transport, now_ns) = (service.transport(), clock::monotonic_ns());
        let begun_ns = if transport.stage() == Stage::Idle { 0 } else { now_ns };
        let buffer = vec![0; BUFFER_BYTES];
        Self { service, socket, transport, buffer, checking: None, active_ns: now_ns, begun_ns }
    }

    /// Waits for bytes, as long as is allowed.
    fn read(&mut self, others_wait: Option<&dyn Fn() -> bool>) -> io::Result<ReadOutcome> {
        let limits = &self.service.limits;
        let check = others_wait.is_some() || self.begun_ns != 0 || !limits.idle.is_zero();
        if self.checking != Some(check) {
            self.socket.set_timeouts(check.then_some(CHECK_INTERVAL), Some(limits.drain))?;
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
                    let late = self.begun_ns != 0 && passed(self.begun_ns, limits.request, now_ns);
                    let idle =
                        !limits.idle.is_zero() && passed(self.active_ns, limits.idle, now_ns);
                    let waited_for = || others_wait.is_some_and(|others_wait| others_wait());
                    let hogs = passed(self.active_ns, limits.hog, now_ns) && waited_for();
                    if late || idle || hogs {
                        return Ok(ReadOutcome::Late);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes the requests of bytes that were read; false if one takes too long.
    fn take(&mut self, read: usize, jobs: &mut Vec<Job>) -> bool {
        let had = self.transport.stage();
        let most = self.service.requests_at_once();
        let fed = self.transport.feed(&self.buffer[..read], most, &mut |request| {
            jobs.push(Service::job(0, request));
        });
        if let Err(reason) = fed {
            self.service.tls_failed(&reason);
        }
        match self.transport.stage() {
            Stage::Idle => self.begun_ns = 0,
            has if has.begins_after(had, !jobs.is_empty()) => self.begun_ns = self.active_ns,
            _ if passed(self.begun_ns, self.service.limits.request, self.active_ns) => {
                return false;
            }
            _ => {}
        }
        true
    }

    /// Gives what the client has begun its whole time, once answers were sent: meanwhile nothing was read.
    fn renew_deadline(&mut self, sent: &[u8]) {
        if self.begun_ns != 0 && !sent.is_empty() && self.transport.stage() == Stage::Request {
            self.begun_ns = clock::monotonic_ns();
        }
    }

    /// Says that nothing more comes, where the words of the connection have a way to say it.
    fn send_end(&mut self) -> io::Result<()> {
        let mut last = Vec::new();
        if self.transport.end(&mut last) {
            // Whoever does not take it has gone.
            send_all(self.service, self.socket, &last, clock::monotonic_ns())?;
        }
        Ok(())
    }
}

fn passed(since_ns: u64, limit: Duration, now_ns: u64) -> bool {
    u128::from(now_ns.saturating_sub(since_ns)) > limit.as_nanos()
}

/// Sends everything; false if the client takes too long.
fn send_all(service: &Service, socket: &Socket, mut bytes: &[u8], began: u64) -> io::Result<bool> {
    while !bytes.is_empty() {
        match socket.send(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
        let spent_ns = clock::monotonic_ns().saturating_sub(began);
        if !bytes.is_empty() && u128::from(spent_ns) > service.limits.drain.as_nanos() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says that nothing more comes and reads on for a moment: see `connection`.
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

/// Accepts until it is asked to stop; `take` gets connections that were counted in.
fn accept_all(
    service: &Service,
    ports: &[Port],
    mut take: impl FnMut(Socket, &Port) -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let mut waiter = Poll::default();
    let mut reserve = SpareDescriptor::new().ok();
    waiter
        .add(&**service.waker(0), ports.len(), Interest::READ)
        .map_err(ServeError::system(SystemOperation::Wait))?;
    for (at, port) in ports.iter().enumerate() {
        waiter
            .add(&port.listener, at, Interest::READ)
            .map_err(ServeError::system(SystemOperation::Wait))?;
    }
    let mut ready: Vec<Ready> = Vec::new();
    while !service.is_stopping() {
        waiter.wait(&mut ready, None).map_err(ServeError::system(SystemOperation::Wait))?;
        for event in &ready {
            let Some(port) = ports.get(event.token) else { continue };
            match port.listener.accept(true) {
                Ok(socket) if !service.admit(connections_max(service)) => {
                    port.turn_away(service, &socket)
                }
                Ok(socket) => take(socket, port)?,
                Err(e) if is_out_of_sockets(&e) => {
                    if let Some(reserve) = &mut reserve {
                        reserve.reject_one(&port.listener);
                    }
                }
                Err(e) if concerns_one_connection(&e) => {}
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// One connection after the other.
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
        // The one thread may block in a read when the stop comes.
        let stopper = scope.spawn(|| {
            wait_for_stop(service, 1);
            open.end_reading();
            open.give_time(service.limits.stop);
        });
        let ended = accept_all(service, ports, |socket, port| {
            handler.serve(0, socket, &port.settings);
            Ok(())
        });
        service.stop();
        open.end();
        stopper.join().expect("waiting does not panic");
        ended
    })
}

/// A thread for each connection.
pub(super) fn thread_per_connection(
    service: &Arc<Service>,
    ports: &[Port],
) -> Result<(), ServeError> {
    let open = Arc::new(OpenSockets::default());
    let stack_bytes = if service.is_sealed() { STACK_TLS_BYTES } else { STACK_BYTES };
    let mut key = 0;
    let ended = accept_all(service, ports, |socket, port| {
        key += 1;
        let (key, settings) = (key, port.settings);
        open.begin();
        let socket = Arc::new(Mutex::new(Some(socket)));
        let (for_thread, service_too, open_too) =
            (Arc::clone(&socket), Arc::clone(service), Arc::clone(&open));
        let spawned = std::thread::Builder::new().stack_size(stack_bytes).spawn(move || {
            let socket = for_thread.lock().expect("no panic under this lock").take();
            if let Some(socket) = socket {
                let handler = Handler { service: &service_too, open: &open_too, others_wait: None };
                handler.serve(key, socket, &settings);
            }
            open_too.end();
        });
        if spawned.is_err() {
            // No thread for it: it is told so, and the others go on.
            if let Some(socket) = socket.lock().expect("no panic under this lock").take() {
                port.turn_away(service, &socket);
            }
            service.counts.turned_away.fetch_add(1, Ordering::Relaxed);
            service.leave();
            open.end();
        }
        Ok(())
    });
    open.end_reading();
    open.give_time(service.limits.stop);
    ended
}

/// The bounded buffer between the thread that accepts and those that serve.
struct Buffer {
    waiting: Mutex<VecDeque<(Socket, Settings)>>,
    changed: Condvar,
    most: usize,
}

impl Buffer {
    fn insert(&self, socket: Socket, settings: Settings) -> Result<(), Socket> {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        if waiting.len() >= self.most {
            return Err(socket);
        }
        waiting.push_back((socket, settings));
        self.changed.notify_one();
        Ok(())
    }

    fn remove(&self, service: &Service) -> Option<(Socket, Settings)> {
        let mut waiting = self.waiting.lock().expect("no panic under this lock");
        loop {
            if let Some(next) = waiting.pop_front() {
                return Some(next);
            }
            if service.is_stopping() {
                return None;
            }
            waiting = self.changed.wait(waiting).expect("no panic under this lock");
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().expect("no panic under this lock").is_empty()
    }
}

/// So many threads, each with one connection until it ends; others wait in the bounded buffer.
pub(super) fn pool(service: &Arc<Service>, ports: &[Port]) -> Result<(), ServeError> {
    let open = OpenSockets::default();
    let buffer = Buffer {
        waiting: Mutex::default(),
        changed: Condvar::new(),
        most: service.limits.waiting.max(1),
    };
    let (open, buffer) = (&open, &buffer);
    std::thread::scope(|scope| {
        let mut ended = Ok(());
        for number in 0..service.limits.threads.max(1) {
            let builder = std::thread::Builder::new().name(format!("pool-{number}"));
            let worker = move || {
                let others_wait = || !buffer.is_empty();
                let handler = Handler { service, open, others_wait: Some(&others_wait) };
                while let Some((socket, settings)) = buffer.remove(service) {
                    handler.serve(number, socket, &settings);
                }
                open.end();
            };
            open.begin();
            if let Err(source) = builder.spawn_scoped(scope, worker) {
                open.end();
                service.stop();
                ended = Err(ServeError::System { operation: SystemOperation::StartThread, source });
                break;
            }
        }
        let ended = ended.and_then(|()| {
            accept_all(service, ports, |socket, port| {
                if let Err(socket) = buffer.insert(socket, port.settings) {
                    port.turn_away(service, &socket);
                    service.counts.turned_away.fetch_add(1, Ordering::Relaxed);
                    service.leave();
                }
                Ok(())
            })
        });
        // Also where accepting failed. Those that wait for work see it once they hold the lock.
        service.stop();
        drop(buffer.waiting.lock().expect("no panic under this lock"));
        buffer.changed.notify_all();
        open.end_reading();
        open.give_time(service.limits.stop);
        ended
    })
}

//! A non-blocking connection: received bytes, pending output, and timeouts.
//!
//! Bytes are read into a buffer that belongs to the loop. A connection stores only an incomplete
//! request and answers that its client has not accepted yet. An idle connection stores neither, so
//! ten thousand of them are cheap.
//!
//! To close a connection, the server first shuts down writing and then keeps reading for a moment:
//! closing a socket with unread bytes would reset the connection, and the client might never
//! receive its last answer.

use crate::metrics::Cut;
use crate::service::Service;
use crate::sharing::Job;
use crate::transport::{Stage, Transport};
use ioloom_exchange::{Settings, encode};
use ioloom_sys::clock;
use ioloom_sys_net::Socket;
use ioloom_sys_net::wait::Interest;
use std::io;
use std::sync::Arc;

/// How long to read after shutting down writing, in nanoseconds.
const LINGER_NS: u64 = 1_000_000_000;

/// What to do next with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for an event.
    Wait,
    /// Continue without waiting: there are more requests or unread bytes.
    Again,
    /// Close the connection.
    Close,
}

pub(crate) struct Connection {
    pub(crate) socket: Arc<Socket>,
    transport: Transport,
    settings: Settings,
    output: Vec<u8>,
    sent: usize,
    /// Number of bytes that a ring is sending.
    sending: usize,
    /// Parsed requests whose answers are not in the output yet.
    unanswered: usize,
    /// Whether the client has closed its side of the stream.
    ended: bool,
    /// Time when writing was shut down; 0 if it was not.
    lingering_ns: u64,
    /// Time when the client last sent or accepted data.
    active_ns: u64,
    /// Start time of the incomplete request or handshake; 0 if there is none.
    begun_ns: u64,
    /// Time since which answers are pending; 0 if there are none.
    pending_ns: u64,
    /// Number of bytes that were pending at that time and still are.
    pending_then: usize,
    /// Whether the output limit is reached; nothing is read, and the current request cannot
    /// complete.
    is_full: bool,
    /// Whether a read may return more data.
    readable: bool,
    /// With edge triggering, no further event announces remaining bytes. Reading therefore
    /// continues after a short read, because the end of the stream may follow.
    by_edge: bool,
    pub(crate) interest: Interest,
    /// Whether it is queued to continue without waiting.
    pub(crate) is_queued: bool,
}

impl Connection {
    pub(crate) fn new(
        socket: Socket,
        (transport, settings): (Transport, Settings),
        by_edge: bool,
        now_ns: u64,
    ) -> Self {
        let begun_ns = if transport.stage() == Stage::Idle { 0 } else { now_ns };
        Self {
            socket: Arc::new(socket),
            transport,
            settings,
            output: Vec::new(),
            sent: 0,
            sending: 0,
            unanswered: 0,
            ended: false,
            lingering_ns: 0,
            active_ns: now_ns,
            begun_ns,
            pending_ns: 0,
            pending_then: 0,
            is_full: false,
            readable: false,
            by_edge,
            interest: Interest::READ,
            is_queued: false,
        }
    }

    /// Marks the connection as readable.
    pub(crate) fn set_readable(&mut self) {
        self.readable = true;
    }

    /// Restarts the idle and the request timeout after a time in which nothing was read.
    pub(crate) fn renew_deadline(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
        if self.begun_ns != 0 && self.transport.stage() == Stage::Request {
            self.begun_ns = now_ns;
        }
    }

    /// Returns true if the client has not ended its TLS handshake or not presented the required token.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.transport.stage() == Stage::Handshake
    }

    fn pending_bytes(&self) -> usize {
        self.output.len() - self.sent + self.sending
    }

    /// Reads once and parses the complete requests. On error, the connection must be closed.
    pub(crate) fn take(
        &mut self,
        token: usize,
        service: &Service,
        buffer: &mut [u8],
        jobs: &mut Vec<Job>,
        now_ns: u64,
    ) -> io::Result<()> {
        if self.lingering_ns != 0 {
            return self.discard(buffer);
        }
        if self.pending_bytes() > service.limits.output_bytes || self.transport.is_over() {
            return Ok(());
        }
        let mut read = 0;
        if self.readable && !self.ended && !self.transport.has_more() {
            match self.socket.recv(buffer) {
                Ok(0) => {
                    self.ended = true;
                    self.readable = false;
                }
                Ok(n) => {
                    read = n;
                    self.active_ns = now_ns;
                    self.readable = self.by_edge || n == buffer.len();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(e) => return Err(e),
            }
        }
        let most = service.requests_at_once();
        self.feed(token, service, (&buffer[..read], most), jobs, now_ns);
        Ok(())
    }

    /// Parses the requests in bytes received by a ring; an empty slice means the end of the stream.
    /// With `None`, parses requests left in the buffer.
    pub(crate) fn arrived(
        &mut self,
        token: usize,
        service: &Service,
        bytes: Option<&[u8]>,
        jobs: &mut Vec<Job>,
        now_ns: u64,
    ) {
        if let Some(bytes) = bytes {
            self.ended |= bytes.is_empty();
            self.active_ns = now_ns;
        }
        if self.lingering_ns != 0 || self.transport.is_over() {
            return;
        }
        // While the output limit is reached, bytes are only buffered. The same applies to requests
        // above the limit of one turn: a ring may report many pieces at once.
        let full = self.pending_bytes() > service.limits.output_bytes;
        let most =
            if full { 0 } else { service.requests_at_once().saturating_sub(self.unanswered) };
        self.feed(token, service, (bytes.unwrap_or_default(), most), jobs, now_ns);
    }

    /// Returns true if there are requests left in the buffer.
    pub(crate) fn has_more(&self) -> bool {
        self.transport.has_more()
    }

    /// Parses bytes and takes at most the specified number of requests.
    fn feed(
        &mut self,
        token: usize,
        service: &Service,
        (bytes, most): (&[u8], usize),
        jobs: &mut Vec<Job>,
        now_ns: u64,
    ) {
        let had = self.transport.stage();
        let before = jobs.len();
        let fed = self.transport.feed(bytes, most, &mut |request| {
            jobs.push(Service::job(token, request));
        });
        if let Err(reason) = fed {
            service.tls_failed(&reason);
        }
        service.live.peers.charge(self.socket.mark(), bytes.len(), &mut jobs[before..], now_ns);
        self.unanswered += jobs.len() - before;
        self.ended |= self.transport.has_ended();
        match self.transport.stage() {
            Stage::Idle => self.begun_ns = 0,
            has if has.begins_after(had, jobs.len() > before) => self.begun_ns = now_ns,
            _ => {}
        }
    }

    /// Reads once and discards the bytes: a client that keeps sending does not get more attention
    /// than others.
    fn discard(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if self.readable && !self.ended {
            match self.socket.recv(buffer) {
                Ok(0) => self.ended = true,
                Ok(n) => self.readable = self.by_edge || n == buffer.len(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Starts the drain timeout if answers are pending and it is not running.
    fn note_pending(&mut self, now_ns: u64) {
        if self.pending_ns == 0 && self.pending_bytes() > 0 {
            (self.pending_ns, self.pending_then) = (now_ns, self.pending_bytes());
        }
    }

    /// Records that the client accepted `taken` bytes. The drain timeout restarts when the client
    /// has accepted everything that was pending when it started. A client whose buffer is always
    /// full is therefore not disconnected as long as it keeps reading.
    fn note_taken(&mut self, taken: usize, now_ns: u64) {
        self.active_ns = now_ns;
        self.pending_then = self.pending_then.saturating_sub(taken);
        if self.pending_then == 0 {
            self.pending_ns = 0;
            self.note_pending(now_ns);
        }
    }

    /// Sends the answers of jobs, all for this connection, after any earlier output.
    pub(crate) fn give(
        &mut self,
        jobs: &[Job],
        scratch: &mut Vec<u8>,
        now_ns: u64,
    ) -> io::Result<()> {
        if self.pending_bytes() > 0 {
            self.encode_answers(jobs, None);
            return self.flush(now_ns);
        }
        scratch.clear();
        self.encode_answers(jobs, Some(scratch));
        if scratch.is_empty() {
            return Ok(());
        }
        let sent = match self.socket.send(scratch) {
            Ok(sent) => sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e),
        };
        self.output.extend_from_slice(&scratch[sent..]);
        self.note_pending(now_ns);
        Ok(())
    }

    fn encode_answers(&mut self, jobs: &[Job], scratch: Option<&mut Vec<u8>>) {
        let out = scratch.unwrap_or(&mut self.output);
        self.unanswered = self.unanswered.saturating_sub(jobs.len());
        let from = out.len();
        for job in jobs {
            if let Some(answer) = &job.answer {
                encode(job.request.form, &self.settings, answer, out);
            }
        }
        self.transport.seal(out, from);
    }

    /// Appends the answers of jobs and pending handshake messages to the output, which a ring will
    /// send.
    pub(crate) fn push_answers(&mut self, jobs: &[Job], now_ns: u64) {
        self.encode_answers(jobs, None);
        self.note_pending(now_ns);
    }

    /// Returns the output to be sent by a ring.
    pub(crate) fn take_output(&mut self) -> Option<Vec<u8>> {
        if self.output.is_empty() {
            return None;
        }
        debug_assert_eq!(self.sending, 0, "a second send in flight could reorder the answers");
        self.sending = self.output.len();
        Some(std::mem::take(&mut self.output))
    }

    /// Records that a ring has sent `sent` of the bytes passed to it.
    pub(crate) fn sent(&mut self, mut bytes: Vec<u8>, sent: usize, now_ns: u64) {
        debug_assert!(sent <= bytes.len(), "the ring sent more bytes than it was given");
        self.sending = 0;
        if sent < bytes.len() {
            bytes.drain(..sent);
            bytes.append(&mut self.output);
            self.output = bytes;
        }
        self.note_taken(sent, now_ns);
    }

    /// Sends as much pending output as the client accepts.
    pub(crate) fn flush(&mut self, now_ns: u64) -> io::Result<()> {
        while self.pending_bytes() > 0 {
            match self.socket.send(&self.output[self.sent..]) {
                Ok(sent) => {
                    self.sent += sent;
                    self.note_taken(sent, now_ns);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        if self.pending_bytes() == 0 {
            (self.output, self.sent) = (Vec::new(), 0);
            (self.pending_ns, self.pending_then) = (0, 0);
        } else if self.sent > self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Decides what to do after a turn.
    pub(crate) fn next(&mut self, service: &Service, now_ns: u64) -> Next {
        if self.lingering_ns != 0 {
            return match self.ended {
                true => Next::Close,
                false if self.by_edge && self.readable => Next::Again,
                false => Next::Wait,
            };
        }
        let full = self.pending_bytes() > service.limits.output_bytes;
        if std::mem::replace(&mut self.is_full, full) && !full && self.begun_ns != 0 {
            self.begun_ns = now_ns;
        }
        if self.transport.has_more() && !full {
            return Next::Again;
        }
        let is_last = self.transport.is_over() || (self.ended && !self.transport.has_more());
        if is_last && self.pending_bytes() == 0 {
            if self.transport.end(&mut self.output) {
                // The alert is sent in the next turn.
                self.note_pending(now_ns);
                return Next::Again;
            }
            if self.ended {
                return Next::Close;
            }
            // Remaining input must be read; otherwise, the last answers may be lost.
            // The turn may have waited for the disk.
            self.lingering_ns = clock::monotonic_ns().max(now_ns);
            self.readable = true;
            let gone = self.socket.shutdown_write().is_err();
            return if gone { Next::Close } else { Next::Again };
        }
        let unread = self.by_edge && self.readable && !full && !self.ended;
        if unread { Next::Again } else { Next::Wait }
    }

    /// Returns the events to wait for.
    pub(crate) fn wanted(&self, service: &Service) -> Interest {
        let full = self.pending_bytes() > service.limits.output_bytes;
        let listening = self.lingering_ns != 0 || !(full || self.transport.is_over());
        Interest { read: listening && !self.ended, write: self.pending_bytes() > 0 }
    }

    /// Returns the timeout that has expired, if any.
    pub(crate) fn overdue(&self, service: &Service, now_ns: u64) -> Option<Cut> {
        let live = &service.live;
        let passed = |since: u64, limit: std::time::Duration| {
            since != 0 && u128::from(now_ns.saturating_sub(since)) > limit.as_nanos()
        };
        let is_served = self.transport.has_more() && self.transport.stage() != Stage::Handshake;
        let idle = live.idle();
        // First, because it also holds while a client waits for the server.
        if passed(self.pending_ns, service.limits.drain) {
            Some(Cut::Drain)
        } else if passed(self.begun_ns, live.request()) && !is_served && !self.is_full {
            Some(Cut::Request)
        } else if !idle.is_zero() && passed(self.active_ns, idle) {
            Some(Cut::Idle)
        } else if self.lingering_ns != 0 && now_ns.saturating_sub(self.lingering_ns) > LINGER_NS {
            Some(Cut::Linger)
        } else {
            None
        }
    }

    /// Stops reading new requests.
    pub(crate) fn finish(&mut self) {
        let _ = self.socket.shutdown_read();
        self.readable = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::live::Reload;
    use crate::service::NullStore;
    use ioloom_sys_net::Listener;
    use ioloom_sys_net::wait::{Poll, Waiter};

    /// Returns a client and the server side of its connection.
    fn connected(service: &Service) -> (Socket, Connection) {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 1).unwrap();
        let client = Socket::connect(listener.address().unwrap()).unwrap();
        wait_for(&listener);
        let transport = (service.transport(), Settings::default());
        (client, Connection::new(listener.accept(false).unwrap(), transport, false, 1))
    }

    fn wait_for(readable: &dyn std::os::fd::AsFd) {
        let (mut waiter, mut ready) = (Poll::default(), Vec::new());
        waiter.add(readable, 0, Interest::READ).unwrap();
        waiter.wait(&mut ready, None).unwrap();
    }

    #[test]
    fn pieces_of_one_turn_share_one_request_limit() {
        let service = Service::with_store(Box::new(NullStore));
        let (_client, mut connection) = connected(&service);
        let (piece, mut jobs) = ("show\n".repeat(1600), Vec::new());
        for _ in 0..50 {
            connection.arrived(0, &service, Some(piece.as_bytes()), &mut jobs, 1);
        }
        assert_eq!(jobs.len(), service.requests_at_once());
        service.answer(&mut jobs, 0).unwrap();
        connection.push_answers(&jobs, 2);
        jobs.clear();
        assert_eq!(
            connection.pending_bytes(),
            service.requests_at_once() * ioloom_exchange::PADDED
        );
        // Nothing is parsed while the output limit is reached; parsing continues afterwards.
        connection.arrived(0, &service, None, &mut jobs, 3);
        assert!(jobs.is_empty() && connection.has_more());
        let output = connection.take_output().unwrap();
        let sent = output.len();
        connection.sent(output, sent, 4);
        connection.arrived(0, &service, None, &mut jobs, 5);
        assert_eq!(jobs.len(), service.requests_at_once());
    }

    #[test]
    fn input_after_the_end_is_read_once_per_turn() {
        let service = Service::with_store(Box::new(NullStore));
        let (client, mut connection) = connected(&service);
        (connection.lingering_ns, connection.readable) = (1, true);
        client.send(&[0; 64]).unwrap();
        wait_for(&*connection.socket);
        connection.take(0, &service, &mut [0; 16], &mut Vec::new(), 1).unwrap();
        assert_eq!(connection.socket.recv(&mut [0; 99]).unwrap(), 48);
    }

    #[test]
    fn the_request_timeout_excludes_the_time_without_reading() {
        let service = Service::with_store(Box::new(NullStore));
        let (_client, mut connection) = connected(&service);
        let mut jobs = Vec::new();
        connection.arrived(0, &service, Some(b"show\nsho"), &mut jobs, 10);
        assert_eq!(jobs.len(), 1);
        let limit_ns = service.live.request().as_nanos() as u64;
        assert_eq!(connection.overdue(&service, limit_ns + 11), Some(Cut::Request));
        connection.renew_deadline(limit_ns + 11);
        assert_eq!(connection.overdue(&service, 2 * limit_ns + 11), None);
        assert_eq!(connection.overdue(&service, 2 * limit_ns + 12), Some(Cut::Request));
        // A complete request has no deadline.
        connection.arrived(0, &service, Some(b"w\n"), &mut jobs, 20);
        connection.renew_deadline(30);
        assert_eq!(connection.overdue(&service, 9 * limit_ns), None);
    }

    #[test]
    fn the_idle_timeout_excludes_the_time_without_reading() {
        let service = Service::with_store(Box::new(NullStore));
        let idle = std::time::Duration::from_secs(1);
        let limits = Limits { idle, ..Limits::default() };
        service.live.reload(&Reload { access: None, tls: None, limits }, None).unwrap();
        let (_client, mut connection) = connected(&service);
        let limit_ns = idle.as_nanos() as u64;
        assert_eq!(connection.overdue(&service, limit_ns + 2), Some(Cut::Idle));
        connection.renew_deadline(limit_ns);
        assert_eq!(connection.overdue(&service, 2 * limit_ns), None);
        assert_eq!(connection.overdue(&service, 2 * limit_ns + 1), Some(Cut::Idle));
    }

    #[test]
    fn the_drain_timeout_restarts_when_pending_output_was_accepted() {
        let service = Service::with_store(Box::new(NullStore));
        let (_client, mut connection) = connected(&service);
        let drain_ns = service.limits.drain.as_nanos() as u64;
        let mut jobs = Vec::new();
        let mut request = |connection: &mut Connection, now_ns| {
            connection.arrived(0, &service, Some(b"show\n"), &mut jobs, now_ns);
            service.answer(&mut jobs, 0).unwrap();
            connection.push_answers(&jobs, now_ns);
            jobs.clear();
        };
        request(&mut connection, 10);
        let first = connection.take_output().unwrap();
        request(&mut connection, 20);
        let is_late =
            |connection: &Connection, now_ns| connection.overdue(&service, now_ns).is_some();
        assert!(!is_late(&connection, drain_ns + 10) && is_late(&connection, drain_ns + 11));
        // An expired request timeout, which is ignored while the client waits, does not hide it.
        connection.begun_ns = 1;
        let both_ns = drain_ns.max(service.live.request().as_nanos() as u64) + 11;
        assert_eq!(connection.overdue(&service, both_ns), Some(Cut::Drain));
        connection.begun_ns = 0;
        // Half of the first answer is not the whole answer.
        connection.sent(first, ioloom_exchange::PADDED / 2, 30);
        assert!(is_late(&connection, drain_ns + 11));
        let both = connection.take_output().unwrap();
        connection.sent(both, ioloom_exchange::PADDED, 40);
        assert!(!is_late(&connection, drain_ns + 40) && is_late(&connection, drain_ns + 41));
        let rest = connection.take_output().unwrap();
        assert_eq!(rest.len(), ioloom_exchange::PADDED / 2);
        connection.sent(rest, ioloom_exchange::PADDED / 2, 50);
        assert!(!is_late(&connection, 10 * drain_ns));
    }
}

//! One connection that never blocks: what arrived, what is owed, and when to give up.
//!
//! Bytes are read into memory of the loop, and a connection keeps only what it must: the beginning of
//! a request, and answers that its client has not taken. An idle one holds neither, which is what
//! makes ten thousand of them cheap.
//!
//! A connection that ends from our side first says so (end of writing), then reads on for a
//! moment: closing with bytes unread would reset it, and the client might never see its last answer.

use crate::service::Service;
use crate::sharing::Job;
use crate::transport::{Stage, Transport};
use ioloom_exchange::{Settings, encode};
use ioloom_sys_net::Socket;
use ioloom_sys_net::wait::Interest;
use std::io;
use std::sync::Arc;

/// How long a connection that we ended is read on, nanoseconds.
const LINGER_NS: u64 = 1_000_000_000;

/// What is left to do for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for it.
    Wait,
    /// Go on without waiting: it has requests left behind, or bytes that were not read.
    Again,
    /// Close it.
    Close,
}

pub(crate) struct Connection {
    pub(crate) socket: Arc<Socket>,
    transport: Transport,
    settings: Settings,
    owed: Vec<u8>,
    sent: usize,
    /// Bytes of answers that a ring is sending.
    away: usize,
    /// Requests that were taken and whose answers are not owed yet.
    asked: usize,
    /// The client sends no more.
    ended: bool,
    /// We said that we send no more, at this time.
    lingering_ns: u64,
    /// When the client last said or took something.
    active_ns: u64,
    /// When the request or the handshake that is incomplete began; 0 if none is.
    begun_ns: u64,
    /// Since when answers wait for the client; 0 if none does.
    owed_ns: u64,
    /// Bytes of those that waited at that time and still do.
    owed_then: usize,
    /// So much waits for the client that nothing more is read, so what it has begun cannot end.
    is_full: bool,
    /// A read may bring more.
    readable: bool,
    /// Nothing tells again that there is more: a read that brings little is not the last one, since
    /// the end of the client may stand behind it.
    by_edge: bool,
    pub(crate) interest: Interest,
    /// Whether it stands in the list of those that go on without waiting.
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
            owed: Vec::new(),
            sent: 0,
            away: 0,
            asked: 0,
            ended: false,
            lingering_ns: 0,
            active_ns: now_ns,
            begun_ns,
            owed_ns: 0,
            owed_then: 0,
            is_full: false,
            readable: false,
            by_edge,
            interest: Interest::READ,
            is_queued: false,
        }
    }

    /// Notes that reading may bring something.
    pub(crate) fn set_readable(&mut self) {
        self.readable = true;
    }

    fn owes(&self) -> usize {
        self.owed.len() - self.sent + self.away
    }

    /// Reads once and takes the requests that are complete. An error is the end of the connection.
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
        if self.owes() > service.limits.output_bytes || self.transport.is_over() {
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

    /// Takes the requests of bytes that a ring has read, none at the end of the client; without any
    /// word of the ring those that were left behind.
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
        // What comes while too much is owed is only kept, and so is more of one turn than one may bring:
        // a ring tells of many pieces together.
        let full = self.owes() > service.limits.output_bytes;
        let most = if full { 0 } else { service.requests_at_once().saturating_sub(self.asked) };
        self.feed(token, service, (bytes.unwrap_or_default(), most), jobs, now_ns);
    }

    /// Whether requests were left behind.
    pub(crate) fn has_more(&self) -> bool {
        self.transport.has_more()
    }

    /// Takes bytes, and at most so many requests of them.
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
        self.asked += jobs.len() - before;
        self.ended |= self.transport.has_ended();
        match self.transport.stage() {
            Stage::Idle => self.begun_ns = 0,
            has if has.begins_after(had, jobs.len() > before) => self.begun_ns = now_ns,
            _ => {}
        }
    }

    /// Reads once and forgets it: whoever goes on sending gets no more than others.
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

    /// Notes that answers wait, from now on if none did.
    fn note_owed(&mut self, now_ns: u64) {
        if self.owed_ns == 0 && self.owes() > 0 {
            (self.owed_ns, self.owed_then) = (now_ns, self.owes());
        }
    }

    /// Notes that the client took so many bytes. Its time begins anew when it has all that waited when
    /// that began, so that a client that always has more to take is not cut while it takes it.
    fn note_taken(&mut self, taken: usize, now_ns: u64) {
        self.active_ns = now_ns;
        self.owed_then = self.owed_then.saturating_sub(taken);
        if self.owed_then == 0 {
            self.owed_ns = 0;
            self.note_owed(now_ns);
        }
    }

    /// Sends the answers of jobs, all of this connection, and what was owed before.
    pub(crate) fn give(
        &mut self,
        jobs: &[Job],
        scratch: &mut Vec<u8>,
        now_ns: u64,
    ) -> io::Result<()> {
        if self.owes() > 0 {
            self.spell(jobs, None);
            return self.flush(now_ns);
        }
        scratch.clear();
        self.spell(jobs, Some(scratch));
        if scratch.is_empty() {
            return Ok(());
        }
        let sent = match self.socket.send(scratch) {
            Ok(sent) => sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e),
        };
        self.owed.extend_from_slice(&scratch[sent..]);
        self.note_owed(now_ns);
        Ok(())
    }

    fn spell(&mut self, jobs: &[Job], scratch: Option<&mut Vec<u8>>) {
        let out = scratch.unwrap_or(&mut self.owed);
        self.asked = self.asked.saturating_sub(jobs.len());
        let from = out.len();
        for job in jobs {
            if let Some(answer) = &job.answer {
                encode(job.request.form, &self.settings, answer, out);
            }
        }
        self.transport.seal(out, from);
    }

    /// Owes the answers of jobs and what a handshake has to say, to be sent by a ring.
    pub(crate) fn owe(&mut self, jobs: &[Job], now_ns: u64) {
        self.spell(jobs, None);
        self.note_owed(now_ns);
    }

    /// The bytes that a ring shall send now.
    pub(crate) fn take_owed(&mut self) -> Option<Vec<u8>> {
        if self.owed.is_empty() {
            return None;
        }
        self.away = self.owed.len();
        Some(std::mem::take(&mut self.owed))
    }

    /// A ring has sent so many of the bytes it was given.
    pub(crate) fn sent(&mut self, mut bytes: Vec<u8>, sent: usize, now_ns: u64) {
        self.away = 0;
        if sent < bytes.len() {
            bytes.drain(..sent);
            bytes.append(&mut self.owed);
            self.owed = bytes;
        }
        self.note_taken(sent, now_ns);
    }

    /// Sends what is owed, as far as the client takes it.
    pub(crate) fn flush(&mut self, now_ns: u64) -> io::Result<()> {
        while self.owes() > 0 {
            match self.socket.send(&self.owed[self.sent..]) {
                Ok(sent) => {
                    self.sent += sent;
                    self.note_taken(sent, now_ns);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        if self.owes() == 0 {
            (self.owed, self.sent) = (Vec::new(), 0);
            (self.owed_ns, self.owed_then) = (0, 0);
        } else if self.sent > self.owed.len() / 2 {
            self.owed.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// What is to be done now, after a turn.
    pub(crate) fn next(&mut self, service: &Service, now_ns: u64) -> Next {
        if self.lingering_ns != 0 {
            return match self.ended {
                true => Next::Close,
                false if self.by_edge && self.readable => Next::Again,
                false => Next::Wait,
            };
        }
        let full = self.owes() > service.limits.output_bytes;
        if std::mem::replace(&mut self.is_full, full) && !full && self.begun_ns != 0 {
            self.begun_ns = now_ns;
        }
        if self.transport.has_more() && !full {
            return Next::Again;
        }
        let is_last = self.transport.is_over() || (self.ended && !self.transport.has_more());
        if is_last && self.owes() == 0 {
            if self.transport.end(&mut self.owed) {
                // The last word leaves in the next turn.
                self.note_owed(now_ns);
                return Next::Again;
            }
            if self.ended {
                return Next::Close;
            }
            // The rest of what the client sends must be read, or the last answers may be lost.
            self.lingering_ns = now_ns;
            self.readable = true;
            let gone = self.socket.shutdown_write().is_err();
            return if gone { Next::Close } else { Next::Again };
        }
        let unread = self.by_edge && self.readable && !full && !self.ended;
        if unread { Next::Again } else { Next::Wait }
    }

    /// What a wait should wait for.
    pub(crate) fn wanted(&self, service: &Service) -> Interest {
        let full = self.owes() > service.limits.output_bytes;
        let listening = self.lingering_ns != 0 || !(full || self.transport.is_over());
        Interest { read: listening && !self.ended, write: self.owes() > 0 }
    }

    /// Whether it is to be cut at this time.
    pub(crate) fn is_overdue(&self, service: &Service, now_ns: u64) -> bool {
        let limits = &service.limits;
        let passed = |since: u64, limit: std::time::Duration| {
            since != 0 && u128::from(now_ns.saturating_sub(since)) > limit.as_nanos()
        };
        let is_served = self.transport.has_more() && self.transport.stage() != Stage::Handshake;
        passed(self.begun_ns, limits.request) && !is_served && !self.is_full
            || passed(self.owed_ns, limits.drain)
            || (!limits.idle.is_zero() && passed(self.active_ns, limits.idle))
            || (self.lingering_ns != 0 && now_ns.saturating_sub(self.lingering_ns) > LINGER_NS)
    }

    /// Ends a server's part: no more requests are taken.
    pub(crate) fn finish(&mut self) {
        let _ = self.socket.shutdown_read();
        self.readable = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Forgetful;
    use ioloom_sys_net::Listener;
    use ioloom_sys_net::wait::{Poll, Waiter};

    /// A client and the server's side of its connection.
    fn connected(service: &Service) -> (Socket, Connection) {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 1, false).unwrap();
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
    fn many_pieces_of_one_turn_bring_no_more_requests_than_one() {
        let service = Service::before(Box::new(Forgetful));
        let (_client, mut connection) = connected(&service);
        let (piece, mut jobs) = ("show\n".repeat(1600), Vec::new());
        for _ in 0..50 {
            connection.arrived(0, &service, Some(piece.as_bytes()), &mut jobs, 1);
        }
        assert_eq!(jobs.len(), service.requests_at_once());
        service.answer(&mut jobs).unwrap();
        connection.owe(&jobs, 2);
        jobs.clear();
        assert_eq!(connection.owes(), service.requests_at_once() * ioloom_exchange::PADDED);
        // As long as so much waits nothing more is taken, and then it goes on where it was.
        connection.arrived(0, &service, None, &mut jobs, 3);
        assert!(jobs.is_empty() && connection.has_more());
        let owed = connection.take_owed().unwrap();
        let sent = owed.len();
        connection.sent(owed, sent, 4);
        connection.arrived(0, &service, None, &mut jobs, 5);
        assert_eq!(jobs.len(), service.requests_at_once());
    }

    #[test]
    fn who_goes_on_sending_after_the_end_is_read_once_in_a_turn() {
        let service = Service::before(Box::new(Forgetful));
        let (client, mut connection) = connected(&service);
        (connection.lingering_ns, connection.readable) = (1, true);
        client.send(&[0; 64]).unwrap();
        wait_for(&*connection.socket);
        connection.take(0, &service, &mut [0; 16], &mut Vec::new(), 1).unwrap();
        assert_eq!(connection.socket.recv(&mut [0; 99]).unwrap(), 48);
    }

    #[test]
    fn the_time_of_a_client_begins_anew_when_it_has_all_that_waited() {
        let service = Service::before(Box::new(Forgetful));
        let (_client, mut connection) = connected(&service);
        let drain_ns = service.limits.drain.as_nanos() as u64;
        let mut jobs = Vec::new();
        let mut ask = |connection: &mut Connection, now_ns| {
            connection.arrived(0, &service, Some(b"show\n"), &mut jobs, now_ns);
            service.answer(&mut jobs).unwrap();
            connection.owe(&jobs, now_ns);
            jobs.clear();
        };
        ask(&mut connection, 10);
        let first = connection.take_owed().unwrap();
        ask(&mut connection, 20);
        let is_late = |connection: &Connection, now_ns| connection.is_overdue(&service, now_ns);
        assert!(!is_late(&connection, drain_ns + 10) && is_late(&connection, drain_ns + 11));
        // Half of the first answer is not all of it.
        connection.sent(first, ioloom_exchange::PADDED / 2, 30);
        assert!(is_late(&connection, drain_ns + 11));
        let both = connection.take_owed().unwrap();
        connection.sent(both, ioloom_exchange::PADDED, 40);
        assert!(!is_late(&connection, drain_ns + 40) && is_late(&connection, drain_ns + 41));
        let rest = connection.take_owed().unwrap();
        assert_eq!(rest.len(), ioloom_exchange::PADDED / 2);
        connection.sent(rest, ioloom_exchange::PADDED / 2, 50);
        assert!(!is_late(&connection, 10 * drain_ns));
    }
}

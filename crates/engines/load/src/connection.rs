//! One connection of a load: what is on its way, and what is half read or half written.

use crate::draw::{Draw, Op};
use crate::plan::LoadPlan;
use crate::speech::{Asked, Reader, Reply, greeting, spell};
use ioloom_sys_net::Socket;
use ioloom_tls::TlsSession;
use std::collections::VecDeque;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) asked: Asked,
    pub(crate) id: u64,
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
}

pub(crate) struct Connection {
    /// Its number among all of the load.
    pub(crate) number: usize,
    pub(crate) socket: Option<Socket>,
    pub(crate) is_connecting: bool,
    /// The waiter tells when it can be written.
    pub(crate) waits_to_write: bool,
    /// The latest answer said that there is no room.
    pub(crate) was_busy: bool,
    pub(crate) flight: VecDeque<Flight>,
    pub(crate) draw: Draw,
    /// Requests that are left of its session, in a partly open loop.
    pub(crate) session_left: u64,
    /// The largest number in the log that it was told.
    pub(crate) seq: u64,
    reader: Reader,
    shield: Option<TlsSession>,
    /// What arrived last, opened.
    plain: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    next_id: u64,
    stocks: usize,
}

/// The number of the first order of a client with a name: the time, in nanoseconds. So a later run under
/// the same name gives orders of its own, and not those of an earlier one again.
fn first_id() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(1)
}

impl Connection {
    pub(crate) fn new(number: usize, plan: &LoadPlan, draw: Draw, stocks: usize) -> Self {
        Self {
            number,
            socket: None,
            is_connecting: false,
            waits_to_write: false,
            was_busy: false,
            flight: VecDeque::new(),
            draw,
            session_left: 0,
            seq: 0,
            reader: Reader::new(plan.protocol, stocks),
            shield: None,
            plain: Vec::new(),
            out: Vec::new(),
            sent: 0,
            next_id: plan.name.as_ref().map_or(1, |_| first_id()),
            stocks,
        }
    }

    /// Begins to connect, with the greeting of the protocol first.
    pub(crate) fn open(&mut self, plan: &LoadPlan, now_ns: u64) -> io::Result<()> {
        let socket = Socket::begin_connect(plan.target)?;
        let shield = plan.tls.as_ref().map(|trust| trust.session().map_err(io::Error::other));
        self.shield = shield.transpose()?;
        self.reader = Reader::new(plan.protocol, self.stocks);
        self.out.clear();
        (self.sent, self.seq, self.was_busy) = (0, 0, false);
        let name = plan.name.as_ref().map(|name| format!("{name}-{}", self.number));
        let token = plan.token.as_deref();
        if let Some(greeting) = greeting(plan.protocol, name.as_deref(), token) {
            self.out.extend_from_slice(&greeting);
            self.seal(0);
            let asked = Asked::Hello;
            self.flight.push_back(Flight { asked, id: 0, due_ns: now_ns, sent_ns: now_ns });
        }
        (self.socket, self.is_connecting) = (Some(socket), true);
        Ok(())
    }

    /// Notes a request to be sent by [`flush`](Self::flush).
    pub(crate) fn ask(&mut self, plan: &LoadPlan, op: Op, due_ns: u64, sent_ns: u64) {
        let id = self.next_id;
        self.next_id += 1;
        let from = self.out.len();
        spell(plan.protocol, op, id, &mut self.out);
        self.seal(from);
        self.flight.push_back(Flight { asked: Asked::Op(op), id, due_ns, sent_ns });
    }

    /// Seals what stands in `out` from a place on, with what a handshake has to say before it.
    fn seal(&mut self, from: usize) {
        if let Some(shield) = &mut self.shield {
            let plain = self.out.split_off(from);
            shield.seal(&plain, &mut self.out);
        }
    }

    /// Whether a handshake is not over yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.shield.as_ref().is_some_and(TlsSession::is_handshaking)
    }

    /// Sends what waits, as far as the server takes it; tells how many bytes.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        self.seal(self.out.len());
        let before = self.sent;
        if let Some(socket) = self.socket.as_ref().filter(|_| !self.is_connecting) {
            while self.sent < self.out.len() {
                match socket.send(&self.out[self.sent..]) {
                    Ok(sent) => self.sent += sent,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
        }
        let sent = self.sent - before;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        Ok(sent)
    }

    /// Whether it must be told when it can be written.
    pub(crate) fn wants_to_write(&self) -> bool {
        self.is_connecting || !self.out.is_empty()
    }

    /// Reads once; `None` if nothing was there, else how many bytes of the network, 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        match socket.recv(buffer) {
            Ok(read) => {
                let Some(shield) = &mut self.shield else {
                    self.reader.feed(&buffer[..read]);
                    return Ok(Some(read));
                };
                self.plain.clear();
                let opened = shield.open(&buffer[..read], &mut self.plain);
                self.reader.feed(&self.plain);
                opened.map(|()| Some(read)).map_err(io::Error::other)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The next answer with its request, if both are there; a request is missing for an answer
    /// that nobody asked for.
    pub(crate) fn next(&mut self) -> Option<(Option<Flight>, Reply)> {
        let asked = self.flight.front().map_or(Asked::Hello, |flight| flight.asked);
        let reply = self.reader.next(asked)?;
        Some((self.flight.pop_front(), reply))
    }

    /// When the request that waits longest was sent.
    pub(crate) fn waits_since_ns(&self) -> Option<u64> {
        self.flight.front().map(|flight| flight.sent_ns)
    }
}

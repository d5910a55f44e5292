//! One connection of a load: requests in flight, and partial input and output.

use crate::client_codec::{Expected, Reader, Reply, encode_request, greeting};
use crate::draw::{Draw, Op};
use crate::plan::LoadPlan;
use ioloom_sys_net::Socket;
use ioloom_tls::TlsSession;
use std::collections::VecDeque;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) asked: Expected,
    pub(crate) id: u64,
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
}

pub(crate) struct Connection {
    /// Its index among all connections of the load.
    pub(crate) number: usize,
    pub(crate) socket: Option<Socket>,
    pub(crate) is_connecting: bool,
    /// Whether to be notified when it is writable.
    pub(crate) waits_to_write: bool,
    /// Whether the latest answer was "busy".
    pub(crate) was_busy: bool,
    /// Whether it received an answer to a request since it was opened.
    pub(crate) was_served: bool,
    pub(crate) flight: VecDeque<InFlight>,
    pub(crate) draw: Draw,
    /// Number of remaining requests in its session, in a partly open loop.
    pub(crate) session_left: u64,
    /// Largest log number received so far.
    pub(crate) seq: u64,
    reader: Reader,
    tls: Option<TlsSession>,
    /// Decrypted bytes from the latest read.
    plain: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    next_id: u64,
    stocks: usize,
}

/// Returns the number of the first order of a named client: the current time in nanoseconds. This
/// ensures that a later run under the same name does not repeat order numbers.
fn first_id() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(1)
}

fn reader(plan: &LoadPlan, stocks: usize) -> Reader {
    match plan.commands {
        Some(_) => Reader::plain(),
        None => Reader::new(plan.protocol, stocks),
    }
}

impl Connection {
    pub(crate) fn new(number: usize, plan: &LoadPlan, draw: Draw, stocks: usize) -> Self {
        Self {
            number,
            socket: None,
            is_connecting: false,
            waits_to_write: false,
            was_busy: false,
            was_served: false,
            flight: VecDeque::new(),
            draw,
            session_left: 0,
            seq: 0,
            reader: reader(plan, stocks),
            tls: None,
            plain: Vec::new(),
            out: Vec::new(),
            sent: 0,
            next_id: plan.name.as_ref().map_or(1, |_| first_id()),
            stocks,
        }
    }

    /// Starts connecting. The protocol's greeting is the first output.
    pub(crate) fn open(&mut self, plan: &LoadPlan, now_ns: u64) -> io::Result<()> {
        let socket = Socket::begin_connect(plan.target)?;
        let tls = plan.tls.as_ref().map(|trust| trust.session().map_err(io::Error::other));
        self.tls = tls.transpose()?;
        self.reader = reader(plan, self.stocks);
        self.out.clear();
        (self.sent, self.seq, self.was_busy, self.was_served) = (0, 0, false, false);
        let name = plan.name.as_ref().map(|name| format!("{name}-{}", self.number));
        let token = plan.token.as_deref();
        if let Some(greeting) = greeting(plan.protocol, name.as_deref(), token) {
            self.out.extend_from_slice(&greeting);
            self.seal(0);
            let asked = Expected::Hello;
            self.flight.push_back(InFlight { asked, id: 0, due_ns: now_ns, sent_ns: now_ns });
        }
        (self.socket, self.is_connecting) = (Some(socket), true);
        Ok(())
    }

    /// Appends a request to the output; [`flush`](Self::flush) sends it.
    pub(crate) fn ask(&mut self, plan: &LoadPlan, op: Op, due_ns: u64, sent_ns: u64) {
        let id = self.next_id;
        self.next_id += 1;
        let from = self.out.len();
        match &plan.commands {
            Some(commands) => {
                let order = if let Op::Trade(order) = &op { Some(order) } else { None };
                commands.encode(order, &mut self.out);
            }
            None => encode_request(plan.protocol, op, id, &mut self.out),
        }
        self.seal(from);
        self.flight.push_back(InFlight { asked: Expected::Op(op), id, due_ns, sent_ns });
    }

    /// Encrypts `out` starting at index `from`, preceded by pending handshake messages.
    fn seal(&mut self, from: usize) {
        if let Some(tls) = &mut self.tls {
            let plain = self.out.split_off(from);
            tls.seal(&plain, &mut self.out);
        }
    }

    /// Returns true if its requests are still to be sent: it is connecting or in a handshake.
    pub(crate) fn is_starting(&self) -> bool {
        self.is_connecting || self.is_handshaking()
    }

    /// Returns true if a handshake is in progress, or follows when it is connected.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsSession::is_handshaking)
    }

    /// Sends as much pending output as the server accepts; returns the number of bytes.
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

    /// Returns true if it must be notified when it is writable.
    pub(crate) fn wants_to_write(&self) -> bool {
        self.is_connecting || !self.out.is_empty()
    }

    /// Reads once. Returns the number of bytes from the network, 0 at the end of the stream, or
    /// `None` if no bytes were available.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        match socket.recv(buffer) {
            Ok(read) => {
                let Some(tls) = &mut self.tls else {
                    self.reader.feed(&buffer[..read]);
                    return Ok(Some(read));
                };
                self.plain.clear();
                let opened = tls.open(&buffer[..read], &mut self.plain);
                self.reader.feed(&self.plain);
                opened.map(|()| Some(read)).map_err(io::Error::other)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the next complete answer, together with its request if there is one.
    pub(crate) fn next(&mut self) -> Option<(Option<InFlight>, Reply)> {
        let asked = self.flight.front().map_or(Expected::Hello, |flight| flight.asked);
        let reply = self.reader.next(asked)?;
        Some((self.flight.pop_front(), reply))
    }

    /// Returns the send time of the oldest request in flight.
    pub(crate) fn waits_since_ns(&self) -> Option<u64> {
        self.flight.front().map(|flight| flight.sent_ns)
    }
}

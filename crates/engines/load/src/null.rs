//! Baselines: a server that only answers, and a client without a server.
//!
//! The null server parses requests and sends fixed answers with the real server's codec, on one
//! thread with epoll: no stocks, no locks, no log. The throughput of a load against it is the
//! maximum that the protocol, the kernel and the load generator can achieve. The null client does
//! everything that a load thread does for a request, except for network system calls.

use crate::client_codec::{Expected, Reader, encode_request, greeting};
use crate::draw::{Draw, Op};
use crate::error::{LoadError, SystemOperation};
use crate::judge::{KnownStocks, StockList, Verdict};
use crate::latency::Latency;
use crate::plan::{LoadPlan, Protocol};

use crate::tally::{Tally, Times, table};
use ioloom_exchange::{
    Answer, ClassicForm, Command, Line, Order, Session, Settings, Shown, Side, encode,
};
use ioloom_sys::clock;
use ioloom_sys_net::wait::{EpollLevel, Interest, Waiter};
use ioloom_sys_net::{Listener, Socket};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of stocks on the null server.
const STOCKS: u32 = 10;
/// Interval between checks for a stop request.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of requests parsed per turn of a connection.
const AT_ONCE: usize = 128;

fn lines() -> Vec<Line> {
    (1..=STOCKS).map(|id| Line { id, left: 1000, price: 100 }).collect()
}

fn settings(protocol: Protocol) -> Settings {
    let classic = if protocol == Protocol::Line { ClassicForm::Line } else { ClassicForm::Padded };
    Settings { classic, ..Settings::default() }
}

/// A server that sends fixed answers.
pub struct NullServer {
    listener: Listener,
    settings: Settings,
}

struct NullConnection {
    socket: Socket,
    session: Session,
    out: Vec<u8>,
    sent: usize,
    seq: u64,
    waits_to_write: bool,
}

impl NullServer {
    /// Listens on `address`. The protocol only determines whether answers are padded.
    ///
    /// # Errors
    /// Returns an error if the system cannot listen there.
    pub fn bind(address: SocketAddr, protocol: Protocol) -> Result<Self, LoadError> {
        let listener = Listener::bind(address, 1024)
            .map_err(|source| LoadError::Listen { address, source })?;
        Ok(Self { listener, settings: settings(protocol) })
    }

    /// Returns the listen address.
    ///
    /// # Errors
    /// Returns the system error.
    pub fn address(&self) -> Result<SocketAddr, LoadError> {
        self.listener.address().map_err(LoadError::system(SystemOperation::GetAddress))
    }

    /// Answers requests until `stop` is set.
    ///
    /// # Errors
    /// Returns an error if waiting fails.
    pub fn run(self, stop: &AtomicBool) -> Result<(), LoadError> {
        let fail = LoadError::system(SystemOperation::Wait);
        let mut waiter = EpollLevel::new().map_err(&fail)?;
        waiter.add(&self.listener, usize::MAX, Interest::READ).map_err(&fail)?;
        let mut shown = Arc::new(Shown { seq: 0, lines: lines() });
        let (mut connections, mut free) = (Vec::<Option<NullConnection>>::new(), Vec::new());
        let (mut ready, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        while !stop.load(Ordering::Relaxed) {
            waiter.wait(&mut ready, Some(CHECK_INTERVAL)).map_err(&fail)?;
            for event in &ready {
                if event.token == usize::MAX {
                    self.admit(&mut waiter, &mut connections, &mut free);
                    continue;
                }
                let at = event.token;
                let Some(connection) = connections[at].as_mut() else { continue };
                let served = connection.serve(&self.settings, &mut shown, &mut buffer);
                let stays = matches!(served, Ok(true));
                if stays && connection.waits_to_write == connection.out.is_empty() {
                    connection.waits_to_write = !connection.out.is_empty();
                    let interest =
                        if connection.waits_to_write { Interest::WRITE } else { Interest::READ };
                    let _ = waiter.change(&connection.socket, at, interest);
                }
                if !stays && let Some(connection) = connections[at].take() {
                    let _ = waiter.remove(&connection.socket);
                    free.push(at);
                }
            }
        }
        Ok(())
    }

    fn admit(
        &self,
        waiter: &mut EpollLevel,
        connections: &mut Vec<Option<NullConnection>>,
        free: &mut Vec<usize>,
    ) {
        // A connection that cannot be accepted now is reported again.
        let Ok(socket) = self.listener.accept(false) else { return };
        let at = free.pop().unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        if waiter.add(&socket, at, Interest::READ).is_err() {
            free.push(at);
            return;
        }
        let (session, out) = (Session::default(), Vec::new());
        connections[at] =
            Some(NullConnection { socket, session, out, sent: 0, seq: 0, waits_to_write: false });
    }
}

impl NullConnection {
    /// Reads once, answers and sends; returns false at the end of the stream.
    fn serve(
        &mut self,
        settings: &Settings,
        shown: &mut Arc<Shown>,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        // Do not read while answers are pending: this bounds the output.
        if self.out.is_empty() {
            let read = if self.session.has_more() { 0 } else { self.socket.recv(buffer)? };
            if read == 0 && !self.session.has_more() {
                return Ok(false);
            }
            let (out, seq) = (&mut self.out, &mut self.seq);
            self.session.feed(&buffer[..read], AT_ONCE, &mut |request| {
                let answer = match request.command {
                    Command::Local(local) => &Answer::Local(local),
                    Command::Trade(_) => {
                        *seq += 1;
                        &Answer::Done { left: 1000, seq: *seq }
                    }
                    _ => {
                        // No other answer refers to it now.
                        if let Some(shown) = Arc::get_mut(shown) {
                            shown.seq = *seq;
                        }
                        &Answer::Shown(Arc::clone(shown))
                    }
                };
                encode(request.form, settings, answer, out);
            });
        }
        while self.sent < self.out.len() {
            match self.socket.send(&self.out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        self.sent = 0;
        // Process requests left over by the limit: no event would report them.
        if self.session.has_more() {
            return self.serve(settings, shown, buffer);
        }
        Ok(!self.session.is_over())
    }
}

/// Cost of the load generator without a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NullClient {
    /// Number of requests.
    pub requests: u64,
    /// Elapsed time in nanoseconds.
    pub elapsed_ns: u64,
    /// Maximum throughput of one thread.
    pub requests_per_s: f64,
    /// Latency per request.
    pub latency: Latency,
}

/// Draws, encodes, decodes, checks and counts the specified number of requests, with no system
/// calls except for the clock.
///
/// # Errors
/// Returns an error if the plan is invalid.
pub fn null_client(plan: &LoadPlan, requests: u64) -> Result<NullClient, LoadError> {
    plan.check()?;
    let known = KnownStocks::new(&StockList { lines: lines(), is_cut: false });
    let mut draw = Draw::new(plan, &known.ids, 0);
    let mut reader = Reader::new(plan.protocol, lines().len());
    let canned = [Op::Show, one(Side::Buy), one(Side::Sell)].map(|op| canned(plan.protocol, op));
    let (mut tally, mut out) = (Tally::new(lines().len()), Vec::new());
    let began_ns = clock::monotonic_ns();
    for _ in 0..requests {
        let sent_ns = clock::monotonic_ns();
        let op = draw.op();
        out.clear();
        encode_request(plan.protocol, op, 1, &mut out);
        reader.feed(match op {
            Op::Show => &canned[0],
            Op::Trade(order) if order.side() == Side::Buy => &canned[1],
            Op::Trade(_) => &canned[2],
        });
        let reply = reader.next(Expected::Op(op));
        let verdict = reply.map(|reply| known.judge_reply(op, 1, &reply, &mut 0));
        if !matches!(verdict, Some(Verdict::Traded | Verdict::Listed)) {
            return Err(LoadError::Plan(
                "the load generator does not accept its own answers".to_owned(),
            ));
        }
        let now_ns = clock::monotonic_ns();
        tally.latency(op, Times { due_ns: sent_ns, sent_ns, now_ns }, 0);
    }
    let elapsed_ns = clock::monotonic_ns() - began_ns;
    let mut all = table();
    for pair in &tally.commands {
        // Histograms with equal bounds can always be merged.
        let _ = all.add(&pair.raw);
    }
    Ok(NullClient {
        requests,
        elapsed_ns,
        requests_per_s: requests as f64 * 1e9 / elapsed_ns.max(1) as f64,
        latency: (&all).into(),
    })
}

fn one(side: Side) -> Op {
    Order::new(side, 1, 1).map_or(Op::Show, Op::Trade)
}

/// Returns the bytes of an answer.
fn canned(protocol: Protocol, op: Op) -> Vec<u8> {
    let mut bytes = greeting(protocol, None, None).unwrap_or_default();
    encode_request(protocol, op, 1, &mut bytes);
    let (mut session, mut out) = (Session::default(), Vec::new());
    session.feed(&bytes, 2, &mut |request| {
        let answer = match request.command {
            Command::Local(_) => return,
            Command::Show => Answer::Shown(Arc::new(Shown { seq: 1, lines: lines() })),
            _ => Answer::Done { left: 1000, seq: 1 },
        };
        encode(request.form, &settings(protocol), &answer, &mut out);
    });
    out
}

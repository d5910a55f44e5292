//! Floors: a server that does nothing but answer, and a client without a server.
//!
//! The null server reads requests and gives fixed answers with the codec of the real one, on one
//! thread with epoll: no stocks, no locks, no log. What a load reaches against it is the most that
//! the protocol, the kernel and the load itself allow. The null client does everything that a thread
//! of the load does for a request, but for the calls of the network.

use crate::draw::{Draw, Op};
use crate::error::LoadError;
use crate::judge::{Book, Known, Verdict};
use crate::plan::{LoadPlan, Protocol};
use crate::report::Latency;
use crate::speech::{Asked, Reader, greeting, spell};
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

/// Stocks of the null server.
const STOCKS: u32 = 10;
/// How often it looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that are taken of one connection at once.
const AT_ONCE: usize = 128;

fn lines() -> Vec<Line> {
    (1..=STOCKS).map(|id| Line { id, left: 1000, price: 100 }).collect()
}

fn settings(protocol: Protocol) -> Settings {
    let classic = if protocol == Protocol::Line { ClassicForm::Line } else { ClassicForm::Padded };
    Settings { classic, ..Settings::default() }
}

/// A server that gives fixed answers.
pub struct NullServer {
    listener: Listener,
    settings: Settings,
}

struct Guest {
    socket: Socket,
    session: Session,
    out: Vec<u8>,
    sent: usize,
    seq: u64,
    waits_to_write: bool,
}

impl NullServer {
    /// Listens; the protocol only decides whether lines are padded.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(address: SocketAddr, protocol: Protocol) -> Result<Self, LoadError> {
        let listener = Listener::bind(address, 1024, false).map_err(LoadError::system("listen"))?;
        Ok(Self { listener, settings: settings(protocol) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system reports.
    pub fn address(&self) -> Result<SocketAddr, LoadError> {
        self.listener.address().map_err(LoadError::system("ask for the address"))
    }

    /// Answers until it is asked to stop.
    ///
    /// # Errors
    /// Waiting failed.
    pub fn run(self, stop: &AtomicBool) -> Result<(), LoadError> {
        let fail = LoadError::system("wait for requests");
        let mut waiter = EpollLevel::new().map_err(&fail)?;
        waiter.add(&self.listener, usize::MAX, Interest::READ).map_err(&fail)?;
        let shown = Answer::Shown(Arc::new(Shown { seq: u64::MAX, lines: lines() }));
        let (mut guests, mut free) = (Vec::<Option<Guest>>::new(), Vec::new());
        let (mut ready, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        while !stop.load(Ordering::Relaxed) {
            waiter.wait(&mut ready, Some(LOOK)).map_err(&fail)?;
            for event in &ready {
                if event.token == usize::MAX {
                    self.admit(&mut waiter, &mut guests, &mut free);
                    continue;
                }
                let at = event.token;
                let Some(guest) = guests[at].as_mut() else { continue };
                let served = guest.serve(&self.settings, &shown, &mut buffer);
                let stays = matches!(served, Ok(true));
                if stays && guest.waits_to_write == guest.out.is_empty() {
                    guest.waits_to_write = !guest.out.is_empty();
                    let interest =
                        if guest.waits_to_write { Interest::WRITE } else { Interest::READ };
                    let _ = waiter.change(&guest.socket, at, interest);
                }
                if !stays && let Some(guest) = guests[at].take() {
                    let _ = waiter.remove(&guest.socket);
                    free.push(at);
                }
            }
        }
        Ok(())
    }

    fn admit(
        &self,
        waiter: &mut EpollLevel,
        guests: &mut Vec<Option<Guest>>,
        free: &mut Vec<usize>,
    ) {
        // A connection that cannot be taken now is told again.
        let Ok(socket) = self.listener.accept(false) else { return };
        let at = free.pop().unwrap_or_else(|| {
            guests.push(None);
            guests.len() - 1
        });
        if waiter.add(&socket, at, Interest::READ).is_err() {
            free.push(at);
            return;
        }
        let (session, out) = (Session::default(), Vec::new());
        guests[at] = Some(Guest { socket, session, out, sent: 0, seq: 0, waits_to_write: false });
    }
}

impl Guest {
    /// Reads once, answers, sends; false at the end.
    fn serve(
        &mut self,
        settings: &Settings,
        shown: &Answer,
        buffer: &mut [u8],
    ) -> io::Result<bool> {
        // Nothing is read while answers wait, so what waits is bounded.
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
                    _ => shown,
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
        // Requests beyond those taken at once: nothing else would tell of them.
        if self.session.has_more() {
            return self.serve(settings, shown, buffer);
        }
        Ok(!self.session.is_over())
    }
}

/// The cost of the load without a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NullClient {
    /// How many requests.
    pub requests: u64,
    /// In which time, ns.
    pub elapsed_ns: u64,
    /// One thread cannot do more than this.
    pub requests_per_s: f64,
    /// Of each request.
    pub latency: Latency,
}

/// Draws, spells, hears, judges and counts so many requests, without any call but the clock's.
///
/// # Errors
/// The plan cannot be.
pub fn null_client(plan: &LoadPlan, requests: u64) -> Result<NullClient, LoadError> {
    plan.check()?;
    let known = Known::new(&Book { lines: lines(), is_cut: false });
    let mut draw = Draw::new(plan, &known.ids, 0);
    let mut reader = Reader::new(plan.protocol, lines().len());
    let canned = [Op::Show, one(Side::Buy), one(Side::Sell)].map(|op| canned(plan.protocol, op));
    let (mut tally, mut out) = (Tally::new(lines().len()), Vec::new());
    let began_ns = clock::monotonic_ns();
    for _ in 0..requests {
        let sent_ns = clock::monotonic_ns();
        let op = draw.op();
        out.clear();
        spell(plan.protocol, op, 1, &mut out);
        reader.feed(match op {
            Op::Show => &canned[0],
            Op::Trade(order) if order.side() == Side::Buy => &canned[1],
            Op::Trade(_) => &canned[2],
        });
        let reply = reader.next(Asked::Op(op));
        let verdict = reply.map(|reply| known.judge(op, &reply.said));
        if !matches!(verdict, Some(Verdict::Traded | Verdict::Listed)) {
            return Err(LoadError::Plan("the load does not understand its own answers".to_owned()));
        }
        let now_ns = clock::monotonic_ns();
        tally.latency(op, Times { due_ns: sent_ns, sent_ns, now_ns }, 0);
    }
    let elapsed_ns = clock::monotonic_ns() - began_ns;
    let mut all = table();
    for pair in &tally.commands {
        // Equal bounds always add.
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

/// The bytes of an answer.
fn canned(protocol: Protocol, op: Op) -> Vec<u8> {
    let mut bytes = greeting(protocol, None, None).unwrap_or_default();
    spell(protocol, op, 1, &mut bytes);
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

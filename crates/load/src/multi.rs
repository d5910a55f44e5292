//! The original client, faithfully: each client is a flow of control of its own that connects once and
//! then ten times asks, reads the whole answer and sleeps for a second, also after the last order.
//!
//! The original forks a process for each client; here each is a thread, started one after the other as
//! the processes were. The time is taken from before the first start to after the last end. The sleep
//! can be divided, so that the shape of a ten-second run is seen in one.
//!
//! The law beside it: clients that sleep need `orders × sleep`, whatever the server does in the
//! meantime; a pool that serves `T` connections at a time needs that `⌈clients / T⌉` times.

use crate::channel::Channel;
use crate::draw::{Draw, Op};
use crate::error::LoadError;
use crate::judge::{Known, Verdict};
use crate::listing::list;
use crate::plan::Plan;
use crate::report::{Conservation, Latency};
use crate::run::check_descriptors;
use crate::speech::{Asked, Reader, greeting, spell};
use crate::tally::{Outcomes, Tally, Times};
use ioloom_exchange::Order;
use ioloom_sys::clock;
use serde::Serialize;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Stack of a client, and of one that checks a certificate.
const STACK_BYTES: usize = 64 * 1024;
const STACK_TLS_BYTES: usize = 512 * 1024;
/// The longest nap before it is looked whether somebody wants to end the run.
const NAP: Duration = Duration::from_millis(100);

/// The load of the original client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multiclient {
    /// Clients at the same time.
    pub clients: usize,
    /// Orders of each.
    pub orders: u32,
    /// Sleep after each order.
    pub sleep: Duration,
    /// Threads of a connection-affine pool, if the server is one: for the law.
    pub pool: Option<u32>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MultiRun {
    /// Clients.
    pub clients: usize,
    /// Orders of each.
    pub orders: u32,
    /// Sleep after each order, ns.
    pub sleep_ns: u64,
    /// From before the first start to after the last end, ns.
    pub elapsed_ns: u64,
    /// What the law says, ns.
    pub law_ns: u64,
    /// Measured over law, less one.
    pub law_error: f64,
    /// Orders over the time that passed.
    pub orders_per_s: f64,
    /// Sent and answered within: what a request took without the sleep.
    pub latency: Latency,
    /// What came of requests.
    pub outcomes: Outcomes,
    /// Answers that cannot be right, at most 10.
    pub wrong_samples: Vec<String>,
    /// Whether nothing was lost or invented.
    pub conservation: Conservation,
    /// Whether somebody ended it early.
    pub interrupted: bool,
}

impl MultiRun {
    /// Whether every answer came and was right, and nothing was lost or invented.
    pub fn is_right(&self) -> bool {
        let all = self.outcomes.answered > 0 && self.outcomes.lost == 0;
        all && self.outcomes.wrong == 0 && self.conservation.differences.is_empty()
    }
}

struct Client<'a> {
    plan: &'a Plan,
    multi: &'a Multiclient,
    known: &'a Known,
    stop: &'a AtomicBool,
    tally: &'a Mutex<Tally>,
    answered: &'a AtomicU64,
}

/// Runs the original client. Of the plan the server, the protocol, mix, skew, counts and seed are used.
///
/// # Errors
/// The machine does not allow it, or the server is not there.
pub fn multiclient(
    plan: &Plan,
    multi: &Multiclient,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(u64),
) -> Result<MultiRun, LoadError> {
    check(multi)?;
    check_descriptors(multi.clients)?;
    let before = list(plan, None)?;
    let known = Known::new(&before);
    let tally = Mutex::new(Tally::new(before.lines.len()));
    let answered = AtomicU64::new(0);
    let client = Client { plan, multi, known: &known, stop, tally: &tally, answered: &answered };
    let stack_bytes = if plan.tls.is_some() { STACK_TLS_BYTES } else { STACK_BYTES };
    let began_ns = clock::monotonic_ns();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..multi.clients {
            let client = &client;
            let builder = std::thread::Builder::new().name(format!("client-{number}"));
            let builder = builder.stack_size(stack_bytes);
            let spawned = builder.spawn_scoped(scope, move || client.run(number));
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(reason) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(LoadError::System { operation: "start a client", reason });
                }
            }
        }
        let mut told = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
            told += 1;
            if told % 500 == 0 {
                watch(answered.load(Ordering::Relaxed));
            }
        }
        Ok(())
    })?;
    let elapsed_ns = clock::monotonic_ns() - began_ns;
    let tally = tally.into_inner().expect("no panic under this lock");
    let conservation = crate::run::conserved(plan, &before, &tally);
    Ok(summary(multi, tally, conservation, elapsed_ns, stop.load(Ordering::Relaxed)))
}

fn check(multi: &Multiclient) -> Result<(), LoadError> {
    let bad = |text: &str| Err(LoadError::Plan(text.to_owned()));
    if !(1..=20_000).contains(&multi.clients) {
        return bad("clients are from 1 to 20000");
    }
    if !(1..=1_000_000).contains(&multi.orders) {
        return bad("orders of a client are from 1 to a million");
    }
    let longest = multi.sleep.saturating_mul(multi.orders);
    if longest > crate::plan::DURATION_MAX {
        return bad("a client lasts at most 24 hours");
    }
    Ok(())
}

fn summary(
    multi: &Multiclient,
    mut tally: Tally,
    conservation: Conservation,
    elapsed_ns: u64,
    interrupted: bool,
) -> MultiRun {
    let [all, rest @ ..] = &mut tally.commands;
    rest.iter().for_each(|pair| all.merge(pair));
    let law_s = ioloom_predict::closed::sleepers_elapsed_s(
        multi.clients as u64,
        multi.pool.map(u64::from),
        u64::from(multi.orders),
        multi.sleep.as_secs_f64(),
    );
    MultiRun {
        clients: multi.clients,
        orders: multi.orders,
        sleep_ns: multi.sleep.as_nanos() as u64,
        elapsed_ns,
        law_ns: (law_s * 1e9) as u64,
        law_error: if law_s > 0.0 { elapsed_ns as f64 / 1e9 / law_s - 1.0 } else { 0.0 },
        orders_per_s: tally.outcomes.answered as f64 * 1e9 / elapsed_ns.max(1) as f64,
        latency: (&all.raw).into(),
        outcomes: tally.outcomes,
        wrong_samples: tally.samples,
        conservation,
        interrupted,
    }
}

impl Client<'_> {
    fn run(&self, number: usize) {
        let mut pending: Option<Order> = None;
        if let Err(reason) = self.orders(number, &mut pending) {
            let mut tally = self.tally.lock().expect("no panic under this lock");
            tally.outcomes.lost += 1;
            if tally.samples.len() < 10 {
                tally.samples.push(format!("client {number}: {reason}"));
            }
            if let Some(order) = pending
                && let Some(place) = self.known.place(order.stock())
            {
                tally.outcomes.unanswered += 1;
                tally.holdings.unknown(place, order.side(), order.count());
            }
        }
    }

    fn orders(&self, number: usize, pending: &mut Option<Order>) -> io::Result<()> {
        let mut channel = Channel::connect(self.plan)?;
        // A client that waits for a thread of a pool waits as long as the others take.
        let patience = self.plan.timeout + self.multi.sleep * self.multi.orders * 4;
        let turns = self.multi.clients as u32 / self.multi.pool.unwrap_or(1).max(1) + 1;
        channel.set_timeouts(patience.saturating_mul(turns), self.plan.timeout)?;
        let mut draw = Draw::new(self.plan, &self.known.ids, number as u64);
        let mut reader = Reader::new(self.plan.protocol, self.known.ids.len());
        let token = self.plan.token.as_deref();
        let mut bytes = greeting(self.plan.protocol, None, token).unwrap_or_default();
        if !bytes.is_empty() {
            channel.send(&bytes)?;
            hear(&mut channel, &mut reader, Asked::Hello)?;
        }
        for at in 0..self.multi.orders {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let op = draw.op();
            bytes.clear();
            spell(self.plan.protocol, op, u64::from(at) + 1, &mut bytes);
            let sent_ns = clock::monotonic_ns();
            *pending = if let Op::Trade(order) = op { Some(order) } else { None };
            channel.send(&bytes)?;
            let (said, received) = hear(&mut channel, &mut reader, Asked::Op(op))?;
            let now_ns = clock::monotonic_ns();
            *pending = None;
            self.count(
                op,
                &said,
                Times { due_ns: sent_ns, sent_ns, now_ns },
                bytes.len(),
                received,
            );
            self.sleep();
        }
        Ok(())
    }

    fn count(
        &self,
        op: Op,
        said: &crate::speech::Said,
        times: Times,
        sent_bytes: usize,
        received_bytes: usize,
    ) {
        let verdict = self.known.judge(op, said);
        let mut tally = self.tally.lock().expect("no panic under this lock");
        tally.outcomes.sent += 1;
        tally.outcomes.sent_bytes += sent_bytes as u64;
        tally.outcomes.received_bytes += received_bytes as u64;
        match verdict {
            Verdict::TurnedAway => {
                tally.outcomes.turned_away += 1;
                return;
            }
            Verdict::Unsure => {
                tally.outcomes.unanswered += 1;
                if let Op::Trade(order) = op
                    && let Some(place) = self.known.place(order.stock())
                {
                    tally.holdings.unknown(place, order.side(), order.count());
                }
                return;
            }
            Verdict::Wrong(sample) => tally.wrong(sample),
            Verdict::Refused => tally.outcomes.refused += 1,
            Verdict::Listed => tally.outcomes.listed += 1,
            Verdict::Traded => {
                tally.outcomes.traded += 1;
                if let Op::Trade(order) = op
                    && let Some(place) = self.known.place(order.stock())
                {
                    tally.holdings.traded(place, order.side(), order.count());
                }
            }
        }
        tally.outcomes.answered += 1;
        tally.outcomes.answered_in_time += 1;
        tally.latency(op, times, usize::MAX);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// The sleep of the original, in naps, so that an interrupt ends it.
    fn sleep(&self) {
        let end_ns = clock::monotonic_ns() + self.multi.sleep.as_nanos() as u64;
        while !self.stop.load(Ordering::Relaxed) {
            let left_ns = end_ns.saturating_sub(clock::monotonic_ns());
            if left_ns == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns).min(NAP));
        }
    }
}

fn hear(
    channel: &mut Channel,
    reader: &mut Reader,
    asked: Asked,
) -> io::Result<(crate::speech::Said, usize)> {
    let mut received = 0;
    loop {
        if let Some(reply) = reader.next(asked) {
            return Ok((reply.said, received));
        }
        let bytes = channel.recv()?;
        received += bytes.len();
        reader.feed(bytes);
    }
}

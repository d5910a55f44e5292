//! The original client: each client connects once; then, ten times, it sends a request, reads the
//! complete answer and sleeps for one second, even after the last order.
//!
//! The original program forks a process per client. Here each client is a thread; threads start one
//! after another, as the processes do. The time is measured from before the first start until the
//! last client exits. The sleep can be scaled down to reproduce a ten-second run in one second.
//!
//! The expected time: clients that sleep need `orders × sleep`, regardless of what the server does
//! during the sleep. A pool that serves `T` connections at a time needs that `⌈clients / T⌉` times.
//! The expected and measured times are compared only if every order was answered. How much longer
//! than requested the clients slept is reported as well, because the load generator is responsible
//! for that part.

use crate::channel::{Channel, READ_TIMEOUT_LEAST};
use crate::client_codec::{Expected, Reader, Reply, Response, encode_request, greeting};
use crate::draw::{Draw, Op};
use crate::error::{LoadError, SystemOperation};
use crate::judge::{KnownStocks, Verdict};
use crate::latency::Latency;
use crate::listing::list;
use crate::plan::LoadPlan;
use crate::report::Conservation;
use crate::run::check_descriptors;
use crate::tally::{Outcomes, Tally, Times};
use ioloom_sys::clock;
use serde::Serialize;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Stack size of a client thread, without and with TLS.
const STACK_BYTES: usize = 64 * 1024;
const STACK_TLS_BYTES: usize = 512 * 1024;
/// Maximum time that a client sleeps before checking for a stop request. With more than a hundred
/// clients, each one sleeps longer, which limits the total to a thousand wake-ups per second.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Minimum read timeout of a client that waits for an answer, unless the timeout of the plan is shorter.
const READ_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Options for the original client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multiclient {
    /// Number of concurrent clients.
    pub clients: usize,
    /// Number of orders per client.
    pub orders: u32,
    /// Sleep after each order.
    pub sleep: Duration,
    /// Number of threads in the server's pool, if it uses one thread per connection; used for the
    /// expected time and for the wait of clients that are not served yet.
    pub pool: Option<u32>,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MultiRun {
    /// Number of clients.
    pub clients: usize,
    /// Number of orders per client.
    pub orders: u32,
    /// Sleep after each order in nanoseconds.
    pub sleep_ns: u64,
    /// Time from before the first start until the last client exits, in nanoseconds.
    pub elapsed_ns: u64,
    /// Expected time in nanoseconds.
    pub law_ns: u64,
    /// Measured time divided by expected time, minus one; null if an order was not answered, or if
    /// clients do not sleep.
    pub law_error: Option<f64>,
    /// Orders per second.
    pub orders_per_s: f64,
    /// Latency of requests, excluding the sleep.
    pub latency: Latency,
    /// How much longer than requested the clients slept.
    pub overslept: Latency,
    /// Outcomes of requests.
    pub outcomes: Outcomes,
    /// Wrong answers, at most 10.
    pub wrong_samples: Vec<String>,
    /// Whether shares were lost or invented.
    pub conservation: Conservation,
    /// Whether the run was interrupted.
    pub interrupted: bool,
}

impl MultiRun {
    /// Returns true if every order was answered correctly (BUSY is not an answer), and no shares were
    /// lost or invented.
    pub fn is_right(&self) -> bool {
        let lost = self.outcomes.lost + self.outcomes.timed_out;
        let all = lost == 0 && self.outcomes.answered == all_orders(self.clients, self.orders);
        all && self.outcomes.wrong == 0 && self.conservation.differences.is_empty()
    }
}

/// Returns the number of orders of all clients.
fn all_orders(clients: usize, orders: u32) -> u64 {
    clients as u64 * u64::from(orders)
}

struct Client<'a> {
    plan: &'a LoadPlan,
    multi: &'a Multiclient,
    known: &'a KnownStocks,
    stop: &'a AtomicBool,
    tally: &'a Mutex<Tally>,
    answered: &'a AtomicU64,
    /// Time of the latest answer to any client.
    latest_ns: &'a AtomicU64,
    /// Time at which the last client exited.
    ended_ns: &'a AtomicU64,
}

/// Runs the original client. Only the server, protocol, mix, skew, counts and seed of the plan are
/// used.
///
/// # Errors
/// Returns an error if the plan is invalid, if the system does not permit it, or if the server
/// cannot be reached.
pub fn multiclient(
    plan: &LoadPlan,
    multi: &Multiclient,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(u64),
) -> Result<MultiRun, LoadError> {
    plan.check()?;
    check(multi)?;
    check_descriptors(multi.clients, "--multiclient")?;
    let before = list(plan, None, Some(stop))?;
    let known = KnownStocks::new(&before);
    let tally = Mutex::new(Tally::new(before.lines.len()));
    let (answered, ended_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let latest_ns = AtomicU64::new(0);
    let client = Client {
        plan,
        multi,
        known: &known,
        stop,
        tally: &tally,
        answered: &answered,
        latest_ns: &latest_ns,
        ended_ns: &ended_ns,
    };
    let began_ns = clock::monotonic_ns();
    client.all(watch)?;
    let elapsed_ns = ended_ns.load(Ordering::Relaxed).saturating_sub(began_ns);
    let tally = tally.into_inner().expect("the lock must not be poisoned");
    let conservation = crate::run::conserved(plan, &before, &tally, stop);
    Ok(summary(multi, tally, conservation, elapsed_ns, stop.load(Ordering::Relaxed)))
}

fn check(multi: &Multiclient) -> Result<(), LoadError> {
    let bad = |text: &str| Err(LoadError::Plan(text.to_owned()));
    if !(1..=20_000).contains(&multi.clients) {
        return bad("the number of clients must be between 1 and 20000");
    }
    if !(1..=1_000_000).contains(&multi.orders) {
        return bad("the number of orders per client must be between 1 and 1000000");
    }
    let longest = multi.sleep.saturating_mul(multi.orders);
    if longest > crate::plan::DURATION_MAX {
        return bad("a client must not run for more than 24 hours");
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
    let orders = all_orders(multi.clients, multi.orders);
    let law_s = ioloom_predict::closed_loop::sleepers_elapsed_s(
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
        law_error: (law_s > 0.0 && tally.outcomes.answered == orders)
            .then(|| elapsed_ns as f64 / 1e9 / law_s - 1.0),
        orders_per_s: tally.outcomes.answered as f64 * 1e9 / elapsed_ns.max(1) as f64,
        latency: (&all.raw).into(),
        overslept: (&tally.late).into(),
        outcomes: tally.outcomes,
        wrong_samples: tally.samples,
        conservation,
        interrupted,
    }
}

/// Most rounds without any answer that a client behind a pool waits.
const ROUNDS_MAX: u64 = 3;

/// Returns how long a client waits for an answer. Until its first one, it may be waiting for a thread of a
/// pool, so the time is counted from the latest answer to any client. The clients of a known pool may sleep
/// and then time out themselves; after that, its threads serve as many others. A server that answers
/// no client for [`ROUNDS_MAX`] such rounds has failed.
fn answer_limit(
    timeout: Duration,
    multi: &Multiclient,
    number: usize,
    is_served: bool,
) -> Duration {
    match multi.pool {
        Some(threads) if !is_served => {
            let rounds = number as u64 / u64::from(threads.max(1)) + 1;
            let rounds = rounds.min(ROUNDS_MAX);
            timeout.saturating_add(multi.sleep).saturating_mul(rounds as u32)
        }
        _ => timeout,
    }
}

/// How long a client waits for an answer.
#[derive(Debug, Clone, Copy)]
struct AnswerLimit {
    time: Duration,
    /// Whether the client has had an answer. Before that, the time is counted from the latest answer to any
    /// client.
    is_served: bool,
}

/// Request that has not been answered yet.
type Pending = Option<Op>;

impl Client<'_> {
    /// Starts all clients and waits for them.
    fn all(&self, watch: &mut dyn FnMut(u64)) -> Result<(), LoadError> {
        let stack_bytes = if self.plan.tls.is_some() { STACK_TLS_BYTES } else { STACK_BYTES };
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.multi.clients {
                let builder = std::thread::Builder::new().name(format!("client-{number}"));
                let builder = builder.stack_size(stack_bytes);
                match builder.spawn_scoped(scope, move || self.run(number)) {
                    Ok(thread) => threads.push(thread),
                    Err(source) => {
                        self.stop.store(true, Ordering::Relaxed);
                        let operation = SystemOperation::StartThread;
                        return Err(LoadError::System { operation, source });
                    }
                }
            }
            let mut checks = 0;
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(2));
                checks += 1;
                if checks % 500 == 0 {
                    watch(self.answered.load(Ordering::Relaxed));
                }
            }
            Ok(())
        })
    }

    fn run(&self, number: usize) {
        let mut pending: Pending = None;
        let ended = self.orders(number, &mut pending);
        self.ended_ns.fetch_max(clock::monotonic_ns(), Ordering::Relaxed);
        let Err(reason) = ended else { return };
        let mut tally = self.tally.lock().expect("the lock must not be poisoned");
        // Requests are sent after the TLS handshake.
        let was_sent = reason.kind() != io::ErrorKind::ConnectionAborted;
        // An interrupted client has not lost an order, but the outcome of its order is unknown.
        if reason.kind() != io::ErrorKind::Interrupted {
            match reason.kind() {
                io::ErrorKind::TimedOut => tally.outcomes.timed_out += 1,
                _ => {
                    tally.outcomes.lost += 1;
                    tally.outcomes.lost_in_handshake += u64::from(!was_sent);
                }
            }
            if tally.samples.len() < 10 {
                tally.samples.push(format!("client {number}: {reason}"));
            }
        }
        if let Some(op) = pending {
            tally.outcomes.sent += 1;
            tally.outcomes.unanswered += 1;
            tally.outcomes.unanswered_counted += 1;
            tally.outcomes.failed += 1;
            if was_sent {
                self.unknown(&mut tally, op);
            }
        }
    }

    /// Records that an order may or may not have been executed.
    fn unknown(&self, tally: &mut Tally, op: Op) {
        if let Op::Trade(order) = op
            && let Some(place) = self.known.place(order.stock())
        {
            tally.holdings.unknown(place, order.side(), order.count());
        }
    }

    fn orders(&self, number: usize, pending: &mut Pending) -> io::Result<()> {
        let mut channel = Channel::connect(self.plan)?;
        let read_timeout = self.sleep_max().max(READ_TIMEOUT_MIN).min(self.plan.timeout);
        channel.set_timeouts(read_timeout.max(READ_TIMEOUT_LEAST), self.plan.timeout)?;
        let mut draw = Draw::new(self.plan, &self.known.ids, number as u64);
        let mut reader = Reader::new(self.plan.protocol, self.known.ids.len());
        let token = self.plan.token.as_deref();
        let limit = |is_served| AnswerLimit {
            time: answer_limit(self.plan.timeout, self.multi, number, is_served),
            is_served,
        };
        let mut is_served = false;
        let mut bytes = greeting(self.plan.protocol, None, token).unwrap_or_default();
        if !bytes.is_empty() {
            channel.send(&bytes)?;
            let hello =
                self.receive(&mut channel, &mut reader, Expected::Hello, limit(is_served))?.0;
            is_served = true;
            match hello.response {
                Response::Hello => {}
                Response::Busy => return Err(io::Error::other("the server is busy")),
                other => {
                    return Err(io::Error::other(format!(
                        "unexpected answer to the greeting: {other}"
                    )));
                }
            }
        }
        let mut latest = 0;
        for at in 0..self.multi.orders {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let op = draw.op();
            bytes.clear();
            let id = u64::from(at) + 1;
            encode_request(self.plan.protocol, op, id, &mut bytes);
            let sent_ns = clock::monotonic_ns();
            *pending = Some(op);
            channel.send(&bytes)?;
            let (reply, received) =
                self.receive(&mut channel, &mut reader, Expected::Op(op), limit(is_served))?;
            is_served = true;
            let now_ns = clock::monotonic_ns();
            *pending = None;
            let verdict = self.known.judge_reply(op, id, &reply, &mut latest);
            let times = Times { due_ns: sent_ns, sent_ns, now_ns };
            self.count(op, verdict, times, bytes.len(), received);
            self.sleep();
        }
        Ok(())
    }

    /// Waits for one answer; returns it with its size in bytes. A stop request interrupts the wait.
    fn receive(
        &self,
        channel: &mut Channel,
        reader: &mut Reader,
        asked: Expected,
        limit: AnswerLimit,
    ) -> io::Result<(Reply, usize)> {
        let began_ns = clock::monotonic_ns();
        let (mut received, mut is_quiet) = (0, None);
        loop {
            if let Some(reply) = reader.next(asked) {
                self.latest_ns.fetch_max(clock::monotonic_ns(), Ordering::Relaxed);
                return Ok((reply, received));
            }
            if let Some(is_quiet) = is_quiet {
                self.check_wait(began_ns, limit, is_quiet)?;
            }
            is_quiet = Some(match channel.recv() {
                Ok(bytes) => {
                    received += bytes.len();
                    reader.feed(bytes);
                    false
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => true,
                Err(e) => return Err(e),
            });
        }
    }

    /// Returns an error if the wait for an answer that began at `began_ns` must end. `is_quiet`: no part of
    /// it has arrived within the read timeout.
    fn check_wait(&self, began_ns: u64, limit: AnswerLimit, is_quiet: bool) -> io::Result<()> {
        let now_ns = clock::monotonic_ns();
        let waited_ns = now_ns.saturating_sub(began_ns);
        // The rest of an answer that has begun to arrive is expected soon.
        let is_interruptible = is_quiet || u128::from(waited_ns) >= READ_TIMEOUT_MIN.as_nanos();
        if is_interruptible && self.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let latest_ns = self.latest_ns.load(Ordering::Relaxed);
        let since_ns = if limit.is_served { began_ns } else { began_ns.max(latest_ns) };
        if u128::from(now_ns.saturating_sub(since_ns)) >= limit.time.as_nanos() {
            let words = format!("no answer within {:.3} s", waited_ns as f64 / 1e9);
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        Ok(())
    }

    fn count(
        &self,
        op: Op,
        verdict: Verdict,
        times: Times,
        sent_bytes: usize,
        received_bytes: usize,
    ) {
        let mut tally = self.tally.lock().expect("the lock must not be poisoned");
        tally.outcomes.sent += 1;
        tally.outcomes.sent_bytes += sent_bytes as u64;
        tally.outcomes.received_bytes += received_bytes as u64;
        match verdict {
            Verdict::TurnedAway => {
                tally.outcomes.turned_away += 1;
                tally.outcomes.failed += 1;
                return;
            }
            Verdict::Unsure => {
                tally.outcomes.unanswered += 1;
                tally.outcomes.unanswered_counted += 1;
                tally.outcomes.failed += 1;
                return self.unknown(&mut tally, op);
            }
            Verdict::Wrong(sample) => {
                tally.wrong(sample);
                tally.outcomes.failed += 1;
                return self.unknown(&mut tally, op);
            }
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

    /// Returns how long a client sleeps before it checks for a stop request.
    fn sleep_max(&self) -> Duration {
        SLEEP_MAX.max(Duration::from_millis(self.multi.clients as u64))
    }

    /// Sleeps like the original, but in parts that a stop request can interrupt.
    fn sleep(&self) {
        let end_ns = clock::monotonic_ns() + self.multi.sleep.as_nanos() as u64;
        while !self.stop.load(Ordering::Relaxed) {
            let now_ns = clock::monotonic_ns();
            if now_ns >= end_ns {
                let mut tally = self.tally.lock().expect("the lock must not be poisoned");
                tally.late.saturating_record((now_ns - end_ns).max(1));
                return;
            }
            std::thread::sleep(Duration::from_nanos(end_ns - now_ns).min(self.sleep_max()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_behind_a_known_pool_wait_longer_than_the_timeout() {
        let timeout = Duration::from_secs(10);
        let sleep = Duration::from_secs(1);
        let limit_s = |pool, number, is_served| {
            let multi = Multiclient { clients: 9, orders: 2, sleep, pool };
            answer_limit(timeout, &multi, number, is_served).as_secs()
        };
        assert_eq!([limit_s(None, 8, false), limit_s(Some(4), 8, true)], [10, 10]);
        let limits = [0, 3, 4, 8, 99].map(|number| limit_s(Some(4), number, false));
        assert_eq!(limits, [11, 11, 22, 33, 33]);
    }
}

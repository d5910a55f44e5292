//! A stock server with more clients than can be measured.

use super::profile::MeasuredExchange;
use super::{
    Answer, Beyond, DOUBLING, FELT, Limit, Point, UNKNOWN_DEVICE, format_time, ladder, one_to,
    probes,
};
use crate::PredictError;
use crate::error::at_least_zero;
use crate::knee::Knee;
use crate::network::{Network, Station};
use ioloom_model::units::format_counted;
use serde::{Deserialize, Serialize};

/// Processor seconds of a request with 64 connections and no order log (`results/serve-levels`).
pub const REQUEST_S: f64 = 5.89e-6;
/// Seconds of a sync of 4 KiB there.
pub const SYNC_S: f64 = 0.138e-3;
/// Seconds of a request besides its processor time: one client made 28,953 requests per second
/// (`results/serve-vs-redis`).
const ROUND_TRIP_S: f64 = 1.0 / 28_953.0 - REQUEST_S;
/// Seconds of an order with a sync of its own besides that sync: 64 clients made 4,191 per second.
const EACH_S: f64 = 1.0 / 4191.0 - SYNC_S;
/// Seconds of a shared commit besides its sync: one client with group commit took 1 / 4,020 s.
const COMMIT_S: f64 = 1.0 / 4020.0 - SYNC_S - ROUND_TRIP_S - REQUEST_S;
/// Seconds per additional client of a commit: 64 clients made 94,150 requests per second.
const COMMIT_CLIENT_S: f64 =
    (64.0 / 94_150.0 - ROUND_TRIP_S - REQUEST_S - (2.0 - 1.0 / 64.0) * (COMMIT_S + SYNC_S)) / 63.0;
/// Most clients of that measurement.
const CLIENTS: f64 = 64.0;
/// Cores of its machine.
const CORES: f64 = 2.0;
/// Difference between two measured servers of a level, as a share: their minimum and maximum differ
/// from the median by up to this.
const SPREAD: f64 = 0.25;

/// When an order is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing is kept.
    None,
    /// When a sync shared by all waiting orders is complete.
    Group,
    /// When its own sync is complete.
    Each,
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Most clients.
    pub clients_max: u32,
    /// Orders of each client.
    pub orders: u64,
    /// Time between a reply and the next order, in seconds.
    pub think_s: f64,
    /// Threads of a pool that gives each connection a thread; `None` for an event loop.
    pub pool: Option<u32>,
    /// Cores of the server.
    pub cores: u32,
    /// Processor time of a request, in seconds.
    pub request_s: f64,
    /// When an order is acknowledged.
    pub durability: Durability,
    /// Time of a sync, in seconds.
    pub sync_s: f64,
    /// Probes of this machine, which replace the times of requests and syncs.
    pub measured: Option<MeasuredExchange>,
}

impl Question {
    /// Returns the probes that apply, if the machine was measured.
    fn probes(&self) -> Option<&[(u32, f64)]> {
        let found = self.measured.as_ref()?;
        Some(match self.durability {
            Durability::None => &found.none_s,
            Durability::Group => &found.group_s,
            Durability::Each => &found.each_s,
        })
    }
}

/// Curves fitted to the probes of this machine.
struct Curves {
    /// Of the level of durability in question.
    asked: Knee,
    /// Without an order log.
    none: Knee,
    /// Longest time of a sync: what an order of a single client takes longer with one.
    sync_s: f64,
}

impl Curves {
    fn of(question: &Question, measured: &MeasuredExchange) -> Result<Self, PredictError> {
        let asked = Knee::fit(question.probes().unwrap_or_default())?;
        let none = Knee::fit(&measured.none_s)?;
        let each = Knee::fit(&measured.each_s)?;
        let sync_s = (each.seconds(1) - none.seconds(1)).max(0.0);
        Ok(Self { asked, none, sync_s })
    }

    /// Returns at most how much faster `waiting` clients would be served with a faster sync, as a factor.
    ///
    /// A sync cannot take more of the time between two responses than the order log does. A shared one is that of
    /// all waiting orders, each of which waits for less than two.
    fn faster_sync(&self, durability: Durability, waiting: f64) -> f64 {
        let gap_s = self.asked.seconds_at(waiting);
        let most_s = match durability {
            Durability::None => 0.0,
            Durability::Group => 2.0 * self.sync_s / waiting.max(1.0),
            Durability::Each => self.sync_s,
        };
        let sync_s = (gap_s - self.none.seconds_at(waiting)).clamp(0.0, most_s);
        gap_s / (gap_s - sync_s * (1.0 - 1.0 / UNKNOWN_DEVICE))
    }
}

/// Answers a question.
///
/// # Errors
/// Fails if a number is out of range.
pub fn answer(question: &Question) -> Result<Answer, PredictError> {
    check(question)?;
    let curves = question.measured.as_ref().map(|all| Curves::of(question, all)).transpose()?;
    let known = question.probes().map_or(CLIENTS, |all| f64::from(most(all)));
    // The probes are those of a server on one core.
    let calibrated = if question.measured.is_some() { 1.0 } else { CORES };
    let cores = f64::from(question.cores) / calibrated;
    let cores = cores.max(1.0 / cores);
    let mut points = Vec::new();
    for clients in ladder(question.clients_max) {
        let at = |factor: f64| served_s(question, curves.as_ref(), clients, factor);
        let (elapsed_s, bound) = at(1.0)?;
        let is_pool = pool_limits(question, curves.as_ref(), clients, elapsed_s)?;
        let active = question.pool.map_or(clients, |threads| clients.min(threads));
        let far = (f64::from(active) / known).max(1.0);
        let half = SPREAD * (1.0 + (far.log2() + cores.log2()) / 4.0);
        points.push(Point {
            threads: clients,
            elapsed_s,
            low_s: at((-half).exp())?.0.min(elapsed_s),
            high_s: at(half.exp())?.0.max(elapsed_s),
            rate_per_s: f64::from(clients) * question.orders as f64 / elapsed_s,
            limit: if is_pool { Limit::Pool } else { bound },
            beyond: Some(Beyond {
                threads: (f64::from(clients) / known).max(1.0),
                cores,
                ..Beyond::INSIDE
            }),
        });
    }
    let model = match question.pool {
        Some(threads) => {
            let threads = format_counted(u64::from(threads), "thread", "threads");
            format!("a pool of {threads}, one per connection")
        }
        None => "an event loop".to_owned(),
    };
    Ok(Answer {
        question: format!(
            "{} with {} each and {} s between them, served by {model}",
            format_counted(u64::from(question.clients_max), "client", "clients"),
            format_counted(question.orders, "order", "orders"),
            question.think_s
        ),
        unit: "requests",
        axis: "clients",
        method: match curves {
            Some(_) => {
                "closed loop; the requests of clients that do not think follow a latency and \
                        a gap between responses, fitted to probes"
            }
            None => {
                "closed loop, by mean value analysis; several cores count as one fast core and \
                     a delay (Seidmann)"
            }
        }
        .to_owned(),
        parameters: match question.probes() {
            Some(all) => format!("probes of this machine: a request, {} clients", probes(all)),
            None => published(question),
        },
        enough: Answer::enough(&points),
        points,
        notes: notes(question),
    })
}

/// Returns further remarks on an answer.
fn notes(question: &Question) -> Vec<String> {
    let mut notes = vec![
        "memory, descriptors and the network of so many clients are not part of the law".to_owned(),
        format!(
            "the interval covers requests and syncs that take {:.2} times as long or short, and more beyond \
             the calibration; the time between orders counts as exact",
            SPREAD.exp()
        ),
    ];
    if question.pool.is_none() && question.cores > 1 {
        notes.push(format!(
            "{} cores mean {} event loops that share the clients evenly",
            question.cores, question.cores
        ));
    }
    notes
}

/// Returns the elapsed time if requests, their way and syncs take `factor` times as long, and what bounds
/// the clients that are served together.
///
/// A pool serves as many clients as it has threads, then the next ones, and at last those that remain.
fn served_s(
    question: &Question,
    curves: Option<&Curves>,
    clients: u32,
    factor: f64,
) -> Result<(f64, Limit), PredictError> {
    // Only the quotients count: thinking that is shorter in another unit of time.
    let scaled = Question { think_s: question.think_s / factor, ..question.clone() };
    let active = question.pool.map_or(clients, |threads| clients.min(threads));
    let (rate, limit) = served_together(&scaled, curves, active)?;
    let rest_s = match clients % active {
        0 => 0.0,
        rest => f64::from(rest) / served_together(&scaled, curves, rest)?.0,
    };
    let rounds_s = f64::from(clients / active) * f64::from(active) / rate + rest_s;
    Ok((question.orders as f64 * rounds_s * factor, limit))
}

/// Returns requests per second of clients that are served at the same time, and the limit.
fn served_together(
    question: &Question,
    curves: Option<&Curves>,
    clients: u32,
) -> Result<(f64, Limit), PredictError> {
    match curves {
        Some(curves) => Ok(probed_loop(question, curves, clients)),
        None => closed_loop(question, clients),
    }
}

/// Returns whether a larger pool is faster than one that takes `elapsed_s`.
fn pool_limits(
    question: &Question,
    curves: Option<&Curves>,
    clients: u32,
    elapsed_s: f64,
) -> Result<bool, PredictError> {
    let threads = question.pool.unwrap_or(clients);
    for pool in larger_pools(threads, clients) {
        let larger = Question { pool: Some(pool), ..question.clone() };
        if served_s(&larger, curves, clients, 1.0)?.0 * (1.0 + DOUBLING) < elapsed_s {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the larger pools that are compared with one of so many threads. The work to solve a pool grows
/// with its threads, so they do not reach up to all clients.
fn larger_pools(threads: u32, clients: u32) -> Vec<u32> {
    let mut pools: Vec<u32> =
        [2, 4].map(|factor| threads.saturating_mul(factor).min(clients)).to_vec();
    pools.retain(|pool| *pool > threads);
    pools.dedup();
    pools
}

fn check(question: &Question) -> Result<(), PredictError> {
    one_to("number of clients", u64::from(question.clients_max), 10_000_000)?;
    one_to("number of orders", question.orders, u64::MAX)?;
    one_to("number of cores", u64::from(question.cores), 4096)?;
    at_least_zero("think time", question.think_s)?;
    at_least_zero("time of a request", question.request_s)?;
    at_least_zero("time of a sync", question.sync_s)?;
    if let Some(threads) = question.pool {
        one_to("number of pool threads", u64::from(threads), 1_000_000)?;
    }
    if let Some(threads) = question.pool.filter(|_| question.measured.is_some()) {
        let (what, value) = ("number of pool threads", f64::from(threads));
        let accepted = "absent: the probes of this machine are those of an event loop";
        return Err(PredictError::OutOfRange { what, value, accepted });
    }
    if question.measured.is_some() && question.cores != 1 {
        let (what, value) = ("number of cores", f64::from(question.cores));
        let accepted = "1, as in the probes of this machine";
        return Err(PredictError::OutOfRange { what, value, accepted });
    }
    Ok(())
}

/// Returns the parameters that the level of durability uses, with their source.
fn published(question: &Question) -> String {
    let sync = format_time(question.sync_s);
    let syncs = match question.durability {
        Durability::None => String::new(),
        Durability::Group => format!(
            ", {sync} per sync, {:.1} µs per shared commit besides its sync and {:.2} µs per \
             additional client in it",
            COMMIT_S * 1e6,
            COMMIT_CLIENT_S * 1e6
        ),
        Durability::Each => {
            format!(", {sync} per sync, {:.1} µs per order besides its sync", EACH_S * 1e6)
        }
    };
    format!(
        "{} of processor per request, {:.1} µs for its way and the client{syncs}; \
         results/serve-levels and results/serve-vs-redis on two cores, up to 64 connections",
        format_time(question.request_s),
        ROUND_TRIP_S * 1e6
    )
}

fn most(probes: &[(u32, f64)]) -> u32 {
    probes.iter().map(|(n, _)| *n).max().unwrap_or(1)
}

/// Returns requests per second of `clients` clients by probes without thinking, and the limit.
///
/// Of the clients, `m` wait for a response and the others think. With `t(m)` between two responses,
/// `m + think / t(m)` is the number of clients, and grows with `m`.
fn probed_loop(question: &Question, curves: &Curves, clients: u32) -> (f64, Limit) {
    let knee = &curves.asked;
    let (think_s, all) = (question.think_s, f64::from(clients));
    let (mut low, mut high) = (0.0, all);
    if think_s > 0.0 {
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if middle + think_s / knee.seconds_at(middle) < all {
                low = middle;
            } else {
                high = middle;
            }
        }
    }
    let gap_s = knee.seconds_at(high);
    let limit = if high < 0.5 * all || knee.seconds_at(2.0 * high) * (1.0 + DOUBLING) < gap_s {
        Limit::Clients
    } else if curves.faster_sync(question.durability, high).ln() >= FELT * UNKNOWN_DEVICE.ln() {
        Limit::Sync
    } else {
        Limit::Compute
    };
    (1.0 / gap_s, limit)
}

/// Returns requests per second of `clients` clients that are served at the same time, and the limit.
///
/// A shared commit grows with the orders in it, so with the clients that wait for one; that number is
/// the rate times the commit, which is found by halving.
fn closed_loop(question: &Question, clients: u32) -> Result<(f64, Limit), PredictError> {
    let (mut low, mut high) = (1.0, f64::from(clients));
    if question.durability == Durability::Group && question.think_s > 0.0 {
        for _ in 0..40 {
            let waiting = f64::midpoint(low, high);
            let commit = commit_s(question, waiting);
            if served_per_s(question, clients, commit)? * commit < waiting {
                high = waiting;
            } else {
                low = waiting;
            }
        }
    }
    let rate = served_per_s(question, clients, commit_s(question, high))?;
    Ok((rate, limit(question, clients, high, rate)?))
}

/// Returns requests per second if a commit takes `commit` seconds.
fn served_per_s(question: &Question, clients: u32, commit: f64) -> Result<f64, PredictError> {
    let cores = f64::from(question.cores);
    let stations = vec![
        Station::Delay { demand_s: question.think_s + ROUND_TRIP_S + commit },
        Station::Queue { demand_s: question.request_s / cores },
        Station::Delay { demand_s: question.request_s * (cores - 1.0) / cores },
        Station::Queue { demand_s: own_sync_s(question) },
    ];
    Ok(Network::new(stations)?.rate_per_s(clients))
}

/// Returns the limit of clients that are served at this rate while `waiting` of them wait for a commit.
///
/// Most of a shared commit of many orders is not its sync. So a sync is the limit only if a faster one would
/// be felt.
fn limit(
    question: &Question,
    clients: u32,
    waiting: f64,
    rate: f64,
) -> Result<Limit, PredictError> {
    let commit = commit_s(question, waiting);
    if rate * question.request_s > 0.9 * f64::from(question.cores) {
        return Ok(Limit::Compute);
    }
    let waits = commit > question.think_s && commit > question.request_s;
    if !waits && rate * own_sync_s(question) <= 0.9 {
        return Ok(Limit::Clients);
    }
    let faster = Question { sync_s: question.sync_s / UNKNOWN_DEVICE, ..question.clone() };
    let gain = served_per_s(&faster, clients, commit_s(&faster, waiting))? / rate;
    let rest_s = commit_s(&Question { sync_s: 0.0, ..faster }, waiting);
    Ok(if gain.ln() >= FELT * UNKNOWN_DEVICE.ln() {
        Limit::Sync
    } else if waits && rest_s <= question.think_s {
        Limit::Clients
    } else {
        Limit::Compute
    })
}

/// Returns the time of a sync of a single order with what comes with it; 0 with other levels.
fn own_sync_s(question: &Question) -> f64 {
    if question.durability == Durability::Each { EACH_S + question.sync_s } else { 0.0 }
}

/// Returns how long an order waits for a shared commit: the one that is under way when it arrives, if
/// any, and its own, which grow with the orders in them.
fn commit_s(question: &Question, waiting: f64) -> f64 {
    if question.durability != Durability::Group {
        return 0.0;
    }
    let n = waiting;
    (COMMIT_S + question.sync_s) * (2.0 - 1.0 / n) + COMMIT_CLIENT_S * (n - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(clients_max: u32) -> Question {
        Question {
            clients_max,
            orders: 10,
            think_s: 1.0,
            pool: None,
            cores: 2,
            request_s: REQUEST_S,
            durability: Durability::None,
            sync_s: SYNC_S,
            measured: None,
        }
    }

    #[test]
    fn the_parameters_are_those_of_the_level() {
        let of = |durability| answer(&Question { durability, ..question(8) }).unwrap().parameters;
        assert!(!of(Durability::None).contains("sync"), "{}", of(Durability::None));
        for (level, words) in [
            (Durability::Group, ["per shared commit", "per additional client"]),
            (Durability::Each, ["per order besides its sync", "138 µs per sync"]),
        ] {
            for word in words {
                assert!(of(level).contains(word), "{}", of(level));
            }
        }
    }

    #[test]
    fn one_is_singular_and_times_have_the_unit_of_their_size() {
        let (orders, pool) = (1, Some(1));
        let one = answer(&Question { orders, pool, request_s: 3600.0, ..question(1) }).unwrap();
        let asked = "1 client with 1 order each and 1 s between them, served by a pool of 1 thread";
        assert!(one.question.starts_with(asked), "{}", one.question);
        assert!(one.parameters.starts_with("60.0 min of processor"), "{}", one.parameters);
    }

    #[test]
    fn probes_answer_for_this_machine() {
        let group_s: Vec<(u32, f64)> =
            [1, 8, 64].map(|n| (n, 2e-6 + 200e-6 / f64::from(n))).to_vec();
        let measured = MeasuredExchange {
            none_s: vec![(1, 30e-6), (8, 6e-6), (64, 6e-6)],
            group_s,
            each_s: vec![(1, 200e-6), (8, 200e-6)],
        };
        let probed = Question {
            think_s: 0.0,
            cores: 1,
            durability: Durability::Group,
            measured: Some(measured),
            ..question(256)
        };
        let all = answer(&probed).unwrap();
        for point in &all.points {
            let law = 2e-6 + 200e-6 / f64::from(point.threads);
            let error = point.rate_per_s * law - 1.0;
            let allowed = if point.threads > 64 { 0.3 } else { 0.06 };
            assert!(error.abs() < allowed, "{error} {point:?}");
        }
        assert_eq!(all.points[0].limit, Limit::Clients);
        let beyond = all.points[8].beyond.unwrap();
        assert_eq!((beyond.threads, beyond.cores), (4.0, 1.0));
        // Clients that think for a second are not limited by a server that needs microseconds.
        let thinking = answer(&Question { think_s: 1.0, ..probed.clone() }).unwrap();
        let last = thinking.points.last().unwrap();
        assert!((last.rate_per_s / 256.0 - 1.0).abs() < 0.01, "{last:?}");
        assert_eq!(last.limit, Limit::Clients);
        let none = Question { durability: Durability::None, ..probed.clone() };
        let last = answer(&none).unwrap().points.pop().unwrap();
        assert!((last.rate_per_s * 6e-6 - 1.0).abs() < 0.05, "{last:?}");
        assert_eq!(last.limit, Limit::Compute);
        assert!(answer(&Question { cores: 2, ..probed }).is_err());
    }

    /// A flat curve does not show that syncs are the limit: orders without a log take as long, or syncs are a small part.
    #[test]
    fn probes_are_limited_by_syncs_only_if_faster_ones_are_felt() {
        let limit = |durability, none: f64, group: f64, each: f64| {
            let flat = |first: f64, rest: f64| vec![(1, first), (8, rest), (64, rest)];
            let measured = MeasuredExchange {
                none_s: flat(30e-6, none),
                group_s: flat(group, group),
                each_s: flat(230e-6, each),
            };
            let (measured, cores) = (Some(measured), 1);
            let asked = Question { think_s: 0.0, cores, durability, measured, ..question(64) };
            answer(&asked).unwrap().points.pop().unwrap().limit
        };
        assert_eq!(limit(Durability::Each, 6e-6, 9e-6, 220e-6), Limit::Sync);
        assert_eq!(limit(Durability::Each, 210e-6, 9e-6, 220e-6), Limit::Compute);
        assert_eq!(limit(Durability::Group, 1e-6, 7e-6, 220e-6), Limit::Sync);
        assert_eq!(limit(Durability::Group, 6e-6, 6.1e-6, 220e-6), Limit::Compute);
        // A sync that 64 orders share is a small part of the time of their commit.
        assert_eq!(limit(Durability::Group, 6e-6, 60e-6, 220e-6), Limit::Compute);
    }

    #[test]
    fn sleeping_clients_take_the_published_times() {
        let looped = answer(&question(100)).unwrap();
        let last = looped.points.last().unwrap();
        assert!((last.elapsed_s / 10.03 - 1.0).abs() < 0.01, "{last:?}");
        assert_eq!(last.limit, Limit::Clients);
        let pool = answer(&Question { pool: Some(10), ..question(100) }).unwrap();
        let last = pool.points.last().unwrap();
        assert!((last.elapsed_s / 100.1 - 1.0).abs() < 0.01, "{last:?}");
        assert_eq!(last.limit, Limit::Pool);
    }

    #[test]
    fn a_million_clients_are_limited_by_the_cores() {
        let busy = answer(&question(1_000_000)).unwrap();
        let last = busy.points.last().unwrap();
        assert!((last.rate_per_s / (2.0 / REQUEST_S) - 1.0).abs() < 0.01, "{last:?}");
        assert_eq!(last.limit, Limit::Compute);
        assert!(last.beyond.unwrap().threads > 10_000.0);
    }

    #[test]
    fn fewer_cores_than_calibrated_are_as_far_as_more() {
        let last = |cores| answer(&Question { cores, ..question(4) }).unwrap().points.pop();
        let beyond = |cores| last(cores).unwrap().beyond.unwrap().cores;
        assert_eq!([1, 2, 4].map(beyond), [2.0, 1.0, 2.0]);
    }

    #[test]
    fn one_client_waits_for_each_response() {
        let one = Question { think_s: 0.0, cores: 1, ..question(64) };
        let answer = answer(&one).unwrap();
        // Measured: 28,953 with one connection, 154,157 with 64.
        let rates: Vec<f64> = answer.points.iter().map(|point| point.rate_per_s).collect();
        assert!((rates[0] / 28_953.0 - 1.0).abs() < 0.01, "{rates:?}");
        assert!((rates[6] / 154_157.0 - 1.0).abs() < 0.12, "{rates:?}");
    }

    #[test]
    fn group_commit_is_near_the_measured_rates() {
        let group =
            Question { think_s: 0.0, durability: Durability::Group, cores: 1, ..question(64) };
        let answer = answer(&group).unwrap();
        // 16 clients were not used for the parameters.
        for (clients, measured) in [(1, 4020.0), (16, 30_670.0), (64, 94_150.0)] {
            let point = answer.points.iter().find(|point| point.threads == clients).unwrap();
            assert!((point.rate_per_s / measured - 1.0).abs() < 0.15, "{point:?} {measured}");
        }
    }

    #[test]
    fn one_sync_per_order_is_one_at_a_time() {
        let each = Question { think_s: 0.0, durability: Durability::Each, ..question(256) };
        let answer = answer(&each).unwrap();
        let last = answer.points.last().unwrap();
        assert!((last.rate_per_s / 4191.0 - 1.0).abs() < 0.02, "{last:?}");
        assert_eq!(last.limit, Limit::Sync);
        assert!(super::answer(&Question { think_s: -1.0, ..question(4) }).is_err());
    }

    /// A commit of 10,000 orders takes 35 ms, of which its sync is 0.3 ms.
    #[test]
    fn syncs_are_the_limit_only_if_faster_ones_are_felt() {
        let durability = Durability::Group;
        let asked = Question { think_s: 0.0, durability, ..question(10_000) };
        let points = answer(&asked).unwrap().points;
        let free = answer(&Question { sync_s: 0.0, ..asked }).unwrap().points;
        for (point, free) in points.iter().zip(&free) {
            let is_felt = free.elapsed_s * (1.0 + DOUBLING) < point.elapsed_s;
            assert!(is_felt || point.limit != Limit::Sync, "{point:?} {free:?}");
            assert_ne!(free.limit, Limit::Sync, "{free:?}");
        }
        assert_eq!(points[0].limit, Limit::Sync);
        assert_eq!(points.last().unwrap().limit, Limit::Compute);
    }

    #[test]
    fn just_below_saturation_slower_requests_take_longer() {
        let busy = answer(&question(300_000)).unwrap();
        let last = busy.points.last().unwrap();
        assert!(last.elapsed_s < 10.1, "{last:?}");
        // With requests a quarter slower, the cores serve 272,000 per second.
        assert!(last.high_s > 11.0, "{last:?}");
        assert!(last.low_s <= last.elapsed_s, "{last:?}");
        let idle = &busy.points[6];
        assert!(idle.high_s < 10.1, "{idle:?}");
    }

    #[test]
    fn slower_probes_take_longer_without_thinking() {
        let all = vec![(1, 30e-6), (8, 6e-6), (64, 6e-6)];
        let measured = MeasuredExchange { none_s: all.clone(), group_s: all.clone(), each_s: all };
        let (measured, cores) = (Some(measured), 1);
        let one = answer(&Question { think_s: 0.0, cores, measured, ..question(64) }).unwrap();
        let last = one.points.last().unwrap();
        for (end, factor) in [(last.low_s, (-SPREAD).exp()), (last.high_s, SPREAD.exp())] {
            assert!((end / last.elapsed_s / factor - 1.0).abs() < 1e-6, "{last:?}");
        }
    }

    #[test]
    fn the_last_round_of_a_pool_has_the_clients_that_remain() {
        let asked = Question { think_s: 0.0, pool: Some(1000), ..question(1024) };
        let last = answer(&asked).unwrap().points.pop().unwrap();
        // 10,240 requests on two cores.
        assert!((last.elapsed_s / (10_240.0 * REQUEST_S / 2.0) - 1.0).abs() < 0.03, "{last:?}");
        assert_eq!(last.limit, Limit::Compute);
        let thinking = answer(&Question { think_s: 1.0, ..asked }).unwrap().points.pop().unwrap();
        assert!((thinking.elapsed_s / 20.0 - 1.0).abs() < 0.01, "{thinking:?}");
        assert_eq!(thinking.limit, Limit::Pool);
    }

    #[test]
    fn a_pool_is_compared_with_pools_of_its_order_of_magnitude() {
        assert_eq!(larger_pools(100_000, 10_000_000), [200_000, 400_000]);
        assert_eq!(larger_pools(10, 30), [20, 30]);
        assert_eq!(larger_pools(10, 15), [15]);
        assert!(larger_pools(10, 10).is_empty());
        assert!(larger_pools(10, 5).is_empty());
    }

    /// Twice as many threads serve 4.5 % more, four times as many 7 %.
    #[test]
    fn a_pool_is_the_limit_if_four_times_as_many_threads_are_faster() {
        let limit = |pool: u32| {
            let (durability, cores) = (Durability::Group, 64);
            let busy = Question { durability, cores, think_s: 0.0, ..question(64 * pool) };
            let asked = Question { pool: Some(pool), ..busy };
            answer(&asked).unwrap().points.pop().unwrap().limit
        };
        assert_eq!(limit(1400), Limit::Pool);
        assert_eq!(limit(6000), Limit::Compute);
    }

    #[test]
    fn probes_of_an_event_loop_do_not_answer_for_a_pool() {
        let all = vec![(1, 30e-6), (8, 6e-6)];
        let measured = MeasuredExchange { none_s: all.clone(), group_s: all.clone(), each_s: all };
        let (measured, cores) = (Some(measured), 1);
        let asked = Question { measured, cores, pool: Some(100), ..question(64) };
        let error = answer(&asked).unwrap_err();
        assert!(error.to_string().contains("event loop"), "{error}");
    }

    #[test]
    fn more_cores_than_measured_are_beyond_the_calibration_and_less_certain() {
        let with = |cores| {
            let asked = Question { think_s: 0.0, cores, ..question(64) };
            let all = answer(&asked).unwrap();
            let point = all.points[6].clone();
            (point.beyond.unwrap().cores, point.high_s / point.low_s, all.notes.join("; "))
        };
        let (two, many) = (with(2), with(4096));
        assert_eq!((two.0, many.0), (1.0, 2048.0));
        assert!(many.1 > 2.0 * two.1, "{two:?} {many:?}");
        assert!(many.2.contains("4096 event loops"), "{many:?}");
        assert!(!with(1).2.contains("event loops"));
    }
}

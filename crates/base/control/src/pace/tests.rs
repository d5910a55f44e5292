//! A simulated server with a limit and an allowance for bursts, and a client that starts a request
//! whenever its window and the pace allow it. Both stop at times, as processes on a busy machine do.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND: u64 = 1_000_000_000;

/// A generator of numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next()).ln()
    }

    /// Latency in nanoseconds: lognormal, 20 ms.
    fn latency(&mut self) -> u64 {
        let (u, v) = (self.next().max(1e-12), self.next());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (2e7 * (0.5 * normal).exp()) as u64
    }
}

/// When a process stops, and for how long.
struct Stalls {
    random: Random,
    /// Mean length in nanoseconds; none if 0.
    mean_ns: f64,
    from_ns: u64,
    until_ns: u64,
}

impl Stalls {
    fn new(seed: u64, mean_ns: f64) -> Self {
        Self { random: Random(seed), mean_ns, from_ns: 0, until_ns: 0 }
    }

    /// Returns the time at which something that is due at `at_ns` happens.
    fn delay(&mut self, at_ns: u64) -> u64 {
        while self.mean_ns > 0.0 && self.until_ns <= at_ns {
            // Ten times a second.
            self.from_ns = self.until_ns + self.random.exponential(1e8) as u64;
            self.until_ns = self.from_ns + self.random.exponential(self.mean_ns) as u64;
        }
        if at_ns < self.from_ns { at_ns } else { at_ns.max(self.until_ns) }
    }
}

/// An answer on its way: arrival, the request, and whether it was served.
type Answer = Reverse<(u64, u64, bool)>;

struct Sim {
    cap: f64,
    burst: f64,
    tokens: f64,
    filled_ns: u64,
    refusal_ns: u64,
    served: u64,
    refused: u64,
    random: Random,
    client: Stalls,
    server: Stalls,
    now_ns: u64,
    flight: BinaryHeap<Answer>,
    started: Vec<Started>,
}

impl Sim {
    fn new(cap: f64, burst: f64, seed: u64, stall_ns: f64) -> Self {
        Self {
            cap,
            burst,
            tokens: burst,
            filled_ns: 0,
            refusal_ns: 5_000_000,
            served: 0,
            refused: 0,
            random: Random(seed),
            client: Stalls::new(seed ^ 1, stall_ns),
            server: Stalls::new(seed ^ 2, stall_ns),
            now_ns: 0,
            flight: BinaryHeap::new(),
            started: Vec::new(),
        }
    }

    fn takes(&mut self, at_ns: u64) -> bool {
        let passed = at_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.filled_ns = self.filled_ns.max(at_ns);
        self.tokens = (self.tokens + passed * self.cap).min(self.burst);
        let takes = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(takes));
        self.served += u64::from(takes);
        self.refused += u64::from(!takes);
        takes
    }

    fn start(&mut self, pace: &mut Pace) {
        let arrival = self.server.delay(self.now_ns + 200_000);
        let served = self.takes(arrival);
        let after = if served { self.random.latency() } else { self.refusal_ns };
        let back = self.server.delay(arrival + after) + 200_000;
        self.flight.push(Reverse((back, self.started.len() as u64, served)));
        self.started.push(pace.issued(self.now_ns));
    }

    fn run(&mut self, pace: &mut Pace, end_ns: u64) {
        while self.now_ns < end_ns {
            while let Some(Reverse((at, number, served))) = self.flight.peek().copied()
                && at <= self.now_ns
            {
                self.flight.pop();
                match served {
                    true => pace.admitted(self.now_ns),
                    false => pace.refused(self.now_ns, self.started[number as usize]),
                }
            }
            let mut next = self.flight.peek().map_or(end_ns, |first| first.0.0);
            if (self.flight.len() as u32) < slow_start(self.now_ns).min(512) {
                match pace.wait_ns(self.now_ns) {
                    0 => {
                        self.start(pace);
                        continue;
                    }
                    // Timers have a resolution of a millisecond.
                    wait => next = next.min((self.now_ns + wait).next_multiple_of(1_000_000)),
                }
            }
            self.now_ns = self.client.delay(next.max(self.now_ns + 1));
        }
    }

    /// Returns the share of refused requests, and counts from 0 again.
    fn refused_share(&mut self) -> f64 {
        let share = self.refused as f64 / (self.served + self.refused).max(1) as f64;
        (self.served, self.refused) = (0, 0);
        share
    }
}

/// The share of the limit that was used in all, and the shares of requests that were refused in the
/// first two seconds and later.
#[derive(Debug)]
struct Result {
    used: f64,
    early: f64,
    late: f64,
}

fn measure(seed: u64, seconds: u64, stall_ns: f64) -> (f64, f64, Result) {
    let mut random = Random(seed);
    let cap = (500.0 * 16f64.powf(random.next())).round();
    let burst = (cap * (0.1 + 0.9 * random.next())).round();
    let (mut sim, mut pace) = (Sim::new(cap, burst, seed, stall_ns), Pace::default());
    sim.run(&mut pace, 2 * SECOND);
    let first = sim.served;
    let early = sim.refused_share();
    sim.run(&mut pace, seconds * SECOND);
    let used = (first + sim.served) as f64 / (seconds as f64 * cap);
    (cap, burst, Result { used, early, late: sim.refused_share() })
}

#[test]
fn the_limit_is_used_and_seldom_exceeded() {
    for (stall_ns, early) in [(0.0, 0.01), (3e6, 0.013)] {
        for seed in 0..12 {
            let (cap, burst, found) = measure(seed, 20, stall_ns);
            let case = format!("seed {seed}, limit {cap}, burst {burst}: {found:?}");
            assert!(found.used > 0.95 && found.early < early && found.late < 0.001, "{case}");
        }
    }
}

/// Prints the distribution over many seeds: `cargo test -p ioloom-control pace_table -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes a minute"]
#[allow(clippy::print_stdout, reason = "the purpose of this test")]
fn pace_table() {
    for (seconds, stall_ns) in [(20, 0.0), (20, 3e6), (60, 3e6), (60, 1e7)] {
        let all: Vec<_> = (0..200).map(|seed| measure(seed, seconds, stall_ns)).collect();
        let sorted = |value: fn(&Result) -> f64| {
            let mut values: Vec<f64> = all.iter().map(|(.., found)| value(found)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (used, early, late) = (sorted(|r| r.used), sorted(|r| r.early), sorted(|r| r.late));
        println!("{seconds} s, stalls of {} ms:", stall_ns / 1e6);
        println!("  used  least {:.4}, p5 {:.4}, median {:.4}", used[0], used[10], used[100]);
        for (name, values) in [("early", early), ("late", late)] {
            let (median, p95, most) = (values[100], values[190], values[199]);
            println!("  {name} median {median:.5}, p95 {p95:.5}, most {most:.5}");
        }
        let misses = all.iter().enumerate().filter(|(_, (.., found))| {
            found.used < 0.95 || found.early > 0.01 || found.late > 0.001
        });
        for (seed, (cap, burst, found)) in misses {
            println!("  seed {seed}, limit {cap}, burst {burst}: {found:?}");
        }
    }
}

#[test]
fn the_rate_follows_a_limit_that_falls_and_rises() {
    let (mut sim, mut pace) = (Sim::new(2000.0, 200.0, 5, 0.0), Pace::default());
    sim.run(&mut pace, 5 * SECOND);
    sim.cap = 400.0;
    sim.run(&mut pace, 10 * SECOND);
    let rate = pace.rate().unwrap();
    assert!((360.0..440.0).contains(&rate), "{rate}");
    sim.cap = 2000.0;
    sim.run(&mut pace, 70 * SECOND);
    assert!(pace.rate().unwrap() > 1800.0, "{:?}", pace.rate());
}

#[test]
fn a_server_that_refuses_nothing_is_not_limited() {
    let (mut sim, mut pace) = (Sim::new(1e9, 1e9, 1, 0.0), Pace::default());
    sim.run(&mut pace, SECOND);
    assert_eq!((pace.rate(), pace.wait_ns(SECOND), pace.cuts()), (None, 0, 0));
}

#[test]
fn a_server_that_refuses_everything_is_asked_once_per_second() {
    let mut pace = Pace::default();
    for ms in 0..100_000 {
        let now_ns = ms * 1_000_000;
        if pace.wait_ns(now_ns) == 0 {
            let started = pace.issued(now_ns);
            pace.refused(now_ns, started);
        }
    }
    let rate = pace.rate().unwrap();
    assert!((RATE_LEAST..2.0).contains(&rate), "{rate}");
}

#[test]
fn refusals_at_random_do_not_stop_the_requests() {
    let (mut pace, mut random) = (Pace::default(), Random(7));
    let mut started = 0;
    for tick in 0..200_000 {
        let now_ns = tick * 100_000;
        if pace.wait_ns(now_ns) == 0 {
            let request = pace.issued(now_ns);
            match random.next() < 0.2 {
                true => pace.refused(now_ns, request),
                false => pace.admitted(now_ns),
            }
            started += 1;
        }
    }
    // In 20 s.
    assert!(started > 500, "{started}");
}

#[test]
fn the_rate_does_not_grow_while_it_limits_nothing() {
    let (mut sim, mut pace) = (Sim::new(1000.0, 100.0, 3, 0.0), Pace::default());
    sim.run(&mut pace, 5 * SECOND);
    let before = pace.rate().unwrap();
    for ms in 0..60_000 {
        let now_ns = 5 * SECOND + ms * 1_000_000;
        // A request every 10 ms.
        if ms % 10 == 0 && pace.wait_ns(now_ns) == 0 {
            pace.issued(now_ns);
            pace.admitted(now_ns);
        }
    }
    assert!(pace.rate().unwrap() < 1.1 * before, "{:?}", pace.rate());
}

//! The rate of requests to a server that refuses those above a limit which it does not publish.
//!
//! ```text
//! free ── refused ──► half the rate ──► refused: 0.98 × what was admitted ◄──┐
//!                                         │                                  │ refused
//!                                         └► not refused: faster, up to the refused rate ──► creep
//! ```
//!
//! A number of requests in flight cannot serve as this limit: with a latency that varies, each number
//! gives a range of rates, and the server counts rates. As soon as a server refuses, its allowance for
//! bursts is used up, so that the rate which it admits is its limit; the pace takes that measurement
//! instead of guessing from a share of refusals. It then creeps upwards by 0.5 % per second, faster
//! after every ten seconds without a refusal, since a limit that rose shows in no other way.
//!
//! A call costs a few floating-point operations. Times come from the caller.

/// Shortest time over which admitted requests are counted, in seconds.
const EPOCH_S: f64 = 0.05;
/// Least number of requests expected in that time.
const EPOCH_REQUESTS: f64 = 50.0;
/// The first reduction: the rate before includes the allowance for bursts.
const FIRST_CUT: f64 = 0.5;
/// Share of the admitted rate that is kept after a refusal.
const KEPT: f64 = 0.98;
/// Greatest reduction at once.
const CUT_MOST: f64 = 0.3;
/// Growth per epoch far below and near the rate that was refused.
const FAST: f64 = 1.1;
const NEAR: f64 = 0.01;
/// Growth per second at that rate, and time without refusals after which it doubles.
const CREEP_PER_S: f64 = 0.005;
const CREEP_DOUBLES_S: f64 = 10.0;
const CREEP_MOST_PER_S: f64 = 0.2;
/// Requests that may start together, in seconds of the rate: timers are not exact.
const TOGETHER_S: f64 = 0.004;
/// Lowest rate, requests per second.
const RATE_LEAST: f64 = 1.0;
/// Weight of a new latency in the mean.
const LATENCY_WEIGHT: f64 = 0.05;

/// Limits the rate of requests after the first refusal.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Requests per second; `None` before the first refusal.
    rate: Option<f64>,
    /// Rate that was refused.
    high: f64,
    /// Requests that may start now, and when that was computed.
    tokens: f64,
    filled_ns: u64,
    /// Answers since `epoch_ns`, which may be in the future while earlier answers arrive.
    epoch_ns: u64,
    admitted: u64,
    refused: u64,
    /// Mean latency.
    latency_ns: f64,
    /// Time of the last refusal that counted.
    last_ns: u64,
    cuts: u64,
}

impl Pace {
    /// Returns the rate in requests per second, if the server has refused any.
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Returns how often the rate was reduced.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Returns the time until the next request may start; 0 if it may start now.
    pub fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        self.fill(now_ns, rate);
        if self.tokens >= 1.0 {
            return 0;
        }
        (((1.0 - self.tokens) / rate * 1e9) as u64).max(1)
    }

    /// Notes that a request started.
    pub fn issued(&mut self, now_ns: u64) {
        if let Some(rate) = self.rate {
            self.fill(now_ns, rate);
            self.tokens -= 1.0;
        }
    }

    /// Notes a request that the server served, which took `latency_ns`.
    pub fn admitted(&mut self, now_ns: u64, latency_ns: u64) {
        if self.latency_ns == 0.0 {
            self.latency_ns = latency_ns as f64;
        }
        self.latency_ns += (latency_ns as f64 - self.latency_ns) * LATENCY_WEIGHT;
        if self.rate.is_none() {
            // Counts the last epoch, so that the rate at the first refusal is known.
            let long = now_ns.saturating_sub(self.epoch_ns) as f64 > EPOCH_S * 1e9;
            if long && self.admitted as f64 > EPOCH_REQUESTS {
                self.high = self.measured(now_ns);
                self.restart(now_ns);
            }
            self.admitted += 1;
            return;
        }
        self.admitted += u64::from(now_ns >= self.epoch_ns);
        self.judge(now_ns);
    }

    /// Notes a request that the server refused because there were too many.
    pub fn refused(&mut self, now_ns: u64) {
        if self.rate.is_none() {
            let rate = self.high.max(self.measured(now_ns)).max(2.0 * RATE_LEAST);
            self.high = rate;
            self.last_ns = now_ns;
            self.filled_ns = now_ns;
            return self.set(now_ns, rate * FIRST_CUT);
        }
        self.refused += u64::from(now_ns >= self.epoch_ns);
        self.judge(now_ns);
    }

    fn fill(&mut self, now_ns: u64, rate: f64) {
        let passed = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.filled_ns = self.filled_ns.max(now_ns);
        self.tokens = (self.tokens + passed * rate).min((rate * TOGETHER_S).max(1.0));
    }

    /// Returns the admitted requests per second since the epoch began.
    fn measured(&self, now_ns: u64) -> f64 {
        let passed = now_ns.saturating_sub(self.epoch_ns) as f64 / 1e9;
        self.admitted as f64 / passed.max(1e-3)
    }

    fn restart(&mut self, at_ns: u64) {
        (self.epoch_ns, self.admitted, self.refused) = (at_ns, 0, 0);
    }

    /// Changes the rate. Answers to requests at the rate before are not counted.
    fn set(&mut self, now_ns: u64, rate: f64) {
        let before = self.rate.unwrap_or(f64::MAX);
        self.rate = Some(rate.max(RATE_LEAST));
        self.cuts += u64::from(rate < before);
        // Answers to the requests of before arrive for about a latency, some for longer.
        let settle = if rate < before { 2.0 * self.latency_ns } else { 0.0 };
        self.restart(now_ns + settle as u64);
    }

    /// Decides at the end of an epoch.
    fn judge(&mut self, now_ns: u64) {
        let Some(rate) = self.rate else { return };
        let passed = now_ns.saturating_sub(self.epoch_ns) as f64 / 1e9;
        if passed < EPOCH_S.max(EPOCH_REQUESTS / rate) {
            return;
        }
        if self.refused > 0 {
            let admitted = self.measured(now_ns);
            self.high = admitted.clamp(rate * CUT_MOST, rate);
            self.last_ns = now_ns;
            return self.set(now_ns, self.high * KEPT);
        }
        let next = if rate < 0.9 * self.high {
            (rate * FAST).min(self.high)
        } else if rate < KEPT * self.high {
            rate + NEAR * self.high
        } else {
            let calm = now_ns.saturating_sub(self.last_ns) as f64 / 1e9;
            let creep = CREEP_PER_S * (calm / CREEP_DOUBLES_S).floor().exp2();
            rate * (1.0 + creep.min(CREEP_MOST_PER_S) * passed)
        };
        self.high = self.high.max(next);
        self.set(now_ns, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BinaryHeap;

    /// A server with a token bucket, and a client that starts a request whenever the pace and its
    /// window allow it.
    struct Sim {
        cap: f64,
        burst: f64,
        tokens: f64,
        filled_ns: u64,
        served: u64,
        refused: u64,
    }

    impl Sim {
        fn new(cap: f64, burst: f64) -> Self {
            Self { cap, burst, tokens: burst, filled_ns: 0, served: 0, refused: 0 }
        }

        fn takes(&mut self, now_ns: u64) -> bool {
            let passed = (now_ns - self.filled_ns) as f64 / 1e9;
            self.filled_ns = now_ns;
            self.tokens = (self.tokens + passed * self.cap).min(self.burst);
            let takes = self.tokens >= 1.0;
            self.tokens -= f64::from(u8::from(takes));
            self.served += u64::from(takes);
            self.refused += u64::from(!takes);
            takes
        }

        /// Runs until `end_ns` with a window that doubles from 8 to 512 every 200 ms.
        fn run(&mut self, pace: &mut Pace, mut now_ns: u64, end_ns: u64, seed: u64) {
            let mut random = seed;
            let mut flight: BinaryHeap<std::cmp::Reverse<(u64, u64, bool)>> = BinaryHeap::new();
            while now_ns < end_ns {
                while let Some(std::cmp::Reverse((at, began, ok))) = flight.peek().copied()
                    && at <= now_ns
                {
                    flight.pop();
                    match ok {
                        true => pace.admitted(at, at - began),
                        false => pace.refused(at),
                    }
                }
                let mut next = flight.peek().map_or(end_ns, |first| first.0.0);
                let window = 8.0 * (now_ns as f64 / 2e8).min(6.0).exp2();
                if (flight.len() as f64) < window {
                    match pace.wait_ns(now_ns) {
                        0 => {
                            pace.issued(now_ns);
                            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                            let latency = 10_000_000 + (random >> 40) % 20_000_000;
                            let ok = self.takes(now_ns);
                            let after = if ok { latency } else { 5_000_000 };
                            flight.push(std::cmp::Reverse((now_ns + after, now_ns, ok)));
                            continue;
                        }
                        wait => next = next.min(now_ns + wait),
                    }
                }
                now_ns = next.max(now_ns + 1);
            }
        }
    }

    #[test]
    fn the_limit_is_used_and_seldom_exceeded() {
        for (cap, burst, seed) in
            [(500.0, 50.0, 1), (1000.0, 1000.0, 2), (3000.0, 300.0, 3), (8000.0, 8000.0, 4)]
        {
            let (mut sim, mut pace) = (Sim::new(cap, burst), Pace::default());
            sim.run(&mut pace, 0, 2_000_000_000, seed);
            let early = sim.refused as f64 / (sim.served + sim.refused) as f64;
            assert!(early < 0.08, "cap {cap}: {early} refused at first");
            (sim.served, sim.refused) = (0, 0);
            sim.run(&mut pace, 2_000_000_000, 32_000_000_000, seed);
            let share = sim.served as f64 / (30.0 * cap);
            let late = sim.refused as f64 / (sim.served + sim.refused) as f64;
            assert!(share > 0.95, "cap {cap}: {share} of it");
            assert!(late < 0.001, "cap {cap}: {late} refused");
        }
    }

    #[test]
    fn the_rate_follows_a_limit_that_falls_and_rises() {
        let (mut sim, mut pace) = (Sim::new(2000.0, 200.0), Pace::default());
        sim.run(&mut pace, 0, 5_000_000_000, 5);
        sim.cap = 400.0;
        sim.run(&mut pace, 5_000_000_000, 10_000_000_000, 6);
        let rate = pace.rate().unwrap();
        assert!((360.0..440.0).contains(&rate), "{rate}");
        sim.cap = 2000.0;
        sim.run(&mut pace, 10_000_000_000, 60_000_000_000, 7);
        assert!(pace.rate().unwrap() > 1800.0, "{:?}", pace.rate());
    }

    #[test]
    fn a_server_that_refuses_nothing_is_not_limited() {
        let (mut sim, mut pace) = (Sim::new(1e9, 1e9), Pace::default());
        sim.run(&mut pace, 0, 1_000_000_000, 1);
        assert_eq!((pace.rate(), pace.wait_ns(1_000_000_000), pace.cuts()), (None, 0, 0));
    }

    #[test]
    fn a_server_that_refuses_everything_is_asked_once_per_second() {
        let mut pace = Pace::default();
        for ms in 0..100_000 {
            let now_ns = ms * 1_000_000;
            if pace.wait_ns(now_ns) == 0 {
                pace.issued(now_ns);
                pace.refused(now_ns);
            }
        }
        let rate = pace.rate().unwrap();
        assert!((RATE_LEAST..2.0).contains(&rate), "{rate}");
    }
}

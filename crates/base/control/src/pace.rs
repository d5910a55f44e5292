//! The rate of requests to a server that refuses those above a limit which it does not publish.
//!
//! ```text
//! free ─ refused ─► pause, count ─► share of the rate ─► faster ─ refused ─► pause ─► limit ─► creep ─┐
//!                                                                    ▲                      refused │
//!                                                                    └──────────────────────────────┘
//! ```
//!
//! A number of requests in flight cannot serve as this limit: with a latency that varies, each number
//! gives a range of rates, and the server counts rates. Servers allow bursts, so that the limit shows
//! only when that allowance is used up, which a refusal reports. Everything that was started between
//! two refusals was served, and the allowance was empty at both: their number over that time *is* the
//! limit, without noise from latencies. Before the second refusal there is only the share of requests
//! served after the first one, from the few that were on their way.
//!
//! After a refusal the rate is halved for a tenth of a second, which gives the server's allowance a
//! reserve for requests that arrive together. The rate then creeps up from 98 % of the limit, since a
//! limit that rose shows in no other way: faster while the limit is known from few requests and after
//! six seconds without a refusal.
//!
//! A refusal belongs to the decisions before it if its request was started before the last one, which
//! its number shows. A call costs a few floating-point operations. Times come from the caller.

/// Requests in flight at the start, and the time in which they double.
const FIRST: f64 = 16.0;
const DOUBLES_NS: f64 = 5.5e8;
/// Time over which the rate before the first refusal is measured.
const LOOK_NS: u64 = 50_000_000;
/// After a refusal: length of the slow phase, its rate as a share of the limit, or of the rate if the
/// limit is not known, and the time in which no request starts.
const SLOW_NS: u64 = 100_000_000;
const SLOW: f64 = 0.5;
const SLOW_UNKNOWN: f64 = 0.2;
const PAUSE_S: f64 = 0.01;
/// Share of the requests of the slow phase that are refused if the limit is far below its rate.
const REFUSED_SLOWLY: f64 = 0.3;
/// Requests and time between two refusals from which they measure the limit.
const SPAN_REQUESTS: u64 = 20;
const SPAN_NS: u64 = 50_000_000;
/// Requests that are assumed in addition to those after a refusal, and how many of them were served.
const ASSUMED: f64 = 8.0;
const ASSUMED_SERVED: f64 = 3.0;
/// Share of a limit that is kept: measured, and estimated from the requests after a refusal.
const KEPT: f64 = 0.98;
const KEPT_UNKNOWN: f64 = 0.85;
/// Growth per second: until the limit is measured, after the first measurement, and at last.
const SEARCH: f64 = 1.0;
const CREEP_FIRST: f64 = 0.04;
const CREEP_LEAST: f64 = 0.005;
const CREEP_MOST: f64 = 0.2;
/// Time without refusals after which the growth doubles.
const CREEP_DOUBLES_NS: u64 = 6_000_000_000;
/// Longest time for which the rate grows at once, and since it last made a request wait.
const GROWS_NS: u64 = 100_000_000;
/// Requests that may start together, in seconds of the rate: timers are not exact.
const TOGETHER_S: f64 = 0.01;
/// Rate that is assumed at a first refusal after few requests, per second.
const RATE_UNKNOWN: f64 = 200.0;
/// Lowest rate, requests per second.
const RATE_LEAST: f64 = 1.0;

/// Returns the number of requests that may be in flight at a time after the start: hundreds of refused
/// requests in the first tenth of a second would be repeated, and count towards the limit.
pub fn slow_start(now_ns: u64) -> u32 {
    (FIRST * (now_ns as f64 / DOUBLES_NS).min(20.0).exp2()) as u32
}

/// A request that was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Started {
    /// Requests started before.
    number: u64,
    at_ns: u64,
}

impl Started {
    fn since(self, earlier: Self) -> (u64, u64) {
        (self.number.saturating_sub(earlier.number), self.at_ns.saturating_sub(earlier.at_ns))
    }
}

/// Limits the rate of requests after the first refusal.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Requests started.
    started: u64,
    /// A request of 50 to 100 ms ago, and one of the last 50 ms.
    looks: (Started, Started),
    limit: Option<Limit>,
    cuts: u64,
}

/// The rate, and what the refusals have shown.
#[derive(Debug, Clone)]
struct Limit {
    /// Requests per second.
    rate: f64,
    /// Requests that may start now, and when that was computed.
    tokens: f64,
    filled_ns: u64,
    /// When the rate last made a request wait.
    waited_ns: u64,
    /// Growth per second, and until when it was applied.
    growth: f64,
    grown_ns: u64,
    /// The last reduction.
    cut: Cut,
    /// The latest request that was refused: the server's allowance was empty.
    last: Started,
    /// Since the last decision: the first request, and how many were refused.
    since: Started,
    refused: u64,
}

/// A reduction of the rate.
#[derive(Debug, Clone, Copy)]
struct Cut {
    at_ns: u64,
    /// The rate before.
    rate: f64,
    /// The refused request, and how many were refused that had been started before the reduction.
    first: Started,
    refused: u64,
    /// Requests that had been started.
    started: u64,
    /// The limit, if this refusal measured it.
    limit: Option<f64>,
    /// Whether the rate is still low, and refusals do not reduce it further.
    slow: bool,
}

impl Pace {
    /// Returns the rate in requests per second, if the server has refused any.
    pub fn rate(&self) -> Option<f64> {
        self.limit.as_ref().map(|limit| limit.rate)
    }

    /// Returns how often the rate was reduced.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Returns the time until the next request may start; 0 if it may start now.
    pub fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let Some(limit) = &mut self.limit else { return 0 };
        limit.advance(now_ns, self.started);
        if limit.tokens >= 1.0 {
            return 0;
        }
        limit.waited_ns = now_ns;
        (((1.0 - limit.tokens) / limit.rate * 1e9) as u64).max(1)
    }

    /// Notes that a request started. Its answer is to be reported with the value returned.
    pub fn issued(&mut self, now_ns: u64) -> Started {
        let started = Started { number: self.started, at_ns: now_ns };
        self.started += 1;
        match &mut self.limit {
            Some(limit) => {
                limit.advance(now_ns, self.started);
                limit.tokens -= 1.0;
            }
            None if now_ns.saturating_sub(self.looks.1.at_ns) >= LOOK_NS => {
                self.looks = (self.looks.1, started);
            }
            None => {}
        }
        started
    }

    /// Notes a request that the server served.
    pub fn admitted(&mut self, now_ns: u64) {
        if let Some(limit) = &mut self.limit {
            limit.advance(now_ns, self.started);
            limit.grow(now_ns);
        }
    }

    /// Notes a request that the server refused because there were too many.
    pub fn refused(&mut self, now_ns: u64, started: Started) {
        let total = self.started;
        let Some(limit) = &mut self.limit else {
            let (requests, ns) = started.since(self.looks.0);
            let rate = requests as f64 / (ns.max(1_000_000) as f64 / 1e9);
            // Few requests show the time of the start, not a rate that the server cannot bear.
            let least = if requests < SPAN_REQUESTS { RATE_UNKNOWN } else { 2.0 * RATE_LEAST };
            let rate = rate.max(least);
            self.cuts += 1;
            self.limit = Some(Limit::new(now_ns, rate, started, total));
            return;
        };
        limit.advance(now_ns, total);
        if started.number < limit.cut.started {
            limit.cut.refused += 1;
        } else {
            limit.refused += 1;
        }
        if !limit.cut.slow && started.number >= limit.cut.started {
            self.cuts += u64::from(limit.refuse(now_ns, started, total));
        }
        if started.number > limit.last.number {
            limit.last = started;
        }
    }
}

impl Limit {
    fn new(now_ns: u64, rate: f64, first: Started, started: u64) -> Self {
        let cut = Cut { at_ns: now_ns, rate, first, refused: 1, started, limit: None, slow: true };
        let mut limit = Self {
            rate,
            tokens: 0.0,
            filled_ns: now_ns,
            waited_ns: now_ns,
            growth: SEARCH,
            grown_ns: now_ns,
            cut,
            last: first,
            since: Started { number: started, at_ns: now_ns },
            refused: 0,
        };
        limit.slow_down(rate * SLOW_UNKNOWN);
        limit
    }

    /// Takes the refusal of a request that was started since the last reduction. Returns whether it
    /// reduces the rate.
    fn refuse(&mut self, now_ns: u64, first: Started, started: u64) -> bool {
        let (requests, ns) = first.since(self.last);
        let served = requests.saturating_sub(1);
        if served >= SPAN_REQUESTS && ns >= SPAN_NS {
            let growth = match self.growth {
                SEARCH => CREEP_FIRST,
                growth => (growth / 2.0).max(CREEP_LEAST),
            };
            // If the server's allowance was full meanwhile, more would have been served. With an
            // allowance of at most a second of the limit, the rate is not beyond this multiple of it:
            // x - 1 - ln x = growth.
            let growth_now = self.growth_at(now_ns);
            let beyond = 1.0 + (2.0 * growth_now).sqrt() + growth_now * 2.0 / 3.0;
            let per_s = served as f64 / (ns as f64 / 1e9);
            let limit = per_s.max(self.rate / beyond).min(self.rate);
            self.reduce(now_ns, limit, (first, started), growth);
            return true;
        }
        // Refusals follow each other: the share that is served counts, of enough requests.
        let (requests, ns) = Started { number: started, at_ns: now_ns }.since(self.since);
        if requests < SPAN_REQUESTS || ns < SPAN_NS {
            return false;
        }
        let limit = self.rate * self.served(requests);
        self.reduce(now_ns, limit, (first, started), SEARCH);
        true
    }

    /// Returns the share of `requests` since the last decision that were served.
    fn served(&self, requests: u64) -> f64 {
        (requests.saturating_sub(self.refused) + 1) as f64 / (requests + 2) as f64
    }

    fn reduce(&mut self, now_ns: u64, limit: f64, (first, started): (Started, u64), growth: f64) {
        let (rate, limit) = (self.rate, Some(limit));
        self.growth = growth;
        self.cut = Cut { at_ns: now_ns, rate, first, refused: 1, started, limit, slow: true };
        (self.since, self.refused) = (Started { number: started, at_ns: now_ns }, 0);
        self.slow_down(limit.unwrap_or(rate) * SLOW);
    }

    fn slow_down(&mut self, rate: f64) {
        self.rate = rate.max(RATE_LEAST);
        self.tokens = -self.rate * PAUSE_S;
    }

    /// Ends the slow phase, and fills the allowance.
    fn advance(&mut self, now_ns: u64, started: u64) {
        if self.cut.slow && now_ns.saturating_sub(self.cut.at_ns) >= SLOW_NS {
            self.end_slow_phase(now_ns, started);
        }
        let passed = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.filled_ns = self.filled_ns.max(now_ns);
        let most = (self.rate * TOGETHER_S).max(1.0);
        self.tokens = (self.tokens + passed * self.rate).min(most);
    }

    fn end_slow_phase(&mut self, now_ns: u64, started: u64) {
        let now = Started { number: started, at_ns: now_ns };
        let (requests, _) = now.since(self.since);
        if self.refused as f64 > REFUSED_SLOWLY * requests as f64 {
            let limit = self.rate * self.served(requests);
            return self.reduce(now_ns, limit, (self.last, started), SEARCH);
        }
        self.cut.slow = false;
        self.grown_ns = now_ns;
        (self.since, self.refused) = (now, 0);
        let rate = match self.cut.limit {
            Some(limit) => limit * KEPT,
            None => self.estimate() * KEPT_UNKNOWN,
        };
        self.rate = rate.max(RATE_LEAST);
    }

    /// Returns the limit by the share of requests served among those that were on their way at the
    /// first refusal.
    fn estimate(&self) -> f64 {
        let after = self.cut.started.saturating_sub(self.cut.first.number + 1) as f64;
        let served = (after - (self.cut.refused - 1) as f64).max(0.0);
        self.cut.rate * (served + ASSUMED_SERVED) / (after + ASSUMED)
    }

    /// Returns the growth per second.
    fn growth_at(&self, now_ns: u64) -> f64 {
        if self.growth == SEARCH {
            return SEARCH;
        }
        let calm = now_ns.saturating_sub(self.cut.at_ns) / CREEP_DOUBLES_NS;
        (self.growth * (calm as f64).exp2()).min(CREEP_MOST)
    }

    /// Raises the rate if it is what requests wait for.
    fn grow(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.grown_ns).min(GROWS_NS) as f64 / 1e9;
        self.grown_ns = self.grown_ns.max(now_ns);
        if self.cut.slow || now_ns.saturating_sub(self.waited_ns) > GROWS_NS {
            return;
        }
        self.rate *= 1.0 + self.growth_at(now_ns) * passed;
    }
}

#[cfg(test)]
mod tests;

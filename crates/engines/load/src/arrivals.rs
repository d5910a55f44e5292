//! Due times of requests in an open loop, independent of their answers.
//!
//! Arrival times are the sums of gaps with mean one (constant or exponential), mapped to time by
//! the inverse of the integrated rate. So a ramp does not affect the draws, and at a constant rate,
//! the arrivals of the threads are interleaved.

use crate::draw::stream;
use crate::plan::{Arrival, LoadPlan};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Maximum number of arrivals to draw again for an exact count; above that, the mean is used.
const DRAWN_MAX: f64 = 50e6;

/// Returns the number of arrivals due between the end of the plan's warm-up and `until_ns`, in
/// nanoseconds from the start. Up to fifty million are counted exactly by repeating the draws of
/// the run. Above that, where random variation is about one in seven thousand, the rate is used.
/// Returns `None` for a closed loop.
pub(crate) fn due(plan: &LoadPlan, until_ns: u64) -> Option<u64> {
    let (rate_per_s, arrival) = plan.pace.arrivals()?;
    let (from_ns, ramp_s) = (plan.warm_up.as_nanos() as u64, plan.ramp.as_secs_f64());
    let until = |ns: u64| {
        let at_s = ns as f64 / 1e9;
        let in_ramp_s = at_s.min(ramp_s);
        let ramp = if ramp_s > 0.0 { in_ramp_s * in_ramp_s / ramp_s / 2.0 } else { 0.0 };
        rate_per_s * (ramp + (at_s - in_ramp_s))
    };
    if until(until_ns) > DRAWN_MAX {
        return Some((until(until_ns) - until(from_ns.min(until_ns))) as u64);
    }
    let of_thread = |index| {
        let part = (index, plan.threads);
        let mut arrivals = Arrivals::new(arrival, rate_per_s, ramp_s, part, plan.random);
        let times = std::iter::from_fn(|| Some(arrivals.next_ns()));
        times.take_while(|at| *at < until_ns).filter(|at| *at >= from_ns).count() as u64
    };
    Some((0..plan.threads).map(of_thread).sum())
}

/// Due times of one thread, in nanoseconds from the start.
pub(crate) struct Arrivals {
    rng: Xoshiro256PlusPlus,
    kind: Arrival,
    rate_per_s: f64,
    ramp_s: f64,
    sum: f64,
}

impl Arrivals {
    /// Creates the share of thread `index` of `threads` of an arrival rate of `rate_per_s`.
    pub(crate) fn new(
        kind: Arrival,
        rate_per_s: f64,
        ramp_s: f64,
        (index, threads): (usize, usize),
        random: u64,
    ) -> Self {
        let threads = threads as f64;
        // At a constant rate, the first arrival is due after a full gap of all threads combined.
        let sum =
            if kind == Arrival::Constant { (index as f64 + 1.0) / threads - 1.0 } else { 0.0 };
        // Arrivals and requests use different random streams.
        let rng = stream(random, 1 << 40 | index as u64);
        Self { rng, kind, rate_per_s: rate_per_s / threads, ramp_s, sum }
    }

    /// Skips `count` due times; the gaps between them have their mean length.
    pub(crate) fn skip(&mut self, count: u64) {
        self.sum += count as f64;
    }

    /// Returns the next due time.
    pub(crate) fn next_ns(&mut self) -> u64 {
        self.sum += match self.kind {
            Arrival::Constant => 1.0,
            Arrival::Poisson => Exp1.sample(&mut self.rng),
        };
        let in_ramp = self.rate_per_s * self.ramp_s / 2.0;
        let at_s = if self.sum < in_ramp {
            (2.0 * self.ramp_s * self.sum / self.rate_per_s).sqrt()
        } else {
            self.ramp_s + (self.sum - in_ramp) / self.rate_per_s
        };
        (at_s * 1e9) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Pace, Think};
    use std::time::Duration;

    #[test]
    fn a_constant_rate_is_interleaved_over_two_threads() {
        let mut all: Vec<u64> = Vec::new();
        for index in 0..2 {
            let mut arrivals = Arrivals::new(Arrival::Constant, 1000.0, 0.0, (index, 2), 1);
            all.extend((0..5).map(|_| arrivals.next_ns()));
        }
        all.sort_unstable();
        let expected: Vec<u64> = (1..=10).map(|ms| ms * 1_000_000).collect();
        assert!(all.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) < 1000), "{all:?}");
    }

    #[test]
    fn skipped_arrivals_take_their_time() {
        let mut all = Arrivals::new(Arrival::Constant, 1000.0, 0.0, (0, 1), 1);
        let last = (0..1000).map(|_| all.next_ns()).last().unwrap();
        let mut skipping = Arrivals::new(Arrival::Constant, 1000.0, 0.0, (0, 1), 1);
        skipping.skip(999);
        assert!(skipping.next_ns().abs_diff(last) < 1000);
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_spread() {
        let mut arrivals = Arrivals::new(Arrival::Poisson, 1000.0, 0.0, (0, 1), 7);
        let times: Vec<u64> = (0..50_000).map(|_| arrivals.next_ns()).collect();
        assert!(times.is_sorted());
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The mean of exponential gaps equals their standard deviation.
        assert!((0.98..1.02).contains(&mean), "{mean}");
        assert!((0.95..1.05).contains(&(spread.sqrt() / mean)), "{spread}");
    }

    #[test]
    fn due_arrivals_are_counted_exactly() {
        let mut plan = LoadPlan::new(([127, 0, 0, 1], 1).into());
        let second = 1_000_000_000;
        assert_eq!(due(&plan, second), None);
        let arrival = Arrival::Constant;
        plan.pace = Pace::Open { rate_per_s: 1000.0, arrival };
        plan.ramp = Duration::from_secs(2);
        plan.threads = 2;
        let counted = |plan: &LoadPlan, until_ns| due(plan, until_ns).unwrap();
        assert!((998..=1000).contains(&counted(&plan, 2 * second)), "half the rate");
        assert!((1998..=2000).contains(&counted(&plan, 3 * second)));
        plan.warm_up = Duration::from_secs(2);
        assert!((998..=1001).contains(&counted(&plan, 3 * second)), "the ramp does not count");
        // Too many to draw again; an hour at the same rate without the ramp.
        plan.pace = Pace::Open { rate_per_s: 1e6, arrival };
        let hour = counted(&plan, 3602 * second);
        assert!(hour.abs_diff(3_600_000_000) < 2, "{hour}");
        // Poisson arrivals deviate from the rate.
        plan.pace = Pace::PartlyOpen {
            sessions_per_s: 1000.0,
            arrival: Arrival::Poisson,
            requests_mean: 2.0,
            think: Think::None,
        };
        (plan.ramp, plan.warm_up, plan.threads) = (Duration::ZERO, Duration::ZERO, 1);
        let mut arrivals = Arrivals::new(Arrival::Poisson, 1000.0, 0.0, (0, 1), plan.random);
        let mut of_a_run = 0;
        while arrivals.next_ns() < 10 * second {
            of_a_run += 1;
        }
        assert_eq!(counted(&plan, 10 * second), of_a_run);
        assert!((9500..10_500).contains(&of_a_run) && of_a_run != 10_000, "{of_a_run}");
    }

    #[test]
    fn a_ramp_averages_half_of_the_rate() {
        let mut arrivals = Arrivals::new(Arrival::Constant, 1000.0, 2.0, (0, 1), 1);
        let times: Vec<u64> = (0..3000).map(|_| arrivals.next_ns()).collect();
        let until = |s: f64| times.iter().filter(|t| (**t as f64) < s * 1e9 + 1.0).count();
        assert_eq!((until(1.0), until(2.0), until(3.0)), (250, 1000, 2000));
    }
}

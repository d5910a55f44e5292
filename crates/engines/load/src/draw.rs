//! Requests of one client, drawn from a seed.

use crate::plan::{LoadPlan, Mix, Skew, Think};
use ioloom_exchange::{Order, Side};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Geometric, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// List all stocks.
    Show,
    /// Execute an order.
    Trade(Order),
}

/// Returns the random stream with this index: equal arguments produce equal numbers.
pub(crate) fn stream(random: u64, index: u64) -> Xoshiro256PlusPlus {
    // Two odd constants spread adjacent indices over the seeds.
    let mixed =
        (random ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD129_0D3B_4E1F_A3C5);
    Xoshiro256PlusPlus::seed_from_u64(mixed ^ index)
}

/// Draws requests.
pub(crate) struct Draw {
    rng: Xoshiro256PlusPlus,
    ids: Arc<[u32]>,
    mix: Mix,
    skew: Skew,
    zipf: Option<Zipf<f64>>,
    count_max: u32,
}

impl Draw {
    /// Draws requests for these stocks, of which there must be at least one.
    pub(crate) fn new(plan: &LoadPlan, ids: &Arc<[u32]>, index: u64) -> Self {
        let zipf = match plan.skew {
            Skew::Zipf(s) => Zipf::new(ids.len() as f64, s).ok(),
            _ => None,
        };
        Self {
            rng: stream(plan.random, index),
            ids: Arc::clone(ids),
            mix: plan.mix,
            skew: plan.skew,
            zipf,
            count_max: plan.count_max,
        }
    }

    pub(crate) fn op(&mut self) -> Op {
        let all = self.mix.show + self.mix.buy + self.mix.sell;
        let at = self.rng.random::<f64>() * all;
        let side = if at < self.mix.show {
            return Op::Show;
        } else if at < self.mix.show + self.mix.buy {
            Side::Buy
        } else {
            Side::Sell
        };
        let place = self.place();
        let stock = self.ids[place];
        let count = self.rng.random_range(1..=self.count_max);
        Order::new(side, stock, count).map_or(Op::Show, Op::Trade)
    }

    fn place(&mut self) -> usize {
        let last = self.ids.len() - 1;
        match (self.skew, &self.zipf) {
            (_, Some(zipf)) => (zipf.sample(&mut self.rng) as usize).clamp(1, last + 1) - 1,
            (Skew::Hot(share), _) if last > 0 => {
                if self.rng.random::<f64>() < share {
                    0
                } else {
                    self.rng.random_range(1..=last)
                }
            }
            _ => self.rng.random_range(0..=last),
        }
    }

    /// Draws a think time in nanoseconds.
    pub(crate) fn think_ns(&mut self, think: Think) -> u64 {
        match think {
            Think::None => 0,
            Think::Constant(time) => time.as_nanos() as u64,
            Think::Exponential(mean) => {
                let times: f64 = Exp1.sample(&mut self.rng);
                (mean.as_nanos() as f64 * times) as u64
            }
        }
    }

    /// Draws the number of requests in a session, at least one.
    pub(crate) fn session(&mut self, mean: f64) -> u64 {
        let more = Geometric::new((1.0 / mean).clamp(1e-9, 1.0));
        1 + more.map_or(0, |more| more.sample(&mut self.rng))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(change: impl FnOnce(&mut LoadPlan)) -> Draw {
        let mut plan = LoadPlan::new(([127, 0, 0, 1], 1).into());
        change(&mut plan);
        Draw::new(&plan, &Arc::from([1, 5, 9, 70]), 3)
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let take = |mut draw: Draw| (0..100).map(|_| draw.op()).collect::<Vec<_>>();
        assert_eq!(take(draw(|_| {})), take(draw(|_| {})));
        assert_ne!(take(draw(|_| {})), take(draw(|plan| plan.random = 2)));
    }

    #[test]
    fn shares_match_the_plan() {
        let mut draw = draw(|plan| {
            plan.mix = Mix { show: 1.0, buy: 3.0, sell: 0.0 };
            plan.skew = Skew::Hot(0.75);
            plan.count_max = 4;
        });
        let (mut shows, mut hot, mut trades) = (0, 0, 0);
        for _ in 0..20_000 {
            match draw.op() {
                Op::Show => shows += 1,
                Op::Trade(order) => {
                    assert_eq!(order.side(), Side::Buy);
                    assert!((1..=4).contains(&order.count()));
                    trades += 1;
                    hot += u32::from(order.stock() == 1);
                }
            }
        }
        assert!((4500..5500).contains(&shows), "{shows}");
        let share = f64::from(hot) / f64::from(trades);
        assert!((0.73..0.77).contains(&share), "{share}");
    }

    #[test]
    fn a_skew_by_rank_prefers_the_first() {
        let mut draw = draw(|plan| plan.skew = Skew::Zipf(1.0));
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            counts[draw.place()] += 1;
        }
        assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
    }

    #[test]
    fn sessions_and_think_times_have_their_means() {
        let mut draw = draw(|_| {});
        let mean = (0..20_000).map(|_| draw.session(10.0)).sum::<u64>() as f64 / 20_000.0;
        assert!((9.5..10.5).contains(&mean), "{mean}");
        let think = Think::Exponential(std::time::Duration::from_micros(100));
        let mean = (0..20_000).map(|_| draw.think_ns(think)).sum::<u64>() as f64 / 20_000.0;
        assert!((95_000.0..105_000.0).contains(&mean), "{mean}");
    }
}

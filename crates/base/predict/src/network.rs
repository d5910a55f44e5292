//! A closed network of stations, solved exactly.
//!
//! `n` customers (threads, or requests in flight) go round: each needs `demand` seconds of work at
//! every station, then starts again; one round is one job. What comes out is the rate, and where the
//! customers wait. Two ways, both exact for exponential or processor-sharing service:
//! - mean values (Reiser and Lavenberg, 1980), for single servers and delays. With `Q_k(0) = 0`,
//!   for 1 to `n` customers: residence `R_k = D_k (1 + Q_k(n-1))`, or `D_k` at a delay; rate
//!   `X = n / Σ R_k`; then `Q_k(n) = X R_k`;
//! - convolution (Buzen, 1973), for stations whose speed depends on how many are there. A station
//!   that works `a(j)` times as fast with `j` customers has the weight
//!   `f(j) = D^j / (a(1) … a(j))`; `G` is the convolution of all weights; the rate is
//!   `G(n-1) / G(n)`, and `j` customers are at a station with the probability
//!   `f(j) G'(n-j) / G(n)`, with `G'` of the network without it. Everything is kept as logarithms,
//!   since the weights leave the range of a float for a few hundred customers.
//!
//! Real files are not exponential and real threads do not draw lots, so the rate is a model and
//! single latencies are not predicted at all; [`crate::walk`] shows how far it carries.
//!
//! Cost: mean values `n` times the number of stations; convolution `n²` times the square of the
//! number of stations, with an exponential in the innermost step.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use serde::{Deserialize, Serialize};

/// A place where customers spend time. Demands are seconds of work for one job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Station {
    /// One server with a queue: a disk, a lock, one core.
    Queue {
        /// Seconds of work for one job.
        demand_s: f64,
    },
    /// Several servers with one queue: a processor with cores, a device with channels.
    Servers {
        /// Seconds of work for one job.
        demand_s: f64,
        /// How many servers, at least 1.
        servers: u32,
    },
    /// A server for each customer, each slower the more there are: `j` customers are served
    /// `j / (1 + contention (j - 1))` times as fast as one. Cores that share clock, cache and locks.
    Shared {
        /// Seconds of work for one job that is alone.
        demand_s: f64,
        /// Loss for each further customer, at least 0; 0.06 bounds the speed at 1 / 0.06.
        contention: f64,
    },
    /// Time that passes without a queue: a sleep, a wire.
    Delay {
        /// Seconds for one job.
        demand_s: f64,
    },
}

impl Station {
    /// Seconds of work for one job.
    pub const fn demand_s(&self) -> f64 {
        match *self {
            Self::Queue { demand_s }
            | Self::Servers { demand_s, .. }
            | Self::Shared { demand_s, .. }
            | Self::Delay { demand_s } => demand_s,
        }
    }

    /// How many times as fast the station works with `j` customers as with one.
    pub fn speed(&self, j: u32) -> f64 {
        let j = f64::from(j);
        match *self {
            Self::Queue { .. } => j.min(1.0),
            Self::Servers { servers, .. } => j.min(f64::from(servers)),
            Self::Shared { contention, .. } => j / (1.0 + contention * (j - 1.0)),
            Self::Delay { .. } => j,
        }
    }

    fn check(&self) -> Result<(), PredictError> {
        at_least_zero("demand", self.demand_s())?;
        match *self {
            Self::Servers { servers, .. } => {
                above_zero("number of servers", f64::from(servers)).map(|_| ())
            }
            Self::Shared { contention, .. } => at_least_zero("contention", contention).map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// What happens at one station.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StationUse {
    /// Work done in a second, in seconds of work: the utilisation of a single server, the mean
    /// number of busy servers of several.
    pub busy: f64,
    /// Mean number of customers there, in service or waiting.
    pub customers: f64,
    /// Seconds that one job spends there.
    pub residence_s: f64,
}

/// A solved network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// Customers.
    pub n: u32,
    /// Jobs in a second.
    pub rate_per_s: f64,
    /// Seconds from the start of a job to its end.
    pub round_s: f64,
    /// The stations in their order.
    pub stations: Vec<StationUse>,
}

/// A closed network.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    stations: Vec<Station>,
}

impl Network {
    /// A network of stations, at least one with a demand above zero.
    ///
    /// # Errors
    /// No demand, a negative or infinite one, no server, or a negative contention.
    pub fn new(stations: Vec<Station>) -> Result<Self, PredictError> {
        for station in &stations {
            station.check()?;
        }
        if stations.iter().all(|s| s.demand_s() == 0.0) {
            return Err(PredictError::NoDemand);
        }
        Ok(Self { stations })
    }

    /// Solves the network for `n` customers, by mean values where they apply.
    pub fn solve(&self, n: u32) -> Solution {
        self.by_mean_values(n).unwrap_or_else(|| self.by_convolution(n))
    }

    /// The rate alone for `n` customers, jobs per second: what [`Network::solve`] gives, without
    /// where they wait. With two stations it costs `n` steps in place of `n²`.
    pub fn rate_per_s(&self, n: u32) -> f64 {
        if let Some(solved) = self.by_mean_values(n) {
            return solved.rate_per_s;
        }
        if n == 0 {
            return 0.0;
        }
        let all: Vec<Vec<f64>> = self.stations.iter().map(|s| weights(s, n)).collect();
        let product = match &all[1..] {
            [one] => one.clone(),
            others => convolve_all(others.iter(), n),
        };
        let total = |n: usize| log_sum((0..=n).map(|j| all[0][j] + product[n - j]));
        (total(n as usize - 1) - total(n as usize)).exp()
    }

    /// Solves by mean values; `None` if a station's speed depends on how many are there.
    pub fn by_mean_values(&self, n: u32) -> Option<Solution> {
        let plain = |s: &Station| matches!(s, Station::Queue { .. } | Station::Delay { .. });
        if !self.stations.iter().all(plain) {
            return None;
        }
        let mut waiting = vec![0.0; self.stations.len()];
        if n == 0 {
            return Some(self.empty());
        }
        let mut rate = 0.0;
        for customers in 1..=n {
            let residence: Vec<f64> = self
                .stations
                .iter()
                .zip(&waiting)
                .map(|(station, found)| match station {
                    Station::Delay { demand_s } => *demand_s,
                    other => other.demand_s() * (1.0 + found),
                })
                .collect();
            let round_s: f64 = residence.iter().sum();
            rate = f64::from(customers) / round_s;
            for (waiting, residence) in waiting.iter_mut().zip(&residence) {
                *waiting = rate * residence;
            }
        }
        Some(self.solution(n, rate, &waiting))
    }

    /// Solves by convolution; works for every station.
    pub fn by_convolution(&self, n: u32) -> Solution {
        if n == 0 {
            return self.empty();
        }
        let weights: Vec<Vec<f64>> = self.stations.iter().map(|s| weights(s, n)).collect();
        let all = convolve_all(weights.iter(), n);
        let top = n as usize;
        let rate = (all[top - 1] - all[top]).exp();
        let customers: Vec<f64> = (0..weights.len())
            .map(|k| {
                let others = weights.iter().enumerate().filter(|(i, _)| *i != k).map(|(_, w)| w);
                let rest = convolve_all(others, n);
                (1..=top).map(|j| j as f64 * (weights[k][j] + rest[top - j] - all[top]).exp()).sum()
            })
            .collect();
        self.solution(n, rate, &customers)
    }

    /// Nobody there: each job would take the sum of the demands.
    fn empty(&self) -> Solution {
        let round_s = self.stations.iter().map(Station::demand_s).sum();
        let stations = self
            .stations
            .iter()
            .map(|s| StationUse { busy: 0.0, customers: 0.0, residence_s: s.demand_s() })
            .collect();
        Solution { n: 0, rate_per_s: 0.0, round_s, stations }
    }

    fn solution(&self, n: u32, rate_per_s: f64, customers: &[f64]) -> Solution {
        let stations = self
            .stations
            .iter()
            .zip(customers)
            .map(|(station, customers)| StationUse {
                busy: rate_per_s * station.demand_s(),
                customers: *customers,
                residence_s: customers / rate_per_s,
            })
            .collect();
        Solution { n, rate_per_s, round_s: f64::from(n) / rate_per_s, stations }
    }
}

/// Logarithms of a station's weights for 0 to `n` customers.
fn weights(station: &Station, n: u32) -> Vec<f64> {
    let demand = station.demand_s().ln();
    let mut sum = 0.0;
    let mut logs = Vec::with_capacity(n as usize + 1);
    logs.push(0.0);
    for j in 1..=n {
        sum += demand - station.speed(j).ln();
        logs.push(sum);
    }
    logs
}

/// Logarithms of the convolution of several weights.
fn convolve_all<'a>(all: impl Iterator<Item = &'a Vec<f64>>, n: u32) -> Vec<f64> {
    let mut product = vec![f64::NEG_INFINITY; n as usize + 1];
    product[0] = 0.0;
    for weights in all {
        product = (0..product.len())
            .map(|total| log_sum((0..=total).map(|j| weights[j] + product[total - j])))
            .collect();
    }
    product
}

/// `ln Σ exp(x)` without leaving the range of a float.
fn log_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + logs.map(|x| (x - largest).exp()).sum::<f64>().ln()
}

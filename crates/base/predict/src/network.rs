//! A closed queueing network of stations, solved exactly.
//!
//! `n` customers (threads, or requests in flight) circulate. Each needs `demand` seconds of work at
//! every station and then starts again; one round is one job. The solution gives the rate and shows
//! where the customers wait. There are two algorithms, both exact for exponential or
//! processor-sharing service:
//! - mean value analysis (Reiser and Lavenberg, 1980), for single servers and delays. With
//!   `Q_k(0) = 0`, for 1 to `n` customers: residence `R_k = D_k (1 + Q_k(n-1))`, or `D_k` at a
//!   delay; rate `X = n / Σ R_k`; then `Q_k(n) = X R_k`;
//! - convolution (Buzen, 1973), for stations whose speed depends on the number of customers. A
//!   station that works `a(j)` times as fast with `j` customers has the weight
//!   `f(j) = D^j / (a(1) … a(j))`; `G` is the convolution of all weights; the rate is
//!   `G(n-1) / G(n)`, and `j` customers are at a station with the probability
//!   `f(j) G'(n-j) / G(n)`, where `G'` is that of the network without the station. All values are
//!   stored as logarithms because the weights exceed the range of a float for a few hundred
//!   customers.
//!
//! Real files are not exponential and real threads are not random, so the rate is an approximation,
//! and latencies of single requests are not predicted at all. [`crate::walk`] shows how well it
//! fits.
//!
//! Cost: the time for mean value analysis is proportional to `n` times the number of stations; for
//! convolution, to `n²` times the square of the number of stations, with an exponential in the
//! innermost step.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use serde::{Deserialize, Serialize};

/// A station where customers spend time. Demands are in seconds of work per job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Station {
    /// One server with a queue: a disk, a lock, one core.
    Queue {
        /// Seconds of work per job.
        demand_s: f64,
    },
    /// Several servers with one queue: the cores of a processor, the channels of a device.
    Servers {
        /// Seconds of work per job.
        demand_s: f64,
        /// Number of servers, at least 1.
        servers: u32,
    },
    /// One server per customer, where each additional customer slows all of them down: `j`
    /// customers are served `j / (1 + contention (j - 1))` times as fast as one. Models cores that
    /// share clock, cache and locks.
    Shared {
        /// Seconds of work per job without other customers.
        demand_s: f64,
        /// Slowdown per additional customer, at least 0; 0.06 limits the speed to 1 / 0.06.
        contention: f64,
    },
    /// Cores with one queue, where each additional busy core slows all of them down like
    /// [`Station::Shared`].
    Cores {
        /// Seconds of work per job on one core.
        demand_s: f64,
        /// Number of cores, at least 1.
        cores: u32,
        /// Slowdown per additional busy core, at least 0.
        contention: f64,
    },
    /// Time spent without queueing: a sleep, a network.
    Delay {
        /// Seconds per job.
        demand_s: f64,
    },
}

impl Station {
    /// Returns the seconds of work per job.
    pub const fn demand_s(&self) -> f64 {
        match *self {
            Self::Queue { demand_s }
            | Self::Servers { demand_s, .. }
            | Self::Shared { demand_s, .. }
            | Self::Cores { demand_s, .. }
            | Self::Delay { demand_s } => demand_s,
        }
    }

    /// Returns the speed of the station with `j` customers, relative to one customer.
    pub fn speed(&self, j: u32) -> f64 {
        let j = f64::from(j);
        match *self {
            Self::Queue { .. } => j.min(1.0),
            Self::Servers { servers, .. } => j.min(f64::from(servers)),
            Self::Shared { contention, .. } => j / (1.0 + contention * (j - 1.0)),
            Self::Cores { cores, contention, .. } => {
                let busy = j.min(f64::from(cores));
                busy / (1.0 + contention * (busy - 1.0).max(0.0))
            }
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
            Self::Cores { cores, contention, .. } => {
                above_zero("number of cores", f64::from(cores))?;
                at_least_zero("contention", contention).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

/// The load of one station.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StationUse {
    /// Work done per second, in seconds: the utilisation of a single server, or the mean number of
    /// busy servers.
    pub busy: f64,
    /// Mean number of customers at the station, in service or waiting.
    pub customers: f64,
    /// Seconds that a job spends at the station.
    pub residence_s: f64,
}

/// A solved network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// Number of customers.
    pub n: u32,
    /// Jobs per second.
    pub rate_per_s: f64,
    /// Seconds from start to end of a job.
    pub round_s: f64,
    /// The stations, in network order.
    pub stations: Vec<StationUse>,
}

/// A closed queueing network.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    stations: Vec<Station>,
}

impl Network {
    /// Creates a network of stations.
    ///
    /// # Errors
    /// Fails if no demand is above zero, a demand is negative or infinite, a station has no server,
    /// or a contention is negative.
    pub fn new(stations: Vec<Station>) -> Result<Self, PredictError> {
        for station in &stations {
            station.check()?;
        }
        if stations.iter().all(|s| s.demand_s() == 0.0) {
            return Err(PredictError::NoDemand);
        }
        Ok(Self { stations })
    }

    /// Solves the network for `n` customers, by mean value analysis if possible.
    pub fn solve(&self, n: u32) -> Solution {
        self.mean_value_analysis(n).unwrap_or_else(|| self.convolution(n))
    }

    /// Returns the rate for `n` customers in jobs per second, like [`Network::solve`] but without
    /// station loads. With two stations this takes `n` steps instead of `n²`.
    pub fn rate_per_s(&self, n: u32) -> f64 {
        if let Some(solved) = self.mean_value_analysis(n) {
            return solved.rate_per_s;
        }
        if n == 0 {
            return 0.0;
        }
        let all: Vec<Vec<f64>> = self.stations.iter().map(|s| weights(s, n)).collect();
        let product = convolve_all(all[1..].iter(), n);
        let total = |n: usize| log_sum((0..=n).map(|j| all[0][j] + product[n - j]));
        (total(n as usize - 1) - total(n as usize)).exp()
    }

    /// Solves by mean value analysis. Returns `None` if the speed of a station depends on its
    /// number of customers.
    pub fn mean_value_analysis(&self, n: u32) -> Option<Solution> {
        let plain = |s: &Station| matches!(s, Station::Queue { .. } | Station::Delay { .. });
        if !self.stations.iter().all(plain) {
            return None;
        }
        let mut waiting = vec![0.0; self.stations.len()];
        if n == 0 {
            return Some(self.empty());
        }
        let mut rate = 0.0;
        let mut residence = waiting.clone();
        for customers in 1..=n {
            for ((residence, station), found) in
                residence.iter_mut().zip(&self.stations).zip(&waiting)
            {
                *residence = match station {
                    Station::Delay { demand_s } => *demand_s,
                    other => other.demand_s() * (1.0 + found),
                };
            }
            let round_s: f64 = residence.iter().sum();
            rate = f64::from(customers) / round_s;
            for (waiting, residence) in waiting.iter_mut().zip(&residence) {
                *waiting = rate * residence;
            }
        }
        Some(self.solution(n, rate, &waiting))
    }

    /// Solves by convolution, which works for all kinds of stations.
    pub fn convolution(&self, n: u32) -> Solution {
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

    /// Solution without customers: a job would take the sum of the demands.
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

/// Returns the logarithms of a station's weights for 0 to `n` customers.
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

/// Returns the logarithms of the convolution of several weights.
fn convolve_all<'a>(mut all: impl Iterator<Item = &'a Vec<f64>>, n: u32) -> Vec<f64> {
    let mut product = all.next().cloned().unwrap_or_else(|| {
        let mut none = vec![f64::NEG_INFINITY; n as usize + 1];
        none[0] = 0.0;
        none
    });
    for weights in all {
        product = (0..product.len())
            .map(|total| log_sum((0..=total).map(|j| weights[j] + product[total - j])))
            .collect();
    }
    product
}

/// Returns `ln Σ exp(x)` without overflow or underflow.
fn log_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + logs.map(|x| (x - largest).exp()).sum::<f64>().ln()
}

//! Exact solutions compared with bounds, known formulas and each other.

use crate::near;
use ioloom_predict::{Network, PredictError, Station};
use proptest::prelude::*;

fn queues(demands: &[f64], delay: f64) -> Network {
    let mut stations: Vec<Station> =
        demands.iter().map(|d| Station::Queue { demand_s: *d }).collect();
    stations.push(Station::Delay { demand_s: delay });
    Network::new(stations).unwrap()
}

/// Computes Erlang's loss probability for `servers` at an offered load by recursion.
fn erlang_loss(servers: u32, load: f64) -> f64 {
    (1..=servers).fold(1.0, |loss, k| load * loss / (f64::from(k) + load * loss))
}

#[test]
fn two_equal_stations() {
    // K equal single servers with n customers have the rate n / (D (n + K - 1)).
    for k in 1_u32..5 {
        let network = queues(&vec![0.5; k as usize], 0.0);
        for n in 1_u32..20 {
            let expected = f64::from(n) / (0.5 * f64::from(n + k - 1));
            near(network.solve(n).rate_per_s, expected, 1e-12);
        }
    }
}

#[test]
fn one_server_and_a_delay() {
    // The machine repairman model: the server is idle with Erlang's loss probability of n servers
    // at Z / D.
    let network = queues(&[0.2], 1.7);
    for n in [1, 2, 5, 10, 40] {
        let expected = 1.0 - erlang_loss(n, 1.7 / 0.2);
        near(network.solve(n).stations[0].busy, expected, 1e-10);
        near(network.convolution(n).stations[0].busy, expected, 1e-10);
    }
}

#[test]
fn as_many_servers_as_customers_are_a_delay() {
    let many = Network::new(vec![
        Station::Queue { demand_s: 0.3 },
        Station::Servers { demand_s: 2.0, servers: 64 },
    ])
    .unwrap();
    let delay = queues(&[0.3], 2.0);
    let free = Network::new(vec![
        Station::Queue { demand_s: 0.3 },
        Station::Shared { demand_s: 2.0, contention: 0.0 },
    ])
    .unwrap();
    for n in [1, 3, 17, 64] {
        near(many.solve(n).rate_per_s, delay.solve(n).rate_per_s, 1e-9);
        near(free.solve(n).rate_per_s, delay.solve(n).rate_per_s, 1e-9);
    }
}

#[test]
fn cores_and_a_device() {
    // Each file needs 4 ms on one of 2 cores and 1 ms on a device: the cores limit the rate to 500
    // files per second.
    let network = Network::new(vec![
        Station::Servers { demand_s: 4e-3, servers: 2 },
        Station::Queue { demand_s: 1e-3 },
    ])
    .unwrap();
    near(network.solve(1).rate_per_s, 200.0, 1e-9);
    // Computed by hand for 2 customers: weights 1, 4, 8 and 1, 1, 1; G(1) = 5, G(2) = 13.
    near(network.solve(2).rate_per_s, 5.0 / 13.0 * 1e3, 1e-9);
    let many = network.solve(200);
    near(many.rate_per_s, 500.0, 1e-6);
    near(many.stations[0].busy, 2.0, 1e-8);
    assert!(network.mean_value_analysis(3).is_none());
}

#[test]
fn many_customers_stay_in_range() {
    let network = Network::new(vec![
        Station::Servers { demand_s: 1e-6, servers: 4 },
        Station::Queue { demand_s: 1e-4 },
        Station::Delay { demand_s: 10.0 },
    ])
    .unwrap();
    let s = network.solve(600);
    assert!(s.rate_per_s.is_finite() && s.rate_per_s > 59.0 && s.rate_per_s <= 60.0, "{s:?}");
}

#[test]
fn a_network_without_customers_has_no_rate() {
    let s = queues(&[1.0], 1.0).solve(0);
    assert_eq!((s.n, s.rate_per_s, s.round_s), (0, 0.0, 2.0));
}

#[test]
fn a_network_without_work_is_refused() {
    assert_eq!(Network::new(vec![]).unwrap_err(), PredictError::NoDemand);
    let idle = vec![Station::Queue { demand_s: 0.0 }];
    assert_eq!(Network::new(idle).unwrap_err(), PredictError::NoDemand);
    assert!(Network::new(vec![Station::Queue { demand_s: f64::INFINITY }]).is_err());
    assert!(Network::new(vec![Station::Servers { demand_s: 1.0, servers: 0 }]).is_err());
}

/// Computes the balanced-job bounds of the rate (Zahorjan and others, 1982; with delay as in
/// Lazowska and others, "Quantitative System Performance", 1984, chapter 5).
fn balanced_bounds(demands: &[f64], delay: f64, n: u32) -> (f64, f64) {
    let n = f64::from(n);
    let sum: f64 = demands.iter().sum();
    let largest = demands.iter().copied().fold(0.0, f64::max);
    let mean = sum / demands.len() as f64;
    let worst = (n - 1.0) * largest / (1.0 + delay / (n * sum));
    let best = (n - 1.0) * mean / (1.0 + delay / sum);
    (n / (sum + delay + worst), (1.0 / largest).min(n / (sum + delay + best)))
}

fn demands() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(0.001..2.0_f64, 1..5)
}

proptest! {
    #[test]
    fn both_solutions_agree(demands in demands(), delay in 0.0..5.0_f64, n in 1_u32..25) {
        let network = queues(&demands, delay);
        let (m, c) = (network.mean_value_analysis(n).unwrap(), network.convolution(n));
        prop_assert!((m.rate_per_s / c.rate_per_s - 1.0).abs() < 1e-9);
        for (m, c) in m.stations.iter().zip(&c.stations) {
            prop_assert!((m.customers - c.customers).abs() < 1e-7, "{m:?} {c:?}");
            prop_assert!((m.busy - c.busy).abs() < 1e-9);
        }
    }

    #[test]
    fn the_rate_is_within_the_bounds(demands in demands(), delay in 0.0..5.0_f64, n in 1_u32..60) {
        let rate = queues(&demands, delay).solve(n).rate_per_s;
        let (low, high) = balanced_bounds(&demands, delay, n);
        prop_assert!(low <= rate * (1.0 + 1e-9) && rate <= high * (1.0 + 1e-9), "{low} {rate} {high}");
    }

    #[test]
    fn customers_are_conserved_and_obey_little(
        demand in 0.01..2.0_f64, cpu in 0.01..2.0_f64, servers in 1_u32..9,
        contention in 0.0..0.3_f64, delay in 0.0..3.0_f64, n in 1_u32..40
    ) {
        let network = Network::new(vec![
            Station::Queue { demand_s: demand },
            Station::Servers { demand_s: cpu, servers },
            Station::Shared { demand_s: cpu, contention },
            Station::Delay { demand_s: delay },
        ]).unwrap();
        let s = network.solve(n);
        let total: f64 = s.stations.iter().map(|k| k.customers).sum();
        prop_assert!((total - f64::from(n)).abs() < 1e-7);
        for k in &s.stations {
            prop_assert!((s.rate_per_s * k.residence_s - k.customers).abs() < 1e-7);
        }
        prop_assert!((s.rate_per_s * s.round_s - f64::from(n)).abs() < 1e-7);
        prop_assert!(s.stations[0].busy <= 1.0 + 1e-9);
        prop_assert!(s.stations[1].busy <= f64::from(servers) + 1e-9);
        prop_assert!((s.stations[3].customers - s.rate_per_s * delay).abs() < 1e-7);
    }

    #[test]
    fn more_customers_never_slow_it_down(
        demand in 0.01..2.0_f64, cpu in 0.01..2.0_f64, contention in 0.0..0.3_f64, n in 1_u32..40
    ) {
        let plain = queues(&[demand, cpu], 0.1);
        prop_assert!(plain.solve(n + 1).rate_per_s >= plain.solve(n).rate_per_s * (1.0 - 1e-12));
        let shared = Network::new(vec![
            Station::Queue { demand_s: demand },
            Station::Shared { demand_s: cpu, contention },
        ]).unwrap();
        let (fewer, more) = (shared.solve(n).rate_per_s, shared.solve(n + 1).rate_per_s);
        prop_assert!((shared.rate_per_s(n) / fewer - 1.0).abs() < 1e-9);
        prop_assert!(more >= fewer * (1.0 - 1e-12));
    }

    #[test]
    fn another_server_never_slows_it_down(cpu in 0.01..2.0_f64, servers in 1_u32..9, n in 1_u32..30) {
        let with = |servers| {
            Network::new(vec![
                Station::Queue { demand_s: 0.5 },
                Station::Servers { demand_s: cpu, servers },
            ]).unwrap().solve(n).rate_per_s
        };
        prop_assert!(with(servers + 1) >= with(servers) * (1.0 - 1e-12));
    }
}

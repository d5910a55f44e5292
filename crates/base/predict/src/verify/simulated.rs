//! Comparisons that need the simulated machine. They say nothing about a real one.

use crate::machine::rivals::{self, Fixed, WINDOW_MAX};
use crate::machine::sample::{self, SAMPLE};
use crate::machine::score::{Summary, Sweep};
use crate::machine::{Device, Job, Order, Scenario, Sizes, grid, policies};
use serde::Serialize;

/// A large job, simulated request by request and by sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scale {
    /// Device and order.
    pub name: String,
    /// Time of the whole job in seconds.
    pub whole_s: f64,
    /// Time from the sample in seconds.
    pub sampled_s: f64,
}

impl Scale {
    /// Returns the relative error of the sample.
    pub fn error(&self) -> f64 {
        self.sampled_s / self.whole_s - 1.0
    }
}

/// Returns the names of the cases of [`scale`].
pub fn scales() -> Vec<(&'static str, Device, Order)> {
    vec![
        ("hdd, device order", grid::DISK, Order::Device),
        ("hdd, shuffled", grid::DISK, Order::Shuffled),
        ("nvme, device order", grid::NVME, Order::Device),
        ("sata, tree", grid::SATA, Order::Walk),
    ]
}

/// Compares the sample with the whole job for `files` files of 4 KiB on 64 disks, 16 cores and 1,024
/// requests in flight.
pub fn scale((name, device, order): (&str, Device, Order), files: u32) -> Scale {
    let whole = large(device, order, files);
    let part = large(device, order, SAMPLE.min(files / 5));
    let time = |scenario: &Scenario| {
        let mut fixed = Fixed::new(WINDOW_MAX);
        sample::run(scenario, 64, u64::from(files), &mut fixed, WINDOW_MAX).elapsed_s
    };
    Scale { name: name.to_owned(), whole_s: time(&whole), sampled_s: time(&part) }
}

/// A list of small files on many disks.
fn large(device: Device, order: Order, files: u32) -> Scenario {
    Scenario {
        name: String::new(),
        seed: 1,
        machine: grid::machine(16),
        device,
        second: None,
        job: Job {
            files,
            sizes: Sizes::Exponential(4096),
            order,
            compute_ns: 0,
            byte_ns: 0.0,
            cached: [0.0; 2],
            crosses: false,
        },
        change: None,
        neighbour: None,
    }
}

/// Names of all that are scored.
pub fn scored_names() -> impl Iterator<Item = &'static str> {
    ["auto"].into_iter().chain(policies::NAMES)
}

/// Returns the loss of `auto` and of each rule in one scenario, in the order of [`scored_names`].
pub fn losses(scenario: &Scenario) -> Vec<f64> {
    let prepared = scenario.prepare();
    let sweep = Sweep::new(&prepared);
    let files = u64::from(scenario.job.files);
    scored_names()
        .filter_map(|name| {
            policies::create(name).or_else(|| rivals::create(name, scenario.machine.cores, files))
        })
        .map(|mut tuner| sweep.regret(&prepared.run(tuner.as_mut(), WINDOW_MAX)))
        .collect()
}

/// Summarizes losses by scenario into one summary per name.
pub fn summaries(by_scenario: &[Vec<f64>]) -> Vec<(&'static str, Summary)> {
    scored_names()
        .enumerate()
        .filter_map(|(i, name)| {
            let losses: Vec<f64> = by_scenario.iter().filter_map(|l| l.get(i).copied()).collect();
            Some((name, Summary::new(&losses)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_near_the_whole_job_on_64_disks() {
        for case in scales() {
            let scale = scale(case, 60_000);
            assert!(scale.error().abs() < 0.05, "{scale:?}");
        }
    }

    #[test]
    fn the_rules_are_scored_like_auto() {
        let scenario = grid::build().into_iter().find(|s| s.name.contains("cached")).unwrap();
        let losses = losses(&scenario);
        assert_eq!(losses.len(), 8);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        assert_eq!(summaries(&[losses]).len(), 8);
    }
}

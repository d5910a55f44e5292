//! A question about files, and its job on the simulated machine.

use super::profile::{Class, Measured};
use crate::machine::{CHUNK, Device, Job, Machine, Order, Scenario, Sizes};

/// Most pieces of a simulated file; larger files are divided.
pub(super) const PIECES_MAX: u64 = 64;

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The class of the device.
    pub class: Class,
    /// The probes of this machine.
    pub measured: Option<Measured>,
    /// Number of files.
    pub files: u64,
    /// Their sizes.
    pub sizes: Sizes,
    /// Compute time of a file, in seconds.
    pub compute_s: f64,
    /// Order of the list.
    pub order: Order,
    /// Share of the requests that are in the page cache.
    pub cached: f64,
    /// Usable cores.
    pub cores: u32,
    /// Devices with the files spread over them.
    pub disks: u32,
    /// Most requests in flight.
    pub threads_max: u32,
    /// Seed of all draws.
    pub seed: u64,
}

/// Returns the mean size.
pub(super) fn mean(sizes: Sizes) -> u64 {
    match sizes {
        Sizes::Fixed(bytes) | Sizes::Exponential(bytes) | Sizes::LogNormal(bytes, _) => bytes,
        Sizes::Two(one, other, share) => (one * share + other * (100 - share.min(100))) / 100,
    }
}

/// Returns the requests of a file of the mean size.
pub(super) fn pieces(question: &Question) -> u32 {
    mean(question.sizes).div_ceil(CHUNK).clamp(1, PIECES_MAX) as u32
}

/// Returns how many disks have requests if so many are in flight: all pieces of a file are on one disk.
pub(super) fn active_disks(question: &Question, in_flight: u32) -> u32 {
    let files = u64::from(in_flight.div_ceil(pieces(question))).min(question.files);
    files.clamp(1, u64::from(question.disks.max(1))) as u32
}

/// Returns whether the device is the one of the probes.
pub(super) fn is_measured(question: &Question) -> bool {
    question.class == Class::Measured
}

/// Returns the machine with memory for so many requests in flight.
pub(super) fn roomy(machine: Machine, in_flight: u32) -> Machine {
    Machine { memory: machine.memory.max(u64::from(in_flight) * CHUNK), ..machine }
}

/// Returns the first so many files of a question as a scenario.
pub(super) fn scenario(
    question: &Question,
    device: Device,
    machine: Machine,
    files: u32,
) -> Scenario {
    Scenario {
        name: String::new(),
        seed: question.seed,
        machine,
        device,
        second: None,
        job: Job {
            files: u64::from(files).min(question.files) as u32,
            sizes: question.sizes,
            order: question.order,
            compute_ns: (question.compute_s * 1e9) as u64,
            byte_ns: 0.0,
            cached: [question.cached; 2],
            crosses: false,
        },
        change: None,
        neighbour: None,
    }
}

#[cfg(test)]
impl Question {
    /// The question of most tests: small files in the order of the device, on two cores.
    pub(super) fn of_small_files(class: Class) -> Self {
        Self {
            class,
            measured: None,
            files: 4_000,
            sizes: Sizes::Fixed(4096),
            compute_s: 0.0,
            order: Order::Device,
            cached: 0.0,
            cores: 2,
            disks: 1,
            threads_max: 16,
            seed: 1,
        }
    }
}

//! The scenarios: 163 for design, 160 for the test, and 24 for each build.
//!
//! The design set is a list: devices × sizes × compute, and variants of order, cache, cores and
//! changes. The test set is drawn from a seed that was fixed before any controller was tuned; its
//! devices, sizes, costs and changes are others. Controllers are tuned on the design set only.

use super::device::{Cap, Device, Model};
use super::job::{CHUNK, Job, Order, Sizes};
use super::random::Draws;
use super::run::{Change, Machine, Neighbour, Scenario};

/// Seed of the test set, fixed before tuning.
pub const TEST_SEED: u64 = 20_261_123;
/// Number of scenarios in the test set.
pub const TEST_COUNT: u64 = 160;

const MS: u64 = 1_000_000;
/// Most requests of a job, which bounds the time of a simulation.
const REQUESTS_MAX: f64 = 120_000.0;

/// Seeks of all disks: to a near track, and the shortest long one.
const SEEK_NS: (u64, u64) = (MS, 2 * MS);

/// A disk of 7,200 rotations per minute.
pub const DISK: Device = Device {
    model: Model::Disk {
        near_ns: SEEK_NS.0,
        far_ns: SEEK_NS.1,
        seek_ns: 9 * MS,
        rotation_ns: 8_333_333,
        bytes_per_s: 180e6,
        bytes: 2 << 40,
    },
    cap: None,
    jitter: 0.05,
};
/// A SATA drive: parameters chosen for the usual data sheet, 100,000 requests/s with many in flight,
/// 10,000 with one, 530 MB/s.
pub const SATA: Device = Device {
    model: Model::Flash {
        units: 8,
        piece_ns: 70_000,
        command_ns: 10_000,
        firmware_ns: 20_000,
        bytes_per_s: 530e6,
    },
    cap: None,
    jitter: 0.1,
};
/// An NVMe drive with the figures of NVMeVirt for a Samsung 970 Pro.
pub const NVME: Device = Device {
    model: Model::Flash {
        units: 16,
        piece_ns: 36_000,
        command_ns: 1_500,
        firmware_ns: 21_500,
        bytes_per_s: 3360e6,
    },
    cap: None,
    jitter: 0.1,
};
/// A USB stick.
pub const STICK: Device = Device {
    model: Model::Stick { hit_ns: 300_000, miss_ns: 3 * MS, bytes_per_s: 100e6 },
    cap: None,
    jitter: 0.1,
};
/// A file server with eight threads at 1 ms, 1 GB/s.
pub const SERVER: Device = Device {
    model: Model::Network { latency_ns: MS, servers: 8, service_ns: 200_000, bytes_per_s: 1e9 },
    cap: None,
    jitter: 0.2,
};
/// A cloud disk of 3,000 requests/s and 125 MB/s, the base of AWS's gp3.
pub const CLOUD: Device = Device {
    model: Model::Network {
        latency_ns: 500_000,
        servers: 64,
        service_ns: 50_000,
        bytes_per_s: 1e9,
    },
    cap: Some(Cap { requests_per_s: 3000.0, bytes_per_s: 125e6, burst_s: 0.05 }),
    jitter: 0.2,
};

/// Costs of calls, of the order of `results/read-warm-small`: two cores read 250,000 cached files of
/// 4 KiB per second.
pub(crate) const fn machine(cores: u32) -> Machine {
    let memory = 256 << 20;
    Machine { cores, open_ns: 5_000, request_ns: 2_500, hand_off_ns: 2_000, byte_ns: 0.1, memory }
}

/// A FUSE file system or a distant server with a fixed delay.
fn delayed(latency_ns: u64, servers: u32) -> Device {
    let model = Model::Network { latency_ns, servers, service_ns: 30_000, bytes_per_s: 2e9 };
    Device { model, cap: None, jitter: 0.02 }
}

fn capped(device: Device, requests_per_s: f64, bytes_per_s: f64, burst_s: f64) -> Device {
    Device { cap: Some(Cap { requests_per_s, bytes_per_s, burst_s }), ..device }
}

impl Device {
    /// Returns roughly how long one request takes with many in flight, in seconds.
    pub(crate) fn request_s(&self, bytes: f64, order: Order) -> f64 {
        let own = match self.model {
            Model::Disk { bytes_per_s, .. } => {
                bytes / bytes_per_s + if order == Order::Device { 1e-4 } else { 7e-3 }
            }
            Model::Flash { units, piece_ns, command_ns, bytes_per_s, .. } => {
                let pieces = (bytes / 32768.0).ceil();
                (piece_ns as f64 * 1e-9 * pieces / f64::from(units))
                    .max(command_ns as f64 * 1e-9)
                    .max(bytes / bytes_per_s)
            }
            Model::Stick { hit_ns, miss_ns, bytes_per_s } => {
                let ns = if order == Order::Device { hit_ns } else { miss_ns };
                ns as f64 * 1e-9 + bytes / bytes_per_s
            }
            Model::Network { latency_ns, servers, service_ns, bytes_per_s } => {
                (service_ns as f64 * 1e-9 / f64::from(servers))
                    .max(bytes / bytes_per_s)
                    .max(latency_ns as f64 * 1e-9 / 512.0)
            }
        };
        let cap =
            self.cap.map_or(0.0, |cap| (1.0 / cap.requests_per_s).max(bytes / cap.bytes_per_s));
        own.max(cap)
    }
}

impl Sizes {
    fn mean(self) -> f64 {
        match self {
            Self::Fixed(bytes) | Self::Exponential(bytes) => bytes as f64,
            Self::LogNormal(median, sigma) => median as f64 * (sigma * sigma / 2.0).exp(),
            Self::Two(one, other, share) => {
                (one as f64 * share as f64 + other as f64 * (100 - share) as f64) / 100.0
            }
        }
    }
}

/// A scenario of which only some fields differ from a cold list on two cores.
#[derive(Clone)]
struct Plan {
    device: Device,
    sizes: Sizes,
    compute_ns: u64,
    byte_ns: f64,
    order: Order,
    cached: [f64; 2],
    cores: u32,
    seconds: f64,
    second: Option<Device>,
    change: Option<Change>,
    neighbour: Option<Neighbour>,
}

impl Plan {
    fn new(device: Device, sizes: Sizes, compute_ns: u64, seconds: f64) -> Self {
        Self {
            device,
            sizes,
            compute_ns,
            byte_ns: 0.0,
            order: Order::Device,
            cached: [0.0; 2],
            cores: 2,
            seconds,
            second: None,
            change: None,
            neighbour: None,
        }
    }

    /// Makes the scenario, with about as many files as take the planned time.
    fn scenario(&self, name: String, seed: u64) -> Scenario {
        let mean = self.sizes.mean().max(1.0);
        let requests = (mean / CHUNK as f64).max(1.0).ceil();
        let cold = 1.0 - f64::midpoint(self.cached[0], self.cached[1]);
        let device = cold * requests * self.device.request_s(mean / requests, self.order);
        let other = self.second.map_or(device, |second| {
            cold * requests * second.request_s(mean / requests, self.order)
        });
        let device = f64::midpoint(device, other);
        let calls = requests * 1e-5 + mean * (1e-10 + self.byte_ns * 1e-9);
        let compute = (self.compute_ns as f64 * 1e-9 + calls) / f64::from(self.cores);
        let most = REQUESTS_MAX / requests;
        let files = (self.seconds / device.max(compute)).clamp(60.0, most) as u32;
        let job = Job {
            files,
            sizes: self.sizes,
            order: self.order,
            compute_ns: self.compute_ns,
            byte_ns: self.byte_ns,
            cached: self.cached,
            crosses: self.second.is_some(),
        };
        Scenario {
            name,
            seed,
            machine: machine(self.cores),
            device: self.device,
            second: self.second,
            job,
            change: self.change,
            neighbour: self.neighbour,
        }
    }
}

struct Builder {
    scenarios: Vec<Scenario>,
}

impl Builder {
    fn add(&mut self, name: String, plan: &Plan) {
        let seed = 1_000 + self.scenarios.len() as u64;
        self.scenarios.push(plan.scenario(name, seed));
    }
}

const DEVICES: [(&str, Device); 6] = [
    ("hdd", DISK),
    ("sata", SATA),
    ("nvme", NVME),
    ("usb", STICK),
    ("server", SERVER),
    ("cloud", CLOUD),
];
const SIZES: [(&str, Sizes); 4] = [
    ("4k", Sizes::Exponential(4 << 10)),
    ("64k", Sizes::Exponential(64 << 10)),
    ("1m", Sizes::Exponential(1 << 20)),
    ("16m", Sizes::Exponential(16 << 20)),
];
const COMPUTE: [(&str, u64); 4] = [("0", 0), ("50us", 50_000), ("400us", 400_000), ("5ms", 5 * MS)];
const SECONDS: [f64; 5] = [2.5, 6.0, 0.5, 12.0, 4.0];

/// Returns the 163 scenarios for design.
pub fn design() -> Vec<Scenario> {
    let mut all = Builder { scenarios: Vec::new() };
    for (d, (device_name, device)) in DEVICES.iter().enumerate() {
        for (s, (size_name, sizes)) in SIZES.iter().enumerate() {
            for (c, (compute_name, compute)) in COMPUTE.iter().enumerate() {
                let seconds = SECONDS[(d + 2 * s + c) % SECONDS.len()];
                let plan = Plan::new(*device, *sizes, *compute, seconds);
                all.add(format!("{device_name} {size_name} {compute_name}"), &plan);
            }
        }
    }
    orders_and_caches(&mut all);
    variants(&mut all);
    changes(&mut all);
    all.scenarios
}

fn orders_and_caches(all: &mut Builder) {
    for (name, device) in &DEVICES[..4] {
        for (size_name, sizes) in &SIZES[..2] {
            for (compute_name, compute) in [COMPUTE[0], COMPUTE[2]] {
                let plan = Plan::new(*device, *sizes, compute, 6.0);
                let plan = Plan { order: Order::Shuffled, ..plan };
                all.add(format!("{name} {size_name} {compute_name} shuffled"), &plan);
            }
        }
    }
    for (name, device) in DEVICES {
        for (size_name, sizes) in &SIZES[..2] {
            let plan = Plan::new(device, *sizes, 0, 4.0);
            let plan = Plan { cached: [0.5; 2], ..plan };
            all.add(format!("{name} {size_name} half cached"), &plan);
        }
        let plan = Plan::new(device, SIZES[0].1, 0, 5.0);
        all.add(format!("{name} walk"), &Plan { order: Order::Walk, ..plan });
    }
    for (size_name, sizes) in SIZES {
        for (compute_name, compute) in [COMPUTE[0], COMPUTE[2]] {
            let plan = Plan::new(NVME, sizes, compute, 4.0);
            let plan = Plan { cached: [1.0; 2], ..plan };
            all.add(format!("warm {size_name} {compute_name}"), &plan);
        }
    }
}

fn variants(all: &mut Builder) {
    let small = Sizes::LogNormal(6 << 10, 1.8);
    for (name, device) in [
        ("cap 600", capped(CLOUD, 600.0, 1e9, 0.05)),
        ("cap 50 MB/s", capped(NVME, 1e9, 50e6, 0.05)),
        ("burst", capped(CLOUD, 1000.0, 1e9, 5.0)),
        ("fuse 0.2 ms", delayed(200_000, 512)),
        ("fuse 2 ms", delayed(2 * MS, 512)),
        (
            "fuse 2 ms, 8 served",
            Device {
                model: Model::Network {
                    latency_ns: 100_000,
                    servers: 8,
                    service_ns: 2 * MS,
                    bytes_per_s: 2e9,
                },
                cap: None,
                jitter: 0.02,
            },
        ),
        ("fuse 20 ms", delayed(20 * MS, 512)),
    ] {
        all.add(format!("{name} real sizes"), &Plan::new(device, small, 0, 5.0));
        all.add(format!("{name} 20us"), &Plan::new(device, SIZES[0].1, 20_000, 2.5));
    }
    let many = Plan::new(NVME, SIZES[0].1, 200_000, 3.0);
    all.add("nvme 16 cores".into(), &Plan { cores: 16, ..many });
}

fn changes(all: &mut Builder) {
    let plan = |device, seconds| Plan::new(device, SIZES[0].1, 20_000, seconds);
    let cap =
        |requests| Change::Cap(Cap { requests_per_s: requests, bytes_per_s: 1e10, burst_s: 0.05 });
    let fast = capped(CLOUD, 6000.0, 1e9, 0.05);
    let falls = Plan { change: Some(cap(600.0)), ..plan(fast, 6.0) };
    all.add("cap falls to a tenth".into(), &falls);
    let slower = Plan { change: Some(Change::Latency(20 * MS)), ..plan(delayed(200_000, 64), 3.0) };
    all.add("latency 0.2 to 20 ms".into(), &slower);
    let warm = Plan { cached: [0.0, 1.0], ..plan(SATA, 4.0) };
    all.add("cold turns warm".into(), &warm);
    let cold = Plan { cached: [1.0, 0.0], ..plan(SATA, 4.0) };
    all.add("warm turns cold".into(), &cold);
    let crosses = Plan { second: Some(delayed(2 * MS, 512)), ..plan(NVME, 4.0) };
    all.add("list crosses devices".into(), &crosses);
    let reader = Neighbour { readers: 1, think_ns: 10 * MS };
    for (name, device) in [("hdd", DISK), ("sata", SATA)] {
        let joined = Plan { change: Some(Change::Neighbour(reader)), ..plan(device, 4.0) };
        all.add(format!("{name}, neighbour reads"), &joined);
    }
    let slow = capped(CLOUD, 600.0, 1e9, 0.05);
    all.add("cap rises tenfold".into(), &Plan { change: Some(cap(6000.0)), ..plan(slow, 6.0) });
    let other = Plan { change: Some(Change::Slower(2.0)), ..plan(NVME, 4.0) };
    all.add("another program computes".into(), &other);
    let first = Plan { cached: [0.9, 0.0], ..plan(capped(CLOUD, 600.0, 1e9, 0.05), 6.0) };
    all.add("first half mostly cached".into(), &first);
}

/// Returns long jobs, each with one trap in the middle or at the start.
pub fn traps() -> Vec<Scenario> {
    let mut all = Builder { scenarios: Vec::new() };
    let plan = |device, seconds| Plan::new(device, SIZES[0].1, 20_000, seconds);
    let cap = |requests_per_s| Cap { requests_per_s, bytes_per_s: 1e10, burst_s: 0.02 };
    let fast = capped(CLOUD, 6000.0, 1e9, 0.02);
    let falls = Plan { change: Some(Change::Cap(cap(600.0))), ..plan(fast, 12.0) };
    all.add("cap falls to a tenth".into(), &falls);
    let rises = Plan { change: Some(Change::Latency(20 * MS)), ..plan(delayed(200_000, 64), 0.0) };
    let mut rises = rises.scenario("latency rises from 0.2 to 20 ms".into(), 2_001);
    rises.job.files = 240_000;
    all.scenarios.push(rises);
    let cold = Plan { cached: [1.0, 0.0], ..plan(SERVER, 6.0) };
    all.add("warm turns cold".into(), &cold);
    let warm = Plan { cached: [0.0, 1.0], ..plan(SERVER, 6.0) };
    all.add("cold turns warm".into(), &warm);
    let crosses = Plan { second: Some(delayed(2 * MS, 512)), ..plan(SATA, 0.0) };
    let mut crosses = crosses.scenario("list crosses devices".into(), 2_004);
    crosses.job.files = 240_000;
    all.scenarios.push(crosses);
    let reader = Neighbour { readers: 8, think_ns: 0 };
    let joined = Plan { change: Some(Change::Neighbour(reader)), ..plan(fast, 12.0) };
    all.add("neighbour joins".into(), &joined);
    let slower = Plan { change: Some(Change::Slower(2.0)), ..plan(SERVER, 6.0) };
    all.add("another program computes".into(), &slower);
    // Loads of the neighbour that take less than the tolerance from the job.
    for (name, device, seconds, think_ns) in [
        ("neighbour at a cap of 600", capped(CLOUD, 600.0, 1e9, 0.02), 60.0, 400 * MS),
        ("neighbour at a cap of 3000", capped(CLOUD, 3000.0, 1e9, 0.02), 30.0, 80 * MS),
        ("neighbour on sata", SATA, 6.0, 10 * MS),
        ("neighbour on a server", SERVER, 6.0, 10 * MS),
    ] {
        let neighbour = Some(Neighbour { readers: 1, think_ns });
        let plan = plan(device, seconds);
        all.add(name.into(), &Plan { neighbour, ..plan });
    }
    for (name, ns) in [("device pauses for 50 ms", 50 * MS), ("device pauses for 1 s", 1_000 * MS)]
    {
        let pauses = Plan { change: Some(Change::Stall(ns)), ..plan(SERVER, 6.0) };
        all.add(name.into(), &pauses);
    }
    let slow = Device { cap: Some(cap(600.0)), ..delayed(20 * MS, 512) };
    let rises = Plan { change: Some(Change::Cap(cap(6000.0))), ..plan(slow, 0.0) };
    let mut rises = rises.scenario("cap rises tenfold, latency 20 ms".into(), 2_013);
    rises.job.files = 16_800;
    all.scenarios.push(rises);
    all.scenarios
}

/// Returns the 160 scenarios of the test.
pub fn test() -> Vec<Scenario> {
    of_seed(TEST_SEED)
}

/// Returns 160 scenarios drawn like those of the test. With another seed they show whether a change
/// helps in general, without a look at the test set.
pub fn of_seed(seed: u64) -> Vec<Scenario> {
    (0..TEST_COUNT).map(|i| drawn(seed, i)).collect()
}

/// Draws scenario `i` of a seed.
fn drawn(seed: u64, i: u64) -> Scenario {
    let draws = Draws::new(seed, i);
    let (class, device) = drawn_device(draws, 100);
    let median = draws.log_uniform(1, 2e3, 8e6) as u64;
    let (size_name, sizes) = match draws.below(2, 4) {
        0 => ("fixed", Sizes::Fixed(median)),
        1 => ("exponential", Sizes::Exponential(median)),
        2 => ("log-normal", Sizes::LogNormal(median, 0.5 + 1.5 * draws.unit(3))),
        _ => ("two", Sizes::Two(median, 16 * median, 50 + draws.below(3, 49))),
    };
    let compute = match draws.below(4, 3) {
        0 => 0,
        _ => draws.log_uniform(5, 2e3, 1e7) as u64,
    };
    let mut plan = Plan::new(device, sizes, compute, draws.log_uniform(6, 0.4, 20.0));
    plan.cores = [1, 2, 2, 4, 8][draws.below(7, 5) as usize];
    plan.byte_ns = if draws.below(8, 4) == 0 { draws.log_uniform(9, 0.1, 3.0) } else { 0.0 };
    let order = draws.below(10, 10);
    plan.order = match order {
        0..7 => Order::Device,
        7..9 => Order::Shuffled,
        _ => Order::Walk,
    };
    plan.cached = match draws.below(11, 6) {
        0 => [draws.unit(12); 2],
        1 => [draws.unit(12), draws.unit(13)],
        _ => [0.0; 2],
    };
    let mut change_name = "";
    match draws.below(14, 16) {
        0 => {
            let requests_per_s = draws.log_uniform(15, 300.0, 3000.0);
            plan.change = Some(Change::Cap(Cap {
                requests_per_s,
                bytes_per_s: requests_per_s * 64e3,
                burst_s: draws.unit(16) * 0.2,
            }));
            change_name = " cap changes";
        }
        1 => {
            plan.change = Some(Change::Latency(draws.log_uniform(15, 1e6, 3e7) as u64));
            change_name = " latency rises";
        }
        2 => {
            let readers = 1 + draws.below(15, 4) as u32;
            let think_ns = draws.log_uniform(16, 2e6, 1e8) as u64;
            plan.change = Some(Change::Neighbour(Neighbour { readers, think_ns }));
            change_name = " neighbour joins";
        }
        3 => {
            plan.change = Some(Change::Slower(1.0 + 2.0 * draws.unit(15)));
            change_name = " cores slow down";
        }
        4 => {
            plan.second = Some(drawn_device(draws, 200).1);
            change_name = " crosses devices";
        }
        _ => {}
    }
    let order = ["", " shuffled", " walk"][plan.order as usize];
    let name = format!("{i}: {class} {size_name}{order}{change_name}");
    plan.scenario(name, seed ^ i)
}

/// Draws a device of one of seven classes, with parameters within a factor of two or more of those
/// for design.
fn drawn_device(draws: Draws, from: u64) -> (&'static str, Device) {
    let scale = |i: u64, x: f64, by: f64| draws.log_uniform(from + i, x / by, x * by);
    let time = |i: u64, x: f64, by: f64| scale(i, x, by) as u64;
    let jitter = 0.02 + 0.2 * draws.unit(from + 9);
    let (name, model, cap) = match draws.below(from, 7) {
        0 => {
            let rotation_ns = [8_333_333, 11_111_111][draws.below(from + 1, 2) as usize];
            let bytes_per_s = scale(2, 150e6, 1.6);
            let seek_ns = time(3, 9e6, 1.5);
            let (near_ns, far_ns) = SEEK_NS;
            let bytes = 4 << 40;
            let model = Model::Disk { near_ns, far_ns, seek_ns, rotation_ns, bytes_per_s, bytes };
            ("hdd", model, None)
        }
        class @ 1..3 => {
            let (name, units, times, bus) = if class == 1 {
                ("sata", 8.0, [80e3, 8e3, 30e3], 500e6)
            } else {
                ("nvme", 24.0, [50e3, 1.5e3, 15e3], 4e9)
            };
            let model = Model::Flash {
                units: scale(1, units, 2.0).round() as u32,
                piece_ns: time(2, times[0], 1.7),
                command_ns: time(3, times[1], 1.7),
                firmware_ns: time(4, times[2], 2.0),
                bytes_per_s: scale(5, bus, 1.8),
            };
            (name, model, None)
        }
        3 => {
            let model = Model::Stick {
                hit_ns: time(1, 300e3, 2.0),
                miss_ns: time(2, 2e6, 2.0),
                bytes_per_s: scale(3, 60e6, 2.5),
            };
            ("usb", model, None)
        }
        class @ 4..6 => {
            let model = Model::Network {
                latency_ns: time(1, 2e6, 10.0),
                servers: scale(2, 24.0, 6.0).round() as u32,
                service_ns: time(3, 150e3, 5.0),
                bytes_per_s: scale(4, 800e6, 3.0),
            };
            (if class == 4 { "server" } else { "fuse" }, model, None)
        }
        _ => {
            let model = Model::Network {
                latency_ns: time(1, 500e3, 2.0),
                servers: 64,
                service_ns: time(3, 50e3, 2.0),
                bytes_per_s: 1e9,
            };
            let requests_per_s = scale(5, 2000.0, 5.0);
            let bytes_per_s = scale(6, 150e6, 3.0);
            let burst_s = draws.unit(from + 7) * draws.unit(from + 8) * 2.0;
            ("cloud", model, Some(Cap { requests_per_s, bytes_per_s, burst_s }))
        }
    };
    (name, Device { model, cap, jitter })
}

/// Returns the 24 scenarios that every build runs: every seventh of those for design.
pub fn build() -> Vec<Scenario> {
    design().into_iter().step_by(7).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::rivals::{WINDOW_MAX, create};

    #[test]
    fn the_sets_have_their_sizes_and_distinct_names() {
        for (set, count) in [(design(), 163), (test(), 160), (build(), 24)] {
            assert_eq!(set.len(), count);
            let mut names: Vec<_> = set.iter().map(|scenario| &scenario.name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let scenario = drawn(TEST_SEED, 3);
        assert_eq!(scenario, drawn(TEST_SEED, 3));
        assert_ne!(scenario, drawn(TEST_SEED + 1, 3));
        let run = || {
            let prepared = scenario.prepare();
            let mut auto = create("auto", 2, u64::from(scenario.job.files)).unwrap();
            format!("{:?}", prepared.run(auto.as_mut(), WINDOW_MAX))
        };
        assert_eq!(run(), run());
    }
}

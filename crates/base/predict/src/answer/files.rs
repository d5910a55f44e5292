//! Reading many files and computing on each, on the simulated machine.

use super::profile::{Class, Measured};
use super::{Answer, Beyond, DOUBLING, Limit, Point, UNKNOWN_DEVICE, ladder, one_to};
use crate::PredictError;
use crate::error::at_least_zero;
use crate::machine::rivals::{Fixed, create};
use crate::machine::sample::{self, SAMPLE, Sampled};
use crate::machine::{Device, Job, Model, Order, Outcome, Scenario, Sizes, grid};

/// Files of the sample for all points of a curve but the last.
const SAMPLE_POINT: u32 = 20_000;
/// Most steps and requests of a timeline.
pub const TIMELINE: usize = 20_000;
/// Idle share of the cores below which they are the limit.
const BUSY: f64 = 0.05;

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

/// Answers a question.
///
/// # Errors
/// Fails if a number is out of range, or the device is the measured one and there is none.
pub fn answer(question: &Question) -> Result<Answer, PredictError> {
    let (device, machine) = check(question)?;
    let scenario = |device: Device, files: u32| scenario(question, device, machine, files);
    let simulate = |threads: u32, device: Device, files: u32| {
        let mut fixed = Fixed::new(threads);
        let scenario = scenario(device, files);
        sample::run(&scenario, question.disks, question.files, &mut fixed, threads.max(1))
    };
    let mut points: Vec<Point> = Vec::new();
    let last = question.threads_max;
    for threads in ladder(last) {
        let files = if threads == last { SAMPLE } else { SAMPLE_POINT };
        let middle = simulate(threads, device, files.max(20 * threads));
        let half = SAMPLE_POINT.max(20 * threads);
        let fast = simulate(threads, scaled(device, 1.0 / UNKNOWN_DEVICE), half);
        let slow = simulate(threads, scaled(device, UNKNOWN_DEVICE), half);
        let elapsed_s = middle.elapsed_s;
        points.push(Point {
            threads,
            elapsed_s,
            low_s: fast.elapsed_s.min(middle.interval_s.0).min(elapsed_s),
            high_s: slow.elapsed_s.max(middle.interval_s.1).max(elapsed_s),
            rate_per_s: question.files as f64 / elapsed_s,
            limit: if middle.idle < BUSY { Limit::Compute } else { Limit::Device },
            beyond: question.measured.as_ref().filter(|_| is_measured(question)).map(|m| Beyond {
                threads: (f64::from(threads) / f64::from(m.in_flight_max)).max(1.0),
                files: (question.files as f64 / m.files as f64).max(1.0),
            }),
        });
    }
    let beyond = simulate(last.saturating_mul(2), device, SAMPLE_POINT.max(40 * last)).elapsed_s;
    limits(&mut points, beyond);
    let auto = auto(question)?;
    let mut notes = vec![format!(
        "auto, the controller of the engine, takes {:.3} s here with a window of {} at the end",
        auto.elapsed_s,
        auto.outcome.timeline.last().map_or(0, |moment| moment.window)
    )];
    notes.push(format!(
        "the interval covers a device that is {UNKNOWN_DEVICE} times as fast or slow as its \
         parameters say"
    ));
    if u64::from(auto.simulated) < question.files {
        notes.push(format!(
            "{SAMPLE} files of the last point, and {} of the others, were simulated; the rest \
             continues at their steady rate",
            SAMPLE_POINT.max(20)
        ));
    }
    Ok(Answer {
        question: format!(
            "{} files on {} {} with {} cores",
            question.files,
            question.disks,
            question.class.name(),
            question.cores
        ),
        unit: "files",
        axis: "in flight",
        method: "simulated machine, request by request, by a sample of the job (batch means)"
            .to_owned(),
        parameters: parameters(question),
        enough: Answer::enough(&points),
        points,
        notes,
    })
}

/// Simulates the engine's controller.
fn auto(question: &Question) -> Result<Sampled, PredictError> {
    let (device, machine) = check(question)?;
    let scenario = scenario(question, device, machine, SAMPLE);
    let most = question.threads_max.max(64);
    let mut auto = create("auto", question.cores, question.files).ok_or(PredictError::NoDemand)?;
    Ok(sample::run(&scenario, question.disks, question.files, auto.as_mut(), most))
}

/// Simulates the first files with recorded steps and requests.
///
/// # Errors
/// Fails as [`answer`] does.
pub fn timeline(question: &Question) -> Result<Outcome, PredictError> {
    let (device, machine) = check(question)?;
    let files = question.files.min(TIMELINE as u64 / 4) as u32;
    let scenario = scenario(question, device, machine, files);
    let prepared = scenario.prepare().spread(question.disks, 1.0).record(TIMELINE);
    let threads = question.threads_max;
    Ok(prepared.run(&mut Fixed::new(threads), threads))
}

fn is_measured(question: &Question) -> bool {
    question.class == Class::Measured
}

fn check(question: &Question) -> Result<(Device, crate::machine::Machine), PredictError> {
    one_to("number of files", question.files, u64::MAX)?;
    one_to("number of cores", u64::from(question.cores), 4096)?;
    one_to("number of disks", u64::from(question.disks), 256)?;
    one_to("number of requests in flight", u64::from(question.threads_max), 65_536)?;
    at_least_zero("compute time", question.compute_s)?;
    if !(0.0..=1.0).contains(&question.cached) {
        let (what, value) = ("cached share", question.cached);
        return Err(PredictError::OutOfRange { what, value, accepted: "0 to 1" });
    }
    let machine = grid::machine(question.cores);
    if !is_measured(question) {
        return Ok((question.class.device().ok_or(PredictError::NotCalibrated)?, machine));
    }
    let measured = question.measured.as_ref().ok_or(PredictError::NotCalibrated)?;
    // The parts of a file's processor time keep their shares.
    let own = (machine.open_ns + machine.request_ns + machine.hand_off_ns) as f64;
    let part = |ns: u64| (ns as f64 / own * measured.file_cpu_s * 1e9) as u64;
    let machine = crate::machine::Machine {
        open_ns: part(machine.open_ns),
        request_ns: part(machine.request_ns),
        hand_off_ns: part(machine.hand_off_ns),
        ..machine
    };
    Ok((measured.device()?, machine))
}

fn scenario(
    question: &Question,
    device: Device,
    machine: crate::machine::Machine,
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

/// Returns a device whose times are `factor` times as long.
fn scaled(device: Device, factor: f64) -> Device {
    let ns = |ns: u64| ((ns as f64 * factor) as u64).max(1);
    let model = match device.model {
        Model::Disk { seek_ns, rotation_ns, bytes_per_s, bytes } => Model::Disk {
            seek_ns: ns(seek_ns),
            rotation_ns: ns(rotation_ns),
            bytes_per_s: bytes_per_s / factor,
            bytes,
        },
        Model::Flash { units, piece_ns, command_ns, firmware_ns, bytes_per_s } => Model::Flash {
            units,
            piece_ns: ns(piece_ns),
            command_ns: ns(command_ns),
            firmware_ns: ns(firmware_ns),
            bytes_per_s: bytes_per_s / factor,
        },
        Model::Stick { hit_ns, miss_ns, bytes_per_s } => Model::Stick {
            hit_ns: ns(hit_ns),
            miss_ns: ns(miss_ns),
            bytes_per_s: bytes_per_s / factor,
        },
        Model::Network { latency_ns, servers, service_ns, bytes_per_s } => Model::Network {
            latency_ns: ns(latency_ns),
            servers,
            service_ns: ns(service_ns),
            bytes_per_s: bytes_per_s / factor,
        },
    };
    Device { model, ..device }
}

/// Corrects the limits: where the cores have time and twice the requests in flight are faster, their
/// number is the limit.
fn limits(points: &mut [Point], after_last_s: f64) {
    let times: Vec<f64> = points.iter().map(|point| point.elapsed_s).collect();
    for (i, point) in points.iter_mut().enumerate() {
        let next = times.get(i + 1).copied().unwrap_or(after_last_s);
        if point.limit == Limit::Device && next * (1.0 + DOUBLING) < point.elapsed_s {
            point.limit = Limit::InFlight;
        }
    }
}

fn parameters(question: &Question) -> String {
    match &question.measured {
        Some(measured) if is_measured(question) => format!(
            "probes of this machine: {:.0} µs per cold file with one in flight, {:.1} µs between \
             files with many, {:.0} MB/s, {:.1} µs of processor",
            measured.latency_s * 1e6,
            measured.gap_s * 1e6,
            measured.bytes_per_s / 1e6,
            measured.file_cpu_s * 1e6
        ),
        _ => format!("published, not calibrated: {}", question.class.source()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(class: Class) -> Question {
        Question {
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

    #[test]
    fn one_request_in_flight_takes_the_latency_of_each() {
        let network = answer(&question(Class::Network)).unwrap();
        // 1 ms of network and 0.2 ms of service per file, jitter apart.
        let one = &network.points[0];
        assert!((one.elapsed_s / (4_000.0 * 0.0012) - 1.0).abs() < 0.08, "{one:?}");
        assert_eq!(one.limit, Limit::InFlight);
        assert_eq!(network.enough, 16);
    }

    #[test]
    fn computing_is_the_limit_when_it_takes_longest() {
        let heavy = Question { compute_s: 2e-3, ..question(Class::Nvme) };
        let answer = answer(&heavy).unwrap();
        let last = answer.points.last().unwrap();
        assert_eq!(last.limit, Limit::Compute);
        assert!((last.elapsed_s / 4.0 - 1.0).abs() < 0.1, "{last:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_answer() {
        let ask = || format!("{:?}", answer(&question(Class::Usb)).unwrap());
        assert_eq!(ask(), ask());
        let other = Question { seed: 2, ..question(Class::Usb) };
        assert_ne!(ask(), format!("{:?}", answer(&other).unwrap()));
    }

    #[test]
    fn a_timeline_has_steps_and_requests() {
        let outcome = timeline(&Question { files: 100, ..question(Class::Sata) }).unwrap();
        assert_eq!(outcome.sent.len(), 100);
        assert!(outcome.steps.len() >= 200, "{}", outcome.steps.len());
        assert!(outcome.sent.iter().all(|sent| sent.issue_ns < sent.end_ns));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let bad = [
            Question { compute_s: -1.0, ..question(Class::Hdd) },
            Question { cached: 1.5, ..question(Class::Hdd) },
            Question { files: 0, ..question(Class::Hdd) },
            Question { disks: 257, ..question(Class::Hdd) },
        ];
        for question in bad {
            assert!(answer(&question).is_err(), "{question:?}");
        }
        assert_eq!(answer(&question(Class::Measured)), Err(PredictError::NotCalibrated));
    }
}

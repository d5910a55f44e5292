//! Reading many files and computing on each, on the simulated machine.

use super::fitting::{fixed_parts, parts};
pub use super::question::Question;
use super::question::{PIECES_MAX, active_disks, is_measured, mean, pieces, roomy, scenario};
use super::{
    Answer, Beyond, DOUBLING, FELT, IN_FLIGHT_MAX, Limit, Point, UNKNOWN_DEVICE, format_time,
    ladder, one_to, probes,
};
use crate::PredictError;
use crate::error::at_least_zero;
use crate::machine::rivals::{Fixed, create};
use crate::machine::sample::{self, SAMPLE, Sampled};
use crate::machine::{CHUNK, Device, Machine, Model, Order, Outcome, Sizes};
use ioloom_model::units::format_counted;
use std::collections::BTreeMap;

/// Files of the sample for all points of a curve but the last.
const SAMPLE_POINT: u32 = 20_000;
/// Most steps and requests of a timeline.
pub const TIMELINE: usize = 20_000;
/// Largest mean size, in bytes: 1024 TiB.
pub const BYTES_MAX: u64 = 1 << 50;
/// Longest mean compute time, in seconds: a year.
const COMPUTE_MAX_S: f64 = 366.0 * 86_400.0;

/// Answers a question.
///
/// # Errors
/// Fails if a number is out of range, or the device is the measured one and there is none, or its probes do
/// not show the order or the size of the files.
pub fn answer(asked: &Question) -> Result<Answer, PredictError> {
    check(asked)?;
    let (question, parts_each) = &divided(asked)?;
    let pieces = pieces(question);
    let mut runs = Runs { question, pieces, times: BTreeMap::new() };
    let mut points: Vec<Point> = Vec::new();
    let last = question.threads_max;
    for threads in ladder(last) {
        let files = if threads == last { SAMPLE } else { SAMPLE_POINT };
        let parts = parts(question, threads)?;
        let middle = runs.run(threads, parts, runs.files(files, threads));
        let (felt, [fast_s, slow_s]) =
            runs.varied(threads, parts, runs.files(SAMPLE_POINT, threads));
        let elapsed_s = middle.elapsed_s;
        runs.keep(threads, runs.files(files, threads), elapsed_s);
        points.push(Point {
            threads,
            elapsed_s,
            low_s: fast_s.min(middle.interval_s.0).min(elapsed_s),
            high_s: slow_s.max(middle.interval_s.1).max(elapsed_s),
            rate_per_s: asked.files as f64 / elapsed_s,
            limit: match felt < FELT {
                true => Limit::Compute,
                false => Limit::Device,
            },
            beyond: beyond(asked, threads),
        });
    }
    runs.limits(&mut points)?;
    let notes = notes(question, *parts_each, pieces)?;
    Ok(Answer {
        question: format!(
            "{} on {} {} with {}",
            format_counted(asked.files, "file", "files"),
            question.disks,
            question.class.name(),
            format_counted(u64::from(question.cores), "core", "cores")
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

/// Runs of a question, with the elapsed times of those that are compared.
struct Runs<'a> {
    question: &'a Question,
    pieces: u32,
    /// By requests in flight and simulated files.
    times: BTreeMap<(u32, u64), f64>,
}

impl Runs<'_> {
    /// Returns the files of a sample: enough requests for many rounds of all threads, and at least two files
    /// for each.
    fn files(&self, files: u32, threads: u32) -> u32 {
        let rounds = (20 * threads / self.pieces).max(2 * threads);
        (files / self.pieces).max(rounds)
    }

    fn run(&self, threads: u32, (device, machine): (Device, Machine), files: u32) -> Sampled {
        let question = self.question;
        let mut fixed = Fixed::new(threads);
        let scenario = scenario(question, device, roomy(machine, threads), files);
        sample::run(&scenario, question.disks, question.files, &mut fixed, threads.max(1))
    }

    /// Returns which share of a change of the device is felt, and the elapsed times of a fast and a slow
    /// machine. The processor times of the measured device are as uncertain as its own.
    fn varied(
        &self,
        threads: u32,
        (device, machine): (Device, Machine),
        files: u32,
    ) -> (f64, [f64; 2]) {
        let both = [1.0 / UNKNOWN_DEVICE, UNKNOWN_DEVICE];
        let elapsed_s = |device, machine| self.run(threads, (device, machine), files).elapsed_s;
        let ends = both.map(|factor| elapsed_s(scaled(device, factor), machine));
        let felt = felt(ends[0], ends[1]);
        match is_measured(self.question) {
            true => (felt, both.map(|f| elapsed_s(scaled(device, f), costing(machine, f)))),
            false => (felt, ends),
        }
    }

    /// Keeps the elapsed time of a run.
    fn keep(&mut self, threads: u32, files: u32, elapsed_s: f64) {
        self.times.insert((threads, u64::from(files).min(self.question.files)), elapsed_s);
    }

    /// Returns the elapsed time of a run with so many files, and runs it unless it is kept.
    fn elapsed_s(&mut self, threads: u32, files: u32) -> Result<f64, PredictError> {
        let key = (threads, u64::from(files).min(self.question.files));
        if let Some(elapsed_s) = self.times.get(&key) {
            return Ok(*elapsed_s);
        }
        let elapsed_s = self.run(threads, parts(self.question, threads)?, files).elapsed_s;
        self.times.insert(key, elapsed_s);
        Ok(elapsed_s)
    }

    /// Corrects the limits: where twice the requests in flight are faster, their number is the limit. Only
    /// runs of the same files are compared.
    fn limits(&mut self, points: &mut [Point]) -> Result<(), PredictError> {
        for point in points {
            let more = point.threads.saturating_mul(2);
            let files = self.files(SAMPLE_POINT, more);
            let after_s = self.elapsed_s(more, files)?;
            if after_s * (1.0 + DOUBLING) < self.elapsed_s(point.threads, files)? {
                point.limit = Limit::InFlight;
            }
        }
        Ok(())
    }
}

/// Returns how far a number in flight is beyond the probes of the measured device.
fn beyond(asked: &Question, threads: u32) -> Option<Beyond> {
    let m = asked.measured.as_ref().filter(|_| is_measured(asked))?;
    let each = threads.div_ceil(active_disks(asked, threads));
    let bytes = mean(asked.sizes) as f64;
    Some(Beyond {
        threads: (f64::from(each) / f64::from(m.in_flight_max())).max(1.0),
        files: m.reads_beyond(asked.files as f64, bytes),
        disks: f64::from(asked.disks.max(1)),
        size: m.size_beyond(bytes, &m.medium_s, &m.large_s),
        ..Beyond::INSIDE
    })
}

/// Returns further remarks on an answer.
fn notes(question: &Question, parts_each: u64, pieces: u32) -> Result<Vec<String>, PredictError> {
    let (auto, window) = auto(question)?;
    let mut notes = vec![format!(
        "auto, the controller of the engine, takes {} here with a window of {window} at the end",
        format_time(auto.elapsed_s)
    )];
    notes.push(match is_measured(question) {
        true => format!(
            "the interval covers reads whose times at the device and on the processors are \
             {UNKNOWN_DEVICE} times as long or short as in the probes; the compute time counts as exact"
        ),
        false => format!(
            "the interval covers a device that is {UNKNOWN_DEVICE} times as fast or slow as its \
             parameters say; processor times count as exact"
        ),
    });
    if u64::from(auto.simulated) < question.files {
        notes.push(format!(
            "at least {} files of the last point, and {} of the others, were simulated; the rest \
             continues at their steady rate",
            SAMPLE / pieces,
            SAMPLE_POINT / pieces
        ));
    }
    notes.extend(full(question));
    if parts_each > 1 {
        notes.push(format!("each file is simulated as {parts_each} files of equal size"));
    }
    Ok(notes)
}

/// Returns the remark that the files do not fit on the disks, if they do not.
fn full(question: &Question) -> Option<String> {
    let Model::Disk { bytes, .. } = question.class.device()?.model else { return None };
    let each = question.files as f64 * mean(question.sizes) as f64 / f64::from(question.disks);
    let tib = |bytes: f64| bytes / (1u64 << 40) as f64;
    (each > bytes as f64).then(|| {
        format!(
            "the files need {:.1} TiB per disk and do not fit on the simulated one of {:.0} TiB; seeks \
             count as across the whole disk",
            tib(each),
            tib(bytes as f64)
        )
    })
}

/// Returns the same work with files that can be simulated piece by piece, and how many of them make up
/// one file.
fn divided(asked: &Question) -> Result<(Question, u64), PredictError> {
    let parts = mean(asked.sizes).div_ceil(PIECES_MAX * CHUNK).max(1);
    let sizes = match asked.sizes {
        Sizes::Fixed(bytes) => Sizes::Fixed(bytes / parts),
        Sizes::Exponential(bytes) => Sizes::Exponential(bytes / parts),
        other => return Ok((Question { sizes: other, ..asked.clone() }, 1)),
    };
    let files = asked.files.checked_mul(parts).ok_or(PredictError::OutOfRange {
        what: "number of files times their mean size in pieces of 64 MiB",
        value: asked.files as f64 * parts as f64,
        accepted: "below 1.8e19",
    })?;
    let compute_s = asked.compute_s / parts as f64;
    Ok((Question { files, sizes, compute_s, ..asked.clone() }, parts))
}

/// Returns which share of a change of the device is seen in the elapsed time, from those with a fast and a slow
/// device. It is small where the cores are the limit, also in a job of a few files whose end is long.
fn felt(fast_s: f64, slow_s: f64) -> f64 {
    (slow_s / fast_s).ln() / (2.0 * UNKNOWN_DEVICE.ln())
}

/// Simulates the engine's controller; returns the run and the last window. The parts of the measured device
/// depend on the number in flight, so a first run finds the window for which they are fitted.
fn auto(question: &Question) -> Result<(Sampled, u32), PredictError> {
    let first = steered(question, fixed_parts(question)?)?;
    match is_measured(question) {
        true => steered(question, parts(question, first.1)?),
        false => Ok(first),
    }
}

/// Simulates the engine's controller on a device and machine.
fn steered(
    question: &Question,
    (device, machine): (Device, Machine),
) -> Result<(Sampled, u32), PredictError> {
    let scenario = scenario(question, device, machine, SAMPLE / pieces(question));
    let most = question.threads_max.max(64);
    let mut auto = create("auto", question.cores, question.files).ok_or(PredictError::NoDemand)?;
    let run = sample::run(&scenario, question.disks, question.files, auto.as_mut(), most);
    Ok((run, auto.window().clamp(1, most)))
}

/// Simulates the first files with recorded steps and requests.
///
/// # Errors
/// Fails as [`answer`] does.
pub fn timeline(asked: &Question) -> Result<Outcome, PredictError> {
    check(asked)?;
    let (question, _) = &divided(asked)?;
    let threads = question.threads_max;
    let (device, machine) = parts(question, threads)?;
    let files = question.files.min(TIMELINE as u64 / 4 / u64::from(pieces(question))).max(1);
    let scenario = scenario(question, device, roomy(machine, threads), files as u32);
    let prepared = sample::prepare(&scenario, question.disks, question.files).record(TIMELINE);
    Ok(prepared.run(&mut Fixed::new(threads), threads))
}

fn check(question: &Question) -> Result<(), PredictError> {
    one_to("number of files", question.files, u64::MAX)?;
    one_to("number of cores", u64::from(question.cores), 4096)?;
    one_to("number of disks", u64::from(question.disks), 256)?;
    one_to(
        "number of requests in flight",
        u64::from(question.threads_max),
        u64::from(IN_FLIGHT_MAX),
    )?;
    one_to("mean file size", mean(question.sizes), BYTES_MAX)?;
    let value = at_least_zero("compute time", question.compute_s)?;
    if value > COMPUTE_MAX_S {
        let (what, accepted) = ("compute time in seconds", "at most a year");
        return Err(PredictError::OutOfRange { what, value, accepted });
    }
    if !(0.0..=1.0).contains(&question.cached) {
        let (what, value) = ("cached share", question.cached);
        return Err(PredictError::OutOfRange { what, value, accepted: "0 to 1" });
    }
    if is_measured(question) {
        let found = question.measured.as_ref().ok_or(PredictError::NotCalibrated)?;
        found.check_cores(question.cores)?;
        if question.order != Order::Device {
            return Err(PredictError::UnknownOrder);
        }
        found.check_size(mean(question.sizes), [&found.medium_s, &found.large_s])?;
    }
    Ok(())
}

/// Returns a device whose times are `factor` times as long.
fn scaled(device: Device, factor: f64) -> Device {
    let ns = |ns: u64| ((ns as f64 * factor) as u64).max(1);
    let model = match device.model {
        Model::Disk { near_ns, far_ns, seek_ns, rotation_ns, bytes_per_s, bytes } => Model::Disk {
            near_ns: ns(near_ns),
            far_ns: ns(far_ns),
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

/// Returns a machine on which reading costs `factor` times as much processor time.
fn costing(machine: Machine, factor: f64) -> Machine {
    let ns = |ns: u64| (ns as f64 * factor) as u64;
    Machine {
        open_ns: ns(machine.open_ns),
        request_ns: ns(machine.request_ns),
        hand_off_ns: ns(machine.hand_off_ns),
        byte_ns: machine.byte_ns * factor,
        ..machine
    }
}

fn parameters(question: &Question) -> String {
    match &question.measured {
        Some(measured) if is_measured(question) => format!(
            "probes of this machine: {} files of {} bytes, {}; {:.1} µs of processor",
            measured.cold_files,
            measured.file_bytes,
            probes(&measured.cold_s),
            measured.file_cpu_s * 1e6
        ),
        _ => format!("published, not calibrated: {}", question.class.source()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Class;
    use super::*;
    use crate::machine::Work;

    fn question(class: Class) -> Question {
        Question::of_small_files(class)
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
    fn the_limit_follows_from_twice_as_many_at_each_point() {
        let asked = Question { threads_max: 33, ..question(Class::Network) };
        let points = answer(&asked).unwrap().points;
        let [.., before, last] = &points[..] else { panic!("two points at least") };
        assert_eq!((before.threads, last.threads), (32, 33));
        // The next point is about 3 % faster, and twice as many are about 50 % faster.
        assert_eq!([before.limit, last.limit], [Limit::InFlight; 2]);
    }

    #[test]
    fn computing_is_the_limit_when_it_takes_longest() {
        let heavy = Question { compute_s: 2e-3, ..question(Class::Nvme) };
        let answer = answer(&heavy).unwrap();
        let last = answer.points.last().unwrap();
        assert_eq!(last.limit, Limit::Compute);
        assert!((last.elapsed_s / 4.0 - 1.0).abs() < 0.1, "{last:?}");
    }

    /// Times of a few large files vary with their number more than a gain by requests in flight.
    #[test]
    fn computing_is_the_limit_with_every_seed() {
        for seed in 0..8 {
            let asked = Question {
                seed,
                files: 10_000,
                sizes: Sizes::Fixed(64 << 20),
                compute_s: 1.0,
                threads_max: 16,
                ..question(Class::Nvme)
            };
            let last = answer(&asked).unwrap().points.split_off(3);
            assert!(last.iter().all(|point| point.limit == Limit::Compute), "{seed}: {last:?}");
        }
    }

    #[test]
    fn a_job_shorter_than_a_batch_has_a_limit_and_a_window() {
        let short = Question { files: 100, compute_s: 100e-6, cores: 8, ..question(Class::Nvme) };
        let answer = answer(&short).unwrap();
        assert_eq!(answer.points.last().unwrap().limit, Limit::Compute);
        assert!(!answer.notes[0].contains("window of 0"), "{:?}", answer.notes);
    }

    #[test]
    fn the_controller_is_as_fast_as_the_curve_of_the_measured_device() {
        let cold = vec![(1, 80e-6), (4, 30e-6), (64, 12e-6)];
        let measured = Some(super::super::fitting::tests::probed(cold));
        let small = Question { measured, ..question(Class::Measured) };
        let cached = Question { cached: 1.0, ..small.clone() };
        let large = Question { files: 300, sizes: Sizes::Fixed(1 << 20), ..small };
        for asked in [cached, large] {
            let (run, window) = auto(&asked).unwrap();
            let points = answer(&asked).unwrap().points;
            let near = points.iter().min_by_key(|point| point.threads.abs_diff(window)).unwrap();
            let interval = near.low_s..=near.high_s;
            assert!(interval.contains(&run.elapsed_s), "{} {window} {near:?}", run.elapsed_s);
        }
    }

    #[test]
    fn one_file_and_one_core_are_singular_and_short_times_are_not_zero() {
        let one = Question { files: 1, cores: 1, ..question(Class::Nvme) };
        let answer = answer(&one).unwrap();
        assert_eq!(answer.question, "1 file on 1 nvme with 1 core");
        assert!(answer.notes[0].contains(" µs here"), "{:?}", answer.notes);
    }

    #[test]
    fn memory_does_not_limit_the_requests_in_flight() {
        let wide = Question {
            disks: 256,
            cores: 32,
            sizes: Sizes::Fixed(1 << 20),
            files: 4_000,
            threads_max: 512,
            ..question(Class::Network)
        };
        let answer = answer(&wide).unwrap();
        let [.., one, twice] = &answer.points[..] else { panic!("two points at least") };
        assert!(twice.elapsed_s < 0.8 * one.elapsed_s, "{one:?} {twice:?}");
    }

    #[test]
    fn a_timeline_shows_the_divided_files_of_the_answer() {
        let sizes = Sizes::Fixed(1 << 40);
        let asked = Question { files: 4, sizes, compute_s: 1024.0, ..question(Class::Nvme) };
        let outcome = timeline(&asked).unwrap();
        // 1,024 s of computing for 2^20 requests of 1 MiB.
        let computed = outcome.steps.iter().filter(|step| step.work == Work::Compute);
        let each: Vec<u64> = computed.map(|step| step.end_ns - step.start_ns).collect();
        let mean_s = each.iter().sum::<u64>() as f64 / each.len() as f64 / 1e9;
        assert!((mean_s / (1024.0 / f64::from(1 << 20)) - 1.0).abs() < 0.5, "{mean_s}");
        assert!(outcome.completed <= TIMELINE / 4 + 64, "{}", outcome.completed);
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
    fn a_slower_disk_takes_longer_by_its_factor() {
        let order = Order::Shuffled;
        let asked = Question { order, threads_max: 1, ..question(Class::Hdd) };
        let point = answer(&asked).unwrap().points.pop().unwrap();
        for (end, factor) in [(point.low_s, 1.0 / UNKNOWN_DEVICE), (point.high_s, UNKNOWN_DEVICE)] {
            assert!((end / point.elapsed_s / factor - 1.0).abs() < 0.02, "{point:?}");
        }
    }

    #[test]
    fn all_points_seek_across_all_files() {
        let (order, files) = (Order::Shuffled, 100_000_000);
        let first = |threads_max| {
            let asked = Question { order, files, threads_max, ..question(Class::Hdd) };
            answer(&asked).unwrap().points.remove(0)
        };
        let (last, other) = (first(1), first(2));
        assert!((other.elapsed_s / last.elapsed_s - 1.0).abs() < 0.02, "{other:?} {last:?}");
        let middle = (last.low_s * last.high_s).sqrt();
        assert!((middle / last.elapsed_s - 1.0).abs() < 0.02, "{last:?}");
    }

    #[test]
    fn a_timeline_seeks_across_all_files() {
        let (order, files) = (Order::Shuffled, 100_000_000);
        let asked = Question { order, files, threads_max: 1, ..question(Class::Hdd) };
        let point = answer(&asked).unwrap().points.remove(0);
        let outcome = timeline(&asked).unwrap();
        let each_s = outcome.ns as f64 / 1e9 / outcome.completed as f64;
        assert!((each_s * point.rate_per_s - 1.0).abs() < 0.05, "{each_s} {point:?}");
    }

    #[test]
    fn files_that_do_not_fit_on_the_disk_have_a_note() {
        let noted = |files, disks| {
            let (sizes, hdd) = (Sizes::Fixed(1 << 30), question(Class::Hdd));
            let asked = Question { files, disks, sizes, threads_max: 1, ..hdd };
            answer(&asked).unwrap().notes.iter().any(|note| note.contains("do not fit"))
        };
        assert!(noted(4096, 1));
        assert!(!noted(4096, 2));
    }

    #[test]
    fn large_files_take_their_bytes_over_the_bandwidth() {
        for (files, bytes) in [(2, 10 << 30), (40, 1 << 30), (3, 1 << 40)] {
            let sizes = Sizes::Fixed(bytes);
            let asked = Question { files, sizes, threads_max: 64, ..question(Class::Sata) };
            let last = answer(&asked).unwrap().points.pop().unwrap();
            let law = files as f64 * bytes as f64 / 530e6;
            assert!((last.elapsed_s / law - 1.0).abs() < 0.05, "{bytes}: {last:?} {law}");
            assert!((last.rate_per_s * last.elapsed_s / files as f64 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_thousand_cores_compute_a_thousand_files_at_once() {
        let wide = Question {
            cores: 1000,
            threads_max: 1024,
            compute_s: 0.1,
            disks: 64,
            ..question(Class::Nvme)
        };
        let answer = answer(&Question { files: 20_000, ..wide }).unwrap();
        let last = answer.points.last().unwrap();
        // 2 s of computing, and the last of a thousand exponential times.
        assert!((2.0..2.9).contains(&last.elapsed_s), "{last:?}");
        assert_eq!(last.limit, Limit::Compute);
        assert_eq!(answer.points[0].threads, 1);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let bad = [
            Question { compute_s: -1.0, ..question(Class::Hdd) },
            Question { cached: 1.5, ..question(Class::Hdd) },
            Question { files: 0, ..question(Class::Hdd) },
            Question { disks: 257, ..question(Class::Hdd) },
            Question { sizes: Sizes::Fixed(0), ..question(Class::Hdd) },
            Question { sizes: Sizes::Exponential(u64::MAX), ..question(Class::Hdd) },
            Question { compute_s: 1e9, ..question(Class::Hdd) },
            Question {
                files: u64::MAX / 2,
                sizes: Sizes::Fixed(BYTES_MAX),
                ..question(Class::Hdd)
            },
            Question { compute_s: f64::NAN, ..question(Class::Hdd) },
            Question { compute_s: f64::INFINITY, ..question(Class::Hdd) },
        ];
        for question in bad {
            assert!(answer(&question).is_err(), "{question:?}");
        }
        assert_eq!(answer(&question(Class::Measured)), Err(PredictError::NotCalibrated));
    }
}

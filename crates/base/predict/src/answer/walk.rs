//! A walk over a tree on other media, with other threads, and with other numbers of files.

use super::profile::{Class, Measured};
use super::{
    Answer, Beyond, COVERED, DOUBLING, IN_FLIGHT_MAX, Limit, Point, UNKNOWN_DEVICE, at_once,
    covering, ladder, one_to, probes,
};
use crate::PredictError;
use crate::knee::{self, Knee};
use crate::network::{Network, Station};
use crate::walk_media::{self, FILES, HALF_THREADS, Medium};
use crate::{WalkModel, machine::Model};
use ioloom_model::units::format_counted;
use std::collections::BTreeMap;

/// Most threads of the published walks.
const THREADS: f64 = 256.0;
/// Cores of their machine.
const CORES: u32 = 8;
/// Inodes in a block of 4 KiB of ext4, with inodes of 256 bytes.
const INODES_PER_BLOCK: f64 = 16.0;

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The class of the device.
    pub class: Class,
    /// The probes of this machine.
    pub measured: Option<Measured>,
    /// Files in the tree.
    pub files: u64,
    /// Most threads.
    pub threads_max: u32,
    /// Cores; `None` for those of the calibration.
    pub cores: Option<u32>,
}

/// A walk of one file: stations and what is known about them.
struct Law {
    model: WalkModel,
    /// Servers of the device.
    servers: u32,
    /// Time at the device that does not queue, in seconds.
    delay_s: f64,
    /// Files and threads of the calibration.
    calibrated: Option<(f64, f64)>,
    parameters: String,
}

/// Answers a question.
///
/// # Errors
/// Fails if a number is out of range, or the device is the measured one and there is none.
pub fn answer(question: &Question) -> Result<Answer, PredictError> {
    one_to("number of files", question.files, u64::MAX)?;
    one_to("number of threads", u64::from(question.threads_max), u64::from(IN_FLIGHT_MAX))?;
    if question.class == Class::Measured {
        return measured(question);
    }
    let law = law(question)?;
    let error = held_out_error()?;
    let files = question.files as f64;
    let mut points = Vec::new();
    let mut rates = Rates::new(&law, question.cores);
    for threads in ladder(question.threads_max) {
        let busy = at_once(threads, question.files);
        let elapsed_s = files / rates.of(busy)?;
        let beyond = law.calibrated.map(|(known_files, known_threads)| Beyond {
            threads: (f64::from(threads) / known_threads).max(1.0),
            files: (files / known_files).max(1.0),
            cores: cores_beyond(question.cores),
            ..Beyond::INSIDE
        });
        // A factor of two beyond the calibrated threads adds the error once more, and one beyond the
        // files half of it.
        let half = match beyond {
            Some(Beyond { threads, files, .. }) => {
                error * (1.0 + threads.log2() + 0.5 * files.log2())
            }
            None => UNKNOWN_DEVICE.ln() * 2.0,
        } + error * cores_beyond(question.cores).log2();
        points.push(Point {
            threads,
            elapsed_s,
            low_s: elapsed_s * (-half).exp(),
            high_s: elapsed_s * half.exp(),
            rate_per_s: files / elapsed_s,
            limit: rates.limit(busy)?,
            beyond,
        });
    }
    Ok(Answer {
        question: walk_of(question),
        unit: "files",
        axis: "threads",
        method: "closed network of processor and device, solved exactly by convolution".to_owned(),
        parameters: law.parameters,
        enough: Answer::enough(&points),
        points,
        notes: match law.calibrated {
            Some(_) => {
                let cores = cores_note(question.cores);
                std::iter::once(interval_note(error)).chain(cores).collect()
            }
            None => vec![assumed_note(error, question.cores)],
        },
    })
}

/// Returns by which factor a number of cores differs from that of the calibration.
fn cores_beyond(cores: Option<u32>) -> f64 {
    let factor = f64::from(cores.unwrap_or(CORES).max(1)) / f64::from(CORES);
    factor.max(1.0 / factor)
}

/// Returns what is to be said about a number of cores that was asked for.
fn cores_note(cores: Option<u32>) -> Option<String> {
    let cores = cores?;
    Some(match cores {
        CORES => format!("{cores} cores, as in the calibration, without its hardware threads"),
        _ => format!(
            "computed for {}; the calibration has {CORES}, so all points are beyond it by a factor of \
             {:.1} in cores, and the interval is wider",
            format_counted(u64::from(cores), "core", "cores"),
            cores_beyond(Some(cores))
        ),
    })
}

fn walk_of(question: &Question) -> String {
    let files = format_counted(question.files, "file", "files");
    format!("walk of {files} on {}", question.class.name())
}

/// Answers for this machine, from its probes.
fn measured(question: &Question) -> Result<Answer, PredictError> {
    let found = question.measured.as_ref().ok_or(PredictError::NotCalibrated)?;
    question.cores.map_or(Ok(()), |cores| found.check_cores(cores))?;
    let (files, cores) = (question.files as f64, f64::from(found.cores));
    let knee = Knee::fit_busy(&found.walk_s, found.busy.walk)?;
    let most = found.walk_s.iter().map(|(n, _)| *n).max().map_or(1.0, f64::from);
    let error = curve_error()?;
    let mut points = Vec::new();
    for threads in ladder(question.threads_max) {
        let busy = at_once(threads, question.files);
        let each_s = knee.seconds(busy);
        let beyond = Beyond {
            threads: (f64::from(threads) / most).max(1.0),
            files: (files / found.walk_files as f64).max(1.0),
            ..Beyond::INSIDE
        };
        let half = error * (1.0 + beyond.threads.log2() + 0.5 * beyond.files.log2());
        let cpu_s = found.threaded_walk_cpu_s(f64::from(busy))?;
        let limit = if cpu_s > 0.9 * each_s * cores.min(f64::from(busy)) {
            Limit::Compute
        } else if knee.seconds(busy.saturating_mul(2)) * (1.0 + DOUBLING) < each_s {
            Limit::InFlight
        } else {
            Limit::Metadata
        };
        points.push(Point {
            threads,
            elapsed_s: files * each_s,
            low_s: files * each_s * (-half).exp(),
            high_s: files * each_s * half.exp(),
            rate_per_s: 1.0 / each_s,
            limit,
            beyond: Some(beyond),
        });
    }
    Ok(Answer {
        question: walk_of(question),
        unit: "files",
        axis: "threads",
        method: "latency and gap between completions, fitted to probes".to_owned(),
        parameters: format!(
            "probes of this machine: a walk of {} files, {} threads",
            found.walk_files,
            probes(&found.walk_s)
        ),
        enough: Answer::enough(&points),
        points,
        notes: vec![curve_note(error)],
    })
}

fn interval_note(error: f64) -> String {
    format!(
        "the interval covers {:.0} % of the held-out errors of source 001 (±{:.1} %), and more \
         beyond the calibration",
        100.0 * COVERED,
        100.0 * error
    )
}

/// Returns the remark on the interval of a device that no source walked. Its processor is that of source 001.
fn assumed_note(error: f64, cores: Option<u32>) -> String {
    let factor = (UNKNOWN_DEVICE.ln() * 2.0 + error * cores_beyond(cores).log2()).exp();
    let computed = match cores {
        Some(cores) if cores != CORES => format!(
            ", computed for {}; the processor of source 001 has {CORES}, so the interval is wider",
            format_counted(u64::from(cores), "core", "cores")
        ),
        _ => String::new(),
    };
    format!(
        "no walk of this device was measured: the interval covers times {factor:.2} times as long or \
         short{computed}"
    )
}

/// Returns the remark on the interval of the measured device.
fn curve_note(error: f64) -> String {
    format!(
        "the interval covers {:.0} % of the errors of this curve on the ladders of source 001 and \
         results/study-walk-ladder, each from 1, 4 and 64 threads (±{:.1} %), and more beyond the \
         calibration; the form of the curve was chosen on these ladders",
        100.0 * COVERED,
        100.0 * error
    )
}

/// Rates by the number of threads, each solved once.
struct Rates<'a> {
    law: &'a Law,
    cores: Option<u32>,
    known: BTreeMap<u32, f64>,
}

impl<'a> Rates<'a> {
    const fn new(law: &'a Law, cores: Option<u32>) -> Self {
        Self { law, cores, known: BTreeMap::new() }
    }

    /// Returns the stations with so many threads.
    fn stations(&self, threads: u32) -> Vec<Station> {
        network(self.law, self.cores, threads)
    }

    /// Returns the rate in files per second.
    fn of(&mut self, threads: u32) -> Result<f64, PredictError> {
        if let Some(rate) = self.known.get(&threads) {
            return Ok(*rate);
        }
        let rate = Network::new(self.stations(threads))?.rate_per_s(threads);
        self.known.insert(threads, rate);
        Ok(rate)
    }

    /// Reports whether twice the threads are faster by more than [`DOUBLING`]. Their rate is solved only
    /// if its upper bound does not answer that.
    fn gains(&mut self, threads: u32) -> Result<bool, PredictError> {
        let least = self.of(threads)? * (1.0 + DOUBLING);
        let twice = threads.saturating_mul(2);
        Ok(highest_per_s(&self.stations(twice), twice) > least && self.of(twice)? > least)
    }

    fn limit(&mut self, threads: u32) -> Result<Limit, PredictError> {
        let one = self.of(threads)?;
        let stations = self.stations(threads);
        let busy = |station: &Station, servers: f64| one * station.demand_s() / servers;
        let device = busy(&stations[1], f64::from(self.law.servers));
        let speed = stations[0].speed(threads);
        Ok(if device > 0.9 {
            Limit::Metadata
        } else if self.gains(threads)? {
            Limit::InFlight
        } else if busy(&stations[0], speed) > device {
            Limit::Compute
        } else {
            Limit::Metadata
        })
    }
}

/// Returns an upper bound of the rate: that of the slowest station if all threads were at it. Speeds rise or
/// fall steadily with the threads, so the highest is that of one thread or of all.
fn highest_per_s(stations: &[Station], threads: u32) -> f64 {
    let highest = |s: &Station| s.speed(1).max(s.speed(threads)) / s.demand_s();
    stations.iter().map(highest).fold(f64::INFINITY, f64::min)
}

/// Returns the processor and the device for one file, and what delays it without a queue.
fn network(law: &Law, cores: Option<u32>, threads: u32) -> Vec<Station> {
    let WalkModel { cpu_s, contention, .. } = law.model;
    let processor = match cores {
        Some(cores) => Station::Cores { demand_s: cpu_s, cores, contention },
        None => Station::Shared { demand_s: cpu_s, contention },
    };
    let demand_s = law.model.device_s_with(threads);
    let mut all = vec![processor, Station::Servers { demand_s, servers: law.servers }];
    if law.delay_s > 0.0 {
        all.push(Station::Delay { demand_s: law.delay_s });
    }
    all
}

/// Returns the quantile [`COVERED`] of the absolute held-out errors of source 001.
fn held_out_error() -> Result<f64, PredictError> {
    let mut errors = Vec::new();
    for (medium, model) in walk_media::held_out()? {
        for (threads, cell) in &medium.cells {
            if !walk_media::PROBES.contains(threads) {
                errors.push(cell.error(model.elapsed_s(*threads)?).abs());
            }
        }
    }
    Ok(covering(errors))
}

/// Returns the quantile [`COVERED`] of the absolute errors of the curve of the measured device, on the media
/// of source 001 and the kept walks of this project.
fn curve_error() -> Result<f64, PredictError> {
    let mut errors = Vec::new();
    for medium in walk_media::media()? {
        let ladder: Vec<(u32, f64)> = medium.cells.iter().map(|(n, c)| (*n, c.value)).collect();
        // How busy the processors were is not published.
        errors.extend(knee::errors(&ladder, 0.0)?);
    }
    for (busy, ladder) in &knee::KEPT_WALKS {
        errors.extend(knee::errors(ladder, *busy)?);
    }
    Ok(covering(errors.into_iter().map(f64::abs).collect()))
}

/// Divides the times of a whole walk by its files.
fn per_file(model: WalkModel, files: f64) -> WalkModel {
    WalkModel { cpu_s: model.cpu_s / files, device_s: model.device_s / files, ..model }
}

fn law(question: &Question) -> Result<Law, PredictError> {
    let media = walk_media::media()?;
    let all: Vec<&Medium> = media.iter().collect();
    let (shared, models, _) = walk_media::together(&all)?;
    let name = match question.class {
        Class::Hdd => "hdd",
        Class::Usb => "usb2",
        _ => "nvme",
    };
    let at = media.iter().position(|medium| medium.name == name).unwrap_or(0);
    let fitted = per_file(models[at], FILES);
    if matches!(question.class, Class::Hdd | Class::Usb | Class::Nvme) {
        return Ok(Law {
            model: fitted,
            servers: 1,
            delay_s: 0.0,
            calibrated: Some((FILES, THREADS)),
            parameters: format!(
                "source 001, medium {name}: {:.2} µs of processor and {:.2} µs of device per file, \
                 contention {:.3}, 8 cores with 16 hardware threads",
                fitted.cpu_s * 1e6,
                fitted.device_s * 1e6,
                shared.contention.0
            ),
        });
    }
    uncalibrated(question.class, fitted)
}

/// A walk on a class that no source walked: the processor of source 001, and the device by its data
/// sheet, with one request per block of inodes, or one per file over a network. Latencies and firmware
/// delay each request at the same time.
fn uncalibrated(class: Class, nvme: WalkModel) -> Result<Law, PredictError> {
    let device = class.device().ok_or(PredictError::NotCalibrated)?;
    let (service_ns, delay_ns, servers, each) = match device.model {
        Model::Flash { units, piece_ns, firmware_ns, .. } => {
            (piece_ns, firmware_ns, units, INODES_PER_BLOCK)
        }
        Model::Network { latency_ns, servers, service_ns, .. } => {
            (service_ns, latency_ns, servers, 1.0)
        }
        _ => return Err(PredictError::NotCalibrated),
    };
    let model = WalkModel {
        device_s: service_ns as f64 / 1e9 / each,
        interleave: 0.0,
        interleave_half_threads: HALF_THREADS,
        ..nvme
    };
    let parameters = format!(
        "not calibrated: the processor of source 001, and {} with {each:.0} files per request",
        class.source()
    );
    let delay_s = delay_ns as f64 / 1e9 / each;
    Ok(Law { model, servers, delay_s, calibrated: None, parameters })
}

#[cfg(test)]
mod tests {
    use super::super::profile::Busy;
    use super::*;

    fn ask(class: Class, files: u64) -> Answer {
        let question = Question { class, measured: None, files, threads_max: 256, cores: None };
        answer(&question).unwrap()
    }

    #[test]
    fn the_published_walk_is_inside_its_calibration() {
        let hdd = ask(Class::Hdd, 2_835_154);
        let at_8 = hdd.points.iter().find(|point| point.threads == 8).unwrap();
        assert!((at_8.elapsed_s / 102.38 - 1.0).abs() < 0.1, "{at_8:?}");
        assert_eq!(at_8.beyond, Some(Beyond::INSIDE));
        assert_eq!(at_8.limit, Limit::Metadata);
        assert!(at_8.low_s < at_8.elapsed_s && at_8.elapsed_s < at_8.high_s);
        assert!(hdd.enough < 16, "{}", hdd.enough);
    }

    #[test]
    fn more_files_are_further_from_the_calibration_and_less_certain() {
        let (near, far) = (ask(Class::Nvme, 2_000_000), ask(Class::Nvme, 1_000_000_000));
        let width = |answer: &Answer| answer.points[3].high_s / answer.points[3].low_s;
        assert!(width(&far) > 1.5 * width(&near), "{} {}", width(&near), width(&far));
        assert!(far.points[0].beyond.unwrap().files > 300.0);
        assert_eq!(near.points[0].limit, Limit::InFlight);
    }

    #[test]
    fn threads_without_a_file_gain_nothing() {
        let few = ask(Class::Hdd, 2);
        assert_eq!(few.points[1].elapsed_s, few.points[8].elapsed_s);
    }

    #[test]
    fn no_rate_exceeds_its_upper_bound() {
        for (class, cores) in [(Class::Sata, None), (Class::Network, Some(4)), (Class::Hdd, None)] {
            let asked = Question { class, measured: None, files: 1, threads_max: 1, cores };
            let law = law(&asked).unwrap();
            let mut rates = Rates::new(&law, cores);
            for threads in ladder(256) {
                let bound = highest_per_s(&rates.stations(threads), threads);
                let rate = rates.of(threads).unwrap();
                assert!(rate < bound * (1.0 + 1e-9), "{class:?}, {threads}: {rate} {bound}");
            }
        }
    }

    #[test]
    fn twice_the_threads_are_not_solved_where_they_cannot_gain() {
        let model = WalkModel {
            cpu_s: 100e-6,
            device_s: 1e-6,
            contention: 0.1,
            interleave: 0.0,
            interleave_half_threads: HALF_THREADS,
        };
        let (calibrated, parameters) = (None, String::new());
        let law = Law { model, servers: 1, delay_s: 10e-6, calibrated, parameters };
        let mut rates = Rates::new(&law, None);
        assert_eq!(rates.limit(256), Ok(Limit::Compute));
        assert_eq!(rates.known.len(), 1);
        assert_eq!(rates.limit(1), Ok(Limit::InFlight));
        assert_eq!(rates.known.keys().copied().collect::<Vec<_>>(), [1, 2, 256]);
        rates.limit(2).unwrap();
        assert_eq!(rates.known.len(), 4, "the rate of two is known");
    }

    #[test]
    fn other_cores_are_beyond_the_calibration() {
        let with = |cores| {
            let (class, measured, files) = (Class::Nvme, None, 2_000_000);
            answer(&Question { class, measured, files, threads_max: 4, cores }).unwrap()
        };
        let width = |answer: &Answer| answer.points[0].high_s / answer.points[0].low_s;
        let (known, other) = (with(None), with(Some(64)));
        assert!(width(&other) > width(&known));
        assert!(
            other.notes.iter().any(|note| note.contains("64 cores") && note.contains("beyond"))
        );
        assert_eq!(known.notes.len(), 1);
    }

    #[test]
    fn classes_without_a_walk_say_so() {
        let sata = ask(Class::Sata, 1_000);
        assert_eq!(sata.points[0].beyond, None);
        assert!(sata.parameters.starts_with("not calibrated"), "{}", sata.parameters);
        let question = Question {
            class: Class::Measured,
            measured: None,
            files: 10,
            threads_max: 4,
            cores: None,
        };
        assert_eq!(answer(&question), Err(PredictError::NotCalibrated));
    }

    #[test]
    fn a_latency_delays_a_request_and_does_not_limit_the_rate() {
        let network = ask(Class::Network, 1_000_000);
        // 1 ms of latency, 0.2 ms of service, and the processor.
        let one_s = 1.0 / network.points[0].rate_per_s;
        assert!((one_s / 1.21e-3 - 1.0).abs() < 0.02, "{one_s}");
        let most = network.points.last().unwrap().rate_per_s;
        assert!((most / (8.0 / 0.2e-3) - 1.0).abs() < 0.05, "{most}");
        assert_eq!(network.points.last().unwrap().limit, Limit::Metadata);
    }

    #[test]
    fn an_interval_is_explained_by_its_own_law() {
        let note = |answer: &Answer| answer.notes[0].clone();
        assert!(note(&ask(Class::Nvme, 1_000)).contains("held-out errors of source 001"));
        let sata = ask(Class::Sata, 1_000);
        let width = |point: &Point| (point.high_s / point.elapsed_s).ln();
        assert!((width(&sata.points[0]) - 2.0 * UNKNOWN_DEVICE.ln()).abs() < 1e-9);
        assert!(note(&sata).contains("no walk of this device"), "{:?}", sata.notes);
        assert!(note(&sata).contains("1.56"), "{:?}", sata.notes);
        let (class, measured, files, threads_max) = (Class::Sata, None, 1_000, 4);
        let asked = Question { class, measured, files, threads_max, cores: Some(1) };
        let one = answer(&asked).unwrap();
        let factor = width(&one.points[0]).exp();
        assert!(factor > 1.6 && note(&one).contains(&format!("{factor:.2} times")), "{one:?}");
        assert!(note(&one).contains("for 1 core;"), "{:?}", one.notes);
        assert!(one.notes.iter().all(|note| !note.contains("calibration")), "{:?}", one.notes);
    }

    #[test]
    fn the_interval_of_the_measured_device_is_that_of_its_curve() {
        let measured = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let question = Question {
            class: Class::Measured,
            measured: Some(measured),
            files: 1_000,
            threads_max: 64,
            cores: None,
        };
        let found = answer(&question).unwrap();
        let point = &found.points[0];
        let half = (point.high_s / point.elapsed_s).ln();
        // The curve misses 3 of 12 cells of the kept walks by more than 10 %.
        assert!(half > 0.10, "{half}");
        assert!((half - curve_error().unwrap()).abs() < 1e-9, "{half}");
        let note = &found.notes[0];
        assert!(note.contains(&format!("±{:.1} %", 100.0 * half)), "{note}");
        assert!(note.contains("of this curve"), "{note}");
    }

    /// The third kept calibration of `results/predict-cells`: with more threads, a file takes more
    /// processor time.
    #[test]
    fn a_walk_that_keeps_the_processors_busy_is_limited_by_them() {
        let probed = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let measured = Measured {
            walk_s: [(1, 1.408), (2, 0.788), (4, 0.758), (16, 0.793), (64, 0.830)]
                .map(|(n, us)| (n, us * 1e-6))
                .to_vec(),
            walk_cpu_s: 1.407e-6,
            busy: Busy { walk: 0.983, ..Busy::default() },
            ..probed
        };
        let measured = Some(measured);
        let (class, files, threads_max, cores) = (Class::Measured, 100_000, 64, None);
        let asked = Question { class, measured, files, threads_max, cores };
        for point in &answer(&asked).unwrap().points[1..] {
            assert_eq!(point.limit, Limit::Compute, "{point:?}");
        }
    }

    #[test]
    fn other_cores_are_shown_as_beyond_the_calibration() {
        let with = |cores| {
            let (class, measured, files) = (Class::Nvme, None, 2_000_000);
            let asked = Question { class, measured, files, threads_max: 4, cores };
            answer(&asked).unwrap().points[0].beyond.unwrap().cores
        };
        assert_eq!([None, Some(8), Some(1000), Some(2)].map(with), [1.0, 1.0, 125.0, 4.0]);
    }
}

//! Copying files from one device to another.

use super::profile::{Class, Measured, Size, stations};
use super::{
    Answer, Beyond, COVERED, DOUBLING, IN_FLIGHT_MAX, Limit, Point, UNKNOWN_DEVICE, at_once,
    covering, ladder, one_to, probes,
};
use crate::PredictError;
use crate::error::above_zero;
use crate::machine::{Device, Order};
use crate::network::{Network, Station};
use ioloom_model::units::format_counted;

/// Processor time to create, fill and close a small file, in seconds: 100,000 files took 1.7 s on two
/// cores (`results/copy-small-by-threads`).
const CREATE_S: f64 = 34e-6;
/// Processor time to copy a byte in memory twice, in seconds.
const BYTE_S: f64 = 0.2e-9;

/// Copies of one machine, predicted from its probes before they were made: predicted and measured seconds of
/// `after.md` and `copies.md` in `results/predict-cells/2026-11-26-intel-xeon-2c`.
const PREDICTED_MEASURED_S: [(f64, f64); 24] = [
    (0.523, 0.566),
    (0.751, 1.044),
    (0.724, 0.919),
    (0.864, 0.896),
    (2.093, 2.459),
    (0.501, 1.189),
    (0.250, 0.337),
    (0.198, 0.267),
    (0.514, 0.589),
    (0.445, 0.398),
    (0.264, 0.276),
    (5.097, 5.407),
    (0.523, 0.303),
    (0.751, 0.253),
    (0.724, 0.228),
    (0.864, 0.249),
    (2.093, 2.107),
    (0.501, 0.549),
    (0.250, 1.243),
    (0.198, 0.596),
    (0.514, 1.824),
    (0.445, 0.722),
    (0.264, 1.834),
    (5.097, 5.106),
];

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The class of the source.
    pub from: Class,
    /// The class of the target.
    pub to: Class,
    /// Whether source and target are one device, whose capacity they share.
    pub one_device: bool,
    /// The probes of this machine.
    pub measured: Option<Measured>,
    /// Number of files.
    pub files: u64,
    /// Mean size in bytes.
    pub bytes: u64,
    /// Order of the list.
    pub order: Order,
    /// Usable cores.
    pub cores: u32,
    /// Most files copied at the same time.
    pub threads_max: u32,
}

/// Answers a question.
///
/// # Errors
/// Fails if a number is out of range, a device is the measured one and there is none, or the probes do not
/// show the order or the size of the files.
pub fn answer(question: &Question) -> Result<Answer, PredictError> {
    check(question)?;
    let bytes = question.bytes as f64;
    let both = question.from == Class::Measured && question.to == Class::Measured;
    let probed = question.measured.as_ref().filter(|_| both);
    if let Some(found) = probed {
        found.check_cores(question.cores)?;
        if !found.copy_s.is_empty() {
            return measured(question, found);
        }
    }
    let (from, to) = (device(question, question.from)?, device(question, question.to)?);
    let all = network(question, &from, &to, 1.0)?;
    let [fast, slow] =
        [1.0 / UNKNOWN_DEVICE, UNKNOWN_DEVICE].map(|factor| network(question, &from, &to, factor));
    let (fast, slow) = (fast?, slow?);
    let files = question.files as f64;
    let mut points = Vec::new();
    for threads in ladder(question.threads_max) {
        let busy = at_once(threads, question.files);
        let rate = all.rate_per_s(busy);
        points.push(Point {
            threads,
            elapsed_s: files / rate,
            low_s: files / fast.rate_per_s(busy),
            high_s: files / slow.rate_per_s(busy),
            rate_per_s: rate,
            limit: limit(&all, question, busy, rate),
            beyond: probed.map(|m| Beyond {
                threads: (f64::from(threads) / f64::from(m.in_flight_max())).max(1.0),
                files: m.reads_beyond(files, bytes),
                size: m.size_beyond(bytes, &m.medium_s, &m.large_s),
                ..Beyond::INSIDE
            }),
        });
    }
    Ok(Answer {
        question: format!(
            "{} from {} to {}",
            copy_of(question),
            question.from.name(),
            if question.one_device { "the same device" } else { question.to.name() }
        ),
        unit: "files",
        axis: "threads",
        method: "closed network of processor, source and target, solved exactly by convolution"
            .to_owned(),
        parameters: format!(
            "source: {}; target: {}; {:.0} µs of processor to create a file, as in \
             results/copy-small-by-threads",
            question.from.source(),
            question.to.source(),
            CREATE_S * 1e6
        ),
        enough: Answer::enough(&points),
        points,
        notes: notes(question, probed.is_some()),
    })
}

fn copy_of(question: &Question) -> String {
    let files = format_counted(question.files, "file", "files");
    format!("copy of {files} of {} bytes", question.bytes)
}

/// Returns further remarks on an answer. `unprobed`: both devices are the measured one, whose probes
/// copied nothing.
fn notes(question: &Question, unprobed: bool) -> Vec<String> {
    let writes = match unprobed {
        true => "; the probes of this machine wrote nothing",
        false => "",
    };
    let devices = match question.one_device {
        true => "reads and writes share the device; seeks between them are not included",
        false => "source and target are two devices",
    };
    vec![
        format!(
            "the target writes as fast as it reads, and everything reaches it before the end{writes}"
        ),
        devices.to_owned(),
        format!(
            "the interval covers devices that are {UNKNOWN_DEVICE} times as fast or slow as their \
             parameters say; this factor is assumed, as no such copy was predicted and then measured"
        ),
    ]
}

fn check(question: &Question) -> Result<(), PredictError> {
    one_to("number of files", question.files, u64::MAX)?;
    one_to("number of cores", u64::from(question.cores), 4096)?;
    one_to("number of threads", u64::from(question.threads_max), u64::from(IN_FLIGHT_MAX))?;
    above_zero("file size", question.bytes as f64)?;
    let reads_measured = question.from == Class::Measured && question.measured.is_some();
    match reads_measured && question.order != Order::Device {
        true => Err(PredictError::UnknownOrder),
        false => Ok(()),
    }
}

/// Answers for this machine, from probes that copied small and large files.
fn measured(question: &Question, found: &Measured) -> Result<Answer, PredictError> {
    let most = |probes: &[(u32, f64)]| probes.iter().map(|(n, _)| *n).max().unwrap_or(1);
    found.check_size(question.bytes, [&found.copy_medium_s, &found.copy_large_s])?;
    let (bytes, files) = (question.bytes as f64, question.files as f64);
    let factor = copy_factor();
    // How busy the processors are was measured with small files.
    let copies_keep_cores_busy =
        found.busy.copy >= 0.9 && found.nearest_copied(bytes) == Size::Small;
    let mut points = Vec::new();
    for threads in ladder(question.threads_max) {
        let busy = at_once(threads, question.files);
        let each_s = found.copy_s_at(bytes, busy)?;
        let twice_s = found.copy_s_at(bytes, busy.saturating_mul(2))?;
        points.push(Point {
            threads,
            elapsed_s: files * each_s,
            low_s: files * each_s / factor,
            high_s: files * each_s * factor,
            rate_per_s: 1.0 / each_s,
            limit: if twice_s * (1.0 + DOUBLING) < each_s {
                Limit::InFlight
            } else if copies_keep_cores_busy && busy >= found.cores {
                Limit::Compute
            } else {
                Limit::Device
            },
            beyond: Some(Beyond {
                threads: (f64::from(threads) / f64::from(most(&found.copy_s))).max(1.0),
                files: found.copies_beyond(files, bytes),
                size: found.size_beyond(bytes, &found.copy_medium_s, &found.copy_large_s),
                ..Beyond::INSIDE
            }),
        });
    }
    Ok(Answer {
        question: format!("{} from measured to measured", copy_of(question)),
        unit: "files",
        axis: "threads",
        method: "latency and gap between completions, fitted to probes, between three sizes"
            .to_owned(),
        parameters: format!(
            "probes of this machine: copies of {} files of {} bytes, {} threads",
            found.copy_files,
            found.file_bytes,
            probes(&found.copy_s)
        ),
        enough: Answer::enough(&points),
        points,
        notes: measured_notes(question, found),
    })
}

/// Returns the factor within which [`COVERED`] of the earlier predictions were right.
fn copy_factor() -> f64 {
    let error = |(predicted_s, measured_s): &(f64, f64)| (measured_s / predicted_s).ln().abs();
    covering(PREDICTED_MEASURED_S.iter().map(error).collect()).exp()
}

/// Returns further remarks on an answer from probes.
fn measured_notes(question: &Question, found: &Measured) -> Vec<String> {
    let mut notes = vec![format!(
        "the interval covers {:.0} % of the errors of {} predicted copies of one machine in \
         results/predict-cells: times {:.1} times as long or short; the state of the kernel mattered more \
         there than the number of threads",
        100.0 * COVERED,
        PREDICTED_MEASURED_S.len(),
        copy_factor()
    )];
    if question.files as f64 * question.bytes as f64 > found.bytes_copied() {
        let ended = "the probes ended when the copies were in memory; a copy that is larger than the free \
                     memory is written at the speed of the device, which was not probed";
        notes.push(ended.to_owned());
    }
    if !question.one_device {
        let same = "the probes copied within one device, so source and target are answered as one";
        notes.push(same.to_owned());
    }
    notes
}

fn device(question: &Question, class: Class) -> Result<Device, PredictError> {
    match (class, &question.measured) {
        (Class::Measured, Some(measured)) => {
            // Only the large files show the bandwidth of the device.
            measured.check_size(question.bytes, [&measured.large_s, &[]])?;
            measured.device()
        }
        _ => class.device().ok_or(PredictError::NotCalibrated),
    }
}

/// Builds the network; device times are `factor` times as long.
fn network(
    question: &Question,
    from: &Device,
    to: &Device,
    factor: f64,
) -> Result<Network, PredictError> {
    let bytes = question.bytes as f64;
    let compute = CREATE_S + BYTE_S * bytes;
    let mut all = vec![Station::Servers { demand_s: compute, servers: question.cores }];
    let with = |station: &Station, demand_s: f64| match station {
        Station::Servers { servers, .. } => Station::Servers { demand_s, servers: *servers },
        _ => Station::Delay { demand_s },
    };
    // Writes are appended, whatever the order of the reads.
    let (reads, writes) =
        (stations(from, bytes, question.order, 1), stations(to, bytes, Order::Device, 1));
    if question.one_device {
        let both = reads.iter().zip(&writes);
        all.extend(both.map(|(r, w)| with(r, (r.demand_s() + w.demand_s()) * factor)));
    } else {
        let each = reads.iter().chain(&writes);
        all.extend(each.map(|station| with(station, station.demand_s() * factor)));
    }
    Network::new(all)
}

fn limit(network: &Network, question: &Question, threads: u32, rate: f64) -> Limit {
    let compute = CREATE_S + BYTE_S * question.bytes as f64;
    if rate * compute > 0.9 * f64::from(question.cores) {
        Limit::Compute
    } else if network.rate_per_s(threads.saturating_mul(2)) > rate * (1.0 + DOUBLING) {
        Limit::InFlight
    } else {
        Limit::Device
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Busy;
    use super::*;

    fn question(to: Class, bytes: u64) -> Question {
        Question {
            from: Class::Nvme,
            to,
            one_device: false,
            measured: None,
            files: 1_000,
            bytes,
            order: Order::Device,
            cores: 2,
            threads_max: 8,
        }
    }

    #[test]
    fn large_files_take_the_bandwidth_of_the_slower_device() {
        let answer = answer(&question(Class::Sata, 1 << 28)).unwrap();
        let law = 1_000.0 * (1u64 << 28) as f64 / 530e6;
        let last = answer.points.last().unwrap();
        assert!((last.elapsed_s / law - 1.0).abs() < 0.1, "{last:?} {law}");
        assert_eq!(last.limit, Limit::Device);
    }

    #[test]
    fn one_device_is_half_as_fast_as_two() {
        let elapsed = |one_device| {
            let question =
                Question { from: Class::Sata, one_device, ..question(Class::Sata, 1 << 26) };
            let question = Question { threads_max: 64, ..question };
            answer(&question).unwrap().points.last().unwrap().elapsed_s
        };
        // With few threads the two devices also wait for each other.
        let ratio = elapsed(true) / elapsed(false);
        assert!((1.8..2.05).contains(&ratio), "{ratio}");
    }

    #[test]
    fn threads_without_a_file_gain_nothing() {
        let question = Question { files: 2, threads_max: 64, ..question(Class::Sata, 1 << 20) };
        let answer = answer(&question).unwrap();
        assert_eq!(answer.points[1].elapsed_s, answer.points[6].elapsed_s);
        assert!(answer.enough <= 2);
    }

    #[test]
    fn a_faster_target_is_never_slower() {
        let time = |to| answer(&question(to, 65_536)).unwrap().points[3].elapsed_s;
        assert!(time(Class::Nvme) < time(Class::Sata));
        assert!(time(Class::Sata) < time(Class::Usb));
    }

    #[test]
    fn the_interval_of_the_measured_device_covers_earlier_copies() {
        let (from, measured) = (Class::Measured, Some(copies(vec![(1, 90e-6), (4, 40e-6)], 0.5)));
        let asked = Question { from, measured, ..question(Class::Measured, 4096) };
        let point = answer(&asked).unwrap().points.pop().unwrap();
        let (low, high) = (point.low_s / point.elapsed_s, point.high_s / point.elapsed_s);
        let is_inside = |(predicted, measured): &&(f64, f64)| {
            (0.999 * low..=1.001 * high).contains(&(measured / predicted))
        };
        assert_eq!(PREDICTED_MEASURED_S.iter().filter(is_inside).count(), 22);
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../results/predict-cells/");
        let read = |name| std::fs::read_to_string(format!("{dir}2026-11-26-intel-xeon-2c/{name}"));
        let text = read("after.md").unwrap() + &read("copies.md").unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| copy-"));
        let stored: Vec<(f64, f64)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                (cells[6].parse().unwrap(), cells[5].parse().unwrap())
            })
            .collect();
        assert_eq!(stored, PREDICTED_MEASURED_S);
    }

    #[test]
    fn orders_that_were_not_probed_are_refused() {
        let measured = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let asked = |order| {
            let question = question(Class::Nvme, 4096);
            let (from, measured) = (Class::Measured, Some(measured.clone()));
            answer(&Question { from, measured, order, ..question }).map(|_| ())
        };
        assert_eq!(asked(Order::Device), Ok(()));
        assert_eq!(asked(Order::Shuffled), Err(PredictError::UnknownOrder));
    }

    /// Without large files, the bandwidth of the device is not known, whatever its role.
    #[test]
    fn files_larger_than_all_probed_ones_are_refused() {
        let probed = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let probed = Measured { large_bytes: 0, large_s: Vec::new(), ..probed };
        let copied = Measured { copy_s: vec![(1, 90e-6), (4, 40e-6)], ..probed.clone() };
        let roles = [
            (Class::Measured, Class::Nvme, &probed),
            (Class::Nvme, Class::Measured, &probed),
            (Class::Measured, Class::Measured, &probed),
            (Class::Measured, Class::Measured, &copied),
        ];
        for (from, to, measured) in roles {
            let of = |bytes| {
                let measured = Some(measured.clone());
                answer(&Question { from, measured, ..question(to, bytes) }).map(|_| ())
            };
            assert_eq!(of(4096), Ok(()), "{from:?} {to:?}");
            for bytes in [1 << 20, 1 << 30] {
                let refused = Err(PredictError::UnknownSize { bytes: 4096 });
                assert_eq!(of(bytes), refused, "{from:?} {to:?}");
            }
        }
    }

    #[test]
    fn copies_between_two_measured_devices_have_a_note() {
        let measured = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let copy_s = vec![(1, 90e-6), (4, 40e-6)];
        let measured = Some(Measured { copy_s, ..measured });
        let noted = |one_device| {
            let (from, measured) = (Class::Measured, measured.clone());
            let question = question(Class::Measured, 4096);
            let answer = answer(&Question { from, one_device, measured, ..question }).unwrap();
            answer.notes.iter().any(|note| note.contains("within one device"))
        };
        assert_eq!([true, false].map(noted), [false, true]);
    }

    /// Copies of this machine at `copy_s`, as in the probes.
    fn copies(copy_s: Vec<(u32, f64)>, share: f64) -> Measured {
        let probed = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let busy = Busy { copy: share, ..probed.busy };
        Measured { copy_s, copy_large_s: vec![(1, 8e-3), (4, 6e-3)], busy, ..probed }
    }

    #[test]
    fn copies_that_keep_the_processors_busy_are_limited_by_them() {
        let limit = |share, bytes| {
            let measured = copies([1, 2, 4, 32].map(|n| (n, 40e-6)).to_vec(), share);
            let (from, measured) = (Class::Measured, Some(measured));
            let asked = Question { from, measured, ..question(Class::Measured, bytes) };
            answer(&asked).unwrap().points.pop().unwrap().limit
        };
        assert_eq!(limit(0.98, 4096), Limit::Compute);
        assert_eq!(limit(0.5, 4096), Limit::Device);
        assert_eq!(limit(0.98, 16 << 20), Limit::Device);
    }

    #[test]
    fn copies_of_more_than_the_probes_are_beyond_them() {
        let asked = |files, bytes| {
            let measured = copies(vec![(1, 90e-6), (4, 40e-6)], 0.5);
            let (from, measured) = (Class::Measured, Some(measured));
            let question = Question { files, ..question(Class::Measured, bytes) };
            let answer = answer(&Question { from, measured, ..question }).unwrap();
            let noted = answer.notes.iter().any(|note| note.contains("free memory"));
            (answer.points[0].beyond.unwrap().files, noted)
        };
        assert_eq!(asked(16_000, 16 << 20), (4000.0, true));
        assert_eq!(asked(4, 16 << 20), (1.0, false));
        assert_eq!(asked(4000, 4096), (1.0, false));
    }

    #[test]
    fn a_large_file_is_read_as_fast_as_on_the_simulated_machine() {
        use super::super::files;
        for class in [Class::Nvme, Class::Sata] {
            let (files, bytes) = (20, 64 << 20);
            let sizes = crate::machine::Sizes::Fixed(bytes);
            let small = files::Question::of_small_files(class);
            let asked = files::Question { files, sizes, threads_max: 1, ..small };
            let simulated = files::answer(&asked).unwrap().points[0].elapsed_s / files as f64;
            let all = stations(&class.device().unwrap(), bytes as f64, Order::Device, 1);
            let own = 1.0 / Network::new(all).unwrap().rate_per_s(1);
            assert!((own / simulated - 1.0).abs() < 0.2, "{class:?}: {own} {simulated}");
        }
    }

    #[test]
    fn without_copies_of_the_measured_device_the_cores_are_those_of_its_probes() {
        let measured = super::super::fitting::tests::probed(vec![(1, 80e-6), (4, 30e-6)]);
        let asked = |cores| {
            let question = question(Class::Measured, 4096);
            let (from, measured) = (Class::Measured, Some(measured.clone()));
            answer(&Question { from, measured, cores, ..question })
        };
        assert!(asked(2).unwrap().notes[0].contains("wrote nothing"));
        assert!(matches!(asked(4), Err(PredictError::OutOfRange { .. })));
    }
}

//! The device and the machine of a question about files. Those of the measured device follow its probes:
//! the service time is what simulated files of the mean size need to take as long as the measured ones.

use super::at_once;
use super::profile::Measured;
use super::question::{Question, active_disks, is_measured, mean, pieces, roomy, scenario};
use crate::PredictError;
use crate::error::above_zero;
use crate::knee::Knee;
use crate::machine::rivals::Fixed;
use crate::machine::{CHUNK, Device, Machine, Order, Sizes, grid};

/// Fewest files of a simulated probe, and how many there are for each request in flight: the time of a
/// few rounds shows the rate.
const PROBE_FILES: u32 = 4_000;
const PROBE_ROUNDS: u32 = 4;
/// Steps that fit the service time, and the largest factor between the fitted and the measured time.
const FITTING_STEPS: u32 = 5;
const FIT_FACTOR: f64 = 1.5;
/// Shortest service and transfer that are fitted, in seconds.
const SERVICE_MIN_S: f64 = 1e-9;

/// Returns the device and machine for any number in flight; of the measured device, those of small files
/// that are not cached.
pub(super) fn fixed_parts(question: &Question) -> Result<(Device, Machine), PredictError> {
    let machine = grid::machine(question.cores);
    match question.measured.as_ref().filter(|_| is_measured(question)) {
        Some(measured) => Ok((measured.device()?, costing(machine, measured.file_cpu_s))),
        None => Ok((question.class.device().ok_or(PredictError::NotCalibrated)?, machine)),
    }
}

/// Returns the device and machine for a number in flight.
pub(super) fn parts(question: &Question, threads: u32) -> Result<(Device, Machine), PredictError> {
    let Some(measured) = question.measured.as_ref().filter(|_| is_measured(question)) else {
        return fixed_parts(question);
    };
    // No more are in flight than there are requests. Each disk is a copy of the probed one, with its part
    // of them.
    let pieces = pieces(question);
    let all = at_once(threads, question.files.saturating_mul(u64::from(pieces)));
    let each = all.div_ceil(active_disks(question, all));
    // A large file is simulated piece by piece.
    let bytes = mean(question.sizes).max(1);
    let piece_s =
        |n| Ok::<_, PredictError>(measured.cold_s_at(bytes as f64, n)? / f64::from(pieces));
    let piece = bytes / u64::from(pieces);
    let used = |n: u32| f64::from(n.min(measured.cores).max(1));
    // In the probes, the processors copied all bytes and had time for the calls.
    let own = grid::machine(question.cores);
    let copied_s = piece_s(all)? * used(all) / piece as f64;
    let own = Machine { byte_ns: own.byte_ns.min(copied_s * 1e9), ..own };
    let copy_s = piece as f64 * own.byte_ns / 1e9;
    let cpu_s = |n: u32| -> Result<f64, PredictError> {
        let most_s = (piece_s(n)? * used(n) - copy_s).max(0.0);
        Ok(measured.cold_cpu_s(f64::from(n))?.min(most_s))
    };
    // The processors that compute start this many reads in the time of one.
    let started = measured.cold_s_at(bytes as f64, 1)? * used(all) / question.compute_s.max(1e-12);
    // All disks share the processors, and one wait ends requests of several disks.
    let miss_s = match started < f64::from(all) {
        true => measured.cold_cpu_s(started)?,
        false => cpu_s(all)?,
    };
    let probe = Probe { question, measured, own, in_flight: each };
    let device = probe.fitted(bytes, piece_s(each)?, cpu_s(each)?)?;
    let hit_s = probe.hit_s(all, device)?;
    let cost_s = miss_s + question.cached * (hit_s - miss_s);
    Ok((device, costing(own, cost_s)))
}

/// A probe on the simulated machine, with a number of requests in flight on one disk.
struct Probe<'a> {
    question: &'a Question,
    measured: &'a Measured,
    own: Machine,
    in_flight: u32,
}

impl Probe<'_> {
    /// Returns a device at which the pieces of files of so many bytes take `wanted_s` each.
    ///
    /// # Errors
    /// Fails if no service time and bandwidth give that time.
    fn fitted(&self, bytes: u64, wanted_s: f64, cpu_s: f64) -> Result<Device, PredictError> {
        let n = f64::from(self.in_flight);
        // Smaller files are probed with more in flight than the large ones that show the bandwidth.
        let probed_per_s = self.measured.bytes_per_s(self.in_flight)?;
        let piece = bytes as f64 / f64::from(pieces(self.question));
        let mut bus_s = wanted_s.min(piece / probed_per_s);
        let mut service_s = (wanted_s * n - cpu_s).max(SERVICE_MIN_S);
        let delay =
            |service_s, bus_s| self.measured.delay(service_s, self.in_flight, piece / bus_s);
        let mut device = delay(service_s, bus_s)?;
        let mut took_s = self.took_s(device, (0.0, bytes), cpu_s);
        for _ in 0..FITTING_STEPS {
            let missing_s = wanted_s - took_s;
            if missing_s < 0.0 && service_s <= SERVICE_MIN_S {
                // The time of the large files contains calls and copies, too.
                bus_s = (bus_s + missing_s).max(SERVICE_MIN_S);
            } else {
                service_s = (service_s + missing_s * n).max(SERVICE_MIN_S);
            }
            device = delay(service_s, bus_s)?;
            took_s = self.took_s(device, (0.0, bytes), cpu_s);
        }
        let value = took_s / wanted_s;
        if !(1.0 / FIT_FACTOR..=FIT_FACTOR).contains(&value) {
            let what = "simulated over measured time of the probes";
            return Err(PredictError::OutOfRange { what, value, accepted: "0.67 to 1.5" });
        }
        Ok(device)
    }

    /// Returns the processor time of a cached file with `all` in flight. Cached files do not wait for each
    /// other in the window, so it is fitted apart, with files as large as in the probes.
    fn hit_s(&self, all: u32, device: Device) -> Result<f64, PredictError> {
        let measured = self.measured;
        let cores = f64::from(all.min(measured.cores).max(1));
        let warm_s = Knee::fit_busy(&measured.warm_s, measured.busy.warm)?.seconds(all);
        let cpu_max_s = 4.0 * above_zero("processor time of a file", measured.file_cpu_s)?;
        // Files that no cache keeps take little processor time while they are on their way.
        let busy = if measured.busy.warm > 0.0 { measured.busy.warm } else { 1.0 };
        let warm_cpu_s = (warm_s * cores * busy).min(cpu_max_s);
        let took_s = self.took_s(device, (1.0, measured.file_bytes), warm_cpu_s);
        Ok((warm_cpu_s * warm_s / took_s).min(cpu_max_s.max(warm_cpu_s)))
    }

    /// Simulates the probe: returns the time per piece of files of so many bytes, of which a share is cached.
    fn took_s(&self, device: Device, (cached, bytes): (f64, u64), cpu_s: f64) -> f64 {
        let requests = PROBE_FILES.max(PROBE_ROUNDS.saturating_mul(self.in_flight));
        let pieces = bytes.div_ceil(CHUNK).clamp(1, u64::from(requests)) as u32;
        let files = requests / pieces;
        let probe = Question {
            files: u64::from(files),
            compute_s: 0.0,
            order: Order::Device,
            cached,
            sizes: Sizes::Fixed(bytes.max(1)),
            cores: self.measured.cores,
            disks: 1,
            ..self.question.clone()
        };
        let own = roomy(costing(self.own, cpu_s), self.in_flight);
        let scenario = scenario(&probe, device, own, files);
        let mut fixed = Fixed::new(self.in_flight);
        let ns = scenario.prepare().run(&mut fixed, self.in_flight).ns;
        ns as f64 / 1e9 / f64::from(files * pieces)
    }
}

/// Returns a machine on which a cached small file costs `cpu_s`; the parts keep their shares.
fn costing(machine: Machine, cpu_s: f64) -> Machine {
    let own = (machine.open_ns + machine.request_ns + machine.hand_off_ns) as f64;
    let part = |ns: u64| (ns as f64 / own * cpu_s * 1e9) as u64;
    Machine {
        open_ns: part(machine.open_ns),
        request_ns: part(machine.request_ns),
        hand_off_ns: part(machine.hand_off_ns),
        ..machine
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Limit;
    use super::super::files::answer;
    use super::super::profile::{Busy, Class};
    use super::*;

    fn asked(measured: Measured) -> Question {
        Question { measured: Some(measured), ..Question::of_small_files(Class::Measured) }
    }

    pub(in super::super) fn probed(cold_s: Vec<(u32, f64)>) -> Measured {
        Measured {
            cores: 2,
            files: 8000,
            cold_files: 8000,
            copy_files: 4000,
            medium_files: 256,
            large_files: 4,
            file_bytes: 4096,
            file_cpu_s: 10e-6,
            cold_s,
            warm_s: vec![(1, 10e-6), (4, 6e-6)],
            medium_bytes: 0,
            medium_s: Vec::new(),
            large_bytes: 16 << 20,
            large_s: vec![(1, 0.02), (4, 0.01)],
            walk_files: 8000,
            walk_s: vec![(1, 2e-6), (4, 1e-6), (64, 1e-6)],
            walk_cpu_s: 2e-6,
            copy_s: Vec::new(),
            copy_medium_s: Vec::new(),
            copy_large_s: Vec::new(),
            busy: Busy::default(),
            exchange: None,
        }
    }

    #[test]
    fn the_measured_device_returns_its_probes() {
        let cold = vec![(1, 80e-6), (4, 30e-6), (64, 12e-6)];
        let asked = Question { threads_max: 64, ..asked(probed(cold.clone())) };
        let all = answer(&asked).unwrap();
        for (n, each_s) in cold {
            let point = all.points.iter().find(|point| point.threads == n).unwrap();
            assert!((point.elapsed_s / (each_s * 4e3) - 1.0).abs() < 0.05, "{n}: {point:?}");
        }
        let warm = answer(&Question { cached: 1.0, ..asked }).unwrap();
        for (n, each_s) in [(1, 10e-6), (4, 6e-6)] {
            let point = warm.points.iter().find(|point| point.threads == n).unwrap();
            assert!((point.elapsed_s / (each_s * 4e3) - 1.0).abs() < 0.05, "{n}: {point:?}");
        }
    }

    /// Returns the seconds per file at a number in flight.
    fn each_s(asked: &Question, n: u32) -> f64 {
        let all = answer(&Question { threads_max: n, ..asked.clone() }).unwrap();
        all.points.last().unwrap().elapsed_s / asked.files as f64
    }

    fn is_near(one: f64, other: f64) -> bool {
        (one / other - 1.0).abs() < 0.06
    }

    #[test]
    fn files_of_the_probed_sizes_take_as_long_as_in_the_probes() {
        let measured = Measured {
            medium_bytes: 128 << 10,
            medium_s: vec![(1, 250e-6), (4, 170e-6), (16, 140e-6)],
            ..probed(vec![(1, 80e-6), (4, 30e-6), (64, 12e-6)])
        };
        let asked = asked(measured);
        let of = |bytes| Question { sizes: Sizes::Fixed(bytes), ..asked.clone() };
        for (n, medium_s, large_s) in [(1, 250e-6, 0.02), (4, 170e-6, 0.01)] {
            assert!(is_near(each_s(&of(128 << 10), n), medium_s), "{n}");
            assert!(is_near(each_s(&of(16 << 20), n), large_s), "{n}");
            let small_s = each_s(&of(4096), n);
            let half_s = each_s(&of(66 << 10), n);
            assert!(is_near(half_s, f64::midpoint(small_s, medium_s)), "{n}: {half_s}");
        }
    }

    #[test]
    fn medium_files_are_as_fast_as_probed_where_large_ones_show_less_bandwidth() {
        let measured = Measured {
            medium_bytes: 128 << 10,
            medium_s: vec![(1, 2e-3), (4, 500e-6), (16, 125e-6)],
            large_s: vec![(1, 0.08), (4, 0.04)],
            ..probed(vec![(1, 2e-3), (4, 500e-6), (64, 32e-6)])
        };
        let asked = Question { sizes: Sizes::Fixed(128 << 10), ..asked(measured) };
        assert!(is_near(each_s(&asked, 16), 125e-6), "{}", each_s(&asked, 16));
    }

    #[test]
    fn a_larger_cached_file_never_takes_less_time() {
        let measured = probed(vec![(1, 80e-6), (4, 30e-6), (64, 12e-6)]);
        let asked = Question { cached: 1.0, ..asked(measured) };
        let of = |bytes| Question { sizes: Sizes::Exponential(bytes), ..asked.clone() };
        let times: Vec<f64> = [1, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20]
            .map(|bytes| each_s(&of(bytes), 1))
            .into();
        assert!(times.is_sorted(), "{times:?}");
    }

    /// As on a FUSE file system, where cached files wait as long as others.
    #[test]
    fn waiting_for_cached_files_is_not_work_of_a_processor() {
        let measured = Measured {
            file_cpu_s: 127e-6,
            warm_s: vec![(1, 8.8e-3), (4, 2.3e-3)],
            busy: Busy { cold: 0.25, warm: 0.03, ..Busy::default() },
            ..probed(vec![(1, 8.9e-3), (4, 2.3e-3), (64, 155e-6)])
        };
        let asked = asked(measured);
        assert!(is_near(each_s(&asked, 64), 155e-6), "{}", each_s(&asked, 64));
    }

    #[test]
    fn a_read_costs_a_computing_processor_as_much_as_with_few_in_flight() {
        let measured = Measured {
            file_cpu_s: 43e-6,
            busy: Busy { cold: 0.6, warm: 0.98, ..Busy::default() },
            ..probed(vec![(1, 80e-6), (4, 30e-6), (64, 13e-6)])
        };
        let asked = Question { compute_s: 400e-6, ..asked(measured) };
        assert!(is_near(each_s(&asked, 32), 443e-6 / 2.0), "{}", each_s(&asked, 32));
    }

    /// The same time at each number in flight, as behind a cap.
    fn flat(per_s: f64) -> Measured {
        probed([1, 4, 64].map(|n| (n, 1.0 / per_s)).to_vec())
    }

    #[test]
    fn more_in_flight_than_files_of_a_probe_change_nothing_at_a_cap() {
        for threads_max in [4096, 8192] {
            let files = 40_000;
            let all = answer(&Question { threads_max, files, ..asked(flat(600.0)) }).unwrap();
            for point in &all.points {
                assert!(is_near(point.rate_per_s, 600.0), "{point:?}");
                assert_eq!(point.limit, Limit::Device, "{point:?}");
            }
            assert!(all.enough < 8, "{}", all.enough);
        }
    }

    #[test]
    fn requests_without_a_file_do_not_wait() {
        let all = answer(&Question { files: 2, threads_max: 256, ..asked(flat(600.0)) }).unwrap();
        for point in &all.points {
            assert!((point.elapsed_s * 600.0 / 2.0 - 1.0).abs() < 0.15, "{point:?}");
        }
    }

    #[test]
    fn each_disk_serves_its_part_of_the_requests_in_flight() {
        let asked = Question { disks: 64, threads_max: 64, files: 40_000, ..asked(flat(600.0)) };
        let all = answer(&asked).unwrap();
        let last = all.points.last().unwrap();
        assert!((last.rate_per_s / (64.0 * 600.0) - 1.0).abs() < 0.15, "{last:?}");
        assert_eq!(last.beyond.unwrap().disks, 64.0);
        assert_eq!(last.beyond.unwrap().threads, 1.0);
    }

    /// The kept calibration of evicted files, whose reads keep both processors busy.
    #[test]
    fn reads_that_keep_the_processors_busy_are_never_slower_with_more_disks() {
        let cold_s = [(1, 95.43e-6), (4, 38.4e-6), (16, 17.29e-6), (64, 13.78e-6), (256, 13.24e-6)];
        let measured = Measured {
            file_cpu_s: 48.27e-6,
            warm_s: vec![(1, 3.73e-6), (2, 2.52e-6), (4, 2.44e-6)],
            busy: Busy { cold: 0.749, warm: 0.979, ..Busy::default() },
            ..probed(cold_s.to_vec())
        };
        let asked = asked(measured);
        let times = [1, 2, 4, 16, 64].map(|disks| each_s(&Question { disks, ..asked.clone() }, 64));
        assert!(times.is_sorted_by(|few, more| *more < 1.01 * few), "{times:?}");
    }

    #[test]
    fn pieces_of_a_file_have_all_requests_in_flight_on_its_disk() {
        let asked = Question {
            sizes: Sizes::Fixed(16 << 20),
            files: 1_000,
            ..asked(probed(vec![(1, 80e-6), (4, 30e-6), (64, 12e-6)]))
        };
        for n in [4, 24] {
            let times = [1, 4].map(|disks| each_s(&Question { disks, ..asked.clone() }, n));
            assert!(times[1] < 1.05 * times[0], "{n}: {times:?}");
        }
    }

    #[test]
    fn large_files_of_a_fast_device_take_as_long_as_in_the_probes_of_one_processor() {
        for per_s in [3.5e9, 12e9, 20e9] {
            let large_s = f64::from(16 << 20) / per_s;
            let measured = Measured {
                cores: 1,
                file_cpu_s: 48e-6,
                large_s: vec![(1, large_s), (4, large_s)],
                ..probed(vec![(1, 95e-6), (4, 50e-6), (64, 48e-6)])
            };
            let large = Sizes::Fixed(16 << 20);
            let asked = Question { cores: 1, sizes: large, files: 1_000, ..asked(measured) };
            for n in [1, 4] {
                let found_s = each_s(&asked, n);
                assert!(is_near(found_s, large_s), "{n}: {found_s} {large_s}");
            }
        }
    }

    #[test]
    fn times_that_no_device_has_are_refused() {
        let error = answer(&asked(probed(vec![(1, 1e-9), (4, 1e-9)]))).unwrap_err();
        assert!(error.to_string().contains("probes"), "{error}");
    }

    #[test]
    fn orders_that_were_not_probed_are_refused() {
        for order in [Order::Shuffled, Order::Walk] {
            let asked = Question { order, ..asked(flat(600.0)) };
            assert_eq!(answer(&asked), Err(PredictError::UnknownOrder));
        }
    }

    #[test]
    fn files_larger_than_all_probed_ones_are_refused() {
        let measured =
            Measured { file_bytes: 3_000, large_bytes: 0, large_s: Vec::new(), ..flat(600.0) };
        let of = |sizes| answer(&Question { sizes, ..asked(measured.clone()) }).map(|_| ());
        assert_eq!(of(Sizes::Fixed(4096)), Ok(()));
        for bytes in [64 << 10, 1 << 20, 1 << 30] {
            let refused = Err(PredictError::UnknownSize { bytes: 3_000 });
            assert_eq!(of(Sizes::Fixed(bytes)), refused);
            assert_eq!(of(Sizes::Exponential(bytes)), refused);
        }
    }

    #[test]
    fn files_of_a_size_are_compared_with_those_of_its_probes() {
        let files = |files, bytes| {
            let asked = Question { files, sizes: Sizes::Fixed(bytes), ..asked(flat(600.0)) };
            answer(&asked).unwrap().points[0].beyond.unwrap().files
        };
        assert_eq!(files(16_000, 4096), 2.0);
        assert_eq!(files(64, 16 << 20), 16.0);
        assert_eq!(files(2, 16 << 20), 1.0);
    }

    #[test]
    fn the_interval_of_cached_files_covers_other_processor_times() {
        let measured = probed(vec![(1, 80e-6), (4, 30e-6), (64, 12e-6)]);
        let all = answer(&Question { cached: 1.0, ..asked(measured) }).unwrap();
        for point in &all.points {
            assert!(point.low_s < point.elapsed_s && point.elapsed_s < point.high_s, "{point:?}");
            assert!(point.high_s / point.low_s > 1.1, "{point:?}");
        }
        assert!(all.notes.iter().all(|note| !note.contains("processor times count as exact")));
    }

    #[test]
    fn sizes_that_were_not_probed_are_beyond_the_calibration() {
        let size = |bytes| {
            let asked = Question { files: 2, sizes: Sizes::Fixed(bytes), ..asked(flat(600.0)) };
            answer(&asked).unwrap().points[0].beyond.unwrap().size
        };
        assert_eq!(size(4096), 1.0);
        assert_eq!(size(1 << 20), 1.0);
        assert_eq!(size(1 << 40), 65_536.0);
        assert_eq!(size(1024), 4.0);
    }
}

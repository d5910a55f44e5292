//! More files than can be simulated one by one: a sample of the job, continued at its steady rate.
//!
//! The method: the first files of the job run on the simulated machine, request by request. The rate
//! of the middle of that run, without its beginning and end, is the steady rate; the remaining files
//! take as long as that rate says. The interval is that of batch means: the middle is divided into
//! 20 parts, and their rates vary like independent draws if a part is much longer than a
//! request. A job that changes midway, or a tree that ends in one long chain, is not steady and cannot
//! be continued; jobs that fit into the sample are simulated as they are.
//!
//! Files of a list in device order keep their distance, because their neighbours decide about seeks.
//! Other orders are stretched: a seek across all files is longer than one across the sample.
//!
//! Cost: time and memory of the sample, whatever the number of files.

use super::device::Model;
use super::job::{Job, Order, TREE_SPAN};
use super::run::{Moment, Outcome, Prepared, Scenario};
use ioloom_control::Tuner;

/// Files of a sample, unless the job has fewer.
pub const SAMPLE: u32 = 200_000;
/// Parts of the middle of a run.
const PARTS: usize = 20;
/// Student's t for 19 degrees of freedom and 95 %.
const STUDENT: f64 = 2.093;

/// The simulated time of a large job.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// Ends of the 95 % interval of the simulation, without errors of the model.
    pub interval_s: (f64, f64),
    /// Files that were simulated.
    pub simulated: u32,
    /// The run of the sample.
    pub outcome: Outcome,
}

/// Runs a job of `files` files on `disks` copies of the first device of a scenario.
///
/// The number of files of the scenario's own job is the size of the sample.
pub fn run(
    scenario: &Scenario,
    disks: u32,
    files: u64,
    tuner: &mut dyn Tuner,
    window_max: u32,
) -> Sampled {
    let simulated = u64::from(scenario.job.files).min(files).max(1) as u32;
    let part = Scenario { job: Job { files: simulated, ..scenario.job }, ..scenario.clone() };
    let prepared = prepare(&part, disks, files);
    let outcome = prepared.run(tuner, window_max);
    let requests = prepared.requests() as f64 / f64::from(simulated);
    let own_s = outcome.ns as f64 / 1e9;
    // What the sample leaves out, and what the limit of simulated time left of the sample.
    let left = (prepared.requests() - outcome.completed) as f64;
    let rest = (files - u64::from(simulated)) as f64 * requests + left;
    let (elapsed_s, interval_s) = if rest == 0.0 {
        (own_s, (own_s, own_s))
    } else {
        let all = outcome.completed.max(1) as f64;
        let (rate, error) = match steady(&outcome.timeline) {
            // Few files were computed, and those that were only read would count.
            _ if left > 0.0 => (all / own_s, all.sqrt().recip()),
            Some(steady) => steady,
            None => (all / own_s, outcome.in_flight / all),
        };
        let time = |rate: f64| own_s + rest / rate;
        let half = (STUDENT * error).min(0.9);
        (time(rate), (time(rate * (1.0 + half)), time(rate * (1.0 - half))))
    };
    Sampled { elapsed_s, interval_s, simulated, outcome }
}

/// Prepares the first files of a job of `files` files, as far apart on `disks` copies of the first device as
/// in the whole job.
pub(crate) fn prepare(scenario: &Scenario, disks: u32, files: u64) -> Prepared<'_> {
    let prepared = scenario.prepare();
    let times = files as f64 / f64::from(scenario.job.files);
    let stretch = stretch(scenario, prepared.end(), times, disks);
    prepared.spread(disks, stretch)
}

/// Returns how much further apart the files of a whole job are than those of a sample that ends at `end`,
/// on `disks` devices. `times` is the whole over the sample.
fn stretch(scenario: &Scenario, end: u64, times: f64, disks: u32) -> f64 {
    let least = match scenario.job.order {
        Order::Device => return times,
        Order::Shuffled => 1.0,
        Order::Walk => TREE_SPAN as f64,
    };
    let (own, whole) = ((end as f64).max(least), (end as f64 * times).max(least));
    let most = match scenario.device.model {
        Model::Disk { bytes, .. } => bytes as f64 * f64::from(disks),
        _ => f64::INFINITY,
    };
    (whole.min(most) / own).max(1.0)
}

/// Returns requests per second in the middle of a run, and its relative standard error.
fn steady(timeline: &[Moment]) -> Option<(f64, f64)> {
    let total: u64 = timeline.iter().map(|moment| moment.requests).sum();
    let mut in_flight: Vec<u32> = timeline.iter().map(|moment| moment.in_flight).collect();
    in_flight.sort_unstable();
    let usual = *in_flight.get(in_flight.len() / 2)?;
    // Until the window is full, cached files wait for no device: these are many requests in a short time.
    let full = timeline.iter().position(|moment| moment.in_flight >= usual)?;
    let mut done = 0;
    let middle: Vec<&Moment> = timeline
        .iter()
        .enumerate()
        .filter(|(i, moment)| {
            done += moment.requests;
            10 * done >= total && 20 * done <= 19 * total && *i > full
        })
        .map(|(_, moment)| moment)
        .collect();
    let length = middle.len() / PARTS;
    if length == 0 {
        return None;
    }
    let tick = timeline.first()?.at_ns as f64 / 1e9;
    let rate = |part: &[&Moment]| {
        part.iter().map(|moment| moment.requests).sum::<u64>() as f64 / (part.len() as f64 * tick)
    };
    let rates: Vec<f64> = middle.chunks_exact(length).take(PARTS).map(rate).collect();
    let all = rate(&middle);
    let variance = rates.iter().map(|r| (r - all) * (r - all)).sum::<f64>() / (PARTS - 1) as f64;
    (all > 0.0).then(|| (all, (variance / PARTS as f64).sqrt() / all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::rivals::Fixed;
    use crate::machine::{Sizes, grid};

    fn scenario(files: u32) -> Scenario {
        let mut scenario = grid::design().into_iter().find(|s| s.name == "sata 4k 0").unwrap();
        scenario.job.files = files;
        scenario
    }

    #[test]
    fn a_small_job_is_simulated_as_it_is() {
        let scenario = scenario(3_000);
        let sampled = run(&scenario, 1, 3_000, &mut Fixed::new(32), 1024);
        let plain = scenario.prepare().spread(1, 1.0).run(&mut Fixed::new(32), 1024);
        assert_eq!(sampled.outcome, plain);
        assert_eq!(sampled.simulated, 3_000);
    }

    /// Steps are those of the workers with the lowest indices, so more workers than needed change nothing.
    #[test]
    fn workers_without_work_change_no_step() {
        let steps = |cores| {
            let mut scenario = scenario(2_000);
            scenario.machine.cores = cores;
            let outcome = scenario.prepare().spread(8, 1.0).record(10_000);
            let outcome = outcome.run(&mut Fixed::new(8), 8);
            (outcome.ns, outcome.steps, outcome.sent)
        };
        let few = steps(64);
        assert!(few.1.len() >= 2_000 && few.1.iter().all(|step| step.worker < 64));
        assert_eq!(few, steps(4_096));
    }

    #[test]
    fn a_sample_continues_like_the_whole_job() {
        for disks in [1, 8] {
            let whole = run(&scenario(120_000), disks, 120_000, &mut Fixed::new(64), 1024);
            let part = run(&scenario(20_000), disks, 120_000, &mut Fixed::new(64), 1024);
            let ratio = part.elapsed_s / whole.elapsed_s;
            assert!((ratio - 1.0).abs() < 0.03, "{ratio} with {disks} disks");
            let (low, high) = part.interval_s;
            assert!(low < part.elapsed_s && part.elapsed_s < high, "{low} to {high}");
        }
    }

    /// Seeks are across all files of the job, whatever the size of the sample.
    #[test]
    fn samples_of_any_size_seek_as_far() {
        let files = 10_000_000;
        for order in [Order::Shuffled, Order::Walk] {
            let time = |sample| {
                let mut scenario = scenario(sample);
                scenario.device = grid::DISK;
                scenario.job.order = order;
                run(&scenario, 1, files, &mut Fixed::new(8), 8).elapsed_s
            };
            let ratio = time(4_000) / time(40_000);
            assert!((ratio - 1.0).abs() < 0.02, "{ratio} {order:?}");
        }
    }

    /// The requests of a sequence with gaps are read in their order, and a gap takes no longer than reading it.
    #[test]
    fn cached_files_make_no_disk_slower() {
        for (bytes, window) in [(4_096, 1), (4_096, 32), (65_536, 1), (65_536, 32)] {
            let time = |cached| {
                let mut scenario = scenario(3_000);
                scenario.device = grid::DISK;
                scenario.job.sizes = Sizes::Fixed(bytes);
                scenario.job.cached = [cached; 2];
                run(&scenario, 1, 3_000, &mut Fixed::new(window), window).elapsed_s
            };
            let times = [0.0, 0.3, 0.7, 0.9].map(time);
            let is_slower = times.windows(2).any(|pair| pair[1] > 1.02 * pair[0]);
            assert!(!is_slower, "{bytes} bytes, {window} in flight: {times:?}");
        }
    }

    /// With nine of ten files cached, 5,000 of them are read while the window of 512 becomes full.
    #[test]
    fn cached_files_before_the_window_is_full_do_not_count() {
        let time = |window| {
            let mut scenario = scenario(20_000);
            scenario.job.sizes = Sizes::Exponential(65_536);
            scenario.job.cached = [0.9; 2];
            scenario.machine.cores = 8;
            run(&scenario, 1, 1_000_000, &mut Fixed::new(window), window).elapsed_s
        };
        let ratio = time(512) / time(32);
        assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
    }

    #[test]
    fn a_long_job_is_simulated_to_its_end_with_bounded_memory() {
        let mut scenario = scenario(3_000);
        scenario.job.compute_ns = 100_000_000_000;
        scenario.machine.cores = 2;
        let run = run(&scenario, 1, 3_000, &mut Fixed::new(2), 1024);
        let law = 3_000.0 * 100.0 / 2.0;
        assert!((run.elapsed_s / law - 1.0).abs() < 0.05, "{} {law}", run.elapsed_s);
        let timeline = &run.outcome.timeline;
        assert!(timeline.len() <= 1 << 18, "{}", timeline.len());
        let requests: u64 = timeline.iter().map(|moment| moment.requests).sum();
        assert!((2_990..=3_000).contains(&requests), "{requests}");
        let step = timeline[0].at_ns;
        assert!(timeline.iter().zip(1..).all(|(moment, i)| moment.at_ns == i * step));
    }

    #[test]
    fn the_rest_of_a_run_that_reached_the_limit_of_time_is_added() {
        let mut scenario = scenario(3_000);
        scenario.job.compute_ns = 1 << 55;
        scenario.machine.cores = 1;
        for window in [2, 64] {
            let run = run(&scenario, 1, 3_000, &mut Fixed::new(window), window);
            assert!(run.outcome.completed < 3_000);
            let law = 3_000.0 * (1u64 << 55) as f64 / 1e9;
            assert!((run.elapsed_s / law - 1.0).abs() < 0.3, "{window}: {} {law}", run.elapsed_s);
            let (low, high) = run.interval_s;
            assert!(low < run.elapsed_s && run.elapsed_s < high, "{low} to {high}");
        }
    }

    #[test]
    fn more_disks_are_faster_until_the_cores_are_busy() {
        let time = |disks| run(&scenario(20_000), disks, 20_000, &mut Fixed::new(256), 1024);
        let (one, four) = (time(1), time(4));
        assert!(four.elapsed_s < 0.9 * one.elapsed_s, "{} {}", one.elapsed_s, four.elapsed_s);
    }
}

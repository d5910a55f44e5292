//! The controller of the automatic mode on the simulated machine. All times are simulated.

use ioloom_control::{Auto, AutoLimits, Batch, Decision, Gather, Tuner};
use ioloom_predict::machine::rivals::{Fixed, WINDOW_MAX, create};
use ioloom_predict::machine::score::{Summary, Sweep, WINDOWS};
use ioloom_predict::machine::{Moment, Outcome, Scenario, grid};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

#[test]
fn the_loss_against_the_best_fixed_window_is_small() {
    let (mut all, mut long) = (Vec::new(), Vec::new());
    for scenario in grid::build() {
        let prepared = scenario.prepare();
        let sweep = Sweep::new(&prepared);
        let mut auto =
            create("auto", scenario.machine.cores, u64::from(scenario.job.files)).unwrap();
        let regret = sweep.regret(&prepared.run(auto.as_mut(), WINDOW_MAX));
        all.push(regret);
        if sweep.best_ns() > 2 * SECOND {
            long.push(regret);
        }
    }
    let (all, long) = (Summary::new(&all).unwrap(), Summary::new(&long).unwrap());
    assert!(all.median <= 0.01, "{all:?}");
    assert!(all.p95 <= 0.05, "{all:?}");
    assert!(long.max <= 0.15, "{long:?}");
}

fn trap(name: &str) -> Scenario {
    grid::traps().into_iter().find(|scenario| scenario.name == name).unwrap()
}

/// Runs a trap with `Auto`; returns it too, for messages.
fn run(scenario: &Scenario) -> (Outcome, Auto) {
    let mut auto = Auto::new(AutoLimits {
        window_max: WINDOW_MAX,
        permits: scenario.machine.cores,
        remaining: Some(u64::from(scenario.job.files)),
        ..AutoLimits::default()
    });
    let outcome = scenario.prepare().run(&mut auto, WINDOW_MAX);
    (outcome, auto)
}

/// Returns the batches after the change.
fn after(outcome: &Outcome) -> impl Iterator<Item = &Moment> {
    let changed = outcome.changed_ns.unwrap();
    outcome.timeline.iter().filter(move |moment| moment.at_ns > changed)
}

/// Returns requests per second from `from` on.
fn rate(outcome: &Outcome, from: u64) -> f64 {
    let late = outcome.timeline.iter().filter(|moment| moment.at_ns > from);
    let requests: u64 = late.map(|moment| moment.requests).sum();
    requests as f64 * 1e9 / (outcome.ns - from) as f64
}

/// Returns the highest rate after the change that a fixed window reaches, and the smallest window
/// that loses no more than 0.5 % of it.
fn best_after(scenario: &Scenario, windows: &[u32]) -> (f64, u32) {
    let prepared = scenario.prepare();
    let rates: Vec<f64> = windows
        .iter()
        .map(|window| {
            let outcome = prepared.run(&mut Fixed::new(*window), WINDOW_MAX);
            rate(&outcome, outcome.changed_ns.unwrap())
        })
        .collect();
    let best = rates.iter().copied().fold(0.0, f64::max);
    let enough = rates.iter().position(|rate| *rate >= best * 0.995).unwrap();
    (best, windows[enough])
}

/// Asserts 95 % of the best rate from one second or 200 completions after the change.
#[track_caller]
fn reacts(name: &str) {
    let scenario = trap(name);
    let (outcome, auto) = run(&scenario);
    let mut requests = 0;
    let completed = after(&outcome)
        .find(|moment| {
            requests += moment.requests;
            requests >= 200
        })
        .unwrap();
    let deadline = completed.at_ns.max(outcome.changed_ns.unwrap() + SECOND);
    assert!(deadline + SECOND / 4 < outcome.ns, "{name} must go on after the deadline");
    // Smaller ones are never the fastest, and take long.
    let (best, _) = best_after(&scenario, &WINDOWS[4..]);
    let part = rate(&outcome, deadline) / best;
    assert!(part >= 0.95, "{part:.3} of {best:.0}/s: {}", auto.why());
}

#[test]
fn a_rise_of_latency_is_answered_within_a_second() {
    reacts("latency rises from 0.2 to 20 ms");
}

#[test]
fn a_list_that_crosses_devices_is_read_as_fast_as_each_allows() {
    reacts("list crosses devices");
}

#[test]
fn what_was_learnt_warm_does_not_slow_the_cold_half() {
    reacts("warm turns cold");
}

#[test]
fn a_fall_of_the_cap_leaves_few_requests_in_flight() {
    reacts("cap falls to a tenth");
    let scenario = trap("cap falls to a tenth");
    let (outcome, auto) = run(&scenario);
    let (_, enough) = best_after(&scenario, &WINDOWS);
    let at_change = after(&outcome).next().unwrap().in_flight;
    // The old requests have drained when as many have completed; one sample of the trial is allowed.
    let mut completed = 0;
    let drained = after(&outcome).skip_while(|moment| {
        completed += moment.requests;
        completed < u64::from(at_change) + 32
    });
    // Trials of larger windows would be allowed to exceed it for a moment; none is made here.
    let most = drained.map(|moment| moment.in_flight).max().unwrap();
    assert!(most <= 2 * enough, "{most} in flight, {enough} are enough: {}", auto.why());
}

#[test]
fn a_cache_that_becomes_warm_costs_nothing() {
    let scenario = trap("cold turns warm");
    let sweep = Sweep::new(&scenario.prepare());
    let (outcome, auto) = run(&scenario);
    assert!(sweep.regret(&outcome) <= 0.05, "{}", auto.why());
}

#[test]
fn a_neighbour_that_joins_ratchets_nothing() {
    let scenario = trap("neighbour joins");
    let (outcome, auto) = run(&scenario);
    let changed = outcome.changed_ns.unwrap();
    let before = outcome.timeline.iter().rfind(|moment| moment.at_ns <= changed).unwrap().window;
    let end = outcome.timeline.last().unwrap().window;
    assert!(end <= before, "{before} before, {end} at the end: {}", auto.why());
}

#[test]
fn a_program_that_takes_the_cores_does_not_raise_the_window_for_good() {
    let scenario = trap("another program computes");
    let sweep = Sweep::new(&scenario.prepare());
    let (outcome, auto) = run(&scenario);
    let end = outcome.timeline.last().unwrap().window;
    assert!(sweep.regret(&outcome) <= 0.05, "{}", auto.why());
    assert!(end <= 2 * sweep.sufficient(), "{end} at the end: {}", auto.why());
}

/// Asserts that a pause of the device costs nothing but its time.
#[track_caller]
fn outlasts(name: &str) {
    let scenario = trap(name);
    let sweep = Sweep::new(&scenario.prepare());
    let (outcome, auto) = run(&scenario);
    let changed = outcome.changed_ns.unwrap();
    let before = outcome.timeline.iter().rfind(|moment| moment.at_ns <= changed).unwrap().window;
    let end = outcome.timeline.last().unwrap().window;
    assert!(sweep.regret(&outcome) <= 0.05, "{}", auto.why());
    assert!(2 * end >= before, "{before} before, {end} at the end: {}", auto.why());
}

#[test]
fn a_device_that_pauses_for_50_ms_is_read_as_before() {
    outlasts("device pauses for 50 ms");
}

#[test]
fn a_device_that_pauses_for_a_second_is_read_as_before() {
    outlasts("device pauses for 1 s");
}

#[test]
fn a_cap_that_rises_while_the_latency_stays_is_found() {
    let scenario = trap("cap rises tenfold, latency 20 ms");
    let (outcome, auto) = run(&scenario);
    let (best, _) = best_after(&scenario, &WINDOWS[4..]);
    // At the end fewer and fewer requests are left.
    let (from, to) = (outcome.ns - 300 * MS, outcome.ns - 50 * MS);
    let late = outcome.timeline.iter().filter(|moment| from < moment.at_ns && moment.at_ns <= to);
    let requests: u64 = late.map(|moment| moment.requests).sum();
    let part = requests as f64 * 1e9 / (to - from) as f64 / best;
    let decisions: Vec<String> = auto.log().decisions().map(ToString::to_string).collect();
    assert!(part >= 0.95, "{part:.3} of {best:.0}/s: {decisions:#?}");
}

/// Asserts that a neighbour waits at most half as long again as at the smallest sufficient window.
#[track_caller]
fn spares(name: &str) {
    let scenario = trap(name);
    let prepared = scenario.prepare();
    let sufficient = Sweep::new(&prepared).sufficient();
    let fixed = prepared.run(&mut Fixed::new(sufficient), WINDOW_MAX);
    let (outcome, auto) = run(&scenario);
    let [ours, least] = [&outcome, &fixed].map(|outcome| outcome.neighbour_p90_ns().unwrap());
    assert!(2 * ours <= 3 * least, "{ours} ns, {least} at {sufficient}: {}", auto.why());
}

#[test]
fn a_neighbour_is_spared_at_a_cap_of_600() {
    spares("neighbour at a cap of 600");
}

#[test]
fn a_neighbour_is_spared_at_a_cap_of_3000() {
    spares("neighbour at a cap of 3000");
}

#[test]
fn a_neighbour_is_spared_on_sata() {
    spares("neighbour on sata");
}

#[test]
fn a_neighbour_is_spared_on_a_server() {
    spares("neighbour on a server");
}

/// `Auto` as the engine runs it: with batches that are gathered until they hold enough requests.
struct Gathered {
    auto: Auto,
    gather: Gather,
}

impl Tuner for Gathered {
    fn window(&self) -> u32 {
        self.auto.window()
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        let batch = self.gather.add(batch, self.auto.window())?;
        self.auto.observe(&batch)
    }
}

/// A job of 15 seconds has no time for long comparisons at 600 requests/s, and its neighbour waits for
/// the requests of its start once.
#[track_caller]
fn short_job_spares(polite: bool, cap_per_s: Option<u64>) {
    let mut scenario = trap("neighbour at a cap of 600");
    scenario.job.files = 9_000;
    let prepared = scenario.prepare();
    let fixed = prepared.run(&mut Fixed::new(8), WINDOW_MAX);
    let auto = Auto::new(AutoLimits {
        window_max: 512,
        permits: scenario.machine.cores,
        remaining: Some(9_000),
        polite,
        cap_per_s,
        ..AutoLimits::default()
    });
    let mut gathered = Gathered { auto, gather: Gather::default() };
    let outcome = prepared.run(&mut gathered, 512);
    let [ours, least] = [&outcome, &fixed].map(|outcome| outcome.neighbour_p90_ns().unwrap());
    let decisions: Vec<String> = gathered.auto.log().decisions().map(ToString::to_string).collect();
    assert!(2 * ours <= 3 * least, "{ours} ns, {least} with 8 in flight: {decisions:#?}");
    assert!(outcome.ns as f64 <= 1.02 * fixed.ns as f64, "{} {}", outcome.ns, fixed.ns);
}

#[test]
fn a_short_job_spares_a_neighbour_at_a_known_cap_of_600() {
    short_job_spares(false, Some(600));
}

#[test]
fn a_short_polite_job_spares_a_neighbour_at_a_cap_of_600() {
    short_job_spares(true, None);
}

/// A window that never changes; it counts the batches that it sees.
struct Counting {
    is_fixed: bool,
    batches: u64,
}

impl Tuner for Counting {
    fn window(&self) -> u32 {
        16
    }

    fn observe(&mut self, _batch: &Batch) -> Option<Decision> {
        self.batches += 1;
        None
    }

    fn is_fixed(&self) -> bool {
        self.is_fixed
    }
}

#[test]
fn batches_without_events_are_passed_over_and_change_nothing() {
    let mut scenario = grid::design().into_iter().find(|s| s.name == "sata 4k 0").unwrap();
    (scenario.job.files, scenario.machine.cores) = (500, 8);
    let mut run = |compute_ns, is_fixed| {
        scenario.job.compute_ns = compute_ns;
        let mut counting = Counting { is_fixed, batches: 0 };
        (scenario.prepare().run(&mut counting, WINDOW_MAX), counting.batches)
    };
    for compute_ns in [0, 20 * MS, SECOND] {
        assert_eq!(run(compute_ns, true).0, run(compute_ns, false).0, "{compute_ns}");
    }
    assert!(run(SECOND, false).1 > 5_000);
    let (hours, batches) = run(3_600 * SECOND, true);
    assert_eq!(hours.completed, 500);
    assert!(batches <= 200_000, "{batches}");
    let (tuned, observed) = run(3_600 * SECOND, false);
    assert_eq!((tuned.ns, tuned.completed), (hours.ns, hours.completed));
    assert!(observed <= 5_000, "{observed}");
}

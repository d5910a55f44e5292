use super::*;
use proptest::prelude::*;

/// One batch of a device with `capacity` requests per second and a latency, for workers that
/// never compute. `done` carries fractions of requests.
fn batch(window: u32, capacity: f64, latency_s: f64, done: &mut f64) -> Batch {
    let rate = capacity.min(f64::from(window) / latency_s);
    *done += rate * BATCH_NS as f64 / 1e9;
    let misses = *done as u64;
    *done -= misses as f64;
    Batch {
        elapsed_ns: BATCH_NS,
        files: misses,
        idle: 0.9,
        bytes: misses * 4096,
        misses,
        in_flight: f64::from(window),
        ..Batch::default()
    }
}

fn limits() -> AutoLimits {
    AutoLimits { window_max: 512, permits: 2, ..AutoLimits::default() }
}

fn after(auto: &mut Auto, batches: u32, capacity: f64, latency_s: f64) -> u32 {
    let mut done = 0.0;
    for _ in 0..batches {
        auto.observe(&batch(auto.window(), capacity, latency_s, &mut done));
    }
    auto.window()
}

#[test]
fn the_smallest_sufficient_window_is_found() {
    let mut auto = Auto::new(limits());
    // 40,000/s at 0.5 ms need 20 in flight.
    let window = after(&mut auto, 2_000, 40_000.0, 0.0005);
    assert!((20..=26).contains(&window), "{window}: {}", auto.why());
}

#[test]
fn a_cap_of_the_control_group_sets_the_start() {
    let capped = |cap| Auto::new(AutoLimits { cap_per_s: Some(cap), ..limits() });
    assert_eq!([1, 600, 1_000_000].map(|cap| capped(cap).window()), [8, 12, 512]);
    // The limited device is another one: the window opens.
    let window = after(&mut capped(600), 1_000, 40_000.0, 0.005);
    assert!((200..=260).contains(&window), "{window}");
}

#[test]
fn a_rise_of_latency_opens_the_window() {
    let mut auto = Auto::new(limits());
    after(&mut auto, 2_000, 40_000.0, 0.0005);
    let window = after(&mut auto, 200, 40_000.0, 0.020);
    assert_eq!(window, 512, "{}", auto.why());
}

#[test]
fn a_fall_of_capacity_closes_it() {
    let mut auto = Auto::new(limits());
    after(&mut auto, 2_000, 40_000.0, 0.0005);
    let window = after(&mut auto, 400, 4_000.0, 0.0005);
    assert!((2..=4).contains(&window), "{window}: {}", auto.why());
}

#[test]
fn a_warm_start_teaches_nothing() {
    let mut auto = Auto::new(limits());
    let warm = Batch {
        elapsed_ns: BATCH_NS,
        files: 5_000,
        hits: 5_000,
        bytes: 5_000 << 12,
        idle: 0.01,
        ..Batch::default()
    };
    for _ in 0..1_000 {
        assert_eq!(auto.observe(&warm), None);
    }
    assert_eq!(auto.window(), 512);
}

#[test]
fn other_limits_stop_the_search() {
    let mut auto = Auto::new(limits());
    for _ in 0..1_000 {
        let all = Batch { input_limited: 0.5, ..batch(auto.window(), 4e4, 5e-4, &mut 0.0) };
        assert_eq!(auto.observe(&all), None);
        let all = Batch { memory_limited: 0.5, ..batch(auto.window(), 4e4, 5e-4, &mut 0.0) };
        assert_eq!(auto.observe(&all), None);
    }
}

#[test]
fn short_jobs_do_not_explore() {
    let mut auto = Auto::new(AutoLimits { remaining: Some(10_000), ..limits() });
    assert_eq!(after(&mut auto, 50, 40_000.0, 0.0005), 512);
}

#[test]
fn files_in_memory_during_a_trial_lose_nothing() {
    // A few of the files may wait.
    for misses in [0, 20] {
        let mut auto = Auto::new(limits());
        let mut done = 0.0;
        while !matches!(auto.state, State::Trial { .. }) {
            auto.observe(&batch(auto.window(), 40_000.0, 0.0005, &mut done));
        }
        let before = auto.cost();
        let warm = batch(1, 1.0, 1.0, &mut 0.0);
        let warm = Batch { hits: 5_000, misses, in_flight: 4.0, idle: 0.0, ..warm };
        for _ in 0..1_000 {
            auto.observe(&warm);
        }
        assert_eq!(auto.cost().probing_ns, before.probing_ns, "{misses} waited");
    }
}

/// Nine of ten batches are empty, and no trial makes a difference.
#[test]
fn empty_batches_between_rare_completions_are_not_lost() {
    let mut auto = Auto::new(AutoLimits { remaining: Some(1 << 40), ..limits() });
    let window = after(&mut auto, 3_000, 20.0, 0.0005);
    let lost_ns = auto.cost().probing_ns;
    assert!(window <= 128 && lost_ns < 60 * BATCH_NS, "{lost_ns}: {}", auto.why());
    assert!(auto.spent_ns() > 600 * BATCH_NS, "further trials are limited as before");
}

#[test]
fn a_window_that_is_too_small_loses_what_each_batch_of_its_trial_does() {
    let mut auto = Auto::new(AutoLimits { remaining: Some(1 << 40), ..limits() });
    after(&mut auto, 100, 40_000.0, 0.020);
    let (lost_ns, spent_ns) = (auto.cost().probing_ns, auto.spent_ns());
    assert!(lost_ns > BATCH_NS, "{lost_ns}: {}", auto.why());
    assert!(lost_ns.abs_diff(spent_ns) < BATCH_NS, "{lost_ns} {spent_ns}");
}

#[test]
fn a_refusal_among_files_in_memory_is_ignored() {
    let mut auto = Auto::new(limits());
    let refused = Batch { refused: 1, hits: 5_000, misses: 0, ..batch(1, 1.0, 1.0, &mut 0.0) };
    assert_eq!(auto.observe(&refused), None);
}

#[test]
fn refusals_halve_the_window() {
    let mut auto = Auto::new(limits());
    let refused = Batch { refused: 100, ..batch(512, 2e4, 5e-4, &mut 0.0) };
    assert_eq!(auto.observe(&refused).map(|decision| decision.window), Some(256));
}

/// Observes batches of this length. Returns the window.
fn observe(auto: &mut Auto, ms: u64, misses: u64, first_ms: Option<u64>) -> u32 {
    let first_ns = first_ms.map(|ms| ms * 1_000_000);
    let none = batch(auto.window(), 0.0, 1.0, &mut 0.0);
    auto.observe(&Batch { elapsed_ns: ms * 1_000_000, files: misses, misses, first_ns, ..none });
    auto.window()
}

#[test]
fn a_pause_of_the_device_does_not_cut_the_window() {
    // As gathered, and as a single batch.
    for (ms, misses, first_ms) in [(35, 200, Some(30)), (1_000, 50, None)] {
        let mut auto = Auto::new(limits());
        let before = after(&mut auto, 2_000, 40_000.0, 0.0005);
        observe(&mut auto, ms, misses, first_ms);
        let window = after(&mut auto, 200, 40_000.0, 0.0005);
        assert!(window >= 20, "{before} before {ms} ms, {window} after: {}", auto.why());
    }
}

#[test]
fn a_fall_that_ends_is_not_kept() {
    let mut auto = Auto::new(limits());
    after(&mut auto, 1_600, 40_000.0, 0.0005);
    let cut = observe(&mut auto, 5, 10, None);
    assert!(cut < 5, "{cut}");
    let window = after(&mut auto, 200, 40_000.0, 0.0005);
    assert!(window >= 20, "{window}: {}", auto.why());
}

#[test]
fn a_function_that_pauses_is_not_a_slow_device() {
    let mut auto = Auto::new(limits());
    let before = after(&mut auto, 1_600, 40_000.0, 0.0005);
    for _ in 0..10 {
        let busy = Batch { idle: 0.0, ..batch(auto.window(), 2_000.0, 0.0005, &mut 0.0) };
        auto.observe(&busy);
    }
    assert_eq!(auto.window(), before, "{}", auto.why());
}

#[test]
fn a_window_that_uses_up_the_ready_files_is_too_small() {
    let mut auto = Auto::new(limits());
    // Busy workers take ten files in each batch, for which 160 must be at the device.
    let mut ready = 352_u32;
    for _ in 0..300 {
        let in_flight = auto.window().min(160);
        let misses = in_flight / 16;
        ready = ready.saturating_sub(10 - misses);
        auto.observe(&Batch {
            elapsed_ns: BATCH_NS,
            files: 10,
            bytes: u64::from(misses) * 4096,
            misses: u64::from(misses),
            in_flight: f64::from(in_flight),
            ready,
            ..Batch::default()
        });
    }
    let lost = |one: &Decision| matches!(one.reason, Reason::Lost { tried: 128, .. });
    assert!(auto.log().decisions().any(lost), "{}", auto.why());
    assert!(auto.window() >= 160 && ready > 0, "{}", auto.why());
}

#[test]
fn small_windows_are_tried_again() {
    for needed in 2..5 {
        let mut auto = Auto::new(limits());
        // At 0.5 ms so many in flight are just enough.
        let window = after(&mut auto, 12_000, 2_000.0 * f64::from(needed), 0.0005);
        assert_eq!(window, needed, "{}", auto.why());
        let decisions = || auto.log().decisions();
        let found = decisions().find(|one| one.window == needed).unwrap().at_ns;
        let again = decisions()
            .filter(|one| matches!(one.reason, Reason::TrySmaller { .. }))
            .any(|one| one.at_ns > found + 1_500_000_000);
        assert!(again, "{needed} were found sufficient at {found} ns and kept for ever");
    }
}

#[test]
fn a_cap_of_bytes_sets_the_start() {
    let capped = |cap_per_s, bytes| {
        let limits = AutoLimits { cap_per_s, cap_bytes_per_s: Some(bytes), ..limits() };
        Auto::new(limits)
    };
    let windows = [1, 50_000_000, 100_000_000_000].map(|bytes| capped(None, bytes).window());
    assert_eq!(windows, [8, 31, 512]);
    let least = [(600, 50_000_000), (6_000, 50_000_000)];
    let windows = least.map(|(requests, bytes)| capped(Some(requests), bytes).window());
    assert_eq!(windows, [12, 31], "the smaller one counts");
    let auto = capped(None, 50_000_000);
    assert!(auto.why().contains("50.0 MB/s"), "{}", auto.why());
}

#[test]
fn a_capacity_that_rises_is_found() {
    let mut auto = Auto::new(limits());
    let before = after(&mut auto, 4_000, 600.0, 0.020);
    assert!((12..=16).contains(&before), "{before}");
    let window = after(&mut auto, 60_000, 6_000.0, 0.020);
    assert!((114..=160).contains(&window), "{window}: {}", auto.why());
}

/// `others` requests of neighbours are in flight all the time, and everyone gets a share.
#[test]
fn a_share_of_a_neighbour_is_not_taken() {
    for others in [8.0, 24.0] {
        let mut auto = Auto::new(limits());
        let before = after(&mut auto, 2_000, 6_000.0, 0.0005);
        let mut done = 0.0;
        for _ in 0..60_000 {
            let own = f64::from(auto.window());
            let share = batch(auto.window(), 6_000.0 * own / (own + others), 0.0005, &mut done);
            auto.observe(&share);
        }
        assert!(auto.window() <= before, "{before} before: {}", auto.why());
    }
}

#[test]
fn a_window_that_descriptors_cut_grows_again() {
    let mut auto = Auto::new(limits());
    while auto.window() > 64 {
        auto.observe(&Batch { refused: 1_000, ..batch(auto.window(), 4e4, 5e-3, &mut 0.0) });
        after(&mut auto, 10, 40_000.0, 0.005);
    }
    let window = after(&mut auto, 4_000, 40_000.0, 0.005);
    assert!((190..=260).contains(&window), "{window}: {}", auto.why());
}

#[test]
fn a_larger_window_that_is_refused_is_left_at_once() {
    let mut auto = Auto::new(limits());
    while auto.window() > 64 {
        auto.observe(&Batch { refused: 1_000, ..batch(auto.window(), 4e4, 5e-3, &mut 0.0) });
        after(&mut auto, 10, 40_000.0, 0.005);
    }
    let (mut done, mut refusals) = (0.0, 0);
    for _ in 0..10_000 {
        let all = batch(auto.window(), 4e4, 5e-3, &mut done);
        let refused = if auto.window() > 64 { 1_000 } else { 0 };
        refusals += u32::from(refused > 0);
        auto.observe(&Batch { refused, ..all });
    }
    assert!((1..10).contains(&refusals), "{refusals}");
    assert_eq!(auto.window(), 64, "{}", auto.why());
}

#[test]
fn a_polite_run_jumps_although_its_first_second_came_from_memory() {
    let mut auto = Auto::new(AutoLimits { polite: true, remaining: Some(1 << 40), ..limits() });
    let warm = Batch { hits: 5_000, misses: 0, in_flight: 1.0, ..batch(1, 1.0, 1.0, &mut 0.0) };
    for _ in 0..200 {
        auto.observe(&warm);
    }
    after(&mut auto, 2_000, 600.0, 0.0005);
    let tried = |one: &&Decision| matches!(one.reason, Reason::TrySmaller { .. });
    let first = auto.log().decisions().find(tried).unwrap().window;
    assert!(first <= 16, "{first}");
}

#[test]
fn a_run_about_to_end_does_not_explore() {
    let mut auto = Auto::new(limits());
    after(&mut auto, 20, 40_000.0, 0.0005);
    auto.set_remaining(Some(1_000));
    assert_eq!(after(&mut auto, 1_000, 40_000.0, 0.0005), 512);
}

fn no_ring(lost_ns: u64, begin: Option<u32>) -> crate::Turn {
    let reason = Reason::NoRing { loss: 0.1, error: 0.01 };
    crate::Turn { reason, lost_ns, begin, window_max: 512 }
}

#[test]
fn what_the_choice_of_the_method_lost_leaves_trials_of_windows_their_budget() {
    let mut auto = Auto::new(AutoLimits { remaining: Some(1 << 40), ..limits() });
    let mut is_worth = || {
        after(&mut auto, 1, 40_000.0, 0.0005);
        auto.is_worth(LIKELY_LOSS)
    };
    assert!((0..200).any(|_| is_worth()));
    let lost_ns = 1 << 62;
    auto.turn(&no_ring(lost_ns, None));
    assert!(auto.is_worth(LIKELY_LOSS));
    assert!(auto.cost().probing_ns >= lost_ns, "it is reported");
}

#[test]
fn what_drains_after_a_comparison_leaves_trials_of_windows_their_budget() {
    let mut auto = Auto::new(limits());
    auto.hold(true);
    after(&mut auto, 50, 40_000.0, 0.0005);
    let before = auto.cost().probing_ns;
    auto.set_aside(&batch(256, 40_000.0, 0.0005, &mut 0.0), 256);
    auto.turn(&no_ring(0, None));
    // The requests of the ring complete slowly.
    after(&mut auto, 2, 4_000.0, 0.0005);
    let drained = auto.cost().probing_ns - before;
    assert!(drained > BATCH_NS, "it is reported: {drained}");
    assert!(
        auto.method_ns > BATCH_NS && auto.trials_ns == 0,
        "{} {}",
        auto.method_ns,
        auto.trials_ns
    );
}

#[test]
fn the_last_decision_about_the_method_is_a_reason() {
    let mut auto = Auto::new(limits());
    auto.turn(&no_ring(0, None));
    let said = || auto.why().matches("throughput by io_uring").count();
    assert_eq!(said(), 1, "{}", auto.why());
    assert!(auto.why().starts_with("512 in flight: start value; "), "{}", auto.why());
    let window = after(&mut auto, 2_000, 40_000.0, 0.0005);
    let text = auto.why();
    assert!(window < 512 && text.contains("lost to trials; -10.0 ± 1.0 %"), "{text}");
}

#[test]
fn the_search_after_a_ring_begins_with_what_the_control_group_allows() {
    let left = |cap_per_s| {
        let mut auto = Auto::new(AutoLimits { cap_per_s, ..limits() });
        let reason = Reason::RingHits { share: 0.5 };
        auto.turn(&crate::Turn { reason, lost_ns: 0, begin: Some(512), window_max: 512 });
        (auto.window(), auto.upward)
    };
    assert_eq!(left(Some(600)), (12, true));
    assert_eq!(left(None), (512, false));
}

#[test]
fn another_method_is_not_compared_with_samples_of_the_one_before() {
    let mut auto = Auto::new(limits());
    after(&mut auto, 50, 40_000.0, 0.0005);
    auto.looking = Some(auto.level);
    auto.turn(&no_ring(0, Some(64)));
    assert!(auto.looking.is_none() && auto.best.is_none());
    assert_eq!((auto.level.samples, auto.window()), (0, 64));
}

proptest! {
    #[test]
    fn the_window_stays_in_bounds(
        window_max in 0u32..2_000,
        prior in proptest::option::of(0u32..5_000),
        batches in proptest::collection::vec(
            (0u64..100_000_000, 0u64..10_000, -1.0f64..2.0, 0.0f64..1_000.0, 0u64..50),
            0..400,
        ),
    ) {
        let start = prior.map(|window| Prior { window });
        let mut auto = Auto::new(AutoLimits { window_max, start, ..AutoLimits::default() });
        for (elapsed_ns, misses, idle, in_flight, refused) in batches {
            let batch = Batch {
                elapsed_ns, files: misses, misses, bytes: misses * 1_000, idle, in_flight,
                refused, ..Batch::default()
            };
            auto.observe(&batch);
            prop_assert!(auto.window() >= 1 && auto.window() <= window_max.max(1));
        }
    }
}

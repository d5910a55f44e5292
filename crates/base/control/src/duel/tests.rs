use super::*;
use crate::{Auto, AutoLimits, BATCH_NS, Phase};

/// A job whose files take a method so many a second, with steady noise.
struct Job {
    nowait: f64,
    ring: f64,
    /// Relative standard deviation of a batch.
    noise: f64,
    hit_share: f64,
    left: u64,
    random: u64,
    at_ns: u64,
    duel: Duel,
    auto: Auto,
    changes: u32,
    turns: Vec<(u64, Reason)>,
}

const WINDOW: u32 = 512;
const RING: u32 = 256;
const FILE: u64 = 10_000;

impl Job {
    fn new(nowait: f64, ring: f64, noise: f64) -> Self {
        let limits = AutoLimits {
            window_max: WINDOW,
            permits: 2,
            remaining: Some(200_000),
            ..AutoLimits::default()
        };
        Self {
            nowait,
            ring,
            noise,
            hit_share: 0.0,
            left: 200_000,
            random: 1,
            at_ns: 0,
            duel: Duel::new(WINDOW, RING, false),
            auto: Auto::new(limits),
            changes: 0,
            turns: Vec::new(),
        }
    }

    /// Nearly normal, with mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        let mut sum = 0.0;
        for _ in 0..12 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sum += (self.random >> 11) as f64 / (1u64 << 53) as f64;
        }
        sum - 6.0
    }

    /// Runs one batch as an engine does.
    fn batch(&mut self, change: impl Fn(&mut Batch, &mut Signs)) {
        let rate = match self.duel.method() {
            Rival::Nowait => self.nowait,
            Rival::Ring => self.ring,
        };
        let window = self.duel.window().unwrap_or(self.auto.window());
        let files = rate * BATCH_NS as f64 / 1e9 * (1.0 + self.noise * self.normal()).max(0.1);
        let files = (files as u64).min(self.left);
        // A ring does not show hits.
        let shown = if self.duel.method() == Rival::Nowait { self.hit_share } else { 0.0 };
        let hits = (files as f64 * shown) as u64;
        let cold = files as f64 * (1.0 - self.hit_share);
        let mut batch = Batch {
            elapsed_ns: BATCH_NS,
            files,
            idle: 0.3,
            bytes: files * FILE,
            hits,
            misses: files - hits,
            in_flight: f64::from(window),
            ..Batch::default()
        };
        self.at_ns += BATCH_NS;
        self.left -= files;
        let comparing = self.duel.window().is_some();
        if let Some(window) = self.duel.window() {
            self.auto.set_aside(&batch, window);
        } else {
            self.auto.hold(self.duel.wants_hold());
            self.auto.observe(&batch);
        }
        let changed = self.auto.changes() != self.changes;
        self.changes = self.auto.changes();
        let mut signs = Signs {
            at_ns: self.at_ns,
            window: self.auto.window(),
            holds: !comparing && self.auto.phase() == Phase::Hold,
            changed,
            probing_ns: self.auto.spent_ns(),
            left: self.left,
            left_known: true,
            ended: self.left == 0,
            device_bytes: (cold * FILE as f64) as u64,
            ..Signs::default()
        };
        change(&mut batch, &mut signs);
        if let Some(turn) = self.duel.observe(&batch, &signs) {
            self.turns.push((self.at_ns, turn.reason));
            self.auto.turn(&turn);
        }
    }

    fn run(&mut self, batches: u32) -> &mut Self {
        for _ in 0..batches {
            self.batch(|_, _| {});
        }
        self
    }

    fn until_leg(&mut self, rival: Rival) {
        for _ in 0..1_000 {
            if self.duel.window().is_some() && self.duel.method() == rival {
                return;
            }
            self.run(1);
        }
        panic!("no such leg begins: {:?}", self.turns);
    }

    fn reasons(&self) -> Vec<Reason> {
        self.turns.iter().map(|(_, reason)| *reason).collect()
    }
}

#[test]
fn the_faster_method_is_kept() {
    let mut job = Job::new(20_000.0, 24_000.0, 0.1);
    job.run(300);
    assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);
    let [Reason::TryRing { rate }, Reason::Ring { gain, error }] = job.reasons()[..] else {
        panic!("{:?}", job.turns)
    };
    assert!((rate - 20_000.0).abs() < 2_000.0, "{rate}");
    assert!((gain - 0.2).abs() < 3.0 * error && error < 0.1, "{gain} {error}");
    assert!(job.auto.window() <= RING);
    // 100 ms each, and the time in which what was in flight completes.
    let took_ms = (job.turns[1].0 - job.turns[0].0) / 1_000_000;
    assert!((800..1_200).contains(&took_ms), "two rounds: {took_ms}");

    let mut job = Job::new(20_000.0, 17_500.0, 0.1);
    job.run(300);
    assert_eq!(job.duel.method(), Rival::Nowait);
    let [Reason::TryRing { .. }, Reason::NoRing { loss, error }] = job.reasons()[..] else {
        panic!("{:?}", job.turns)
    };
    assert!((loss - 0.125).abs() < 4.0 * error, "{loss} {error}");
    assert!(job.auto.why().contains("lost to trials"), "{}", job.auto.why());
}

#[test]
fn equal_methods_keep_reads_that_do_not_wait() {
    for noise in [0.02, 0.2] {
        let wrong = (1..=100).filter(|seed| {
            let mut job = Job::new(20_000.0, 20_000.0, noise);
            job.random = u64::wrapping_mul(*seed, 0x9E37_79B9_7F4A_7C15);
            job.run(400).duel.method() == Rival::Ring
        });
        // The odds of a gain of two and a half standard errors by chance, twice.
        let wrong = wrong.count();
        assert!(wrong <= 4, "{wrong} of 100 with a noise of {noise}");
    }
}

#[test]
fn a_clear_loss_ends_the_comparison_early() {
    let mut job = Job::new(20_000.0, 10_000.0, 0.05);
    job.run(300);
    let [(began, _), (ended, Reason::NoRing { loss, .. })] = job.turns[..] else {
        panic!("{:?}", job.turns)
    };
    assert!(loss > 0.4, "{loss}");
    assert!(ended - began < 250_000_000, "a part of the first leg by a ring");
    let lost_ms = job.auto.cost().probing_ns / 1_000_000;
    assert!((10..150).contains(&lost_ms), "it is accounted: {lost_ms}");
}

#[test]
fn jobs_that_cannot_repay_it_compare_nothing() {
    let case = |set: fn(&mut Job), change: fn(&mut Batch, &mut Signs)| {
        let mut job = Job::new(20_000.0, 40_000.0, 0.02);
        set(&mut job);
        for _ in 0..200 {
            job.batch(change);
        }
        job.turns.len()
    };
    assert!(case(|_| {}, |_, _| {}) > 0, "the ring is faster");
    assert_eq!(case(|job| job.left = 15_000, |_, _| {}), 0, "it ends soon");
    assert_eq!(case(|job| job.left = 38_000, |_, _| {}), 0, "two rounds are most of what repays");
    assert!(case(|job| job.left = 52_000, |_, _| {}) > 0, "the rest repays two rounds");
    assert_eq!(case(|job| job.hit_share = 0.6, |_, _| {}), 0, "files in memory");
    assert_eq!(case(|_| {}, |_, signs| signs.unanswered = true), 0, "no support");
    assert_eq!(case(|_| {}, |_, signs| signs.refused = true), 0, "no ring");
    assert_eq!(case(|_| {}, |_, signs| signs.device_bytes = 0), 0, "no device");
    assert_eq!(case(|_| {}, |batch, _| batch.bytes *= 100), 0, "large files");
    assert_eq!(case(|_| {}, |batch, _| batch.input_limited = 1.0), 0, "no paths");
    assert_eq!(case(|_| {}, |_, signs| signs.probing_ns = 1 << 40), 0, "too many trials");
    let slow = |batch: &mut Batch, _: &mut Signs| batch.elapsed_ns *= 20;
    assert_eq!(case(|_| {}, slow), 0, "a slow device");
    assert_eq!(case(|job| job.duel = Duel::new(WINDOW, 0, false), |_, _| {}), 0, "one method");
}

#[test]
fn without_a_known_number_of_files_the_age_of_the_run_counts() {
    let mut job = Job::new(20_000.0, 40_000.0, 0.02);
    for _ in 0..900 {
        job.batch(|_, signs| (signs.left, signs.left_known) = (0, false));
    }
    assert!(job.turns[0].0 > 1_900_000_000, "{:?}", job.turns);
    assert_eq!(job.duel.method(), Rival::Ring);
}

#[test]
fn the_window_that_was_found_is_compared() {
    for polite in [false, true] {
        let mut job = Job::new(20_000.0, 40_000.0, 0.02);
        job.duel = Duel::new(WINDOW, RING, polite);
        assert_eq!(job.duel.wants_hold(), !polite);
        for _ in 0..20 {
            job.batch(|_, signs| (signs.holds, signs.window) = (true, 24));
        }
        job.until_leg(Rival::Ring);
        assert_eq!(job.duel.window(), Some(24));
        job.run(400);
        assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);
        assert!(job.auto.window() <= 24, "the search begins there: {}", job.auto.window());
    }
}

#[test]
fn faster_files_in_the_middle_of_a_round_are_no_gain() {
    for seed in 1..=50 {
        let mut job = Job::new(20_000.0, 22_000.0, 0.02);
        job.random = u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15);
        job.until_leg(Rival::Ring);
        job.until_leg(Rival::Nowait);
        job.ring = 20_000.0;
        job.run(300);
        assert!(
            matches!(job.reasons()[..], [Reason::TryRing { .. }, Reason::NoRing { .. }]),
            "{:?}",
            job.turns
        );
    }
}

#[test]
fn slower_files_in_the_first_half_of_a_round_are_no_loss() {
    let mut job = Job::new(20_000.0, 17_000.0, 0.02);
    job.until_leg(Rival::Ring);
    job.run(30);
    assert_eq!(job.turns.len(), 1, "the first leg by a ring is over: {:?}", job.turns);
    job.ring = 27_000.0;
    job.run(60);
    assert_eq!(job.turns.len(), 1, "a round is not enough: {:?}", job.turns);
}

#[test]
fn a_ring_whose_files_are_in_memory_gains_nothing() {
    let mut job = Job::new(20_000.0, 24_000.0, 0.05);
    for _ in 0..300 {
        let of_ring = job.duel.method() == Rival::Ring;
        job.batch(|_, signs| {
            if of_ring {
                signs.device_bytes = signs.device_bytes / 4 * 3;
            }
        });
    }
    let reasons = job.reasons();
    assert_eq!(reasons[1], Reason::NoComparison, "{:?}", job.turns);
    assert!(!reasons.iter().any(|reason| matches!(reason, Reason::Ring { .. })), "{:?}", job.turns);
    // The next files are like these: the next comparison begins after a pause.
    let next = job.turns.get(2);
    assert!(next.is_none_or(|turn| turn.0 >= job.turns[1].0 + PAUSE_NS), "{:?}", job.turns);
}

#[test]
fn a_ring_that_cannot_be_created_ends_it() {
    let mut job = Job::new(20_000.0, 40_000.0, 0.02);
    job.until_leg(Rival::Ring);
    job.batch(|_, signs| signs.refused = true);
    assert_eq!((job.duel.method(), job.duel.window()), (Rival::Nowait, None));
    job.run(500);
    assert_eq!(job.turns.len(), 2, "{:?}", job.turns);
    assert_eq!(job.turns[1].1, Reason::NoComparison);
}

#[test]
fn a_ring_that_has_won_and_cannot_be_created_says_so() {
    let mut job = Job::new(20_000.0, 30_000.0, 0.05);
    job.run(280);
    assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);
    job.batch(|_, signs| signs.refused = true);
    assert_eq!(job.duel.method(), Rival::Nowait);
    let last = job.turns.last().unwrap().1;
    assert!(matches!(last, Reason::RingRefused { gain } if gain > 0.3), "{last}");
    let text = job.auto.why();
    assert!(text.contains("% throughput by io_uring, but a ring could not be created"), "{text}");
}

#[test]
fn a_lack_of_descriptors_ends_a_comparison_but_not_the_ring_that_was_chosen() {
    fn refused(batch: &mut Batch, signs: &mut Signs) {
        batch.refused = batch.files;
        signs.changed = true;
    }
    let mut job = Job::new(20_000.0, 30_000.0, 0.05);
    job.until_leg(Rival::Ring);
    job.batch(refused);
    assert_eq!((job.duel.method(), job.duel.window()), (Rival::Nowait, None));
    assert_eq!(job.turns[1].1, Reason::NoComparison);
    let mut job = Job::new(20_000.0, 30_000.0, 0.05);
    job.run(280);
    job.batch(refused);
    assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);
}

#[test]
fn the_end_of_the_input_in_a_leg_decides_nothing() {
    let mut job = Job::new(20_000.0, 24_000.0, 0.02);
    job.until_leg(Rival::Ring);
    job.run(12);
    job.left = 50;
    job.run(60);
    assert_eq!(job.turns.len(), 2, "{:?}", job.turns);
    assert_eq!(job.turns[1].1, Reason::NoComparison);
}

#[test]
fn a_leg_without_input_is_measured_again() {
    fn few(batch: &mut Batch, signs: &mut Signs) {
        batch.files /= 10;
        batch.misses /= 10;
        batch.bytes /= 10;
        signs.device_bytes /= 10;
    }
    fn none(batch: &mut Batch, signs: &mut Signs) {
        few(batch, signs);
        batch.input_limited = 1.0;
        batch.in_flight = 1.0;
    }
    // The input became short before it was noticed.
    let mut job = Job::new(20_000.0, 21_000.0, 0.02);
    job.until_leg(Rival::Ring);
    job.run(12);
    (0..2).for_each(|_| job.batch(few));
    job.batch(none);
    job.run(300);
    assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);

    // An input that is short again and again.
    let mut job = Job::new(20_000.0, 21_000.0, 0.02);
    job.until_leg(Rival::Ring);
    while job.turns.len() < 2 {
        job.run(12);
        job.batch(none);
    }
    assert_eq!(job.turns[1].1, Reason::NoComparison, "{:?}", job.turns);
}

#[test]
fn other_limits_end_a_comparison_without_a_result() {
    for change in
        [(|_, signs| signs.unanswered = true) as fn(&mut Batch, &mut Signs), |batch, _| {
            batch.memory_limited = 1.0
        }]
    {
        let mut job = Job::new(20_000.0, 40_000.0, 0.02);
        job.until_leg(Rival::Ring);
        for _ in 0..20 {
            job.batch(change);
        }
        assert_eq!((job.duel.method(), job.duel.window()), (Rival::Nowait, None));
        assert_eq!(job.turns[1].1, Reason::NoComparison, "{:?}", job.turns);
    }
    let mut job = Job::new(20_000.0, 40_000.0, 0.02);
    job.until_leg(Rival::Ring);
    assert_eq!(job.duel.disturb().unwrap().reason, Reason::NoComparison);
    assert_eq!((job.duel.method(), job.duel.disturb()), (Rival::Nowait, None));
}

/// Returns a job whose second leg by a ring has just ended.
fn in_leg_3() -> Job {
    let mut job = Job::new(20_000.0, 20_000.0, 0.0);
    job.until_leg(Rival::Ring);
    job.until_leg(Rival::Nowait);
    job
}

#[test]
fn a_device_that_becomes_slow_ends_a_comparison() {
    // While what was in flight completes, and after that.
    for before in [0, 10] {
        let mut job = in_leg_3();
        job.run(before);
        (job.nowait, job.ring) = (200.0, 200.0);
        job.run(200);
        assert_eq!((job.duel.method(), job.duel.window()), (Rival::Nowait, None));
        assert_eq!(job.reasons()[1..], [Reason::NoComparison], "{:?}", job.turns);
        job.run(1_200);
        let fell = |one: &crate::Decision| matches!(one.reason, Reason::Fell { .. });
        assert!(job.auto.log().decisions().any(fell), "{}", job.auto.why());
    }
}

#[test]
fn a_device_that_becomes_fast_and_large_files_end_a_comparison() {
    let mut job = in_leg_3();
    job.run(10);
    (job.nowait, job.ring) = (60_000.0, 60_000.0);
    job.run(10);
    assert_eq!(job.turns.get(1).map(|turn| turn.1), Some(Reason::NoComparison));

    let mut job = in_leg_3();
    for _ in 0..20 {
        job.batch(|batch, _| batch.bytes = batch.files << 30);
    }
    assert_eq!(job.duel.window(), None);
    assert_eq!(job.reasons()[1..], [Reason::NoComparison], "{:?}", job.turns);
}

#[test]
fn files_in_memory_and_changes_of_the_device_give_the_ring_up() {
    let chosen = || {
        let mut job = Job::new(20_000.0, 30_000.0, 0.05);
        job.run(280);
        assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);
        job
    };
    let mut job = chosen();
    job.hit_share = 0.15;
    job.run(100);
    assert_eq!(job.duel.method(), Rival::Ring, "{:?}", job.turns);
    job.hit_share = 0.7;
    for _ in 0..100 {
        if job.duel.method() == Rival::Ring {
            job.run(1);
        }
    }
    let last = job.turns.last().unwrap().1;
    assert!(matches!(last, Reason::RingHits { share } if share > 0.3), "{last}");
    assert!(last.to_string().starts_with("the device delivers "), "{last}");
    assert_eq!(job.auto.window(), WINDOW, "the window is searched again");

    let mut job = chosen();
    job.batch(|_, signs| signs.changed = true);
    assert_eq!(job.duel.method(), Rival::Nowait);
    assert_eq!(job.turns.last().unwrap().1, Reason::RingChanged);
    assert_eq!(job.auto.phase(), Phase::Measure, "samples of the ring are no reference");
}

#[test]
fn comparisons_are_few() {
    let mut job = Job::new(20_000.0, 18_000.0, 0.02);
    for round in 0..2_000 {
        job.left = 200_000;
        job.batch(|_, signs| signs.changed = round % 200 == 199);
    }
    let begun = job.reasons().iter().filter(|r| matches!(r, Reason::TryRing { .. })).count();
    assert!((2..=DUELS as usize).contains(&begun), "{begun}");
}

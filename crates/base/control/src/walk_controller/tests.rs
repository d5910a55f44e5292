use super::*;
use proptest::prelude::*;

/// A medium: the seconds needed to walk a tree with 1, 2, 4 … 256 threads.
struct Medium {
    seconds: &'static [f64],
    entries: f64,
    /// Processor seconds for the whole tree.
    cpu: f64,
}

impl Medium {
    /// Returns the seconds for the whole tree with `workers`, interpolated between the two
    /// nearest counts.
    fn alone(&self, workers: u32) -> f64 {
        let at = f64::from(workers).log2().clamp(0.0, (self.seconds.len() - 1) as f64);
        let low = at.floor() as usize;
        let high = (low + 1).min(self.seconds.len() - 1);
        let part = at - low as f64;
        self.seconds[low] * (1.0 - part) + self.seconds[high] * part
    }

    /// Returns the same if `cores` do all the computing.
    fn on(&self, workers: u32, cores: u32) -> f64 {
        self.alone(workers).max(self.cpu / f64::from(cores))
    }

    fn rate(&self, workers: u32, cores: u32) -> f64 {
        self.entries / self.on(workers, cores)
    }

    /// Returns the share of worker time spent waiting for the device; the rest is computing and
    /// waiting for a core.
    fn blocked(&self, workers: u32, cores: u32) -> f64 {
        let waited = self.alone(workers) * f64::from(workers) - self.cpu;
        (waited / (self.on(workers, cores) * f64::from(workers))).clamp(0.0, 1.0)
    }
}

/// Small generator; a seed always produces the same run.
fn noise(random: &mut u64, size: f64) -> f64 {
    *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    1.0 + size * ((*random >> 33) as f64 / f64::from(1u32 << 31) * 2.0 - 1.0)
}

/// Returns the seconds for the whole tree under the controller's control.
fn walked(controller: &mut WalkController, medium: &Medium, random: &mut u64) -> f64 {
    let (mut left, mut seconds, mut workers) = (medium.entries, 0.0, controller.workers);
    while left > 0.0 {
        let rate = medium.rate(workers, controller.cores) * noise(random, 0.03);
        let files = (rate * 0.01).min(left);
        left -= files;
        seconds += 0.01;
        let batch = Batch {
            elapsed_ns: 10_000_000,
            files: files as u64,
            idle: medium.blocked(workers, controller.cores) * noise(random, 0.1),
            ..Batch::default()
        };
        workers = controller.decide(&batch);
        assert!((1..=256).contains(&workers));
    }
    seconds
}

/// The published table: one tree of 2,835,154 files on four media, with 1 to 256 threads on 16
/// hardware threads. The processor time is that of the processor-bound run: all sixteen for six
/// seconds.
fn published() -> [(&'static str, Medium); 4] {
    let medium = |seconds| Medium { seconds, entries: 2_835_154.0, cpu: 34.0 };
    [
        ("nvme", medium(&[36.14, 19.0, 11.07, 7.19, 6.0, 6.06, 6.08, 6.15, 6.35])),
        ("hdd", medium(&[149.83, 110.02, 108.61, 102.38, 112.52, 124.47, 139.83, 135.01, 138.1])),
        ("usb2", medium(&[87.22, 66.68, 58.99, 54.05, 57.75, 63.22, 66.49, 66.63, 67.44])),
        ("usb3.2", medium(&[39.68, 25.27, 25.33, 22.57, 23.57, 22.46, 22.72, 25.15, 24.03])),
    ]
}

#[test]
fn published_media_are_walked_near_the_best_fixed_count() {
    for (name, medium) in published() {
        for cores in [2, 4, 16] {
            let counts = (0..9).map(|power| medium.on(1 << power, cores));
            let best = counts.fold(f64::INFINITY, f64::min);
            for seed in 0..20 {
                let mut controller = WalkController::new(cores, 256);
                let seconds = walked(&mut controller, &medium, &mut (seed * 7 + 1));
                let ratio = seconds / best;
                assert!(
                    ratio < 1.10,
                    "{name} {cores} cores seed {seed}: {ratio:.3} ({})",
                    controller.why()
                );
            }
        }
    }
}

#[test]
fn warm_it_stays_with_the_cores() {
    // Processor-bound: 16 cores; more threads change nothing.
    let warm = Medium {
        seconds: &[34.0, 17.0, 8.5, 4.25, 2.2, 2.2, 2.2, 2.2, 2.3],
        entries: 2e6,
        cpu: 34.0,
    };
    for seed in 1..20 {
        let mut controller = WalkController::new(16, 256);
        walked(&mut controller, &warm, &mut (seed * 3));
        assert_eq!(controller.workers, 16);
        assert!(controller.why().contains("one per usable core"), "{}", controller.why());
    }
}

#[test]
fn blocked_workers_get_company_at_once() {
    let mut controller = WalkController::new(2, 256);
    let batch = Batch { elapsed_ns: 9_000_000, files: 100, idle: 0.4, ..Batch::default() };
    // 3.3 keep both cores busy.
    assert_eq!(controller.decide(&batch), 7);
    assert!(controller.why().contains("40 %"), "{}", controller.why());
    let batch = Batch { idle: 0.9, ..batch };
    assert_eq!(WalkController::new(2, 256).decide(&batch), 16);
    assert_eq!(WalkController::new(2, 10).decide(&batch), 10);
    let mut controller = WalkController::new(2, 2);
    assert_eq!(controller.decide(&batch), 2);
    let text = "2 threads: no more are allowed, although they were blocked 90 % of the time";
    assert_eq!(controller.why(), text);
}

#[test]
fn workers_that_are_blocked_and_wait_for_each_other_are_not_called_fast() {
    let mut controller = WalkController::new(2, 64).starting_with_one();
    // As after a trial of one worker that was no faster.
    controller.workers = 2;
    controller.warm(0.15, 0.0, 10_000.0);
    assert_eq!(controller.workers(), 2);
    let text = "blocked 15 % of the time, but also wait for each other";
    assert!(controller.why().contains(text), "{}", controller.why());
}

#[test]
fn a_tree_that_becomes_cold_is_noticed() {
    let mut controller = WalkController::new(2, 64);
    let warm = Batch { elapsed_ns: 10_000_000, files: 10_000, idle: 0.01, ..Batch::default() };
    for _ in 0..50 {
        assert_eq!(controller.decide(&warm), 2);
    }
    let cold = Batch { files: 300, idle: 0.8, ..warm };
    for _ in 0..3 {
        controller.decide(&cold);
    }
    assert!(controller.workers >= 16);
}

/// Runs the controller with workers that spend half of their time waiting for each other, given
/// the rate in entries per second for each number of workers.
fn crowd(cores: u32, rates: &[(u32, f64)], windows: usize) -> WalkController {
    crowded(WalkController::new(cores, 256), rates, windows)
}

fn crowded(mut controller: WalkController, rates: &[(u32, f64)], windows: usize) -> WalkController {
    let mut random = 7;
    for _ in 0..windows {
        let rate = rates.iter().find(|(workers, _)| *workers == controller.workers()).unwrap().1;
        let files = (rate * 0.01 * noise(&mut random, 0.02)) as u64;
        let locked = if controller.workers() > 1 { 0.5 } else { 0.0 };
        controller.decide(&Batch { elapsed_ns: 10_000_000, files, locked, ..Batch::default() });
    }
    controller
}

#[test]
fn workers_that_wait_for_each_other_become_fewer() {
    let controller = crowd(2, &[(2, 47_000.0), (1, 57_000.0)], 16);
    assert_eq!(controller.workers(), 1, "{}", controller.why());
    assert!(controller.why().contains("waited for each other"), "{}", controller.why());
    let many = [(16, 40_000.0), (8, 60_000.0), (4, 80_000.0), (2, 70_000.0), (1, 50_000.0)];
    let controller = crowd(16, &many, 40);
    assert_eq!(controller.workers(), 4, "{}", controller.why());
}

#[test]
fn fewer_workers_become_more_when_they_no_longer_wait_for_each_other() {
    let rates = [(16, 40_000.0), (8, 60_000.0), (4, 80_000.0), (2, 100_000.0), (1, 50_000.0)];
    let mut controller = crowd(16, &rates, 40);
    assert_eq!(controller.workers(), 2, "{}", controller.why());
    let others = (0..3_000).filter(|_| {
        let workers = controller.workers();
        let rate = rates.iter().find(|(other, _)| *other == workers).unwrap().1;
        let (elapsed_ns, files) = (10_000_000, (rate * 0.01) as u64);
        controller.decide(&Batch { elapsed_ns, files, locked: 0.5, ..Batch::default() });
        workers != 2
    });
    let others = others.count();
    assert!((7..70).contains(&others), "trials in vain become rare: {others} windows");

    let mut controller = crowd(16, &rates, 40);
    for _ in 0..1_000 {
        let files = 200 * u64::from(controller.workers());
        controller.decide(&Batch { elapsed_ns: 10_000_000, files, ..Batch::default() });
    }
    assert_eq!(controller.workers(), 16, "{}", controller.why());
}

#[test]
fn a_tree_that_blocks_a_little_does_not_change_the_number_again_and_again() {
    // One worker per core is blocked for 15 % of the time, and more share the cores.
    let medium = Medium {
        seconds: &[100.0, 50.0, 25.0, 12.5, 6.25, 3.125, 1.5625, 0.78, 0.39],
        entries: 1e6,
        cpu: 85.0,
    };
    let mut controller = WalkController::new(16, 256);
    let mut random = 7;
    let changes = (0..1_000).filter(|_| {
        let before = controller.workers();
        let files = medium.rate(before, 16) * 0.01 * noise(&mut random, 0.03);
        let batch = Batch {
            elapsed_ns: 10_000_000,
            files: files as u64,
            idle: medium.blocked(before, 16) * noise(&mut random, 0.1),
            ..Batch::default()
        };
        controller.decide(&batch) != before
    });
    let changes = changes.count();
    assert!((1..=3).contains(&changes), "{changes}: {}", controller.why());
}

#[test]
fn a_file_system_that_becomes_faster_does_not_cost_a_worker() {
    // The rate doubles while one worker is tried, for a reason of its own.
    let mut controller = WalkController::new(2, 256);
    let mut tried = false;
    for _ in 0..40 {
        tried |= controller.workers() == 1;
        let files = if tried { 1_000 } else { 500 };
        let locked = if controller.workers() > 1 { 0.5 } else { 0.0 };
        controller.decide(&Batch { elapsed_ns: 10_000_000, files, locked, ..Batch::default() });
    }
    assert!(tried);
    assert_eq!(controller.workers(), 2, "{}", controller.why());
    assert!(controller.why().contains("but 1 gave +0 %"), "{}", controller.why());
}

#[test]
fn fewer_are_tried_once_and_a_device_is_noticed_after_that() {
    let mut controller = crowd(2, &[(2, 80_000.0), (1, 60_000.0)], 100);
    assert_eq!(controller.workers(), 2, "{}", controller.why());
    assert!(controller.why().contains("but 1 gave"), "{}", controller.why());
    let cold = Batch { elapsed_ns: 20_000_000, files: 300, idle: 0.8, ..Batch::default() };
    controller.decide(&cold);
    assert_eq!(controller.decide(&cold), 16);
    // If a single worker is blocked, others are added.
    let mut controller = crowd(2, &[(2, 47_000.0), (1, 57_000.0)], 16);
    let cold = Batch { elapsed_ns: 60_000_000, ..cold };
    for _ in 0..4 {
        controller.decide(&cold);
    }
    assert!(controller.workers() > 1, "{}", controller.why());
}

#[test]
fn a_single_worker_gets_company_only_if_that_is_faster() {
    let alone = || WalkController::new(4, 256).starting_with_one();
    let worse = [(1, 57_000.0), (2, 47_000.0)];
    assert_eq!(crowded(alone(), &worse, 10).workers(), 1);
    assert_eq!(crowded(alone(), &worse, 13).workers(), 2, "tried");
    let controller = crowded(alone(), &worse, 100);
    assert_eq!(controller.workers(), 1, "{}", controller.why());
    let controller = crowded(alone(), &[(1, 47_000.0), (2, 57_000.0)], 100);
    assert_eq!(controller.workers(), 2, "{}", controller.why());
    assert!(controller.why().contains("from 1"), "{}", controller.why());
    // Waiting for a device is detected here, too.
    let cold = Batch { elapsed_ns: 9_000_000, files: 100, idle: 0.4, ..Batch::default() };
    assert_eq!(alone().decide(&cold), 6, "as many as keep 4 cores busy");
}

#[test]
fn workers_that_keep_the_cores_busy_are_enough() {
    let mut controller = WalkController::new(2, 256);
    let first = Batch { elapsed_ns: 9_000_000, files: 9_000, idle: 0.7, ..Batch::default() };
    assert_eq!(controller.decide(&first), 14);
    let busy = Batch { elapsed_ns: 10_000_000, files: 30_000, idle: 0.6, ..Batch::default() };
    for _ in 0..100 {
        assert_eq!(controller.decide(&busy), 14);
    }
    assert!(controller.why().contains("busy"), "{}", controller.why());
}

proptest! {
    #[test]
    fn the_number_stays_in_bounds(
        cores in 0u32..300,
        most in 0u32..300,
        alone: bool,
        batches in proptest::collection::vec(
            (0u64..100_000_000, 0u64..10_000, -1.0f64..2.0, -1.0f64..2.0),
            0..300,
        ),
    ) {
        let mut controller = WalkController::new(cores, most);
        if alone {
            controller = controller.starting_with_one();
        }
        for (elapsed_ns, files, idle, locked) in batches {
            let batch = Batch { elapsed_ns, files, idle, locked, ..Batch::default() };
            let workers = controller.decide(&batch);
            prop_assert!(workers >= 1 && workers <= most.max(1));
            prop_assert!(controller.why().contains("thread"));
        }
    }
}

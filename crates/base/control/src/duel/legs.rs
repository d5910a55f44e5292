//! The legs of a comparison of two methods, and what was measured in them.
//!
//! A leg in which the input was the limit is measured again from its beginning: the files before and after
//! the gap were not read at the full window either. A comparison is in vain if the device changes or a leg
//! does not end.

use crate::batch::Batch;
use crate::measure::{Level, Sample};
use crate::thresholds::{FELL, ROSE, SAMPLE_NS, SAMPLE_NS_MAX, SAMPLE_REQUESTS, TRIAL_SAMPLES};

/// Nanoseconds of one leg at least.
pub(super) const LEG_NS: f64 = 1e8;
/// Rounds that a ring must win, and legs of each.
pub(super) const ROUNDS: u32 = 2;
pub(super) const ROUND_LEGS: u32 = 4;
/// Pairs of legs, one with either method, in a comparison.
const PAIRS: usize = (ROUNDS * ROUND_LEGS / 2) as usize;
/// Least bytes that a device delivers for a file.
const PAGE: f64 = 4096.0;
/// Difference in the bytes that the device delivers for the files of either method, as a share, from which
/// the methods read files that cannot be compared.
const UNLIKE: f64 = 0.1;
/// Batches of a leg that may be unusable, and legs of a comparison that may be measured again.
const UNUSABLE: u32 = 16;
const VOID: u32 = 4;
/// Time of a leg until it is in vain, as a multiple of the time that it should take.
const LEG_MOST: f64 = 5.0;
/// Samples in a row that differ from the earlier legs until the device has changed.
const AGREE: u32 = 2;

/// One of the two methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Reads that do not wait.
    Nowait,
    /// io_uring, for opens and reads.
    Ring,
}

/// Returns the bytes from the device per byte that cold files would need. The last page of a file is half
/// full in the mean.
pub(super) fn device_share(device_bytes: f64, bytes: f64, files: f64) -> f64 {
    device_bytes / (bytes + 0.5 * PAGE * files).max(PAGE * files).max(1.0)
}

/// What one method read in a comparison.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivered {
    files: f64,
    bytes: f64,
    device_bytes: f64,
}

impl Delivered {
    fn add(&mut self, batch: &Batch, device_bytes: u64) {
        self.files += batch.files as f64;
        self.bytes += batch.bytes as f64;
        self.device_bytes += device_bytes as f64;
    }

    /// Returns what [`device_share`] returns.
    pub(super) fn share(&self) -> f64 {
        device_share(self.device_bytes, self.bytes, self.files)
    }
}

/// What was measured in legs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    pub(super) nowait: Level,
    pub(super) ring: Level,
    /// The legs in pairs, each with the level of `nowait` first.
    pairs: [[Level; 2]; PAIRS],
    /// Time spent with either method; of the first without the first leg, which costs nothing.
    nowait_ns: f64,
    pub(super) ring_ns: f64,
    nowait_read: Delivered,
    pub(super) ring_read: Delivered,
}

/// A comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct Legs {
    /// Number of the present one, from 0.
    pub(super) number: u32,
    samples: u32,
    ns: f64,
    unusable: u32,
    /// Legs that were measured again.
    void: u32,
    /// Time that the slower method has cost in them.
    void_lost_ns: u64,
    /// Completions to ignore after a change of the method, and then one batch.
    settling: Option<u64>,
    /// Time of the present leg, with what was ignored, and the most that it may take.
    whole_ns: f64,
    most_ns: f64,
    /// What was read since it was last compared with the earlier legs of its method.
    part: Sample,
    /// Samples in a row that were much slower or faster than those legs.
    falls: u32,
    rises: u32,
    pub(super) sums: Sums,
    /// Those before the present leg.
    before: Sums,
}

impl Legs {
    /// Begins a comparison whose legs should take `leg_ns` each.
    pub(super) fn new(window: u32, ring_window: u32, leg_ns: f64) -> Self {
        let sums = Sums {
            nowait: Level::new(window),
            ring: Level::new(ring_window),
            pairs: [[Level::new(window), Level::new(ring_window)]; PAIRS],
            nowait_ns: 0.0,
            ring_ns: 0.0,
            nowait_read: Delivered::default(),
            ring_read: Delivered::default(),
        };
        Self {
            number: 0,
            samples: 0,
            ns: 0.0,
            unusable: 0,
            void: 0,
            void_lost_ns: 0,
            settling: None,
            whole_ns: 0.0,
            most_ns: LEG_MOST * leg_ns,
            part: Sample::default(),
            falls: 0,
            rises: 0,
            sums,
            before: sums,
        }
    }

    pub(super) fn method(&self) -> Rival {
        if matches!(self.number % ROUND_LEGS, 1 | 2) { Rival::Ring } else { Rival::Nowait }
    }

    /// Returns the window of the present leg.
    pub(super) fn window(&self) -> u32 {
        match self.method() {
            Rival::Nowait => self.sums.nowait.window,
            Rival::Ring => self.sums.ring.window,
        }
    }

    /// Adds a batch. Returns whether the leg is complete.
    pub(super) fn add(&mut self, batch: &Batch, device_bytes: u64) -> bool {
        let (ns, rival) = (batch.elapsed_ns as f64, self.method());
        self.whole_ns += ns;
        let sums = &mut self.sums;
        match rival {
            Rival::Ring => sums.ring_ns += ns,
            Rival::Nowait if self.number > 0 => sums.nowait_ns += ns,
            Rival::Nowait => {}
        }
        if let Some(left) = self.settling {
            self.settling = (left > 0).then(|| left.saturating_sub(batch.files));
            return false;
        }
        // Every file counts, wherever it came from.
        let counted = Batch { misses: batch.files, hits: 0, ready: 0, ..*batch };
        let mut sample = Sample::default();
        sample.add(&counted, 0);
        let pair = &mut sums.pairs[self.number as usize / 2];
        let (all, leg, read) = match rival {
            Rival::Ring => (&mut sums.ring, &mut pair[1], &mut sums.ring_read),
            Rival::Nowait => (&mut sums.nowait, &mut pair[0], &mut sums.nowait_read),
        };
        all.add(&sample);
        leg.add(&sample);
        read.add(batch, device_bytes);
        self.samples += 1;
        self.ns += ns;
        self.watch(&counted);
        self.samples >= TRIAL_SAMPLES && self.ns >= LEG_NS
    }

    /// Compares the rate with that of the earlier legs by the same method.
    fn watch(&mut self, counted: &Batch) {
        let earlier = match self.method() {
            Rival::Nowait => self.before.nowait,
            Rival::Ring => self.before.ring,
        };
        self.part.add(counted, 0);
        // As in the samples of the controller, requests that were issued together complete together.
        let round = SAMPLE_REQUESTS.max(self.part.in_flight());
        let enough = self.part.requests >= round || self.part.ns >= SAMPLE_NS_MAX;
        if earlier.samples == 0 || self.part.ns < SAMPLE_NS || !enough {
            return;
        }
        let (low, high) = std::mem::take(&mut self.part).ratios(&earlier);
        self.falls = if high < FELL { self.falls + 1 } else { 0 };
        self.rises = if low > ROSE { self.rises + 1 } else { 0 };
    }

    /// Reports whether the device has changed, or the present leg takes too long.
    pub(super) fn is_in_vain(&self) -> bool {
        self.falls.max(self.rises) >= AGREE || self.whole_ns > self.most_ns
    }

    /// Forgets what was measured in the present leg, except in the sums.
    fn restart(&mut self) {
        (self.samples, self.ns, self.whole_ns) = (0, 0.0, 0.0);
        (self.part, self.falls, self.rises) = (Sample::default(), 0, 0);
    }

    /// Leaves a batch out, in which something else was the limit; if `starved`, that was the input, and the
    /// leg is void. Returns whether the comparison should go on.
    pub(super) fn leave_out(&mut self, starved: bool) -> bool {
        self.unusable += 1;
        if starved {
            self.void += u32::from(self.samples > 0);
            let lost_ns = self.lost_ns();
            self.sums = self.before;
            self.void_lost_ns += lost_ns.saturating_sub(self.lost_ns());
            self.restart();
            // Requests of the other method may still complete.
            self.settling = Some(self.settling.unwrap_or(0).max(u64::from(self.window())));
        }
        self.unusable <= UNUSABLE && self.void <= VOID
    }

    /// Begins the next leg.
    pub(super) fn next(&mut self) {
        let (before, in_flight) = (self.method(), self.window());
        self.number += 1;
        self.before = self.sums;
        self.restart();
        self.unusable = 0;
        self.settling = (self.method() != before).then_some(u64::from(in_flight));
    }

    /// Returns the share of throughput that the ring loses, and its standard error: that of the batches,
    /// or that of the rounds if they differ more.
    pub(super) fn loss(&self) -> (f64, f64) {
        let Sums { nowait, ring, .. } = &self.sums;
        let Some(unit) = ring.steady_unit(nowait) else { return (0.0, 1.0) };
        let (loss, error) = ring.loss_in(unit, nowait);
        (loss, error.max(self.rounds_error(unit)))
    }

    /// Returns the standard error of the mean of what the ring lost in the rounds: half their difference.
    /// Within a round the pairs of legs may differ, by the drift that their order cancels.
    fn rounds_error(&self, unit: usize) -> f64 {
        let mut rounds = self.sums.pairs.chunks_exact(2).map(|pairs| {
            let known = |[nowait, ring]: &&[Level; 2]| nowait.samples > 0 && ring.samples > 0;
            let losses =
                pairs.iter().filter(known).map(|[nowait, ring]| ring.loss_in(unit, nowait).0);
            // A leg without any progress in this unit.
            let losses: Vec<f64> = losses.filter(|loss| loss.is_finite()).collect();
            (losses.len() == 2).then(|| (losses[0] + losses[1]) / 2.0)
        });
        match (rounds.next().flatten(), rounds.next().flatten()) {
            (Some(first), Some(second)) => (first - second).abs() / 2.0,
            _ => 0.0,
        }
    }

    /// Reports whether the device delivered as much for the files of one method as for those of the
    /// other: otherwise more of them were in memory.
    pub(super) fn are_alike(&self) -> bool {
        let (nowait, ring) = (self.sums.nowait_read.share(), self.sums.ring_read.share());
        (ring - nowait).abs() <= UNLIKE * nowait.max(ring)
    }

    /// Reports whether the device delivered more for the files of the ring.
    pub(super) fn ring_read_more(&self) -> bool {
        self.sums.ring_read.share() > self.sums.nowait_read.share()
    }

    /// Returns the time that the slower method has cost.
    pub(super) fn lost_ns(&self) -> u64 {
        let Sums { ring, nowait_ns, ring_ns, .. } = &self.sums;
        if ring.samples == 0 {
            return self.void_lost_ns;
        }
        let (loss, _) = self.loss();
        let lost = if loss > 0.0 { loss * ring_ns } else { -loss / (1.0 - loss) * nowait_ns };
        self.void_lost_ns + lost.clamp(0.0, ring_ns + nowait_ns) as u64
    }
}

//! Which of two methods reads faster: reads that do not wait, or io_uring.
//!
//! No fixed method is right. Where files are in memory, or where opens are quick and the device is the
//! limit, reads that do not wait cost less. Where opens wait for locks of the file system, a few threads
//! with many requests in a ring each can be faster. So both are measured, on the files of the run:
//!
//! ```text
//! watch ─► A ─► B ─► B ─► A, twice ─► the ring gained clearly ─► ring ─► files in memory, or another
//!            A: do not wait           │ otherwise                       device: watch
//!            B: ring                  └► A until the device changes
//! ```
//!
//! The second half is in reverse order, so a steady drift of the files favours neither method. Files in
//! the middle that are faster favour the ring, so a gain counts only after a second round, and only if the
//! rounds agree. All files count, because a ring does not show which of its reads found their data
//! in memory. Whether as many do with either method is seen in the bytes that the device delivers. Idle
//! time is not compared: a method that needs more processor time keeps the workers just as busy.
//!
//! A comparison begins only while the controller holds its window, if it can repay what it may lose.

use crate::batch::Batch;
use crate::decision::Reason;
use crate::measure::{Level, Sample};
use crate::thresholds::{
    CLEAR_LOSS, OTHER_LIMIT, SURE, TOLERANCE, TOLERANCE_POLITE, TRIAL_SAMPLES,
};

/// Nanoseconds of one leg at least.
const LEG_NS: f64 = 1e8;
/// Files per second below which the device is so slow that the method hardly matters, while the many
/// requests of a ring would delay other programs.
const RATE: f64 = 2_000.0;
/// Loss to expect of a ring, and the share of the predicted remaining time that it may cost.
const LIKELY: f64 = 0.15;
const BUDGET: f64 = 0.025;
/// Share of the whole time that all trials, of windows and of methods, may have lost when a comparison
/// begins.
const BUDGET_ALL: f64 = 0.04;
/// Share of hits from which files count as being in memory, before and after a ring was chosen.
const HITS: f64 = 0.5;
const HITS_RING: f64 = 0.3;
/// Bytes of a read from which the device, not the opens, is the limit.
const LARGE: f64 = 256.0 * 1024.0;
/// Least bytes that a device delivers for a file.
const PAGE: f64 = 4096.0;
/// Difference in the bytes that the device delivers for the files of either method, as a share, from which
/// the methods read files that cannot be compared.
const UNLIKE: f64 = 0.1;
/// Rounds of four legs that a ring must win, and comparisons in a run at most.
const ROUNDS: u32 = 2;
const DUELS: u32 = 4;
/// Pairs of legs, one with either method, in a comparison.
const PAIRS: usize = 2 * ROUNDS as usize;
/// First pause after a comparison of unlike files; each further one is twice as long.
const PAUSE_NS: u64 = 2_000_000_000;
/// Batches that the mean of the recent ones covers, and below which it means nothing.
const RECENT: f64 = 0.9;
const KNOWN: u32 = 4;
const KNOWN_RING: u32 = 16;
/// Batches of a leg that may be unusable.
const UNUSABLE: u32 = 16;

/// One of the two methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// Reads that do not wait.
    Nowait,
    /// io_uring, for opens and reads.
    Ring,
}

/// What is known at the end of a batch besides it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Signs {
    /// Time since the start.
    pub at_ns: u64,
    /// Window of the controller.
    pub window: u32,
    /// Whether it holds the window.
    pub holds: bool,
    /// Whether this batch made it detect a change of the device.
    pub changed: bool,
    /// Time that it has lost to trials.
    pub probing_ns: u64,
    /// Files left, as far as they are known.
    pub left: u64,
    /// Whether there will be no others.
    pub left_known: bool,
    /// Bytes that the device delivered during the batch.
    pub device_bytes: u64,
    /// Whether some read could not be made without waiting for want of support.
    pub unanswered: bool,
    /// Whether a ring could not be created.
    pub refused: bool,
}

/// A decision, for the controller of the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Why.
    pub reason: Reason,
    /// Time that the comparison has lost.
    pub lost_ns: u64,
    /// The window from which the controller begins again, if it does.
    pub begin: Option<u32>,
    /// Its largest window from now on.
    pub window_max: u32,
}

/// Sums over recent batches, the latest weighing most.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    batches: u32,
    ns: f64,
    /// Batches, by the same weights.
    weight: f64,
    files: f64,
    bytes: f64,
    hits: f64,
    misses: f64,
    limited_ns: f64,
    device_bytes: f64,
}

impl Recent {
    fn add(&mut self, batch: &Batch, device_bytes: u64) {
        let ns = batch.elapsed_ns as f64;
        self.batches = self.batches.saturating_add(1);
        for (sum, x) in [
            (&mut self.ns, ns),
            (&mut self.weight, 1.0),
            (&mut self.files, batch.files as f64),
            (&mut self.bytes, batch.bytes as f64),
            (&mut self.hits, batch.hits as f64),
            (&mut self.misses, batch.misses as f64),
            (&mut self.limited_ns, ns * batch.input_limited.max(batch.memory_limited)),
            (&mut self.device_bytes, device_bytes as f64),
        ] {
            *sum = RECENT * *sum + x;
        }
    }

    fn rate_per_s(&self) -> f64 {
        self.files * 1e9 / self.ns.max(1.0)
    }

    fn hit_share(&self) -> f64 {
        self.hits / (self.hits + self.misses).max(1e-9)
    }

    /// Returns the bytes from the device per byte that cold files would need.
    fn device_share(&self) -> f64 {
        device_share(self.device_bytes, self.bytes, self.files)
    }
}

/// The last page of a file is half full in the mean.
fn device_share(device_bytes: f64, bytes: f64, files: f64) -> f64 {
    device_bytes / (bytes + 0.5 * PAGE * files).max(PAGE * files).max(1.0)
}

/// What one method read in a comparison.
#[derive(Debug, Clone, Copy, Default)]
struct Delivered {
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

    /// Returns what [`Recent::device_share`] returns.
    fn share(&self) -> f64 {
        device_share(self.device_bytes, self.bytes, self.files)
    }
}

/// A comparison.
#[derive(Debug, Clone, Copy)]
struct Legs {
    /// Number of the present one, from 0.
    number: u32,
    samples: u32,
    ns: f64,
    unusable: u32,
    /// Completions to ignore after a change of the method, and then one batch.
    settling: Option<u64>,
    nowait: Level,
    ring: Level,
    /// The legs in pairs, each with the level of `nowait` first.
    pairs: [[Level; 2]; PAIRS],
    /// Time spent with either method; of the first without the first leg, which costs nothing.
    nowait_ns: f64,
    ring_ns: f64,
    nowait_read: Delivered,
    ring_read: Delivered,
}

impl Legs {
    fn new(window: u32, ring_window: u32) -> Self {
        Self {
            number: 0,
            samples: 0,
            ns: 0.0,
            unusable: 0,
            settling: None,
            nowait: Level::new(window),
            ring: Level::new(ring_window),
            pairs: [[Level::new(window), Level::new(ring_window)]; PAIRS],
            nowait_ns: 0.0,
            ring_ns: 0.0,
            nowait_read: Delivered::default(),
            ring_read: Delivered::default(),
        }
    }

    fn method(&self) -> Rival {
        if matches!(self.number % 4, 1 | 2) { Rival::Ring } else { Rival::Nowait }
    }

    /// Adds a batch. Returns whether the leg is complete.
    fn add(&mut self, batch: &Batch, device_bytes: u64) -> bool {
        let (ns, rival) = (batch.elapsed_ns as f64, self.method());
        match rival {
            Rival::Ring => self.ring_ns += ns,
            Rival::Nowait if self.number > 0 => self.nowait_ns += ns,
            Rival::Nowait => {}
        }
        if let Some(left) = self.settling {
            self.settling = (left > 0).then(|| left.saturating_sub(batch.files));
            return false;
        }
        // Every file counts, wherever it came from.
        let mut sample = Sample::default();
        sample.add(&Batch { misses: batch.files, hits: 0, ready: 0, ..*batch }, 0);
        let pair = &mut self.pairs[self.number as usize / 2];
        let (all, leg, read) = match rival {
            Rival::Ring => (&mut self.ring, &mut pair[1], &mut self.ring_read),
            Rival::Nowait => (&mut self.nowait, &mut pair[0], &mut self.nowait_read),
        };
        all.add(&sample);
        leg.add(&sample);
        read.add(batch, device_bytes);
        self.samples += 1;
        self.ns += ns;
        self.samples >= TRIAL_SAMPLES && self.ns >= LEG_NS
    }

    /// Begins the next leg.
    fn next(&mut self) {
        let before = self.method();
        let in_flight = match before {
            Rival::Nowait => self.nowait.window,
            Rival::Ring => self.ring.window,
        };
        self.number += 1;
        (self.samples, self.ns, self.unusable) = (0, 0.0, 0);
        self.settling = (self.method() != before).then_some(u64::from(in_flight));
    }

    /// Returns the share of throughput that the ring loses, and its standard error: that of the batches,
    /// or that of the rounds if they differ more.
    fn loss(&self) -> (f64, f64) {
        let Some(unit) = self.ring.steady_unit(&self.nowait) else { return (0.0, 1.0) };
        let (loss, error) = self.ring.loss_in(unit, &self.nowait);
        (loss, error.max(self.rounds_error(unit)))
    }

    /// Returns the standard error of the mean of what the ring lost in the rounds: half their difference.
    /// Within a round the pairs of legs may differ, by the drift that their order cancels.
    fn rounds_error(&self, unit: usize) -> f64 {
        let mut rounds = self.pairs.chunks_exact(2).map(|pairs| {
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
    fn are_alike(&self) -> bool {
        let (nowait, ring) = (self.nowait_read.share(), self.ring_read.share());
        (ring - nowait).abs() <= UNLIKE * nowait.max(ring)
    }

    /// Returns the time that the slower method has cost.
    fn lost_ns(&self) -> u64 {
        if self.ring.samples == 0 {
            return 0;
        }
        let (loss, _) = self.loss();
        let lost =
            if loss > 0.0 { loss * self.ring_ns } else { -loss / (1.0 - loss) * self.nowait_ns };
        lost.clamp(0.0, self.ring_ns + self.nowait_ns) as u64
    }
}

#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "there is one per run")]
enum Stage {
    /// Waits for the conditions of a comparison.
    Watch,
    Compare(Legs),
    /// Reads by the ring; the bytes per byte that the device delivered for cold files.
    Ring {
        device_share: f64,
    },
    /// Does not wait, until the device changes.
    Nowait,
    Over,
}

/// Chooses the method of a run with a controller of the window.
#[derive(Debug, Clone)]
pub struct Duel {
    window_max: u32,
    ring_window: u32,
    polite: bool,
    stage: Stage,
    recent: Recent,
    /// Comparisons so far.
    duels: u32,
    /// Whether the controller should not try other windows before the first comparison.
    first: bool,
    /// When the next comparison may begin, and the pause after the next one of unlike files.
    later_ns: u64,
    pause_ns: u64,
}

impl Duel {
    /// Begins with reads that do not wait, at most `window_max` in flight. A ring would have
    /// `ring_window`. A polite run lets its controller find a small window first.
    pub fn new(window_max: u32, ring_window: u32, polite: bool) -> Self {
        let stage = if ring_window > 0 { Stage::Watch } else { Stage::Over };
        let recent = Recent::default();
        Self {
            window_max,
            ring_window,
            polite,
            stage,
            recent,
            duels: 0,
            first: !polite,
            later_ns: 0,
            pause_ns: PAUSE_NS,
        }
    }

    /// Returns the present method.
    pub fn method(&self) -> Rival {
        match &self.stage {
            Stage::Compare(legs) => legs.method(),
            Stage::Ring { .. } => Rival::Ring,
            Stage::Watch | Stage::Nowait | Stage::Over => Rival::Nowait,
        }
    }

    /// Returns the window of a comparison. The controller measures nothing then.
    pub fn window(&self) -> Option<u32> {
        let Stage::Compare(legs) = &self.stage else { return None };
        Some(match legs.method() {
            Rival::Nowait => legs.nowait.window,
            Rival::Ring => legs.ring.window,
        })
    }

    /// Reports whether the controller should hold the window that it has measured first.
    pub fn wants_hold(&self) -> bool {
        self.first && matches!(self.stage, Stage::Watch)
    }

    /// Takes the next batch, after the controller unless methods are being compared. Returns the
    /// decision, if there is one.
    pub fn observe(&mut self, batch: &Batch, seen: &Signs) -> Option<Turn> {
        if matches!(self.stage, Stage::Over) {
            return None;
        }
        if seen.refused {
            let begun = !matches!(self.stage, Stage::Watch | Stage::Nowait);
            let begin = matches!(self.stage, Stage::Ring { .. }).then_some(seen.window);
            let turn = self.end(Stage::Over, begun.then_some(Reason::NoComparison))?;
            return Some(Turn { begin, ..turn });
        }
        self.recent.add(batch, seen.device_bytes);
        match self.stage {
            Stage::Watch => self.watch(seen),
            Stage::Compare(legs) => self.compare(legs, batch, seen),
            Stage::Ring { device_share } => self.ring(device_share, seen),
            Stage::Nowait => {
                if seen.changed {
                    self.stage = self.after();
                }
                None
            }
            Stage::Over => None,
        }
    }

    /// Ends a comparison because something else limits the run.
    pub fn disturb(&mut self) -> Option<Turn> {
        match self.stage {
            Stage::Compare(_) => self.end(self.after(), Some(Reason::NoComparison)),
            _ => None,
        }
    }

    /// Returns the stage in which another comparison may begin.
    fn after(&self) -> Stage {
        if self.duels < DUELS { Stage::Watch } else { Stage::Over }
    }

    fn watch(&mut self, seen: &Signs) -> Option<Turn> {
        if !seen.holds || seen.at_ns < self.later_ns {
            return None;
        }
        if self.recent.batches < KNOWN || !self.pays(seen) {
            self.first &= self.recent.batches < KNOWN;
            return None;
        }
        self.first = false;
        self.duels += 1;
        // No more in flight than is known to be enough, or the windows are compared. The usual start value is
        // larger than that of any ring.
        let ring_window = self.ring_window.min(seen.window);
        self.stage = Stage::Compare(Legs::new(seen.window, ring_window));
        Some(Turn {
            reason: Reason::TryRing { rate: self.recent.rate_per_s() },
            lost_ns: 0,
            begin: None,
            window_max: self.window_max,
        })
    }

    /// Reports whether a comparison is possible and can repay what it may lose.
    fn pays(&self, seen: &Signs) -> bool {
        let recent = &self.recent;
        !seen.unanswered
            && recent.hit_share() < HITS
            && recent.bytes < LARGE * recent.files
            && recent.limited_ns < OTHER_LIMIT * recent.ns
            && recent.device_bytes > 0.0
            && recent.rate_per_s() >= RATE
            && self.affordable(seen)
    }

    fn leg_ns(&self) -> f64 {
        let each = self.recent.ns / self.recent.weight.max(1.0);
        (f64::from(TRIAL_SAMPLES) * each).max(LEG_NS)
    }

    /// Reports whether two legs by a ring are worth what they are expected to lose.
    fn affordable(&self, seen: &Signs) -> bool {
        let known = seen.left as f64 * self.recent.ns / self.recent.files.max(1e-9);
        // Without a known number of files, as long again as so far.
        let remaining = if seen.left_known { known } else { known.max(seen.at_ns as f64) };
        let lost = LIKELY * 2.0 * self.leg_ns();
        lost <= BUDGET * remaining
            && seen.probing_ns as f64 + lost <= BUDGET_ALL * (seen.at_ns as f64 + remaining)
    }

    fn compare(&mut self, mut legs: Legs, batch: &Batch, seen: &Signs) -> Option<Turn> {
        let hits = matches!(legs.method(), Rival::Nowait)
            && self.recent.batches >= KNOWN
            && self.recent.hit_share() > HITS;
        if seen.unanswered || hits {
            return self.end(self.after(), Some(Reason::NoComparison));
        }
        if batch.input_limited.max(batch.memory_limited) > OTHER_LIMIT {
            legs.unusable += 1;
            self.stage = Stage::Compare(legs);
            return if legs.unusable > UNUSABLE { self.disturb() } else { None };
        }
        let complete = legs.add(batch, seen.device_bytes);
        self.stage = Stage::Compare(legs);
        let (loss, error) = if legs.ring.samples > 0 { legs.loss() } else { (0.0, 1.0) };
        // A moment is not enough: reads come in bursts.
        let long = legs.ring.samples >= TRIAL_SAMPLES / 2 && legs.ring_ns >= LEG_NS;
        let clearly = long && loss > CLEAR_LOSS && loss > 3.0 * error;
        // Until the end of a round, a drift of the files favours one of the methods.
        if clearly {
            return self.end(Stage::Nowait, Some(Reason::NoRing { loss, error }));
        }
        if !complete {
            return None;
        }
        if legs.number % 4 == 3 {
            return self.judge(legs, loss, error, seen);
        }
        legs.next();
        self.stage = Stage::Compare(legs);
        None
    }

    /// Decides at the end of a round.
    fn judge(&mut self, mut legs: Legs, loss: f64, error: f64, seen: &Signs) -> Option<Turn> {
        let tolerance = if self.polite { TOLERANCE_POLITE } else { TOLERANCE };
        // Files in memory would have been to the advantage of the ring.
        let lost_all_the_same =
            legs.ring_read.share() <= legs.nowait_read.share() && loss - tolerance > SURE * error;
        if !legs.are_alike() && !lost_all_the_same {
            return self.try_later(seen);
        }
        let better = -loss - tolerance;
        let sure = better > SURE * error;
        let last = legs.number / 4 + 1 >= ROUNDS;
        if sure && last {
            return self.win(&legs, loss, error);
        }
        // A ring that has gained is not expected to lose.
        if !last && (sure || (better > 0.0 && self.affordable(seen))) {
            legs.next();
            self.stage = Stage::Compare(legs);
            return None;
        }
        self.end(Stage::Nowait, Some(Reason::NoRing { loss, error }))
    }

    /// Ends a comparison of files that cannot be compared. Those that follow at once are like them.
    fn try_later(&mut self, seen: &Signs) -> Option<Turn> {
        self.later_ns = seen.at_ns.saturating_add(self.pause_ns);
        self.pause_ns = self.pause_ns.saturating_mul(2);
        self.duels = self.duels.saturating_sub(1);
        self.end(Stage::Watch, Some(Reason::NoComparison))
    }

    fn win(&mut self, legs: &Legs, loss: f64, error: f64) -> Option<Turn> {
        let window = legs.ring.window;
        let device_share = legs.ring_read.share();
        self.stage = Stage::Ring { device_share };
        self.recent = Recent::default();
        Some(Turn {
            reason: Reason::Ring { gain: -loss, error },
            lost_ns: legs.lost_ns(),
            begin: Some(window),
            window_max: self.ring_window,
        })
    }

    /// Leaves the ring if files come from memory or the device has changed.
    fn ring(&mut self, device_share: f64, seen: &Signs) -> Option<Turn> {
        if seen.changed {
            // The controller has begun to react, but what it compares is a sample of the ring.
            let turn = self.end(self.after(), Some(Reason::RingChanged))?;
            return Some(Turn { begin: Some(seen.window), ..turn });
        }
        let share = 1.0 - self.recent.device_share() / device_share.max(1e-9);
        if self.recent.batches >= KNOWN_RING && share > HITS_RING {
            let turn = self.end(self.after(), Some(Reason::RingHits { share }))?;
            return Some(Turn { begin: Some(self.window_max), ..turn });
        }
        None
    }

    /// Returns to reads that do not wait.
    fn end(&mut self, stage: Stage, reason: Option<Reason>) -> Option<Turn> {
        let lost_ns = match &self.stage {
            Stage::Compare(legs) => legs.lost_ns(),
            _ => 0,
        };
        self.stage = stage;
        self.recent = Recent::default();
        self.first = false;
        let window_max = self.window_max;
        reason.map(|reason| Turn { reason, lost_ns, begin: None, window_max })
    }
}

#[cfg(test)]
mod tests;

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
//! A comparison begins only while the controller holds its window, if it can repay what it may lose. It ends
//! without a result if the device changes, or if a leg takes five times as long as it should.

use crate::batch::Batch;
use crate::decision::Reason;
use crate::thresholds::{
    CLEAR_LOSS, LIMITED, OTHER_LIMIT, REFUSED, SURE, TOLERANCE, TOLERANCE_POLITE, TRIAL_SAMPLES,
};
use legs::{LEG_NS, Legs, ROUND_LEGS, ROUNDS, device_share};

pub use legs::Rival;

mod legs;

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
/// Comparisons in a run at most.
const DUELS: u32 = 4;
/// First pause after a comparison of unlike files; each further one is twice as long.
const PAUSE_NS: u64 = 2_000_000_000;
/// Batches that the mean of the recent ones covers, and below which it means nothing.
const RECENT: f64 = 0.9;
const KNOWN: u32 = 4;
const KNOWN_RING: u32 = 16;

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
    /// Time that all trials count as lost, as in [`Auto::spent_ns`](crate::Auto::spent_ns).
    pub probing_ns: u64,
    /// Files left, as far as they are known.
    pub left: u64,
    /// Whether there will be no others.
    pub left_known: bool,
    /// Whether all files have been taken, so what is in flight drains.
    pub ended: bool,
    /// Bytes that the device delivered during the batch.
    pub device_bytes: u64,
    /// Whether some read of the batch could not be made without waiting for want of support.
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

    /// Reports whether the device, not the opens, is the limit.
    fn are_large(&self) -> bool {
        self.bytes >= LARGE * self.files
    }

    /// Returns the bytes from the device per byte that cold files would need.
    fn device_share(&self) -> f64 {
        device_share(self.device_bytes, self.bytes, self.files)
    }
}

#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "there is one per run")]
enum Stage {
    /// Waits for the conditions of a comparison.
    Watch,
    Compare(Legs),
    /// Reads by the ring.
    Ring {
        /// Bytes per byte that the device delivered for cold files.
        device_share: f64,
        /// Share of throughput that it gained.
        gain: f64,
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
        Some(legs.window())
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
            let (reason, begin) = match self.stage {
                Stage::Ring { gain, .. } => (Some(Reason::RingRefused { gain }), Some(seen.window)),
                Stage::Compare(_) => (Some(Reason::NoComparison), None),
                Stage::Watch | Stage::Nowait | Stage::Over => (None, None),
            };
            let turn = self.end(Stage::Over, reason)?;
            return Some(Turn { begin, ..turn });
        }
        // A window that a lack of descriptors has cut is not a change of the device.
        let seen = &Signs { changed: seen.changed && !is_refused(batch), ..*seen };
        self.recent.add(batch, seen.device_bytes);
        match self.stage {
            Stage::Watch => self.watch(seen),
            Stage::Compare(legs) => self.compare(legs, batch, seen),
            Stage::Ring { device_share, .. } => self.ring(device_share, seen),
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
        self.stage = Stage::Compare(Legs::new(seen.window, ring_window, self.leg_ns()));
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
            && !recent.are_large()
            && recent.limited_ns < OTHER_LIMIT * recent.ns
            && recent.device_bytes > 0.0
            && recent.rate_per_s() >= RATE
            && self.affordable(seen, ROUNDS)
    }

    fn leg_ns(&self) -> f64 {
        let each = self.recent.ns / self.recent.weight.max(1.0);
        (f64::from(TRIAL_SAMPLES) * each).max(LEG_NS)
    }

    /// Reports whether two legs by a ring are worth what they are expected to lose. Only the time after
    /// the `rounds` to come can repay it.
    fn affordable(&self, seen: &Signs, rounds: u32) -> bool {
        let known = seen.left as f64 * self.recent.ns / self.recent.files.max(1e-9);
        // Without a known number of files, as long again as so far.
        let remaining = if seen.left_known { known } else { known.max(seen.at_ns as f64) };
        // What was in flight before a change of the method completes first, twice in a round.
        let settling_ns = f64::from(seen.window) * self.recent.ns / self.recent.files.max(1e-9);
        let lost = LIKELY * (2.0 * self.leg_ns() + settling_ns);
        let round_ns = f64::from(ROUND_LEGS) * self.leg_ns() + 2.0 * settling_ns;
        let afterwards = remaining - f64::from(rounds) * round_ns;
        lost <= BUDGET * afterwards
            && seen.probing_ns as f64 + lost <= BUDGET_ALL * (seen.at_ns as f64 + remaining)
    }

    fn compare(&mut self, mut legs: Legs, batch: &Batch, seen: &Signs) -> Option<Turn> {
        if seen.ended {
            // What is in flight drains, by either method.
            return self.end(Stage::Over, Some(Reason::NoComparison));
        }
        let hits = matches!(legs.method(), Rival::Nowait)
            && self.recent.batches >= KNOWN
            && self.recent.hit_share() > HITS;
        if seen.unanswered || hits || self.recent.are_large() || is_refused(batch) {
            return self.end(self.after(), Some(Reason::NoComparison));
        }
        if batch.input_limited.max(batch.memory_limited) > OTHER_LIMIT {
            // The queue was looked at for an instant: while the window is full, no input was missing.
            let starved = batch.input_limited > OTHER_LIMIT
                && batch.in_flight < LIMITED * f64::from(legs.window());
            let goes_on = legs.leave_out(starved);
            self.stage = Stage::Compare(legs);
            return if goes_on { None } else { self.disturb() };
        }
        let complete = legs.add(batch, seen.device_bytes);
        self.stage = Stage::Compare(legs);
        // The controller, which sees a change of the device, measures nothing now.
        if legs.is_in_vain() {
            return self.disturb();
        }
        let (loss, error) = legs.loss();
        // A moment is not enough: reads come in bursts.
        let long = legs.sums.ring.samples >= TRIAL_SAMPLES / 2 && legs.sums.ring_ns >= LEG_NS;
        let clearly = long && loss > CLEAR_LOSS && loss > 3.0 * error;
        // Until the end of a round, a drift of the files favours one of the methods.
        if clearly {
            return self.end(Stage::Nowait, Some(Reason::NoRing { loss, error }));
        }
        if !complete {
            return None;
        }
        if legs.number % ROUND_LEGS == ROUND_LEGS - 1 {
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
        let lost_all_the_same = !legs.ring_read_more() && loss - tolerance > SURE * error;
        if !legs.are_alike() && !lost_all_the_same {
            return self.try_later(seen);
        }
        let better = -loss - tolerance;
        let sure = better > SURE * error;
        let left = ROUNDS - (legs.number / ROUND_LEGS + 1);
        if sure && left == 0 {
            return self.win(&legs, loss, error);
        }
        // A ring that has gained is not expected to lose.
        if left > 0 && (sure || (better > 0.0 && self.affordable(seen, left))) {
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
        let window = legs.sums.ring.window;
        let device_share = legs.sums.ring_read.share();
        self.stage = Stage::Ring { device_share, gain: -loss };
        self.recent = Recent::default();
        Some(Turn {
            reason: Reason::Ring { gain: -loss, error },
            lost_ns: legs.lost_ns(),
            begin: Some(window),
            window_max: self.ring_window,
        })
    }

    /// Leaves the ring if many files come from memory or the device has changed.
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

/// Reports whether resources were short for many requests of a batch.
fn is_refused(batch: &Batch) -> bool {
    batch.refused_share() > REFUSED
}

#[cfg(test)]
mod tests;

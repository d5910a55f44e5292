//! When blocking threads start, and how many.
//!
//! Their number doubles while threads wait, up to `blocking=` of the plan. Up to twice as many start only
//! if files still take about as long as a single one (`control::Crowding`): a server that is busy answers
//! no faster when it is asked more, and each thread that waits costs a switch. If they turn out to crowd
//! each other, the additional ones rest for the remainder of the run.
//!
//! In a run with a controller, it decides instead.

use crate::shared::Shared;
use ioloom_control::{Crowding, Ramp};
use ioloom_model::layout::Role;
use ioloom_sys::clock::monotonic_ns;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Blocking threads that start first; their number doubles from there.
const BLOCKING_FIRST: u32 = 16;
/// Interval of checks while it is open whether more would pay.
const CHECK: Duration = Duration::from_millis(5);

/// The blocking threads of a run.
pub(super) struct BlockingCrew<'e> {
    shared: &'e Shared<'e>,
    /// They have the numbers from here on.
    from: usize,
    started: usize,
    /// Those that may run in any case.
    sure: u32,
    most: u32,
    ramp: Ramp,
    stage: Stage,
    /// Blocking reads of `nowait` at the last check.
    unanswered: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Fewer run than may in any case.
    Sure,
    /// All of these run, and files are timed to see whether more would pay.
    Timed,
    /// More have started, and files are timed again.
    More,
    /// The number is final.
    Settled,
}

impl<'e> BlockingCrew<'e> {
    /// Returns the crew of a layout, if it has blocking threads.
    pub(super) fn new(shared: &'e Shared<'e>, controlled: bool) -> Option<Self> {
        let layout = &shared.layout;
        let most = layout.max_of(Role::Blocking);
        let sure = if controlled { most } else { layout.blocking_sure() };
        let stage = if sure == most { Stage::Settled } else { Stage::Sure };
        (most > 0).then(|| Self {
            shared,
            from: (layout.threads_max() - most) as usize,
            started: 0,
            sure,
            most,
            ramp: Ramp::new(BLOCKING_FIRST, BLOCKING_FIRST + sure, 8),
            stage,
            unanswered: 0,
        })
    }

    /// Starts the threads that are needed after `files` files and `waits` waits.
    pub(super) fn check(
        &mut self,
        (files, waits): (u64, u64),
        start: &mut impl FnMut(Range<usize>),
    ) {
        let shared = self.shared;
        let unanswered = shared.unanswered.load(Ordering::Relaxed);
        if unanswered == self.unanswered {
            return;
        }
        self.unanswered = unanswered;
        shared.blocking.call();
        self.judge();
        if !self.ramp.is_full() {
            let before_ns = monotonic_ns();
            let next = self.from + self.started;
            let more = self.ramp.decide(files, waits) as usize;
            start(next..next + more);
            self.started += more;
            if self.ramp.is_full() && self.stage == Stage::Sure {
                self.stage = Stage::Timed;
                shared.blocking.count_from(before_ns);
            }
        }
    }

    /// Decides between the stages.
    fn judge(&mut self) {
        let blocking = &self.shared.blocking;
        let crowding = match self.stage {
            Stage::Timed | Stage::More => blocking.crowding(),
            Stage::Sure | Stage::Settled => return,
        };
        match (self.stage, crowding) {
            (_, Crowding::Unknown) => {}
            (Stage::Timed, Crowding::Free) => {
                self.ramp.set_max(BLOCKING_FIRST + self.most);
                self.stage = Stage::More;
                blocking.count_from(monotonic_ns());
            }
            (Stage::More, Crowding::Crowded) => {
                blocking.set_limit(self.sure);
                self.stage = Stage::Settled;
            }
            (Stage::More, _) => self.stage = Stage::Settled,
            _ => blocking.count_from(monotonic_ns()),
        }
    }

    /// Returns the time until the next check, if it must be soon.
    pub(super) fn pause(&self) -> Option<Duration> {
        if self.unanswered == 0 {
            return None;
        }
        let judging = matches!(self.stage, Stage::Timed | Stage::More).then_some(CHECK);
        let growing = (!self.ramp.is_full()).then(|| Duration::from_nanos(self.ramp.pause_ns()));
        judging.into_iter().chain(growing).min()
    }
}

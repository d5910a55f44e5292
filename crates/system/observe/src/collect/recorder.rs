//! Records spans and clocks of one thread, in memory accessed only by that thread.
//!
//! Times are chained: the end of one span is the start of the next, with one clock reading each.
//! After a long span the thread's processor clock and run-queue delay are read because at level 0
//! only they show whether it waited. With its own ring (level 1), a thread detects without a system
//! call whether it was switched at all, and reads the clocks only in that case. A user function is
//! expected to compute, so its spans must be even longer before the clocks are read, and short ones
//! cost nothing; a wait in such a span is attributed to the next call.

use super::message::{Finished, Message, Totals};
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use ioloom_sys::proc::ThreadSched;
use ioloom_sys_trace::perf::Head;
use ioloom_trace::raw::Account;
use ioloom_trace::{NO_FILE, Span, SpanKind};
use std::sync::mpsc::Sender;

/// Minimum duration of a call that may have waited.
const LONG_NS: u64 = 20_000;
/// The same for user functions.
const LONG_FUNCTION_NS: u64 = 200_000;

/// Recorder options.
#[derive(Debug, Clone, Default)]
pub(super) struct RecorderOptions {
    pub(super) spans_max: usize,
    /// Whether to read the clocks after long spans.
    pub(super) accounts: bool,
    /// The thread's ring, if it has one.
    pub(super) head: Option<Head>,
}

/// Records the activity of the calling thread. Created, used and finished on that thread.
pub struct Recorder {
    to: Sender<Message>,
    done: Finished,
    last_ns: u64,
    accounts_wanted: bool,
    head: Option<Head>,
    head_seen: u64,
    cpu_start_ns: u64,
    sched: Option<ThreadSched>,
    delay_start_ns: u64,
}

impl Recorder {
    pub(super) fn new(
        to: Sender<Message>,
        tid: u32,
        name: &str,
        role: &str,
        plan: RecorderOptions,
    ) -> Self {
        let nothing = Span { start_ns: 0, ns: 0, kind: SpanKind::Other, file: NO_FILE };
        let mut spans = vec![nothing; plan.spans_max];
        spans.clear(); // filled once to allocate its pages before the run
        let accounts_max = if plan.accounts { plan.spans_max } else { 0 };
        let nothing = Account { at_ns: 0, cpu_ns: 0, run_delay_ns: None };
        let mut accounts = vec![nothing; accounts_max];
        accounts.clear();
        let done = Finished {
            tid,
            name: name.to_owned(),
            role: role.to_owned(),
            spans,
            accounts,
            ..Finished::default()
        };
        let mut recorder = Self {
            to,
            done,
            last_ns: 0,
            accounts_wanted: plan.accounts,
            head: plan.head,
            head_seen: 0,
            cpu_start_ns: 0,
            sched: ThreadSched::open().ok(),
            delay_start_ns: 0,
        };
        recorder.begin();
        recorder
    }

    /// Begins the run for this thread; earlier events are ignored.
    pub fn begin(&mut self) {
        self.delay_start_ns = self.delay_ns().unwrap_or(0);
        self.cpu_start_ns = thread_cpu_ns();
        self.head_seen = self.head.as_ref().map_or(0, Head::position);
        self.last_ns = monotonic_ns();
        self.done.start_ns = self.last_ns;
    }

    /// Ends a span: the time since the last one was spent in `kind`, for `file` or
    /// [`ioloom_trace::NO_FILE`].
    #[inline]
    pub fn lap(&mut self, kind: SpanKind, file: u32) {
        let now = monotonic_ns();
        debug_assert!(
            now >= self.last_ns,
            "chained spans must cover the run without gaps or overlaps"
        );
        let read = self.span(kind, file, self.last_ns, now);
        // Reading the clocks is tool time and does not belong to the next span.
        self.last_ns = if read { monotonic_ns() } else { now };
    }

    /// Records a span after the previous one, with start and end read from the clock by the caller.
    /// Returns whether the thread clocks were read afterwards, in which case the caller must read
    /// its own clock again.
    #[inline]
    pub fn span(&mut self, kind: SpanKind, file: u32, start_ns: u64, end_ns: u64) -> bool {
        let ns = end_ns.saturating_sub(start_ns);
        let total = &mut self.done.totals[kind as usize];
        total.count += 1;
        total.ns += ns;
        if self.done.spans.len() < self.done.spans.capacity() {
            self.done.spans.push(Span { start_ns, ns, kind, file });
        } else {
            self.done.spans_lost += 1;
        }
        ns >= LONG_NS && self.accounts_wanted && self.after_long(kind, ns, end_ns)
    }

    /// Skips the time since the last span without assigning it to any span.
    #[inline]
    pub fn skip(&mut self) {
        self.last_ns = monotonic_ns();
    }

    #[cold]
    fn after_long(&mut self, kind: SpanKind, ns: u64, end_ns: u64) -> bool {
        if let Some(head) = &self.head {
            let now = head.position();
            if now == self.head_seen {
                return false;
            }
            self.head_seen = now;
        } else if kind == SpanKind::Compute && ns < LONG_FUNCTION_NS {
            return false;
        }
        self.account(end_ns);
        true
    }

    /// Reads the thread clocks as of `at_ns` on the monotonic clock. Costs 1.5 µs.
    pub(super) fn account(&mut self, at_ns: u64) {
        if self.done.accounts.len() == self.done.accounts.capacity() {
            self.done.accounts_lost += 1;
            return;
        }
        let cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start_ns);
        let run_delay_ns = self.delay_ns().map(|ns| ns.saturating_sub(self.delay_start_ns));
        self.done.accounts.push(Account { at_ns, cpu_ns, run_delay_ns });
    }

    fn delay_ns(&mut self) -> Option<u64> {
        self.sched.as_mut().and_then(|sched| sched.read().ok()).map(|stat| stat.run_delay_ns)
    }

    /// Returns the exact totals for a kind of span so far, including spans that were not stored.
    pub fn totals(&self, kind: SpanKind) -> Totals {
        self.done.totals[kind as usize]
    }

    /// Ends the recording of this thread. Dropping the recorder has the same effect.
    pub fn finish(self) {}
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        done.end_ns = monotonic_ns();
        done.cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_start_ns);
        done.run_delay_ns = self.delay_ns().map(|ns| ns.saturating_sub(self.delay_start_ns));
        // The receiver is gone if the session was dropped.
        let _ = self.to.send(Message::Finished(Box::new(done)));
    }
}

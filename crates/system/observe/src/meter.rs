//! Measures the calls of one thread.
//!
//! Times are chained: [`Meter::lap`] assigns the time since the last lap to one kind of call. With
//! [`Detail::Full`], the thread's processor clock is read at the end of laps that are long enough
//! to have waited ([`LONG_LAP_NS`]); shorter laps count as processor time. Reading that clock is a
//! system call of about 0.8 µs, at most 4 % of such a lap. If the thread was off the processor
//! during the lap, the run-queue delay is read as well (0.6 µs), so waiting for a processor does
//! not count as waiting in the call. Otherwise, waiting is distributed over the calls that can wait
//! by their wall time ([`crate::split`]), and the clocks are read only around functions that take
//! long: whether a function waits cannot be seen from its wall time.
//!
//! With [`Detail::Totals`], a thread that processes whole files times only one file in
//! [`TIMED_ONE_IN`] after the first [`TIMED_FIRST`] and only counts the calls of the others. Five
//! clock readings and five table entries, in memory that has become cold since the thread last ran,
//! cost as much as opening a cached file. Each kind of [`Step`] is sampled separately: otherwise a
//! thread that alternates between them would never time one of the two. If the function takes long,
//! every file is timed.
//!
//! Waits that the function reports ([`crate::writing`] and others) are known for all calls, so only the
//! rest of its time is extrapolated.
//!
//! With [`Detail::Traced`], every file is timed, and [`Meter::trace`] sets the recorder that stores
//! each lap as a span; both use the same clock reading.

use crate::collect::Recorder;
use crate::delay::{Delay, LaterDelay};
use crate::largest::{Began, Largest};
use crate::output::{KnownWaits, known_ns, put_known_waits, take_known_waits};
use crate::split::{Detail, Weights, part, scaled, split};
use ioloom_model::{CallKind, ThreadTime, record::Span};
use ioloom_stats::Histogram;
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use ioloom_trace::{NO_FILE, SpanKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Minimum lap length in nanoseconds after which the processor clock is read.
const LONG_LAP_NS: u64 = 20_000;

/// Minimum off-CPU time in nanoseconds after which the run-queue delay is read; two switches and an
/// interrupt take this long.
const OFF_NS: u64 = 10_000;

/// Number of files that a thread times before sampling begins.
pub const TIMED_FIRST: u64 = 8;

/// After that, one in this many files is timed.
pub const TIMED_ONE_IN: u64 = 8;

/// Typical time of the function in nanoseconds from which its waits are measured without
/// [`Detail::Full`]. The clocks cost 1.4 µs on each side of a timed call.
const CLOCKED_FUNCTION_NS: u64 = 50_000;
/// Typical time of the function in nanoseconds from which every file is timed: there may be few
/// files, and the clocks cost less than 1 %.
const TIMED_FUNCTION_NS: u64 = 500_000;

/// Upper bound on the first value of the moving mean: a first call also touches code and memory for
/// the first time.
const TYPICAL_START_NS: u64 = 20_000;

const KINDS: usize = CallKind::ALL.len();

/// The next step of a thread that chooses its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Begins a file, and also computes it if it is fully resident.
    Begin,
    /// Computes a file that was already read.
    Compute,
}

#[derive(Default)]
struct Kind {
    table: Option<Histogram>,
    count: u64,
    wall_ns: u64,
    /// Part of the wall time of timed calls: waits that are known for all calls.
    known_ns: u64,
    cpu_ns: u64,
    /// Part of the off-CPU time: ready to run.
    ready_ns: u64,
    /// Moving mean of recent calls, robust to outliers.
    typical_ns: u64,
}

impl Kind {
    /// Returns the wall time of timed calls without known waits.
    fn timed_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.known_ns)
    }

    /// Returns what extrapolation to all calls adds to that.
    fn extrapolated_ns(&self) -> u64 {
        let timed = self.table.as_ref().map_or(0, Histogram::count);
        scaled(self.timed_ns(), self.count, timed) - self.timed_ns()
    }
}

/// Returns the moving mean after adding a value.
#[inline]
fn moved(mean: u64, value: u64) -> u64 {
    if mean == 0 {
        return value.min(TYPICAL_START_NS);
    }
    mean - mean / 8 + value.min(4 * mean) / 8
}

/// Measures one thread. Created and finished on that thread.
pub struct Meter {
    run_start_ns: u64,
    start_ns: u64,
    last_ns: u64,
    /// Length of the last lap, if it was timed.
    last_lap_ns: Option<u64>,
    detail: Detail,
    recorder: Option<Box<Recorder>>,
    /// Known waits of this thread before: of an earlier run, or of a function that is running this one.
    outer: KnownWaits,
    kinds: [Kind; KINDS],
    cpu_start_ns: u64,
    cpu_mark_ns: u64,
    short_wall_ns: u64,
    sched: Delay,
    reads: Reads,
    /// Known waits at the start of the function.
    known_from_ns: u64,
    /// Clocks at the start of the function, if they are read for this call.
    function_from: Option<FunctionClock>,
    /// Wall time and blocked time of the functions whose clocks were read.
    function_clocked: (u64, u64),
    /// Whether the thread waits for completions inside io_uring_enter.
    ring_waits: bool,
    spans: Vec<Span>,
    spans_lost: u64,
    in_flight: u32,
    in_flight_since_ns: u64,
    in_flight_area: u128,
    in_flight_max: u32,
    files: u64,
    /// The largest file, and the end of the last large one.
    largest: Largest,
    large_end_ns: u64,
    /// Steps so far by kind, and the files begun with [`Meter::file_starts`] and how many of them
    /// were timed.
    steps: [u64; 2],
    begun: u64,
    begun_timed: u64,
    /// Whether laps currently read the clock.
    timing: bool,
    last_issue_ns: Option<u64>,
    first_compute_ns: Option<u64>,
    last_compute_ns: Option<u64>,
}

/// Clocks at the start of a function.
#[derive(Clone, Copy)]
struct FunctionClock {
    at_ns: u64,
    cpu_ns: u64,
    delay_ns: Option<u64>,
}

/// Number of clock readings of a thread, to estimate the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Timed laps.
    pub laps: u64,
    /// Readings of the processor clock.
    pub clock: u64,
    /// Readings of the run-queue delay.
    pub delay: u64,
}

/// Result of a meter.
#[derive(Default)]
pub struct ThreadReport {
    /// States of the thread.
    pub time: ThreadTime,
    /// Part of [`ThreadTime::io_ns`]: blocked on ring completions.
    pub async_io_ns: u64,
    /// Number of clock readings.
    pub reads: Reads,
    /// Whether the processor clock was read after long laps ([`Detail::Full`]), as evidence for the
    /// breakdown of blocked time.
    pub clocked: bool,
    /// Number of calls and a histogram of the timed ones, by kind.
    pub tables: Vec<(CallKind, u64, Histogram)>,
    /// The recorded spans.
    pub spans: Vec<Span>,
    /// Spans that did not fit.
    pub spans_lost: u64,
    /// Requests in flight × nanoseconds.
    pub in_flight_area: u128,
    /// Maximum number of requests in flight at once on this thread.
    pub in_flight_max: u32,
    /// The largest file that the thread ended.
    pub largest: Largest,
    /// Time at which the last read was issued, since the start of the run.
    pub last_issue_ns: Option<u64>,
    /// Time at which the first function started.
    pub first_compute_ns: Option<u64>,
    /// Time at which the last function started.
    pub last_compute_ns: Option<u64>,
}

impl Meter {
    /// Starts measuring the calling thread; `run_start_ns` is the time of the start barrier on the
    /// monotonic clock.
    pub fn start(run_start_ns: u64, detail: Detail) -> Self {
        Self::with_delay(run_start_ns, detail, Delay::open())
    }

    /// Starts measuring the calling thread, whose run-queue delay another thread reads if the run lasts.
    pub fn start_quickly(run_start_ns: u64, detail: Detail, delay: Arc<LaterDelay>) -> Self {
        Self::with_delay(run_start_ns, detail, Delay::later(delay))
    }

    fn with_delay(run_start_ns: u64, detail: Detail, sched: Delay) -> Self {
        let spans_max = match detail {
            Detail::Totals | Detail::Traced => 0,
            Detail::Full { spans_max } => spans_max,
        };
        let mut spans = vec![Span { kind: CallKind::Open, start_ns: 0, ns: 0, file: 0 }; spans_max];
        spans.clear(); // filled once to allocate its pages before the run
        let cpu_start_ns = thread_cpu_ns();
        let outer = take_known_waits();
        let now = monotonic_ns();
        Self {
            run_start_ns,
            start_ns: now,
            last_ns: now,
            last_lap_ns: None,
            detail,
            recorder: None,
            outer,
            kinds: std::array::from_fn(|_| Kind::default()),
            cpu_start_ns,
            cpu_mark_ns: cpu_start_ns,
            short_wall_ns: 0,
            sched,
            reads: Reads::default(),
            known_from_ns: 0,
            function_from: None,
            function_clocked: (0, 0),
            ring_waits: false,
            spans,
            spans_lost: 0,
            in_flight: 0,
            in_flight_since_ns: now,
            in_flight_area: 0,
            in_flight_max: 0,
            files: 0,
            largest: Largest::default(),
            large_end_ns: 0,
            steps: [0; 2],
            begun: 0,
            begun_timed: 0,
            timing: true,
            last_issue_ns: None,
            first_compute_ns: None,
            last_compute_ns: None,
        }
    }

    /// From now on, also records each lap as a span of `recorder`.
    pub fn trace(&mut self, mut recorder: Recorder) {
        recorder.begin();
        self.recorder = Some(Box::new(recorder));
        if self.detail == Detail::Totals {
            self.detail = Detail::Traced;
        }
        self.skip();
    }

    /// Begins a file that the thread finishes before the next one; decides whether to time it.
    #[inline]
    pub fn file_starts(&mut self) {
        self.step_starts(Step::Begin);
        self.begun += 1;
        self.begun_timed += u64::from(self.timing);
    }

    /// Begins a step chosen by the thread; decides whether to time its calls.
    #[inline]
    pub fn step_starts(&mut self, step: Step) {
        let steps = &mut self.steps[step as usize];
        *steps += 1;
        self.timing = self.detail != Detail::Totals
            || *steps <= TIMED_FIRST
            || steps.is_multiple_of(TIMED_ONE_IN)
            || self.kinds[CallKind::Compute as usize].typical_ns >= TIMED_FUNCTION_NS;
        self.skip();
    }

    /// Begins a step that may wait; its calls are timed.
    #[inline]
    pub fn step_timed(&mut self) {
        self.timing = true;
        self.skip();
    }

    /// Returns the typical time of a kind of call in nanoseconds: a moving mean over about eight
    /// timed calls, in which each call is capped at four times the mean. `None` before the first
    /// call.
    #[inline]
    pub fn typical_ns(&self, kind: CallKind) -> Option<u64> {
        let at = &self.kinds[kind as usize];
        at.table.is_some().then_some(at.typical_ns)
    }

    /// Returns the length of the last lap in nanoseconds; `None` if it was not timed.
    #[inline]
    pub fn last_lap_ns(&self) -> Option<u64> {
        self.last_lap_ns
    }

    /// Ends a lap: the time since the last lap was spent in `kind` for file `file`.
    #[inline]
    pub fn lap(&mut self, kind: CallKind, file: usize) {
        self.lap_as(kind, kind.into(), file as u32);
    }

    /// Makes a call that may wait, and records it as a lap that is timed in every step.
    pub fn waiting<T>(&mut self, kind: CallKind, file: usize, call: impl FnOnce() -> T) -> T {
        let timing = self.timing;
        if !timing {
            self.step_timed();
        }
        let returned = call();
        self.lap(kind, file);
        self.timing = timing;
        returned
    }

    /// Ends a lap that waited for ring completions, for no particular file.
    #[inline]
    pub fn lap_ring_wait(&mut self) {
        self.ring_waits = true;
        self.lap_as(CallKind::Completion, SpanKind::RingWait, NO_FILE);
    }

    #[inline]
    fn lap_as(&mut self, kind: CallKind, span: SpanKind, file: u32) {
        self.kinds[kind as usize].count += 1;
        if !self.timing {
            self.last_lap_ns = None;
            return;
        }
        self.timed_lap(kind, span, file);
    }

    /// Records a lap of a timed step. Apart from the others, whose code stays small enough to be inlined.
    fn timed_lap(&mut self, kind: CallKind, span: SpanKind, file: u32) {
        let now = monotonic_ns();
        let ns = now - self.last_ns;
        self.last_lap_ns = Some(ns);
        if let Some(from) = self.function_from.take() {
            self.function_ends(from, now);
        }
        let at = &mut self.kinds[kind as usize];
        at.table.get_or_insert_default().record(ns);
        at.wall_ns += ns;
        if kind == CallKind::Compute {
            let known_ns = known_ns();
            at.known_ns += known_ns.saturating_sub(self.known_from_ns).min(ns);
            self.known_from_ns = known_ns;
        }
        at.typical_ns = moved(at.typical_ns, ns);
        self.last_ns =
            if self.detail == Detail::Totals { now } else { self.detailed(kind, span, now, file) };
    }

    /// Assigns the time since the last lap to no call: it was bookkeeping of the meter.
    #[inline]
    pub fn skip(&mut self) {
        if self.timing {
            self.last_ns = monotonic_ns();
        }
    }

    /// Records a lap that ends at `now`; returns the start of the next one.
    #[cold]
    fn detailed(&mut self, kind: CallKind, span: SpanKind, now: u64, file: u32) -> u64 {
        let ns = now - self.last_ns;
        self.reads.laps += 1;
        if self.detail != Detail::Traced {
            self.full(kind, ns, file);
        }
        if let Some(recorder) = &mut self.recorder
            && recorder.span(span, file, self.last_ns, now)
        {
            return monotonic_ns();
        }
        now
    }

    fn full(&mut self, kind: CallKind, ns: u64, file: u32) {
        if ns < LONG_LAP_NS {
            self.short_wall_ns += ns;
            self.kinds[kind as usize].cpu_ns += ns;
        } else {
            let cpu = thread_cpu_ns();
            self.reads.clock += 1;
            let used = (cpu - self.cpu_mark_ns).saturating_sub(self.short_wall_ns).min(ns);
            let at = &mut self.kinds[kind as usize];
            at.cpu_ns += used;
            if ns - used > OFF_NS
                && let Some(ready_ns) = self.sched.lap_ns()
            {
                self.reads.delay += 1;
                at.ready_ns += ready_ns.min(ns - used);
            }
            self.cpu_mark_ns = cpu;
            self.short_wall_ns = 0;
        }
        if self.spans.len() < self.spans.capacity() {
            let start_ns = self.last_ns.saturating_sub(self.run_start_ns);
            self.spans.push(Span { kind, start_ns, ns, file });
        } else {
            self.spans_lost += 1;
        }
    }

    /// Sets this thread's number of requests in flight, as of the last lap.
    #[inline]
    pub fn in_flight(&mut self, count: u32) {
        self.in_flight_max = self.in_flight_max.max(count);
        if !self.timing {
            return;
        }
        let held = u128::from(self.last_ns.saturating_sub(self.in_flight_since_ns));
        self.in_flight_area += held * u128::from(self.in_flight);
        self.in_flight_since_ns = self.last_ns;
        if count > self.in_flight {
            self.last_issue_ns = Some(self.last_ns - self.run_start_ns);
        }
        self.in_flight = count;
    }

    /// Records the start of a function, as of the last lap.
    #[inline]
    pub fn compute_starts(&mut self) {
        if !self.timing {
            return;
        }
        self.known_from_ns = known_ns();
        let at = self.last_ns - self.run_start_ns;
        self.first_compute_ns.get_or_insert(at);
        self.last_compute_ns = Some(at);
        let typical = self.typical_ns(CallKind::Compute);
        if typical.is_none_or(|ns| ns >= CLOCKED_FUNCTION_NS)
            && !matches!(self.detail, Detail::Full { .. })
        {
            self.function_starts();
        }
    }

    /// Reads the clocks before a function.
    #[cold]
    fn function_starts(&mut self) {
        let delay_ns = self.sched.now_ns();
        let cpu_ns = thread_cpu_ns();
        self.function_from = Some(FunctionClock { at_ns: monotonic_ns(), cpu_ns, delay_ns });
        self.reads.clock += 1;
        self.reads.delay += u64::from(delay_ns.is_some());
    }

    /// Reads the clocks after a function that ended at `now`.
    #[cold]
    fn function_ends(&mut self, from: FunctionClock, now: u64) {
        let cpu_ns = thread_cpu_ns();
        self.reads.clock += 1;
        let wall = now.saturating_sub(from.at_ns);
        let mut off = wall.saturating_sub(cpu_ns.saturating_sub(from.cpu_ns));
        if off > OFF_NS
            && let Some(ready_ns) = self.sched.since_ns(from.delay_ns)
        {
            self.reads.delay += 1;
            off = off.saturating_sub(ready_ns);
        }
        let known = known_ns().saturating_sub(self.known_from_ns).min(wall);
        self.function_clocked.0 += wall - known;
        self.function_clocked.1 += if off > OFF_NS { off.saturating_sub(known) } else { 0 };
    }

    /// Returns the start of a file that begins now, as of the last lap or the end of the last large file.
    #[inline]
    pub fn file_begins(&self) -> Began {
        Began::at(self.last_ns.max(self.large_end_ns))
    }

    /// Records that a file with so many bytes was computed.
    #[inline]
    pub fn file_done(&mut self, began: Began, bytes: u64) {
        self.files += 1;
        if Largest::counts(bytes) {
            self.large_done(began, bytes);
        }
    }

    #[cold]
    fn large_done(&mut self, began: Began, bytes: u64) {
        self.large_end_ns = monotonic_ns();
        let ns = began.ns_until(self.large_end_ns);
        self.largest = self.largest.max(Largest { bytes, ns });
    }

    /// Returns the wall time of all calls by kind, extrapolated from the timed ones, without known
    /// waits. All calls of the thread take at most `room_ns`: one long call among the timed ones
    /// does not represent others that cannot have taken as long.
    fn walls_ns(&self, room_ns: u64) -> [u64; KINDS] {
        let timed: u64 = self.kinds.iter().map(Kind::timed_ns).sum();
        let all = self.kinds.iter().map(Kind::extrapolated_ns).fold(0, u64::saturating_add);
        let more = room_ns.saturating_sub(timed).min(all);
        self.kinds.each_ref().map(|at| at.timed_ns() + part(more, at.extrapolated_ns(), all))
    }

    /// Ends the measurement.
    pub fn finish(mut self, name: String, role: &str) -> ThreadReport {
        self.timing = true;
        self.skip();
        self.recorder = None; // dropping it sends its spans
        let mut calls_ns = BTreeMap::new();
        let mut tables = Vec::new();
        let known = take_known_waits();
        put_known_waits(self.outer);
        let (known_ns, mut known_in_calls_ns) = (known.all_ns(), 0);
        let elapsed = self.last_ns - self.start_ns;
        let walls_ns = self.walls_ns(elapsed.saturating_sub(known_ns));
        let mut weights = Weights::default();
        for kind in CallKind::ALL {
            let at = &mut self.kinds[kind as usize];
            let known_ns = if kind == CallKind::Compute { known_ns } else { 0 };
            let wall_ns = walls_ns[kind as usize] + known_ns;
            if at.count > 0 {
                known_in_calls_ns += known_ns;
                calls_ns.insert(kind, wall_ns);
                tables.push((kind, at.count, at.table.take().unwrap_or_default()));
                let on_or_ready_ns = at.cpu_ns + at.ready_ns;
                weights.add(kind, wall_ns, on_or_ready_ns, self.detail, self.ring_waits);
            }
        }
        weights.known = known;
        weights.function_clocked = self.function_clocked;
        let cpu = thread_cpu_ns() - self.cpu_start_ns;
        let ready = self.sched.since_ns(None);
        let in_calls = calls_ns.values().sum::<u64>() - known_in_calls_ns;
        let (mut time, async_io_ns) = split(elapsed, cpu, ready, &weights, in_calls);
        time.name = name;
        time.role = role.to_owned();
        time.calls_ns = calls_ns;
        time.files = self.files;
        ThreadReport {
            time,
            async_io_ns,
            reads: self.reads,
            clocked: matches!(self.detail, Detail::Full { .. }),
            tables,
            spans: self.spans,
            spans_lost: self.spans_lost,
            in_flight_area: self.in_flight_area * u128::from(self.begun.max(1))
                / u128::from(self.begun_timed.max(1)),
            in_flight_max: self.in_flight_max,
            largest: self.largest,
            last_issue_ns: self.last_issue_ns,
            first_compute_ns: self.first_compute_ns,
            last_compute_ns: self.last_compute_ns,
        }
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;

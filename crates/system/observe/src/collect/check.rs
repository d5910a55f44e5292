//! Checks that the clocks agree, and measures the cost of events.
//!
//! Both are measured at the start. A kernel event between two clock readings must have a timestamp
//! between them. The cost of a switch is the processor time of a short sleep with events minus that
//! of one without, measured alternately, as a median: the kernel charges its work during a switch
//! to the switching thread.

use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use ioloom_sys_trace::perf::record::{Record, records};
use ioloom_sys_trace::perf::{Faults, Ring, Target, thread_id};
use ioloom_sys_trace::tracefs::event::{Decoder, Event, EventData, Kind};
use ioloom_sys_trace::tracefs::page::Page;
use ioloom_sys_trace::tracefs::{Instance, Pipe};
use std::hint::black_box;
use std::io;
use std::time::Duration;

/// Number of pages touched and of marks written by the clock test.
const CLOCK_EVENTS: usize = 64;
/// Number of calibration rounds, and of sleeps per round.
const ROUNDS: usize = 7;
const SLEEPS: u32 = 24;
/// Number of spans recorded for calibration.
const SPANS: usize = 2000;

/// Number of kernel events with timestamps between the surrounding readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockTest {
    /// Events with a timestamp between the readings.
    pub inside: u64,
    /// All events.
    pub total: u64,
}

impl ClockTest {
    fn add(&mut self, window: (u64, u64), at_ns: u64) {
        self.total += 1;
        self.inside += u64::from((window.0..=window.1).contains(&at_ns));
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self { inside: self.inside + other.inside, total: self.total + other.total }
    }
}

/// Cost of one event to the observed thread, in nanoseconds; `None` if not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Costs {
    /// One span.
    pub span_ns: Option<f64>,
    /// Both clocks of a thread.
    pub account_ns: Option<f64>,
    /// Only the processor clock.
    pub clock_ns: Option<f64>,
    /// Only the run-queue delay.
    pub delay_ns: Option<f64>,
    /// Leaving a processor and returning, at level 1.
    pub switch_ns: Option<f64>,
    /// Leaving a processor, being woken and returning, in tracefs.
    pub kernel_ns: Option<f64>,
}

/// Checks page faults of the calling thread between clock readings.
pub(super) fn clock_of_own_events() -> ClockTest {
    let mut test = ClockTest::default();
    let page = ioloom_sys::proc::page_bytes() as usize;
    let Ok(mut memory) = Buffer::fresh(CLOCK_EVENTS * page) else { return test };
    let Ok(mut ring) = Ring::open(Target::ThisThread, Faults::All, 64 << 10) else { return test };
    let start = memory.whole_mut().as_ptr() as u64;
    let mut windows = vec![(0, 0); CLOCK_EVENTS];
    for (i, window) in windows.iter_mut().enumerate() {
        let before = monotonic_ns();
        memory.whole_mut()[i * page] = black_box(1);
        *window = (before, monotonic_ns());
    }
    let mut bytes = Vec::new();
    ring.drain(&mut bytes);
    for record in records(&bytes) {
        if let Record::Fault { at_ns, address, .. } = record
            && let Some(offset) = address.checked_sub(start)
            && let Some(window) = windows.get((offset / page as u64) as usize)
        {
            test.add(*window, at_ns);
        }
    }
    test
}

/// Opens the rings of an instance and checks marks between clock readings.
///
/// # Errors
///
/// Fails if the marks have another ID for the calling thread: it is in a PID namespace, and the
/// threads of kernel events cannot be identified.
pub(super) fn clock_of_marks(
    instance: &mut Instance,
    decoder: &mut Decoder,
) -> io::Result<(Vec<Pipe>, ClockTest)> {
    instance.enable(Kind::Mark, "", decoder)?;
    let mut pipes = instance.pipes()?;
    instance.set_recording(true)?;
    let clock = clock_of_new_marks(instance, &mut pipes, decoder);
    instance.set_recording(false)?;
    Ok((pipes, clock?))
}

fn clock_of_new_marks(
    instance: &Instance,
    pipes: &mut [Pipe],
    decoder: &Decoder,
) -> io::Result<ClockTest> {
    let mut test = ClockTest::default();
    let mut windows = Vec::new();
    for _ in 0..CLOCK_EVENTS {
        let before = monotonic_ns();
        if instance.mark("ioloom clock test").is_ok() {
            windows.push((before, monotonic_ns()));
        }
    }
    let mut marks = Vec::new();
    for pipe in pipes {
        while let Ok(Some(bytes)) = pipe.next_page() {
            let events = Page::parse(bytes).into_iter().flat_map(Page::events);
            let decoded = events.filter_map(|(at, e)| decoder.decode(at, 0, e));
            marks.extend(decoded.filter(|event| event.what == EventData::Mark));
        }
    }
    same_ids(&marks, thread_id())?;
    let mut times: Vec<u64> = marks.iter().map(|mark| mark.at_ns).collect();
    times.sort_unstable();
    if times.len() == windows.len() {
        for (window, at_ns) in windows.into_iter().zip(times) {
            test.add(window, at_ns);
        }
    } else {
        test.total = windows.len() as u64;
    }
    Ok(test)
}

/// The kernel has other thread IDs than this PID namespace.
#[derive(Debug, thiserror::Error)]
#[error("kernel events have other process IDs than this container")]
pub(super) struct OtherIds;

/// Checks that the marks of thread `tid` have its ID. A mark in an interrupt has none.
fn same_ids(marks: &[Event], tid: u32) -> io::Result<()> {
    match marks.iter().find(|mark| ![0, tid].contains(&mark.by_tid)) {
        None => Ok(()),
        Some(_) => Err(io::Error::other(OtherIds)),
    }
}

/// Measures recording a span and reading both clocks.
pub(super) fn calibrate_user(costs: &mut Costs) {
    let (to, _from) = std::sync::mpsc::channel();
    let plan = super::recorder::RecorderOptions {
        spans_max: SPANS,
        accounts: true,
        ..super::recorder::RecorderOptions::default()
    };
    let mut recorder = super::Recorder::new(to, 0, "", "", plan);
    let rounds = 5;
    let mut spans = Vec::new();
    for _ in 0..rounds {
        let before = monotonic_ns();
        for _ in 0..SPANS / rounds {
            recorder.lap(ioloom_trace::SpanKind::Other, ioloom_trace::NO_FILE);
        }
        spans.push((monotonic_ns() - before) as f64 / (SPANS / rounds) as f64);
    }
    costs.span_ns = median(&mut spans);
    let mut accounts = Vec::new();
    for _ in 0..SPANS / 20 {
        let before = monotonic_ns();
        recorder.account(before);
        accounts.push((monotonic_ns() - before) as f64);
    }
    costs.account_ns = median(&mut accounts);
    let mut clocks: Vec<f64> = (0..SPANS / 20)
        .map(|_| {
            let before = monotonic_ns();
            black_box(thread_cpu_ns());
            (monotonic_ns() - before) as f64
        })
        .collect();
    costs.clock_ns = median(&mut clocks);
    let both = costs.account_ns.zip(costs.clock_ns);
    costs.delay_ns = both.map(|(both, clock)| (both - clock).max(0.0));
}

/// Measures reading the clocks of a thread.
pub(crate) fn calibrate_own() -> Costs {
    let mut costs = Costs::default();
    calibrate_user(&mut costs);
    costs
}

/// Measures a switch with a per-thread ring.
pub(super) fn calibrate_switch(costs: &mut Costs) {
    costs.switch_ns = differences(|| {
        let ring = Ring::open(Target::ThisThread, Faults::None, 64 << 10).ok();
        let ns = sleeps();
        drop(ring);
        ns
    });
}

/// Measures a switch in tracefs.
pub(super) fn calibrate_kernel(costs: &mut Costs, instance: &Instance) {
    costs.kernel_ns = differences(|| {
        let on = instance.set_recording(true);
        let ns = sleeps();
        let _ = instance.set_recording(false);
        on.map_or(f64::NAN, |()| ns)
    });
}

fn differences(mut with: impl FnMut() -> f64) -> Option<f64> {
    let mut found: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let without = sleeps();
            with() - without
        })
        .filter(|ns| ns.is_finite())
        .collect();
    // Noise can make the difference negative, but a cost cannot be negative.
    median(&mut found).map(|ns| ns.max(0.0))
}

/// Returns the processor time of one short sleep.
fn sleeps() -> f64 {
    let before = thread_cpu_ns();
    for _ in 0..SLEEPS {
        std::thread::sleep(Duration::from_nanos(1));
    }
    (thread_cpu_ns() - before) as f64 / f64::from(SLEEPS)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print a notice")]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_own_events_is_ours() {
        let test = clock_of_own_events();
        assert_eq!(test.inside, test.total);
        if test.total == 0 {
            println!("skipped: kernel events of the process's threads are not available");
        }
    }

    #[test]
    fn marks_with_the_ids_of_another_namespace_are_an_error_with_a_remedy() {
        let mark = |by_tid| Event { at_ns: 1, cpu: 0, by_tid, what: EventData::Mark };
        assert!(same_ids(&[mark(7), mark(0), mark(7)], 7).is_ok());
        let error = same_ids(&[mark(7), mark(4242)], 7).unwrap_err();
        assert!(error.to_string().contains("other process IDs"), "{error}");
        let remedy = super::super::probe::remedy_of_kernel(&error);
        assert!(remedy.contains("--pid=host"), "{remedy}");
    }

    #[test]
    fn costs_are_not_negative() {
        let mut costs = Costs::default();
        calibrate_user(&mut costs);
        calibrate_switch(&mut costs);
        assert!(costs.span_ns.is_some_and(|ns| ns > 0.0));
        assert!(costs.account_ns.is_some_and(|ns| ns > 0.0));
        assert!(costs.switch_ns.is_some_and(|ns| ns >= 0.0));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }
}

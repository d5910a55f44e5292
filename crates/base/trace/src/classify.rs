//! From events to explained lanes.
//!
//! One function, [`classify`], and no state beside its input, so that every rule can be tested on
//! planted events. The rules, in this order:
//!
//! 1. It left the processor and still wanted to run: preempted, until it runs again.
//! 2. It is on a processor: on-cpu.
//! 3. It is blocked, until it is woken: a kernel lock that it waits for makes it `lock`; else the
//!    span that holds the moment of leaving names the state ([`SpanKind::blocked_state`]); inside
//!    the user's function, or outside any span, a major fault that ends the block makes it `paging`;
//!    else an uninterruptible wait (level 2) makes it `paging` if files are mapped, because a fault on
//!    a page that read-ahead has already asked for waits without being major, and `io` if they are
//!    not, because such a function reads a file itself; what is left is `unknown`: the function waits
//!    for something that only it knows.
//! 4. It is woken and does not run yet: ready.
//!
//! What a level cannot see:
//!
//! - Level 1 has no wake-ups, so ready stands inside the blocked time. Its sum is known (run-queue
//!   delay less preempted) and is taken off the ends of the blocked stretches between two accounts:
//!   each gives the same amount, as far as it is long enough, because a thread that was woken waits
//!   for a processor no longer after a long sleep than after a short one.
//! - Level 0 has no switches. Each stretch between two accounts is divided by the clocks; the long
//!   span that ends it takes what was not on a processor, short spans count as on-cpu. Segments then
//!   stand in the order of the states and are marked as not placed.
//!
//! A thread whose switches are missing although its clock says that it did not run is explained
//! from its accounts, and a note says so. Cost: a sort of each list and one pass.

mod accounts;
mod checks;
mod events;
mod offs;
mod table;
mod tile;

pub use table::Sums;

use crate::lane::{Core, CoreRun, Device, NO_CPU, Request, Segment, Thread, Trace};
use crate::raw::{Raw, RawThread};
use crate::span::{Span, SpanKind};
use ioloom_model::{Evidence, Level, State};
use std::collections::BTreeSet;

/// Role of the kernel's own workers, such as those of a ring.
pub const ROLE_KERNEL_WORKER: &str = "kernel-worker";
/// Role of the watching tool's own threads; left out of sums over all threads.
pub const ROLE_TOOL: &str = "tool";

/// A thread without switches that was off the processor for more than this part of its time is
/// explained from accounts: rounding and the tool's own cost stay well below it.
const SWITCHES_MISSING_SHARE: f64 = 0.05;

/// Latest moment, 104 days: later ones are not times but garbage. Sums stay far from overflow, and
/// every time is exact in a double.
const LATEST_NS: u64 = 1 << 53;

/// Explains what was recorded. Title, time of day and names of files are not in the events; the
/// caller fills them in. Bad input (missing ends, wrong order, duplicates) never panics: it is
/// repaired where a rule exists and counted in the checks.
pub fn classify(mut raw: Raw) -> Trace {
    bound(&mut raw);
    let seen = Seen::of(&raw);
    let mut tally = checks::Tally::default();
    let mut threads: Vec<Thread> = Vec::with_capacity(raw.threads.len());
    for thread in raw.threads {
        let thread = Cleaned::of(thread);
        let explained = explain(&thread, &seen);
        let states = table::table(&thread, &explained, &seen);
        tally.add(&thread, &explained, &states);
        threads.push(lane(thread, explained, states));
    }
    let cores = cores(raw.cores, &threads);
    sort_threads(&mut threads);
    let mut trace = Trace {
        elapsed_ns: raw.elapsed_ns,
        threads,
        devices: devices(raw.devices, raw.requests),
        cores,
        series: raw.series,
        marks: raw.marks,
        evidence: Evidence { level: seen.level, ..raw.evidence },
        ..Trace::default()
    };
    for series in &mut trace.series {
        series.points.sort_by_key(|p| p.0);
    }
    trace.marks.sort_by_key(|m| m.at_ns);
    checks::complete(&mut trace, &tally);
    trace
}

/// Brings times that cannot be back to [`LATEST_NS`].
fn bound(raw: &mut Raw) {
    let bound = |ns: &mut u64| *ns = (*ns).min(LATEST_NS);
    bound(&mut raw.elapsed_ns);
    for thread in &mut raw.threads {
        bound(&mut thread.start_ns);
        bound(&mut thread.end_ns);
        thread.cpu_ns.iter_mut().chain(&mut thread.run_delay_ns).for_each(bound);
        for account in &mut thread.accounts {
            bound(&mut account.cpu_ns);
            account.run_delay_ns.iter_mut().for_each(bound);
        }
        thread.wakes.iter_mut().for_each(|w| bound(&mut w.at_ns));
    }
    for request in &mut raw.requests {
        bound(&mut request.issue_ns);
        request.complete_ns.iter_mut().for_each(bound);
    }
    for run in raw.cores.iter_mut().flatten() {
        bound(&mut run.start_ns);
        bound(&mut run.end_ns);
    }
    raw.series.iter_mut().flat_map(|s| &mut s.points).for_each(|p| bound(&mut p.0));
    raw.marks.iter_mut().for_each(|m| bound(&mut m.at_ns));
}

/// What this observation could see at all.
struct Seen {
    level: Level,
    /// Wake-ups were recorded.
    wakes: bool,
    /// Major faults were recorded.
    faults: bool,
    /// Waits for kernel locks were recorded.
    locks: bool,
    /// Some thread names its page touches by spans.
    fault_spans: bool,
    /// Some thread maps files.
    maps: bool,
    /// Name of the source of switches.
    switch_source: &'static str,
    /// What a wait inside the user's function is.
    function_waits: State,
}

impl Seen {
    fn of(raw: &Raw) -> Self {
        let level = raw.level.unwrap_or(raw.evidence.level);
        let sources = &raw.evidence.sources;
        // Sources that are not listed: what the level has by its definition.
        let has = |words: &[&str], least: Level| {
            level >= least
                && (sources.is_empty()
                    || sources.iter().any(|s| {
                        let mut parts = s.name.split(|c: char| !c.is_ascii_alphanumeric());
                        parts.any(|part| words.contains(&part))
                    }))
        };
        let any_span = |kinds: &[SpanKind]| {
            let mut spans = raw.threads.iter().flat_map(|t| &t.spans);
            spans.any(|s| kinds.contains(&s.kind))
        };
        let perf = sources.is_empty() || sources.iter().any(|s| s.name == "perf.switch");
        Self {
            level,
            wakes: has(&["waking", "wakeup"], Level::Kernel)
                || (level == Level::Kernel && raw.threads.iter().any(|t| !t.wakes.is_empty())),
            faults: has(&["fault", "faults"], Level::Switch)
                || raw.threads.iter().any(|t| !t.faults.is_empty()),
            locks: has(&["lock", "contention"], Level::Kernel)
                || raw.threads.iter().any(|t| !t.locks.is_empty()),
            fault_spans: any_span(&[SpanKind::Fault]),
            maps: any_span(&[SpanKind::Fault, SpanKind::Map]),
            switch_source: if perf { "perf.switch" } else { "tracefs.sched_switch" },
            function_waits: raw.function_waits.unwrap_or(State::Unknown),
        }
    }

    /// The state of a thread that is blocked in a span, when nothing else is known.
    fn blocked_in(&self, kind: SpanKind) -> State {
        if kind == SpanKind::Compute { self.function_waits } else { kind.blocked_state() }
    }
}

/// A thread whose lists are in order and inside its time.
struct Cleaned {
    raw: RawThread,
}

impl Cleaned {
    fn of(mut raw: RawThread) -> Self {
        raw.end_ns = raw.end_ns.max(raw.start_ns);
        raw.spans = clean_spans(raw.spans, raw.start_ns, raw.end_ns);
        raw.accounts.sort_by_key(|a| a.at_ns);
        raw.switches.sort_by_key(|s| s.at_ns);
        raw.switches.dedup();
        raw.wakes.sort_by_key(|w| w.at_ns);
        raw.faults.sort_by_key(|f| f.at_ns);
        raw.locks.sort_by_key(|l| l.start_ns);
        Self { raw }
    }

    fn ns(&self) -> u64 {
        self.raw.end_ns - self.raw.start_ns
    }

    /// The span that holds a moment.
    fn span_at(&self, at_ns: u64) -> Option<&Span> {
        let after = self.raw.spans.partition_point(|s| s.start_ns <= at_ns);
        let span = self.raw.spans.get(after.checked_sub(1)?)?;
        (at_ns < span.start_ns.saturating_add(span.ns)).then_some(span)
    }

    /// The first start or end of a span after a moment: the thread ran then, it read the clock.
    fn boundary_after(&self, at_ns: u64) -> Option<u64> {
        let spans = &self.raw.spans;
        let end = |s: &Span| s.start_ns.saturating_add(s.ns);
        let start = spans.get(spans.partition_point(|s| s.start_ns <= at_ns)).map(|s| s.start_ns);
        let end = spans.get(spans.partition_point(|s| end(s) <= at_ns)).map(end);
        [start, end].into_iter().flatten().min()
    }

    /// The last start or end of a span before or at a moment.
    fn boundary_before(&self, at_ns: u64) -> Option<u64> {
        let spans = &self.raw.spans;
        let end = |s: &Span| s.start_ns.saturating_add(s.ns);
        let start = spans.partition_point(|s| s.start_ns <= at_ns).checked_sub(1);
        let ended = spans.partition_point(|s| end(s) <= at_ns).checked_sub(1);
        [start.map(|i| spans[i].start_ns), ended.map(|i| end(&spans[i]))]
            .into_iter()
            .flatten()
            .max()
    }

    /// The first wake-up in `from..=to`.
    fn wake_in(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let wakes = &self.raw.wakes;
        let first = wakes.get(wakes.partition_point(|w| w.at_ns < from_ns))?.at_ns;
        (first <= to_ns).then_some(first)
    }
}

/// Sorts, cuts to the thread's time and takes overlap off the later span.
fn clean_spans(mut spans: Vec<Span>, start_ns: u64, end_ns: u64) -> Vec<Span> {
    spans.sort_by_key(|s| s.start_ns);
    let mut free_from = start_ns;
    spans.retain_mut(|span| {
        let end = span.start_ns.saturating_add(span.ns).min(end_ns);
        let inside = span.start_ns <= end_ns && end >= free_from;
        let was_empty = span.ns == 0;
        span.start_ns = span.start_ns.max(free_from);
        span.ns = end.saturating_sub(span.start_ns);
        free_from = free_from.max(end);
        inside && (span.ns > 0 || was_empty)
    });
    spans
}

/// One thread's segments, and what was noticed on the way.
#[derive(Default)]
struct Explained {
    segments: Vec<Segment>,
    /// The level whose rules were used.
    by_accounts: bool,
    /// Switches that did not fit.
    chain_breaks: u64,
    /// Blocked stretches.
    blocks: u64,
    /// Of these, without a wake-up although wake-ups were recorded.
    unwoken: u64,
    /// Whether ready is known.
    ready_known: bool,
    /// No clock at all: only the kinds of the spans speak.
    no_clock: bool,
    /// States that rest on the kind of wait alone.
    inferred: BTreeSet<State>,
}

fn explain(thread: &Cleaned, seen: &Seen) -> Explained {
    if seen.level == Level::Account || switches_missing(thread) {
        accounts::explain(thread, seen)
    } else {
        events::explain(thread, seen)
    }
}

/// No switch was delivered, but the clock says that the thread was off the processor.
fn switches_missing(thread: &Cleaned) -> bool {
    let off_ns = thread.raw.cpu_ns.map(|cpu_ns| thread.ns().saturating_sub(cpu_ns));
    thread.raw.switches.is_empty()
        && off_ns.is_some_and(|off| off as f64 > thread.ns() as f64 * SWITCHES_MISSING_SHARE)
}

fn lane(thread: Cleaned, explained: Explained, states: ioloom_model::StateTable) -> Thread {
    let raw = thread.raw;
    Thread {
        tid: raw.tid,
        name: raw.name,
        role: raw.role,
        start_ns: raw.start_ns,
        end_ns: raw.end_ns,
        spans: raw.spans,
        segments: explained.segments,
        states,
        wakes: raw.wakes,
    }
}

/// Roles in the order of their first thread, numbers within; kernel workers, then the tool, last.
fn sort_threads(threads: &mut [Thread]) {
    let mut roles: Vec<String> = Vec::new();
    for thread in threads.iter() {
        if !roles.contains(&thread.role) {
            roles.push(thread.role.clone());
        }
    }
    threads.sort_by_key(|thread| {
        let class = match thread.role.as_str() {
            ROLE_KERNEL_WORKER => 1,
            ROLE_TOOL => 2,
            _ => 0,
        };
        (class, roles.iter().position(|r| *r == thread.role), thread.tid)
    });
}

fn devices(names: Vec<String>, mut requests: Vec<Request>) -> Vec<Device> {
    requests.sort_by_key(|r| r.issue_ns);
    let mut devices: Vec<Device> =
        names.into_iter().map(|name| Device { name, requests: Vec::new() }).collect();
    for mut request in requests {
        // An end before the start is an end that belongs to another request.
        request.complete_ns = request.complete_ns.filter(|end| *end >= request.issue_ns);
        let index = usize::from(request.device);
        while devices.len() <= index {
            devices.push(Device { name: format!("device {}", devices.len()), ..Device::default() });
        }
        devices[index].requests.push(request);
    }
    devices
}

/// Core lanes: as recorded, else (level 1) from where our own threads ran.
fn cores(recorded: Vec<Vec<CoreRun>>, threads: &[Thread]) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    if recorded.iter().any(|runs| !runs.is_empty()) {
        for (cpu, runs) in recorded.into_iter().enumerate() {
            cores.push(Core { cpu: cpu as u16, runs: without_overlap(runs) });
        }
        return cores;
    }
    for thread in threads {
        for (i, segment) in thread.segments.iter().enumerate() {
            if segment.cpu == NO_CPU || segment.state != State::OnCpu {
                continue;
            }
            let end_ns = thread.segments.get(i + 1).map_or(thread.end_ns, |next| next.start_ns);
            let run = CoreRun {
                start_ns: segment.start_ns,
                end_ns,
                tid: thread.tid,
                ours: thread.role != ROLE_TOOL,
            };
            let at = match cores.binary_search_by_key(&segment.cpu, |c| c.cpu) {
                Ok(at) => at,
                Err(at) => {
                    cores.insert(at, Core { cpu: segment.cpu, runs: Vec::new() });
                    at
                }
            };
            cores[at].runs.push(run);
        }
    }
    for core in &mut cores {
        core.runs = without_overlap(std::mem::take(&mut core.runs));
    }
    cores
}

/// By start; a run ends at the latest where the next one starts, since one core runs one thread.
fn without_overlap(mut runs: Vec<CoreRun>) -> Vec<CoreRun> {
    runs.sort_by_key(|r| r.start_ns);
    for i in 1..runs.len() {
        let next = runs[i].start_ns;
        runs[i - 1].end_ns = runs[i - 1].end_ns.min(next);
    }
    runs.retain(|r| r.end_ns > r.start_ns);
    runs
}

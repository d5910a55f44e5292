//! Classification: derives the state of every thread over time from events.
//!
//! [`classify`] is a pure function of its input, so every rule can be tested with synthetic events.
//! The rules, in order:
//!
//! 1. The thread left the processor while runnable: preempted, until it runs again.
//! 2. The thread is on a processor: on-cpu.
//! 3. The thread is blocked until its wake-up. If it waits for a kernel lock: `lock`. Otherwise the
//!    span in which it left the processor determines the state
//!    ([`blocked_state`](crate::SpanKind::blocked_state)). Within the user's function, or outside
//!    any span: `paging` if a major fault ends the wait. Otherwise an uninterruptible wait (level
//!    2) is `paging` if files are mapped because a fault on a page already requested by readahead
//!    waits without being major; if no files are mapped, it is `io` because such a function reads
//!    files itself. Anything else is `unknown`: the function waits for something that the events do
//!    not show.
//! 4. The thread was woken but is not running yet: ready.
//!
//! Limits of the levels:
//!
//! - Level 1 has no wake-ups, so ready time is part of the blocked time. Its sum is known
//!   (run-queue delay minus preempted time) and is subtracted from the ends of the blocked
//!   intervals between two clock readings, in equal parts as far as the intervals are long enough:
//!   a woken thread does not wait longer for a processor after a long sleep than after a short one.
//! - Level 0 has no context switches. The time between two clock readings is divided according to
//!   the clocks: the long span at its end is charged with the off-CPU time, and short spans count
//!   as on-cpu. Segments are then in state order and are marked as not placed.
//!
//! If a thread has no switches although its clock shows that it was off the processor, or because
//! they were dropped, the thread is classified from its clock readings, and a note reports it.
//! Cost: one sort of each list and one pass.

mod accounts;
mod capabilities;
mod checks;
mod clean_thread;
mod events;
mod explained;
mod off_cpu;
mod table;
mod tile;

pub use table::Sums;

use crate::lane::{
    Core, CoreRun, Device, NO_CPU, ROLE_KERNEL_WORKER, ROLE_TOOL, Request, Thread, Trace,
};
use crate::raw::Raw;
use capabilities::Capabilities;
use clean_thread::CleanThread;
use explained::Explained;
use ioloom_model::{Evidence, Level, State};
use std::collections::HashMap;

/// A thread without switches that was off the processor for more than this share of its time is
/// classified from clock readings. Rounding and tool overhead are well below it.
const SWITCHES_MISSING_SHARE: f64 = 0.05;

/// Maximum time, 104 days; later times are invalid. Sums are far from overflow, and every time is
/// exact in a double.
const LATEST_NS: u64 = 1 << 53;

/// Classifies recorded events. The caller adds the title, the time of day and the file names, which
/// are not in the events. Invalid input (missing ends, wrong order, duplicates) does not cause a
/// panic: it is repaired if a rule exists and counted in the checks.
pub fn classify(mut raw: Raw) -> Trace {
    bound(&mut raw);
    let seen = Capabilities::of(&raw);
    let mut tally = checks::Tally::default();
    let mut threads: Vec<Thread> = Vec::with_capacity(raw.threads.len());
    for thread in raw.threads {
        let thread = CleanThread::of(thread);
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
        evidence: Evidence {
            level: seen.level,
            complete_until_ns: raw.complete_until_ns,
            ..raw.evidence
        },
        ..Trace::default()
    };
    for series in &mut trace.series {
        series.points.sort_by_key(|p| p.0);
    }
    trace.marks.sort_by_key(|m| m.at_ns);
    checks::complete(&mut trace, &tally);
    trace
}

/// Limits all times to [`LATEST_NS`].
fn bound(raw: &mut Raw) {
    let bound = |ns: &mut u64| *ns = (*ns).min(LATEST_NS);
    bound(&mut raw.elapsed_ns);
    raw.complete_until_ns.iter_mut().for_each(bound);
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

fn explain(thread: &CleanThread, seen: &Capabilities) -> Explained {
    if seen.level == Level::Account || switches_missing(thread) || switches_dropped(thread, seen) {
        accounts::explain(thread, seen)
    } else {
        events::explain(thread, seen)
    }
}

/// Reports whether a thread has no switches although its clock shows that it was off the processor.
fn switches_missing(thread: &CleanThread) -> bool {
    let off_ns = thread.raw.cpu_ns.map(|cpu_ns| thread.ns().saturating_sub(cpu_ns));
    thread.raw.switches.is_empty()
        && off_ns.is_some_and(|off| off as f64 > thread.ns() as f64 * SWITCHES_MISSING_SHARE)
}

/// Reports whether a thread has no switches because they were dropped, but has clock readings.
fn switches_dropped(thread: &CleanThread, seen: &Capabilities) -> bool {
    let raw = &thread.raw;
    raw.switches.is_empty() && raw.cpu_ns.is_some() && seen.until_ns < raw.end_ns
}

fn lane(thread: CleanThread, explained: Explained, states: ioloom_model::StateTable) -> Thread {
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

/// Sorts by role in order of first appearance, then by number. Kernel workers come last, followed
/// only by the tool.
fn sort_threads(threads: &mut [Thread]) {
    let mut roles: HashMap<String, usize> = HashMap::new();
    for thread in threads.iter() {
        if !roles.contains_key(&thread.role) {
            roles.insert(thread.role.clone(), roles.len());
        }
    }
    threads.sort_by_key(|thread| {
        let class = match thread.role.as_str() {
            ROLE_KERNEL_WORKER => 1,
            ROLE_TOOL => 2,
            _ => 0,
        };
        (class, roles.get(&thread.role).copied(), thread.tid)
    });
}

fn devices(names: Vec<String>, mut requests: Vec<Request>) -> Vec<Device> {
    requests.sort_by_key(|r| r.issue_ns);
    let mut devices: Vec<Device> =
        names.into_iter().map(|name| Device { name, requests: Vec::new() }).collect();
    for mut request in requests {
        // An end before the start belongs to another request.
        request.complete_ns = request.complete_ns.filter(|end| *end >= request.issue_ns);
        let index = usize::from(request.device);
        while devices.len() <= index {
            devices.push(Device { name: format!("device {}", devices.len()), ..Device::default() });
        }
        devices[index].requests.push(request);
    }
    devices
}

/// Returns the recorded core lanes, or at level 1 the cores on which threads of the program ran.
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

/// Sorts runs and ends each one at the start of the next because a core runs one thread at a time.
fn without_overlap(mut runs: Vec<CoreRun>) -> Vec<CoreRun> {
    runs.sort_by_key(|r| r.start_ns);
    for i in 1..runs.len() {
        let next = runs[i].start_ns;
        runs[i - 1].end_ns = runs[i - 1].end_ns.min(next);
    }
    runs.retain(|r| r.end_ns > r.start_ns);
    runs
}

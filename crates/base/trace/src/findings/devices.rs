//! Rules about overlap between processors and devices, and about queues.

use super::finding::{Finding, line, pct};
use super::observed::Observed;
use crate::lane::{ROLE_TOOL, Series, Trace};
use crate::raw::READY_QUEUE;
use crate::utilisation::{Coverage, DeviceOverlap};
use ioloom_model::State;
use std::collections::BTreeSet;

/// Minimum reported share of the run in which one side works and the other is idle.
const ONE_SIDE_MIN: f64 = 0.30;
/// Minimum reported share of the run that overlap could save: the smaller of the two times in which
/// one side works alone. Below a tenth, one side is the bottleneck and the other has to wait.
const OVERLAP_GAIN_MIN: f64 = 0.10;
/// Share of the run in which only the device works, above which its queue depth is examined.
const DEVICE_ALONE_MIN: f64 = 0.50;
/// Number of requests in flight below which a busy solid-state device has spare capacity.
const QUEUE_SHALLOW: f64 = 4.0;
/// A queue grows without bound if its last quarter is this many times the first ...
const BACKLOG_GROWTH_MIN: f64 = 3.0;
/// ... and each quarter is this many times the previous one. A bounded queue stops growing.
const BACKLOG_STEP_MIN: f64 = 1.15;
/// Minimum mean queue length in the last quarter that counts as a backlog.
const BACKLOG_ITEMS_MIN: f64 = 32.0;

/// The four combinations as shares of the run.
struct Parts {
    both: f64,
    cpu_only: f64,
    device_only: f64,
    neither: f64,
    /// Only the device is busy, and a thread of the program waits for I/O or a page. The requests of the rest
    /// can be those of other programs.
    waited: f64,
    /// The mean number of requests that the program has in flight during `waited`.
    depth: Option<f64>,
}

fn parts(seen: &Observed<'_>) -> Option<Parts> {
    let end_ns = seen.trace.elapsed_ns;
    let waited = seen.utilisation.device_only_during(&waits(seen.trace), end_ns)?;
    let DeviceOverlap { both_ns, cpu_only_ns, device_only_ns, neither_ns } =
        seen.utilisation.device_overlap(0, end_ns)?;
    Some(Parts {
        both: seen.of_run(both_ns),
        cpu_only: seen.of_run(cpu_only_ns),
        device_only: seen.of_run(device_only_ns),
        neither: seen.of_run(neither_ns),
        waited: seen.of_run(waited.within(0, end_ns)),
        depth: depth(seen.trace, &waited),
    })
}

/// Returns the mean number of requests in flight that threads of the program, or kernel workers for it, issued;
/// `None` if there are none for half of the time, because other threads of the kernel issue them.
fn depth(trace: &Trace, during: &Coverage) -> Option<f64> {
    let threads = trace.threads.iter().filter(|thread| thread.role != ROLE_TOOL);
    let tids: BTreeSet<u32> = threads.map(|thread| thread.tid).collect();
    let requests = trace.devices.iter().flat_map(|device| &device.requests);
    let own = requests.filter(|request| tids.contains(&request.tid));
    let own: Vec<(u64, u64)> = own.filter_map(|r| Some((r.issue_ns, r.complete_ns?))).collect();
    let all_ns = during.within(0, trace.elapsed_ns);
    let busy_ns =
        Coverage::union(own.iter().copied()).intersection(during).within(0, trace.elapsed_ns);
    let sum_ns: f64 = own.iter().map(|(from, to)| during.within(*from, *to) as f64).sum();
    (busy_ns > 0 && busy_ns >= all_ns / 2).then(|| sum_ns / busy_ns as f64)
}

/// Returns the time in which a thread of the program, or a kernel worker for it, waits for I/O or a page.
fn waits(trace: &Trace) -> Coverage {
    let threads = trace.threads.iter().filter(|thread| thread.role != ROLE_TOOL);
    Coverage::union(threads.flat_map(|thread| {
        let ends = thread.segments.iter().skip(1).map(|segment| segment.start_ns);
        let ends = ends.chain(std::iter::once(thread.end_ns));
        let waits = |state| matches!(state, State::Io | State::AsyncIo | State::Paging);
        let segments = thread.segments.iter().zip(ends);
        segments.filter(move |(s, _)| waits(s.state)).map(|(s, end)| (s.start_ns, end))
    }))
}

impl Parts {
    fn evidence(&self) -> Vec<(String, String)> {
        vec![
            line("only processors busy", pct(self.cpu_only)),
            line("only the device busy", pct(self.device_only)),
            line("only the device busy, and the program waits for it", pct(self.waited)),
            line("both busy", pct(self.both)),
            line("neither busy", pct(self.neither)),
        ]
    }

    fn gain(&self) -> f64 {
        self.cpu_only.min(self.waited)
    }
}

/// The device is idle while the program computes.
pub(super) fn disk_idle(seen: &Observed<'_>) -> Option<Finding> {
    let parts = parts(seen).filter(|_| seen.allows("device"))?;
    if parts.cpu_only < ONE_SIDE_MIN || parts.gain() < OVERLAP_GAIN_MIN {
        return None;
    }
    let mut evidence = parts.evidence();
    evidence.push(line("share of the run that overlap could save", pct(parts.gain())));
    Some(Finding {
        id: "disk-idle".to_owned(),
        title: "The device is idle while the program computes".to_owned(),
        sentence: format!(
            "For {} of the run the program computes with no request in flight, although it waits \
             for the device at other times.",
            pct(parts.cpu_only)
        ),
        evidence,
        try_this: "Start reads earlier: use a larger window or dedicated reader threads."
            .to_owned(),
    })
}

/// The program waits for a device that has spare capacity.
pub(super) fn cpu_idle(seen: &Observed<'_>) -> Option<Finding> {
    let parts = parts(seen).filter(|_| seen.allows("device"))?;
    let overlap = parts.waited >= ONE_SIDE_MIN && parts.gain() >= OVERLAP_GAIN_MIN;
    let shallow =
        parts.waited >= DEVICE_ALONE_MIN && parts.depth.is_some_and(|depth| depth < QUEUE_SHALLOW);
    if !overlap && !shallow {
        return None;
    }
    let mut evidence = parts.evidence();
    let depth = parts.depth.map(|depth| format!("{depth:.1}"));
    let requests = match &depth {
        Some(depth) => format!("on average {depth} of its requests are in flight"),
        None => "threads outside the program issue the requests".to_owned(),
    };
    let depth = depth.map(|depth| line("requests of the program in flight while it waits", depth));
    evidence.extend(depth);
    Some(Finding {
        id: "cpu-idle".to_owned(),
        title: "The program waits for the device".to_owned(),
        sentence: format!(
            "For {} of the run no thread of the program runs and one waits for the device; {requests}.",
            pct(parts.waited)
        ),
        evidence,
        try_this: if shallow {
            "Keep more requests in flight: use more readers, a larger window or an asynchronous method."
        } else {
            "Overlap computation with the next reads."
        }
        .to_owned(),
    })
}

/// Reads outpace computation.
pub(super) fn backlog(seen: &Observed<'_>) -> Option<Finding> {
    let series = seen.trace.series.iter().find(|s| s.name == READY_QUEUE)?;
    let end = seen.trace.elapsed_ns;
    let mean = |i: u64| time_mean(series, end / 4 * i, end / 4 * (i + 1));
    let quarters: Vec<f64> = (0..4).map(mean).collect();
    let grows = quarters.windows(2).all(|w| w[1] >= w[0] * BACKLOG_STEP_MIN);
    let (first, last) = (quarters[0], quarters[3]);
    if !grows || last < BACKLOG_ITEMS_MIN || last < first * BACKLOG_GROWTH_MIN {
        return None;
    }
    let unit = &series.unit;
    let words: Vec<String> = quarters.iter().map(|q| format!("{q:.0}")).collect();
    Some(Finding {
        id: "unbounded-backlog".to_owned(),
        title: "Reads outpace computation".to_owned(),
        sentence: format!(
            "The ready queue grows throughout the run, from {first:.0} {unit} on average in the first \
             quarter to {last:.0} in the last."
        ),
        evidence: vec![
            line("mean of each quarter", format!("{} {unit}", words.join(", "))),
            line("growth factor", format!("{:.1}", last / first.max(1.0))),
        ],
        try_this: "Limit the queue, reduce readahead, or use more compute threads.".to_owned(),
    })
}

/// Returns the mean of a counter in a range; it is 0 before the first value.
fn time_mean(series: &Series, from_ns: u64, to_ns: u64) -> f64 {
    let mut sum = 0.0;
    for (i, (at_ns, value)) in series.points.iter().enumerate() {
        let end = series.points.get(i + 1).map_or(u64::MAX, |next| next.0);
        let held = end.min(to_ns).saturating_sub((*at_ns).max(from_ns));
        sum += value * held as f64;
    }
    sum / to_ns.saturating_sub(from_ns).max(1) as f64
}

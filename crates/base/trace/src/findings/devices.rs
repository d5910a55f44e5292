//! Rules about processors and devices together, and about queues.

use super::{Finding, Seen, line, pct};
use crate::lane::Series;
use crate::raw::READY_QUEUE;
use crate::utilisation::DeviceOverlap;

/// Part of the run in which one side works and the other is idle, from which on it is worth a word.
const ONE_SIDE_MIN: f64 = 0.30;
/// Part of the run that overlap could save: the shorter of the two sides that work alone. Below a
/// tenth one side is the bottleneck and the other one rightly waits.
const OVERLAP_GAIN_MIN: f64 = 0.10;
/// Part of the run in which the device works alone, from which on its queue is judged by itself.
const DEVICE_ALONE_MIN: f64 = 0.50;
/// Requests in flight while the device is busy, below which a solid-state device is not full.
const QUEUE_SHALLOW: f64 = 4.0;
/// A queue has grown without bound if its last quarter is this many times its first ...
const BACKLOG_GROWTH_MIN: f64 = 3.0;
/// ... and each quarter is this much above the one before: a queue at its bound stands still.
const BACKLOG_STEP_MIN: f64 = 1.15;
/// Items below which a growing queue is no backlog.
const BACKLOG_ITEMS_MIN: f64 = 32.0;

/// The four combinations as parts of the run.
struct Parts {
    both: f64,
    cpu_only: f64,
    device_only: f64,
    neither: f64,
}

fn parts(seen: &Seen<'_>) -> Option<Parts> {
    let DeviceOverlap { both_ns, cpu_only_ns, device_only_ns, neither_ns } =
        seen.utilisation.device_overlap(0, seen.trace.elapsed_ns)?;
    Some(Parts {
        both: seen.of_run(both_ns),
        cpu_only: seen.of_run(cpu_only_ns),
        device_only: seen.of_run(device_only_ns),
        neither: seen.of_run(neither_ns),
    })
}

impl Parts {
    fn evidence(&self) -> Vec<(String, String)> {
        vec![
            line("only processors work", pct(self.cpu_only)),
            line("only the device works", pct(self.device_only)),
            line("both work", pct(self.both)),
            line("neither works", pct(self.neither)),
        ]
    }

    fn gain(&self) -> f64 {
        self.cpu_only.min(self.device_only)
    }
}

/// The device has nothing to do while the program computes.
pub(super) fn disk_idle(seen: &Seen<'_>) -> Option<Finding> {
    let parts = parts(seen)?;
    if parts.cpu_only < ONE_SIDE_MIN || parts.gain() < OVERLAP_GAIN_MIN {
        return None;
    }
    let mut evidence = parts.evidence();
    evidence.push(line("part of the run that overlap could save", pct(parts.gain())));
    Some(Finding {
        id: "disk-idle".to_owned(),
        title: "The device is idle while the program computes".to_owned(),
        sentence: format!(
            "For {} of the run the program computes and no request is in flight, although it waits \
             for the device at other times.",
            pct(parts.cpu_only)
        ),
        evidence,
        try_this: "Start reads earlier: a larger window, or threads of their own for reading."
            .to_owned(),
    })
}

/// The program waits for a device that could do more.
pub(super) fn cpu_idle(seen: &Seen<'_>) -> Option<Finding> {
    let parts = parts(seen)?;
    let used = seen.utilisation.within(0, seen.trace.elapsed_ns);
    let busy_ns = used.device_busy_ns.filter(|ns| *ns > 0)?;
    let depth = used.in_flight? * used.ns as f64 / busy_ns as f64;
    let overlap = parts.device_only >= ONE_SIDE_MIN && parts.gain() >= OVERLAP_GAIN_MIN;
    let shallow = parts.device_only >= DEVICE_ALONE_MIN && depth < QUEUE_SHALLOW;
    if !overlap && !shallow {
        return None;
    }
    let mut evidence = parts.evidence();
    evidence.push(line("requests in flight while the device is busy", format!("{depth:.1}")));
    Some(Finding {
        id: "cpu-idle".to_owned(),
        title: "The program waits while the device works".to_owned(),
        sentence: format!(
            "For {} of the run none of the program's threads runs and the device serves {depth:.1} \
             requests at a time.",
            pct(parts.device_only)
        ),
        evidence,
        try_this: if shallow {
            "Keep more requests in flight: more readers, a larger window, or an asynchronous method."
        } else {
            "Compute on what has arrived while the next reads are under way."
        }
        .to_owned(),
    })
}

/// More arrives than is computed.
pub(super) fn backlog(seen: &Seen<'_>) -> Option<Finding> {
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
        title: "More is read than is computed".to_owned(),
        sentence: format!(
            "The ready queue grows through the whole run, from {first:.0} to {last:.0} {unit} on \
             average in the first and last quarter."
        ),
        evidence: vec![
            line("mean of each quarter", format!("{} {unit}", words.join(", "))),
            line("growth", format!("{:.1} times", last / first.max(1.0))),
        ],
        try_this: "Bound the queue, read less ahead, or give the computation more threads."
            .to_owned(),
    })
}

/// The mean of a counter over a stretch; each value holds until the next, 0 before the first.
fn time_mean(series: &Series, from_ns: u64, to_ns: u64) -> f64 {
    let mut sum = 0.0;
    for (i, (at_ns, value)) in series.points.iter().enumerate() {
        let end = series.points.get(i + 1).map_or(u64::MAX, |next| next.0);
        let held = end.min(to_ns).saturating_sub((*at_ns).max(from_ns));
        sum += value * held as f64;
    }
    sum / to_ns.saturating_sub(from_ns).max(1) as f64
}

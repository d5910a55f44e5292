//! Utilisation of processors and devices.
//!
//! A slow run with idle processors and an idle device has a different problem than one with both
//! busy. Busy time is stored as sorted disjoint intervals with prefix sums, so the result is exact
//! for any range and any number of columns.

use crate::lane::{Request, Trace};
use crate::shares::{edges, is_program_thread, processors};
use ioloom_model::{Level, State};

/// Sorted disjoint intervals with prefix sums.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    intervals: Vec<(u64, u64)>,
    /// Time covered before each interval.
    before: Vec<u64>,
}

impl Coverage {
    /// Creates the union of intervals in any order.
    pub fn union(intervals: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut all: Vec<(u64, u64)> = intervals.into_iter().filter(|s| s.1 > s.0).collect();
        all.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Self::disjoint(merged)
    }

    fn disjoint(intervals: Vec<(u64, u64)>) -> Self {
        let mut sum = 0;
        let before = intervals
            .iter()
            .map(|(start, end)| {
                sum += end - start;
                sum - (end - start)
            })
            .collect();
        Self { intervals, before }
    }

    /// Returns the intersection of two coverages.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut i, mut j) = (0, 0);
        let mut shared = Vec::new();
        while let (Some(a), Some(b)) = (self.intervals.get(i), other.intervals.get(j)) {
            let (start, end) = (a.0.max(b.0), a.1.min(b.1));
            if start < end {
                shared.push((start, end));
            }
            if a.1 <= b.1 { i += 1 } else { j += 1 }
        }
        Self::disjoint(shared)
    }

    /// Returns the rest of `0..end`.
    fn complement(&self, end_ns: u64) -> Self {
        let ends = std::iter::once(0).chain(self.intervals.iter().map(|s| s.1));
        let starts = self.intervals.iter().map(|s| s.0).chain(std::iter::once(end_ns));
        Self::union(ends.zip(starts.map(|start| start.min(end_ns))))
    }

    /// Returns the time covered in `from..to` in nanoseconds.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> u64 {
        if to_ns <= from_ns { 0 } else { self.until(to_ns) - self.until(from_ns) }
    }

    /// Returns the intervals.
    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.intervals
    }

    fn until(&self, at_ns: u64) -> u64 {
        let count = self.intervals.partition_point(|s| s.0 < at_ns);
        count.checked_sub(1).map_or(0, |last| {
            let (start, end) = self.intervals[last];
            self.before[last] + end.min(at_ns) - start
        })
    }
}

/// Requests in flight, integrated over time.
#[derive(Debug, Clone, Default)]
struct InFlight {
    issued: Vec<u64>,
    completed: Vec<u64>,
    /// Prefix sums of the times.
    issued_sum: Vec<u128>,
    completed_sum: Vec<u128>,
}

impl InFlight {
    fn of(requests: &[&Request]) -> Self {
        let ended = requests.iter().filter_map(|r| Some((r.issue_ns, r.complete_ns?)));
        let (mut issued, mut completed): (Vec<u64>, Vec<u64>) = ended.unzip();
        issued.sort_unstable();
        completed.sort_unstable();
        let (issued_sum, completed_sum) = (prefix(&issued), prefix(&completed));
        Self { issued, completed, issued_sum, completed_sum }
    }

    /// Returns the request-nanoseconds before a point.
    fn until(&self, at_ns: u64) -> u128 {
        let area = |times: &[u64], sums: &[u128]| {
            let count = times.partition_point(|t| *t < at_ns);
            u128::from(at_ns) * count as u128 - sums[count]
        };
        area(&self.issued, &self.issued_sum) - area(&self.completed, &self.completed_sum)
    }
}

fn prefix(times: &[u64]) -> Vec<u128> {
    let mut sum = 0;
    let sums = times.iter().map(|t| {
        sum += u128::from(*t);
        sum
    });
    std::iter::once(0).chain(sums).collect()
}

/// Usage in a range.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Length of the range in nanoseconds.
    pub ns: u64,
    /// Processor time of the observed program in nanoseconds, summed over processors; a lower bound if switches of
    /// the range were dropped.
    pub ours_ns: u64,
    /// Processor time of other programs; `None` below level 2, and if events of the range were dropped.
    pub others_ns: Option<u64>,
    /// Idle processor time; `None` as for other programs.
    pub idle_ns: Option<u64>,
    /// Time with a request in flight on any device; `None` if no device was observed. A lower bound if events of the
    /// range were dropped.
    pub device_busy_ns: Option<u64>,
    /// Mean number of requests in flight; `None` if no device was observed. A lower bound as for the time.
    pub in_flight: Option<f64>,
}

/// A range partitioned by whether a thread of the program is running and whether a device is busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceOverlap {
    /// A thread runs and a device is busy.
    pub both_ns: u64,
    /// A thread runs and no device is busy.
    pub cpu_only_ns: u64,
    /// A device is busy and no thread runs.
    pub device_only_ns: u64,
    /// Neither.
    pub neither_ns: u64,
}

/// Usage of processors and devices over a whole trace.
#[derive(Debug, Clone)]
pub struct Utilisation {
    cores: Option<u32>,
    /// One per core, or one per thread if there are no core lanes.
    ours: Vec<Coverage>,
    others: Option<Vec<Coverage>>,
    any_ours: Coverage,
    device: Option<Coverage>,
    both: Coverage,
    in_flight: InFlight,
    /// Time until which all events were stored.
    until_ns: u64,
}

impl Utilisation {
    /// Computes the prefix sums.
    pub fn new(trace: &Trace) -> Self {
        let sees_others = trace.evidence.level == Level::Kernel && !trace.cores.is_empty();
        let runs = |ours: bool| -> Vec<Coverage> {
            let of_core = |core: &crate::Core| {
                let runs = core.runs.iter().filter(|r| r.ours == ours);
                Coverage::union(runs.map(|r| (r.start_ns, r.end_ns)))
            };
            trace.cores.iter().map(of_core).collect()
        };
        let ours = if trace.cores.is_empty() { on_cpu(trace) } else { runs(true) };
        let any_ours = Coverage::union(ours.iter().flat_map(|c| c.intervals.iter().copied()));
        let requests: Vec<&Request> = trace.devices.iter().flat_map(|d| &d.requests).collect();
        let in_flight = InFlight::of(&requests);
        let busy = requests.iter().filter_map(|r| Some((r.issue_ns, r.complete_ns?)));
        let device = (!trace.devices.is_empty()).then(|| Coverage::union(busy));
        let both = device.as_ref().map(|d| any_ours.intersection(d)).unwrap_or_default();
        Self {
            // Other programs also use the processors that this one may not use.
            cores: processors(trace).map(|n| n.max(trace.cores.len() as u32)),
            ours,
            others: sees_others.then(|| runs(false)),
            any_ours,
            device,
            both,
            in_flight,
            until_ns: trace.evidence.complete_until_ns.unwrap_or(u64::MAX),
        }
    }

    /// Returns the usage in `from..to`.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> Usage {
        let ns = to_ns.saturating_sub(from_ns);
        let within = |coverage: &Coverage| coverage.within(from_ns, to_ns);
        let sum = |all: &[Coverage]| all.iter().map(within).fold(0, u64::saturating_add);
        let ours_ns = sum(&self.ours);
        let others = self.others.as_deref().filter(|_| to_ns <= self.until_ns);
        let others_ns = others.map(sum);
        let capacity = self.cores.map(|n| u64::from(n).saturating_mul(ns));
        let idle = |(others, all): (u64, u64)| all.saturating_sub(ours_ns).saturating_sub(others);
        let requests_ns =
            if ns == 0 { 0 } else { self.in_flight.until(to_ns) - self.in_flight.until(from_ns) };
        Usage {
            ns,
            ours_ns,
            others_ns,
            idle_ns: others_ns.zip(capacity).map(idle),
            device_busy_ns: self.device.as_ref().map(|d| d.within(from_ns, to_ns)),
            in_flight: self.device.as_ref().map(|_| requests_ns as f64 / ns.max(1) as f64),
        }
    }

    /// Returns the usage in each of `width` equal parts of `from..to`.
    pub fn columns(&self, from_ns: u64, to_ns: u64, width: usize) -> Vec<Usage> {
        let edge = edges(from_ns, to_ns, width);
        (0..width).map(|x| self.within(edge(x), edge(x + 1))).collect()
    }

    /// Returns the four combinations in `from..to`; `None` if no device was observed or events were dropped.
    pub fn device_overlap(&self, from_ns: u64, to_ns: u64) -> Option<DeviceOverlap> {
        let device_ns =
            self.device.as_ref().filter(|_| to_ns <= self.until_ns)?.within(from_ns, to_ns);
        let cpu_ns = self.any_ours.within(from_ns, to_ns);
        let both_ns = self.both.within(from_ns, to_ns);
        let all_ns = to_ns.saturating_sub(from_ns);
        Some(DeviceOverlap {
            both_ns,
            cpu_only_ns: cpu_ns - both_ns,
            device_only_ns: device_ns - both_ns,
            neither_ns: all_ns - (cpu_ns + device_ns - both_ns),
        })
    }

    /// Returns the time in `0..end` in which only a device is busy, as far as `during` covers it; `None` if no
    /// device was observed.
    pub(crate) fn device_only_during(&self, during: &Coverage, end_ns: u64) -> Option<Coverage> {
        let device = self.device.as_ref()?.intersection(during);
        Some(device.intersection(&self.any_ours.complement(end_ns)))
    }
}

/// Returns the on-CPU time of each thread, if there are no core lanes.
fn on_cpu(trace: &Trace) -> Vec<Coverage> {
    let of_thread = |thread: &crate::Thread| {
        let ends = thread.segments.iter().skip(1).map(|s| s.start_ns);
        let ends = ends.chain(std::iter::once(thread.end_ns));
        let segments = thread.segments.iter().zip(ends);
        let on_cpu = segments.filter(|(s, _)| s.state == State::OnCpu);
        Coverage::union(on_cpu.map(|(s, end)| (s.start_ns, end)))
    };
    trace.threads.iter().filter(|t| is_program_thread(t)).map(of_thread).collect()
}

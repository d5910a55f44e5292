//! Levels 1 and 2: exact intervals from switches.

use super::capabilities::Capabilities;
use super::clean_thread::CleanThread;
use super::explained::Explained;
use super::off_cpu::{OffCpu, off_cpu};
use super::tile::{Placement, Tiler};
use crate::lane::{NO_CPU, ROLE_KERNEL_WORKER, ROLE_TOOL, Segment};
use crate::raw::LockWait;
use crate::span::SpanKind;
use ioloom_model::State;
use std::collections::BTreeSet;

/// Maximum time on the processor between the end of a wait and the end of the page fault that
/// caused it. Mapping the page takes microseconds; a later fault is unrelated.
const FAULT_END_NS_MAX: u64 = 1_000_000;

/// An interval off the processor, with its state.
struct Classified {
    off: OffCpu,
    state: State,
    /// Length of the final part in which the thread was runnable and waited for a processor.
    ready_ns: u64,
}

pub(super) fn explain(thread: &CleanThread, seen: &Capabilities) -> Explained {
    let found = off_cpu(thread);
    let paging = ended_by_fault(thread, &found.list);
    let mut explained = Explained { chain_breaks: found.chain_breaks, ..Explained::default() };
    let mut intervals: Vec<Classified> = Vec::with_capacity(found.list.len());
    for (index, off) in found.list.into_iter().enumerate() {
        let state = if off.preempted {
            State::Preempted
        } else {
            explained.blocks += 1;
            blocked_state(thread, &off, paging.contains(&index), seen, &mut explained.inferred)
        };
        intervals.push(Classified { off, state, ready_ns: 0 });
    }
    if seen.wakes {
        explained.ready_known = true;
        explained.unwoken = ready_by_wakes(thread, &mut intervals);
    } else if thread.raw.run_delay_ns.is_some() {
        explained.ready_known = true;
        ready_by_account(thread, &mut intervals);
    }
    explained.segments = tile(thread, &intervals, seen);
    explained.cut = seen.until_ns < thread.raw.end_ns;
    explained
}

fn tile(thread: &CleanThread, intervals: &[Classified], seen: &Capabilities) -> Vec<Segment> {
    let known = |ns: u64| ns.min(seen.until_ns);
    let mut tiler = Tiler::new(thread.raw.start_ns, thread.raw.end_ns);
    let mut cpu = NO_CPU;
    for Classified { off, state, ready_ns } in intervals {
        let ran_on = if off.cpu_before == NO_CPU { cpu } else { off.cpu_before };
        let ran = Placement { cpu: ran_on, ..Placement::PLACED };
        tiler.until(known(off.start_ns), State::OnCpu, ran);
        let by_tid = if off.preempted { off.next_tid } else { 0 };
        let woken_ns = off.end_ns.saturating_sub(*ready_ns);
        tiler.until(known(woken_ns), *state, Placement { by_tid, ..Placement::PLACED });
        let placement = if seen.wakes { Placement::PLACED } else { Placement::ESTIMATED };
        tiler.until(known(off.end_ns), State::Ready, placement);
        cpu = off.cpu_after;
    }
    tiler.until(seen.until_ns, State::OnCpu, Placement { cpu, ..Placement::PLACED });
    tiler.finish(State::Unknown, Placement::PLACED)
}

/// Applies rule 3 of [`super`].
fn blocked_state(
    thread: &CleanThread,
    off: &OffCpu,
    fault: bool,
    seen: &Capabilities,
    inferred: &mut BTreeSet<State>,
) -> State {
    if waits_for_lock(&thread.raw.locks, off) {
        return State::Lock;
    }
    let kind = thread.span_at(off.start_ns).map(|s| s.kind);
    let by_span = kind.map_or(State::Unknown, |kind| seen.blocked_in(kind));
    if by_span != State::Unknown {
        return by_span;
    }
    if fault {
        return State::Paging;
    }
    let own = [ROLE_KERNEL_WORKER, ROLE_TOOL].contains(&thread.raw.role.as_str());
    let state = match (off.uninterruptible, kind) {
        (true, Some(SpanKind::Compute)) if seen.maps => State::Paging,
        (true, _) => State::Io,
        // A kernel worker without work, or the tool between two drains, waits for an event.
        (false, None) if own => State::Event,
        (false, _) => return State::Unknown,
    };
    inferred.insert(state);
    state
}

/// Reports whether the thread was waiting for a kernel lock when it left the processor. A wait with
/// no observed end counts if it began shortly before.
fn waits_for_lock(locks: &[LockWait], off: &OffCpu) -> bool {
    let after = locks.partition_point(|l| l.start_ns <= off.start_ns);
    let Some(lock) = after.checked_sub(1).and_then(|i| locks.get(i)) else {
        return false;
    };
    let no_end = lock.end_ns <= lock.start_ns;
    lock.end_ns > off.start_ns || (no_end && off.start_ns - lock.start_ns <= FAULT_END_NS_MAX)
}

/// Returns the indices of the blocked intervals that a major fault ended. The kernel records a
/// fault at its end, just after the thread runs again; the thread may be preempted in between.
fn ended_by_fault(thread: &CleanThread, offs: &[OffCpu]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for fault in &thread.raw.faults {
        let mut on_cpu_ns = 0;
        let mut until_ns = fault.at_ns;
        let mut index = offs.partition_point(|o| o.start_ns <= fault.at_ns);
        while let Some(before) = index.checked_sub(1) {
            index = before;
            let off = &offs[index];
            on_cpu_ns += until_ns.saturating_sub(off.end_ns);
            if on_cpu_ns > FAULT_END_NS_MAX {
                break;
            }
            if !off.preempted {
                if thread.span_at(off.start_ns) == thread.span_at(fault.at_ns) {
                    found.insert(index);
                }
                break;
            }
            until_ns = off.start_ns;
        }
    }
    found
}

/// Level 2: ready from the wake-up until the thread runs. Returns the number of intervals without a
/// wake-up.
fn ready_by_wakes(thread: &CleanThread, intervals: &mut [Classified]) -> u64 {
    let mut unwoken = 0;
    for interval in intervals.iter_mut().filter(|v| !v.off.preempted) {
        match thread.wake_in(interval.off.start_ns, interval.off.end_ns) {
            Some(wake) => interval.ready_ns = interval.off.end_ns - wake,
            // Still blocked when the thread ended, so no wake-up is missing.
            None if interval.off.end_ns >= thread.raw.end_ns => {}
            None => unwoken += 1,
        }
    }
    unwoken
}

/// Level 1: takes the run-queue delay between two clock readings, minus preempted time, and
/// subtracts it from the ends of the blocked intervals that ended between them. An excess is
/// carried over.
fn ready_by_account(thread: &CleanThread, intervals: &mut [Classified]) {
    let raw = &thread.raw;
    let mut edges: Vec<(u64, u64)> =
        raw.accounts.iter().filter_map(|a| Some((a.at_ns, a.run_delay_ns?))).collect();
    edges.retain(|edge| edge.0 < raw.end_ns);
    edges.extend(raw.run_delay_ns.map(|total| (u64::MAX, total)));
    let (mut at, mut delay_before, mut carried) = (0, 0_u64, 0_i64);
    for (edge_ns, delay_ns) in edges {
        let count = intervals[at..].partition_point(|v| v.off.end_ns <= edge_ns);
        let part = &mut intervals[at..at + count];
        at += count;
        let delay = delay_ns.saturating_sub(delay_before);
        delay_before = delay_before.max(delay_ns);
        let preempted: u64 =
            part.iter().filter(|v| v.off.preempted).map(|v| v.off.end_ns - v.off.start_ns).sum();
        let ready = signed(delay).saturating_sub(signed(preempted)).saturating_add(carried);
        let caps: Vec<u64> = part
            .iter()
            .map(|v| if v.off.preempted { 0 } else { v.off.end_ns - v.off.start_ns })
            .collect();
        let given = equal_parts(ready.max(0) as u64, &caps);
        carried = ready - signed(given.iter().sum());
        for (interval, ns) in part.iter_mut().zip(given) {
            interval.ready_ns = ns;
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Divides a total into equal parts, each limited by its cap. The sum is the total or the sum of
/// the caps.
fn equal_parts(total: u64, caps: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..caps.len()).collect();
    order.sort_by_key(|i| caps[*i]);
    let mut given = vec![0; caps.len()];
    let mut left = total;
    for (done, index) in order.iter().enumerate() {
        let part = left / (caps.len() - done) as u64;
        given[*index] = part.min(caps[*index]);
        left -= given[*index];
    }
    given
}

#[cfg(test)]
mod tests {
    use super::equal_parts;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equal_parts_meet_the_total(
            total in 0..10_000_u64,
            caps in prop::collection::vec(0..1_000_u64, 0..20),
        ) {
            let given = equal_parts(total, &caps);
            let all: u64 = caps.iter().sum();
            prop_assert_eq!(given.iter().sum::<u64>(), total.min(all));
            prop_assert!(given.iter().zip(&caps).all(|(g, c)| g <= c));
            // A part that is smaller than another by more than rounding is at its cap.
            let largest = given.iter().max().copied().unwrap_or(0);
            for (g, c) in given.iter().zip(&caps) {
                prop_assert!(g == c || g + 1 >= largest, "{:?} of {:?}", given, caps);
            }
        }
    }
}

//! Derives off-CPU intervals from switches and repairs missing switches.
//!
//! The kernel can lose switches without counting them. Out and in must alternate. If they do not,
//! the missing switch is placed at other evidence: a wake-up, or the start or end of a span, which
//! the thread can only have recorded while it was running.

use super::clean_thread::CleanThread;
use crate::lane::NO_CPU;
use crate::raw::Switch;

/// Tolerance for a start or end of a span within an off-CPU interval because span lengths may be
/// rounded to a tenth of a microsecond.
const TOLERANCE_NS: u64 = 1_000;

/// An off-CPU interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct OffCpu {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) preempted: bool,
    pub(super) uninterruptible: bool,
    /// Processor before.
    pub(super) cpu_before: u16,
    /// Processor after.
    pub(super) cpu_after: u16,
    pub(super) next_tid: u32,
}

/// All intervals of one thread.
#[derive(Debug, Default)]
pub(super) struct OffCpuList {
    pub(super) list: Vec<OffCpu>,
    pub(super) chain_breaks: u64,
}

/// Finds the off-CPU intervals. Switches from `until_ns` are ignored because others were dropped.
pub(super) fn off_cpu(thread: &CleanThread, until_ns: u64) -> OffCpuList {
    let mut chain = Chain { thread, found: OffCpuList::default(), open: None, last_in_ns: None };
    for switch in inside(thread, until_ns) {
        if switch.out {
            chain.out(&switch);
        } else {
            chain.r#in(&switch);
        }
    }
    let end_ns = thread.raw.end_ns;
    chain.close(end_ns, NO_CPU);
    let mut found = chain.found;
    let complete = found.list.partition_point(|off| off.end_ns < until_ns);
    found.chain_breaks += contradictions(thread, &found.list[..complete]);
    found
}

/// Returns the switches within the lifetime of the thread. Of the earlier ones only the last is
/// relevant: it shows whether the thread starts off the processor.
fn inside(thread: &CleanThread, until_ns: u64) -> Vec<Switch> {
    let raw = &thread.raw;
    let first = raw.switches.partition_point(|s| s.at_ns < raw.start_ns);
    let last = raw.switches.partition_point(|s| s.at_ns <= raw.end_ns && s.at_ns < until_ns);
    let last = last.max(first);
    let before = first.checked_sub(1).map(|i| Switch { at_ns: raw.start_ns, ..raw.switches[i] });
    let before = before.filter(|s| s.out);
    before.into_iter().chain(raw.switches[first..last].iter().copied()).collect()
}

struct Chain<'a> {
    thread: &'a CleanThread,
    found: OffCpuList,
    open: Option<Switch>,
    last_in_ns: Option<u64>,
}

impl Chain<'_> {
    fn close(&mut self, end_ns: u64, cpu_after: u16) {
        if let Some(out) = self.open.take() {
            self.found.list.push(OffCpu {
                start_ns: out.at_ns,
                end_ns,
                preempted: out.preempted,
                uninterruptible: out.uninterruptible,
                cpu_before: out.cpu,
                cpu_after,
                next_tid: out.next_tid,
            });
            self.last_in_ns = Some(end_ns);
        }
    }

    fn out(&mut self, switch: &Switch) {
        if let Some(before) = self.open {
            self.found.chain_breaks += 1;
            let end_ns = self.ran_again(&before, switch.at_ns);
            self.close(end_ns, switch.cpu);
        }
        self.open = Some(*switch);
    }

    /// Returns when a thread ran again if that switch was lost. These switches are lost when an
    /// idle processor takes a woken thread, so the thread runs immediately after the wake-up.
    fn ran_again(&self, out: &Switch, until_ns: u64) -> u64 {
        let wake = if out.preempted { None } else { self.thread.wake_in(out.at_ns, until_ns) };
        let evidence = wake.or_else(|| self.thread.boundary_after(out.at_ns));
        evidence.map_or(until_ns, |at| at.min(until_ns))
    }

    fn r#in(&mut self, switch: &Switch) {
        if self.open.is_some() {
            self.close(switch.at_ns, switch.cpu);
            return;
        }
        // The switch out is missing. If this is the first event, the thread had been off the
        // processor since its start.
        let start_ns = self.thread.raw.start_ns;
        let from_ns = self.last_in_ns.unwrap_or(start_ns);
        let left_ns = match self.last_in_ns {
            None => Some(start_ns),
            Some(_) => {
                self.found.chain_breaks += 1;
                // A wake-up shows that it was blocked. It last ran when it read the clock.
                self.thread.wake_in(from_ns, switch.at_ns).map(|wake| {
                    self.thread.boundary_before(wake).map_or(from_ns, |b| b.max(from_ns))
                })
            }
        };
        if let Some(at_ns) = left_ns.filter(|at| *at < switch.at_ns) {
            self.open = Some(Switch {
                at_ns,
                out: true,
                preempted: false,
                uninterruptible: false,
                cpu: NO_CPU,
                next_tid: 0,
            });
            self.close(switch.at_ns, switch.cpu);
        }
        self.last_in_ns = Some(switch.at_ns);
    }
}

/// Counts intervals in which the thread recorded a span, which means that two switches are missing.
fn contradictions(thread: &CleanThread, offs: &[OffCpu]) -> u64 {
    let inside = |off: &&OffCpu| {
        let boundary = thread.boundary_after(off.start_ns.saturating_add(TOLERANCE_NS));
        boundary.is_some_and(|at| at.saturating_add(TOLERANCE_NS) < off.end_ns)
    };
    offs.iter().filter(inside).count() as u64
}

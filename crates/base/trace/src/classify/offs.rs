//! Switches to stretches off the processor, with repair of what is missing.
//!
//! The kernel can lose switches without counting them. Out and in must alternate; where they do not,
//! the chain is broken and the missing end is put where something else proves it: a wake-up, or a
//! start or end of a span, which the thread can only have recorded while it ran.

use super::Cleaned;
use crate::lane::NO_CPU;
use crate::raw::Switch;

/// A span's start or end may stand this far inside a stretch off the processor without being a
/// contradiction: lengths of spans may be rounded to a tenth of a microsecond.
const TOLERANCE_NS: u64 = 1_000;

/// A stretch off the processor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Off {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) preempted: bool,
    pub(super) uninterruptible: bool,
    /// Processor that it left.
    pub(super) cpu_before: u16,
    /// Processor that it got.
    pub(super) cpu_after: u16,
    pub(super) next_tid: u32,
}

/// All of one thread.
#[derive(Debug, Default)]
pub(super) struct Offs {
    pub(super) list: Vec<Off>,
    pub(super) chain_breaks: u64,
}

/// Finds them.
pub(super) fn offs(thread: &Cleaned) -> Offs {
    let mut walk = Walk { thread, found: Offs::default(), open: None, last_in_ns: None };
    for switch in inside(thread) {
        if switch.out {
            walk.out(&switch);
        } else {
            walk.r#in(&switch);
        }
    }
    let end_ns = thread.raw.end_ns;
    walk.close(end_ns, NO_CPU);
    let mut found = walk.found;
    found.chain_breaks += contradictions(thread, &found.list);
    found
}

/// The switches within the thread's time. Of those before it only the last one counts: it says
/// whether the thread starts off the processor.
fn inside(thread: &Cleaned) -> Vec<Switch> {
    let raw = &thread.raw;
    let first = raw.switches.partition_point(|s| s.at_ns < raw.start_ns);
    let last = raw.switches.partition_point(|s| s.at_ns <= raw.end_ns);
    let before = first.checked_sub(1).map(|i| Switch { at_ns: raw.start_ns, ..raw.switches[i] });
    let before = before.filter(|s| s.out);
    before.into_iter().chain(raw.switches[first..last].iter().copied()).collect()
}

struct Walk<'a> {
    thread: &'a Cleaned,
    found: Offs,
    open: Option<Switch>,
    last_in_ns: Option<u64>,
}

impl Walk<'_> {
    fn close(&mut self, end_ns: u64, cpu_after: u16) {
        if let Some(out) = self.open.take() {
            self.found.list.push(Off {
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

    /// When a thread whose return was lost ran again. Returns are lost when an idle processor takes
    /// a woken thread, so it runs at once after the wake-up.
    fn ran_again(&self, out: &Switch, until_ns: u64) -> u64 {
        let wake = if out.preempted { None } else { self.thread.wake_in(out.at_ns, until_ns) };
        let proof = wake.or_else(|| self.thread.boundary_after(out.at_ns));
        proof.map_or(until_ns, |at| at.min(until_ns))
    }

    fn r#in(&mut self, switch: &Switch) {
        if self.open.is_some() {
            self.close(switch.at_ns, switch.cpu);
            return;
        }
        // The departure is missing. As the first event it means: off since the start.
        let start_ns = self.thread.raw.start_ns;
        let from_ns = self.last_in_ns.unwrap_or(start_ns);
        let left_ns = match self.last_in_ns {
            None => Some(start_ns),
            Some(_) => {
                self.found.chain_breaks += 1;
                // Woken means that it was blocked; it ran at its last reading of the clock.
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

/// Stretches during which the thread recorded something, so a return and a departure are missing.
fn contradictions(thread: &Cleaned, offs: &[Off]) -> u64 {
    let inside = |off: &&Off| {
        let boundary = thread.boundary_after(off.start_ns.saturating_add(TOLERANCE_NS));
        boundary.is_some_and(|at| at.saturating_add(TOLERANCE_NS) < off.end_ns)
    };
    offs.iter().filter(inside).count() as u64
}

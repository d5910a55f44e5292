//! Self-checks and notes about losses.

use super::clean_thread::CleanThread;
use super::explained::Explained;
use crate::lane::{ROLE_TOOL, Trace};
use ioloom_model::evidence::SourceReport;
use ioloom_model::{Level, State, StateTable};

/// Maximum difference between two methods without a note, in percentage points. The states of
/// levels 0 and 1 are trusted to this precision.
const DIFFERENCE_PP_MAX: f64 = 3.0;
/// Maximum share of blocked intervals without a wake-up: the kernel loses a few in ten thousand.
const UNWOKEN_SHARE_MAX: f64 = 0.01;

/// Counts over all classified threads.
#[derive(Default)]
pub(super) struct Tally {
    elapsed_ns: u64,
    stated_ns: u64,
    chain_breaks: u64,
    blocks: u64,
    unwoken: u64,
    switches: u64,
    by_accounts: Vec<u32>,
    no_clock: Vec<u32>,
    on_cpu: Difference,
    ready: Difference,
}

/// Sum of the differences between two methods, and the total time of the threads that have both.
#[derive(Default)]
struct Difference {
    off_ns: u64,
    of_ns: u64,
}

impl Difference {
    fn add(&mut self, a_ns: u64, b_ns: u64, of_ns: u64) {
        self.off_ns += a_ns.abs_diff(b_ns);
        self.of_ns += of_ns;
    }

    fn pp(&self) -> Option<f64> {
        (self.of_ns > 0).then(|| self.off_ns as f64 / self.of_ns as f64 * 100.0)
    }
}

impl Tally {
    pub(super) fn add(&mut self, thread: &CleanThread, explained: &Explained, states: &StateTable) {
        let raw = &thread.raw;
        let ns = |state: State| states.get(&state).and_then(|t| t.ns).unwrap_or(0);
        self.elapsed_ns += thread.ns();
        self.stated_ns += State::ALL.into_iter().map(ns).sum::<u64>();
        self.chain_breaks += explained.chain_breaks;
        self.blocks += explained.blocks;
        self.unwoken += explained.unwoken;
        self.switches += raw.switches.len() as u64;
        if explained.by_accounts {
            // A thread without any reading is not classified from readings.
            if thread.has_readings() {
                self.by_accounts.push(raw.tid);
            }
            if explained.no_clock && thread.ns() > 0 {
                self.no_clock.push(raw.tid);
            }
            return;
        }
        // The events of a thread that was cut end before its clocks.
        if raw.role == ROLE_TOOL || explained.cut {
            return;
        }
        if let Some(cpu_ns) = raw.cpu_ns {
            self.on_cpu.add(ns(State::OnCpu), cpu_ns, thread.ns());
        }
        // Without wake-ups the ready time was derived from the delay, so there is nothing to check.
        if let Some(delay_ns) = raw.run_delay_ns.filter(|_| !raw.wakes.is_empty()) {
            self.ready.add(ns(State::Ready) + ns(State::Preempted), delay_ns, thread.ns());
        }
    }
}

/// Fills in the checks and adds notes about failed ones and about losses.
pub(super) fn complete(trace: &mut Trace, tally: &Tally) {
    let evidence = &mut trace.evidence;
    let checks = &mut evidence.checks;
    checks.tiling_pct = if tally.elapsed_ns == 0 {
        100.0
    } else {
        tally.stated_ns as f64 / tally.elapsed_ns as f64 * 100.0
    };
    checks.on_cpu_vs_clock_pp = tally.on_cpu.pp();
    checks.ready_vs_run_delay_pp = tally.ready.pp();
    if evidence.level > Level::Account {
        // The collector may have counted the same losses per processor.
        checks.chain_breaks = Some(checks.chain_breaks.unwrap_or(0).max(tally.chain_breaks));
    }
    let is_cut = evidence.complete_until_ns.is_some();
    let lossy = evidence.sources.iter().filter(|s| s.lost > 0);
    let mut notes: Vec<String> = lossy.map(|s| loss(s, is_cut)).collect();
    notes.extend(differences(tally));
    notes.extend(gaps(trace, tally));
    for note in notes {
        if !trace.evidence.notes.contains(&note) {
            trace.evidence.notes.push(note);
        }
    }
}

/// Describes a loss and how to avoid it. If the limit of stored events was reached (`is_cut`), larger buffers do not
/// help.
fn loss(source: &SourceReport, is_cut: bool) -> String {
    let SourceReport { name, records, lost, .. } = source;
    let pct = *lost as f64 / (records.saturating_add(*lost)) as f64 * 100.0;
    let advice = if is_cut && (name.starts_with("perf") || name.starts_with("tracefs")) {
        "trace a shorter run or fewer threads"
    } else if name.starts_with("perf") {
        "give the rings more memory (ulimit -l), trace fewer threads, or use level 0"
    } else if name.starts_with("tracefs") {
        "increase the trace buffer (buffer_size_kb of the instance), or trace a shorter run"
    } else if name.starts_with("span") {
        "sums are exact but lanes have gaps; increase the span budget, or trace a shorter run"
    } else {
        "trace a shorter run or fewer threads"
    };
    format!(
        "{name} lost {lost} of {} records ({pct:.2} %): {advice}",
        records.saturating_add(*lost)
    )
}

fn differences(tally: &Tally) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(pp) = tally.on_cpu.pp().filter(|pp| *pp > DIFFERENCE_PP_MAX) {
        notes.push(format!(
            "on-CPU time differs by {pp:.1} percentage points between events and the thread \
            clock; ignore smaller differences between states"
        ));
    }
    if let Some(pp) = tally.ready.pp().filter(|pp| *pp > DIFFERENCE_PP_MAX) {
        notes.push(format!(
            "ready and preempted time differs by {pp:.1} percentage points between events and the \
             kernel's run-queue delay; ready time is only this precise"
        ));
    }
    if tally.chain_breaks > 0 {
        notes.push(format!(
            "{} of {} switches had no matching successor and were repaired from wake-ups and spans; \
             recording switches per thread (level 1) as well avoids this",
            tally.chain_breaks, tally.switches
        ));
    }
    if tally.unwoken as f64 > tally.blocks as f64 * UNWOKEN_SHARE_MAX {
        notes.push(format!(
            "{} of {} blocked intervals have no wake-up; their ready time is included in the blocked \
             state",
            tally.unwoken, tally.blocks
        ));
    }
    notes
}

fn gaps(trace: &Trace, tally: &Tally) -> Vec<String> {
    let mut notes = Vec::new();
    if trace.evidence.level > Level::Account && !tally.by_accounts.is_empty() {
        notes.push(format!(
            "no switches were kept for {}; classified from clock readings, without positions",
            named(&tally.by_accounts)
        ));
    }
    if !tally.no_clock.is_empty() {
        notes.push(format!(
            "no clock was read for {}; states are inferred from the kinds of spans",
            named(&tally.no_clock)
        ));
    }
    let requests = || trace.devices.iter().flat_map(|d| &d.requests);
    let open = requests().filter(|r| r.complete_ns.is_none()).count();
    if open > 0 {
        notes.push(format!(
            "the completion of {open} of {} device requests was not recorded; they are excluded from \
             latency and busy time",
            requests().count()
        ));
    }
    notes
}

/// Lists the first few threads by number.
fn named(tids: &[u32]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = tids.iter().take(SHOWN).map(u32::to_string).collect();
    let noun = if tids.len() == 1 { "thread" } else { "threads" };
    match tids.len().saturating_sub(SHOWN) {
        0 => format!("{noun} {}", shown.join(", ")),
        more => format!("{noun} {} and {more} more", shown.join(", ")),
    }
}

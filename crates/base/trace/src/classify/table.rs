//! The state table of a thread: the time, source and quality of every state, or why it is unknown.

use super::capabilities::Capabilities;
use super::clean_thread::CleanThread;
use super::explained::Explained;
use crate::lane::{ROLE_KERNEL_WORKER, ROLE_TOOL, Segment};
use ioloom_model::{Level, Quality, State, StateTable, StateTime};

/// States of a blocked thread.
const BLOCKED: [State; 8] = [
    State::Io,
    State::AsyncIo,
    State::Paging,
    State::Sync,
    State::Lock,
    State::Event,
    State::Sleep,
    State::Unknown,
];

/// Why the cause of a wait is unknown.
const WHY_UNKNOWN: &str = "blocked within the user's function or outside any span, without a page \
     fault that explains it; record a span around the wait";
/// The same at level 0.
const WHY_UNKNOWN_ACCOUNT: &str = "blocked within the user's function or outside any span; level \
1 shows page faults, and spans around other waits show those waits";
/// The same if files are mapped and only major faults are recorded.
const WHY_UNKNOWN_MAPPED: &str = "blocked within the user's function or outside any span, without \
a major fault; a fault on a page already requested by readahead is not major; level 2 shows it";
/// The same if later events were dropped.
const WHY_UNKNOWN_CUT: &str = "the limit of stored events was reached, and later states are unknown; \
observe a shorter run";
/// The same if nothing was recorded.
const WHY_UNOBSERVED: &str = "no events and no clock readings of this thread were recorded; it may \
have been on a processor; observe a longer run";
const WHY_PREEMPTED: &str = "level 0 has only the run-queue delay, which includes both ready and \
     preempted time; level 1 separates them";
const WHY_READY: &str = "requires the kernel's run-queue delay (schedstat) or level 2";
const WHY_LOCK: &str = "requires level 2 with lock events";
const WHY_PAGING: &str = "requires level 1 with major faults";
const WHY_NO_SPANS: &str = "the thread recorded no spans that identify its waits";
const WHY_ACCOUNT: &str = "only per-call totals were recorded, and no engine call waits like \
this; such waits in the function are included in unknown; record a trace to separate them";
const WHY_NO_CLOCK: &str = "no thread clock was read; states are inferred from the kinds of spans";

/// Totals that a thread records instead of spans. They add up to its elapsed time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// On a processor, from the thread clock.
    pub on_cpu_ns: u64,
    /// Ready or preempted, from the run-queue delay; `None` without schedstat.
    pub ready_ns: Option<u64>,
    /// Blocked in calls that fetch data.
    pub io_ns: u64,
    /// Blocked on ring completions.
    pub async_io_ns: u64,
    /// Blocked on queues, permits or memory.
    pub sync_ns: u64,
    /// Blocked until the input list had a next path.
    pub input_ns: u64,
    /// Blocked within the user's function.
    pub function_ns: u64,
    /// Not explained.
    pub unknown_ns: u64,
}

impl Sums {
    /// Returns the state table of such a thread, at level 0 with bounded quality. `function_waits`
    /// is the state of a wait within the user's function, if the caller knows it.
    pub fn table(&self, function_waits: Option<State>) -> StateTable {
        let mut table: StateTable = State::ALL
            .into_iter()
            .map(|state| {
                let (ns, source) = match state {
                    State::OnCpu => (self.on_cpu_ns, "thread-clock"),
                    State::Ready => (self.ready_ns.unwrap_or(0), "schedstat"),
                    State::Io => (self.io_ns, "spans+thread-clock"),
                    State::AsyncIo => (self.async_io_ns, "spans+thread-clock"),
                    State::Sync => (self.sync_ns, "spans+thread-clock"),
                    State::Event => (self.input_ns, "spans+thread-clock"),
                    State::Unknown => (self.unknown_ns, "spans+thread-clock"),
                    _ => (0, "spans+thread-clock"),
                };
                let (ns, source, quality) = (Some(ns), source.to_owned(), Some(Quality::Bounded));
                (state, StateTime { ns, source, quality, ..StateTime::default() })
            })
            .collect();
        if let Some(function) = table.get_mut(&function_waits.unwrap_or(State::Unknown)) {
            *function.ns.get_or_insert(0) += self.function_ns;
        }
        hide(&mut table, State::Preempted, &[State::Ready], WHY_PREEMPTED);
        if self.ready_ns.is_none() {
            hide(&mut table, State::Ready, &BLOCKED, WHY_READY);
        }
        hide(&mut table, State::Lock, &[State::Io, State::Unknown], WHY_LOCK);
        hide(&mut table, State::Paging, &[State::Unknown], WHY_PAGING);
        for state in [State::Event, State::Sleep] {
            let known = state == State::Event && self.input_ns > 0;
            if function_waits != Some(state) && !known {
                hide(&mut table, state, &[State::Unknown], WHY_ACCOUNT);
            }
        }
        if let Some(unknown) = table.get_mut(&State::Unknown)
            && unknown.ns.is_some_and(|ns| ns > 0)
        {
            unknown.why = Some(WHY_UNKNOWN_ACCOUNT.to_owned());
        }
        table
    }
}

/// Sums the segments and adds the source and quality of each sum.
pub(super) fn table(
    thread: &CleanThread,
    explained: &Explained,
    seen: &Capabilities,
) -> StateTable {
    let sums = sums(&explained.segments, thread.raw.end_ns);
    let (quality, source) = basis(explained, seen);
    let mut table: StateTable = State::ALL
        .into_iter()
        .map(|state| {
            let time = StateTime {
                ns: Some(sums[state as usize]),
                source: source(state),
                quality: Some(quality(state)),
                ..StateTime::default()
            };
            (state, time)
        })
        .collect();
    let unnamed_ns = sums[State::Unknown as usize];
    for (state, holders, why) in inseparable(thread, explained, seen, unnamed_ns) {
        hide(&mut table, state, &holders, why);
    }
    if let Some(unknown) = table.get_mut(&State::Unknown)
        && unknown.ns.is_some_and(|ns| ns > 0)
    {
        let mapped =
            seen.maps && seen.level < Level::Kernel && !unknown.includes.contains(&State::Paging);
        let unobserved = explained.by_accounts
            && !explained.no_clock
            && !thread.has_readings()
            && thread.raw.spans.is_empty();
        let why = match (explained.no_clock, explained.by_accounts) {
            _ if explained.cut => WHY_UNKNOWN_CUT,
            (true, _) => WHY_NO_CLOCK,
            (false, true) if unobserved => WHY_UNOBSERVED,
            (false, true) => WHY_UNKNOWN_ACCOUNT,
            (false, false) if mapped => WHY_UNKNOWN_MAPPED,
            (false, false) => WHY_UNKNOWN,
        };
        if mapped {
            unknown.includes.push(State::Paging);
        }
        // On-cpu stays 0: null would hide the processor time of other threads in sums.
        if unobserved {
            unknown.includes.insert(0, State::OnCpu);
        }
        unknown.why = Some(why.to_owned());
    }
    table
}

/// Returns the time per state, indexed by state.
pub(super) fn sums(segments: &[Segment], end_ns: u64) -> [u64; State::ALL.len()] {
    let mut sums = [0; State::ALL.len()];
    for (i, segment) in segments.iter().enumerate() {
        let end = segments.get(i + 1).map_or(end_ns, |next| next.start_ns);
        sums[segment.state as usize] += end - segment.start_ns;
    }
    sums
}

type Basis<'a> = (Box<dyn Fn(State) -> Quality + 'a>, Box<dyn Fn(State) -> String + 'a>);

/// Returns the quality and source of each state under the rules that were used.
fn basis<'a>(explained: &'a Explained, seen: &'a Capabilities) -> Basis<'a> {
    if explained.by_accounts {
        let quality = if explained.no_clock { Quality::Inferred } else { Quality::Bounded };
        let no_clock = explained.no_clock;
        return (
            Box::new(move |_| quality),
            Box::new(move |state| {
                let source = match state {
                    _ if no_clock => "spans",
                    State::OnCpu => "thread-clock",
                    State::Ready | State::Preempted => "schedstat",
                    _ => "spans+thread-clock",
                };
                source.to_owned()
            }),
        );
    }
    let switches = seen.switch_source;
    let quality = move |state: State| {
        let estimated = match state {
            State::OnCpu | State::Preempted => false,
            _ => !seen.wakes,
        };
        if explained.inferred.contains(&state) {
            Quality::Inferred
        } else if estimated || explained.cut || explained.chain_breaks > 0 {
            Quality::Bounded
        } else {
            Quality::Exact
        }
    };
    let source = move |state: State| match state {
        State::OnCpu | State::Preempted => switches.to_owned(),
        State::Ready if seen.wakes => "tracefs.sched_waking".to_owned(),
        State::Ready => "schedstat".to_owned(),
        State::Lock => format!("{switches}+tracefs.lock"),
        State::Paging if seen.faults => format!("{switches}+major-faults+spans"),
        _ => format!("{switches}+spans"),
    };
    (Box::new(quality), Box::new(source))
}

/// Returns the states that cannot be distinguished, the states that include their time, and the
/// reason. The order matters: a later state may include an earlier one.
fn inseparable(
    thread: &CleanThread,
    explained: &Explained,
    seen: &Capabilities,
    unnamed_ns: u64,
) -> Vec<(State, Vec<State>, &'static str)> {
    let mut hidden = Vec::new();
    let own = [ROLE_KERNEL_WORKER, ROLE_TOOL].contains(&thread.raw.role.as_str());
    // Missing spans do not matter if no wait is unexplained.
    let nameless = thread.raw.spans.is_empty() && !own && unnamed_ns > 0;
    if explained.by_accounts {
        let why = if explained.no_clock { WHY_NO_CLOCK } else { WHY_PREEMPTED };
        hidden.push((State::Preempted, vec![State::Ready], why));
    }
    if !explained.ready_known && !seen.wakes {
        let why = if explained.no_clock { WHY_NO_CLOCK } else { WHY_READY };
        // Without a clock, ready time counts as on-cpu; without run-queue delay, it counts as
        // blocked.
        let holders = if explained.no_clock { vec![State::OnCpu] } else { BLOCKED.to_vec() };
        hidden.push((State::Ready, holders, why));
    }
    if explained.by_accounts || !seen.locks {
        hidden.push((State::Lock, vec![State::Io, State::Paging, State::Unknown], WHY_LOCK));
    }
    let faults_seen = if explained.by_accounts { seen.fault_spans } else { seen.faults };
    if !faults_seen && thread.raw.role != ROLE_KERNEL_WORKER {
        hidden.push((State::Paging, vec![State::Unknown], WHY_PAGING));
    }
    if nameless {
        for state in [State::AsyncIo, State::Sync, State::Event, State::Sleep] {
            hidden.push((state, vec![State::Unknown], WHY_NO_SPANS));
        }
        // Level 2 shows uninterruptible waits, which are nearly always for a device.
        if explained.by_accounts || seen.level < Level::Kernel {
            hidden.push((State::Io, vec![State::Unknown], WHY_NO_SPANS));
        }
    }
    hidden
}

/// Makes a state null and adds it to `includes` of the states that contain its time. A state with a
/// measured time is unchanged because null would lose that time.
fn hide(table: &mut StateTable, state: State, holders: &[State], why: &str) {
    let Some(time) = table.get_mut(&state) else { return };
    if time.ns.is_some_and(|ns| ns > 0) {
        return;
    }
    let mut carried = std::mem::take(&mut time.includes);
    *time = StateTime { why: Some(why.to_owned()), ..StateTime::default() };
    carried.insert(0, state);
    for holder in holders.iter().filter(|h| **h != state) {
        let Some(holder) = table.get_mut(holder).filter(|t| t.ns.is_some()) else { continue };
        for state in &carried {
            if !holder.includes.contains(state) {
                holder.includes.push(*state);
            }
        }
    }
}

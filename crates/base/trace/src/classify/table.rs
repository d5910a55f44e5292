//! The table of one thread: every state with its time, source and quality, or why it has none.

use super::{Cleaned, Explained, ROLE_KERNEL_WORKER, ROLE_TOOL, Seen};
use crate::lane::Segment;
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

/// Why a thread is blocked for a reason that nothing names.
const WHY_UNKNOWN: &str = "blocked inside the user's function or outside any span, without a page \
     fault that explains it; a span around the wait names it";
/// The same where the level itself is the reason.
const WHY_UNKNOWN_ACCOUNT: &str = "blocked inside the user's function or outside any span; level 1 \
     tells page faults apart, a span around the wait names the rest";
/// The same where files are mapped and only major faults are seen.
const WHY_UNKNOWN_MAPPED: &str = "blocked inside the user's function or outside any span, without a \
     major fault; a fault on a page that read-ahead has already asked for is not major, level 2 tells \
     it apart";
const WHY_PREEMPTED: &str = "level 0 knows the run-queue delay only, which holds being preempted and \
     being woken alike; level 1 tells them apart";
const WHY_READY: &str = "needs the kernel's run-queue delay (schedstat) or level 2";
const WHY_LOCK: &str = "waits for kernel locks need level 2 with the lock events";
const WHY_PAGING: &str = "page faults inside the user's function need level 1 with major faults";
const WHY_NO_SPANS: &str = "the thread recorded no spans, so its waits have no names";
const WHY_ACCOUNT: &str = "the thread kept sums by call, and no call of the engine waits so; a \
     function that does is inside unknown, a trace tells it apart";
const WHY_NO_CLOCK: &str = "no thread clock was read; only the kinds of the spans speak";

/// What a thread knows of itself without keeping its spans: sums that add up to its elapsed time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// On a processor, by the thread clock.
    pub on_cpu_ns: u64,
    /// Ready or preempted, by the run-queue delay; `None` without schedstat.
    pub ready_ns: Option<u64>,
    /// Blocked in calls that fetch data.
    pub io_ns: u64,
    /// Blocked on completions of a ring.
    pub async_io_ns: u64,
    /// Blocked on queues, permits or memory.
    pub sync_ns: u64,
    /// Blocked inside the user's function.
    pub function_ns: u64,
    /// Not explained.
    pub unknown_ns: u64,
}

impl Sums {
    /// The table of such a thread: level 0, bounded. `function_waits` names what a wait inside the
    /// user's function is, where the caller knows.
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
            if function_waits != Some(state) {
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

/// Sums the segments and says what each sum rests on.
pub(super) fn table(thread: &Cleaned, explained: &Explained, seen: &Seen) -> StateTable {
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
    for (state, holders, why) in not_told_apart(thread, explained, seen, unnamed_ns) {
        hide(&mut table, state, &holders, why);
    }
    if let Some(unknown) = table.get_mut(&State::Unknown)
        && unknown.ns.is_some_and(|ns| ns > 0)
    {
        let mapped =
            seen.maps && seen.level < Level::Kernel && !unknown.includes.contains(&State::Paging);
        let why = match (explained.no_clock, explained.by_accounts) {
            (true, _) => WHY_NO_CLOCK,
            (false, true) => WHY_UNKNOWN_ACCOUNT,
            (false, false) if mapped => WHY_UNKNOWN_MAPPED,
            (false, false) => WHY_UNKNOWN,
        };
        if mapped {
            unknown.includes.push(State::Paging);
        }
        unknown.why = Some(why.to_owned());
    }
    table
}

/// Time per state, indexed by the state.
pub(super) fn sums(segments: &[Segment], end_ns: u64) -> [u64; State::ALL.len()] {
    let mut sums = [0; State::ALL.len()];
    for (i, segment) in segments.iter().enumerate() {
        let end = segments.get(i + 1).map_or(end_ns, |next| next.start_ns);
        sums[segment.state as usize] += end - segment.start_ns;
    }
    sums
}

type Basis<'a> = (Box<dyn Fn(State) -> Quality + 'a>, Box<dyn Fn(State) -> String + 'a>);

/// Quality and source of each state under the rules that were used.
fn basis<'a>(explained: &'a Explained, seen: &'a Seen) -> Basis<'a> {
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
        } else if estimated || explained.chain_breaks > 0 {
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

/// States that cannot be told apart, with who holds their time and why. Order matters: who is
/// hidden later may hold what was hidden before.
fn not_told_apart(
    thread: &Cleaned,
    explained: &Explained,
    seen: &Seen,
    unnamed_ns: u64,
) -> Vec<(State, Vec<State>, &'static str)> {
    let mut hidden = Vec::new();
    let own = [ROLE_KERNEL_WORKER, ROLE_TOOL].contains(&thread.raw.role.as_str());
    // A thread without a wait that lacks a name needs no names.
    let nameless = thread.raw.spans.is_empty() && !own && unnamed_ns > 0;
    if explained.by_accounts {
        let why = if explained.no_clock { WHY_NO_CLOCK } else { WHY_PREEMPTED };
        hidden.push((State::Preempted, vec![State::Ready], why));
    }
    if !explained.ready_known && !seen.wakes {
        let why = if explained.no_clock { WHY_NO_CLOCK } else { WHY_READY };
        // Being preempted is on-cpu for who has no clock, and blocked for who has no run-queue delay.
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
        // Level 2 sees that a wait is uninterruptible, which is nearly always a device.
        if explained.by_accounts || seen.level < Level::Kernel {
            hidden.push((State::Io, vec![State::Unknown], WHY_NO_SPANS));
        }
    }
    hidden
}

/// Makes a state null and names it in those that hold its time. A state that was measured after all
/// stays, since null would lose its time.
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

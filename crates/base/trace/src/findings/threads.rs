//! Rules about threads.

use super::finding::{Finding, line, pct};
use super::observed::{Observed, median};
use crate::lane::Thread;
use crate::shares::{is_program_thread, processors, threads_by_role};
use crate::span::{Span, SpanKind};
use ioloom_model::State;
use ioloom_model::units::format_ns;

/// Minimum reported share of thread time that is ready or preempted. Shared machines usually show
/// less.
const WAITING_FOR_CPU_MIN: f64 = 0.15;
/// Runnable threads per processor above which the program has too many. Slightly above one because
/// threads overlap briefly at every hand-over.
const RUNNABLE_PER_CPU_MIN: f64 = 1.1;
/// Mean number of threads waiting for a lock. Below one, locks cost less than one thread.
const LOCK_WAITERS_MIN: f64 = 1.0;
/// Minimum number of waits that counts as a convoy.
const LOCK_WAITS_MIN: usize = 20;
/// Minimum reported ratio of the busiest thread of a role to the mean of that role.
const UNEVEN_RATIO_MIN: f64 = 1.25;
/// Minimum reported share of the run that an even distribution could save.
const UNEVEN_LOSS_MIN: f64 = 0.10;
/// Minimum number of pieces of files per thread that can be distributed evenly.
const PIECES_PER_THREAD_MIN: usize = 4;
/// Minimum reported share of a thread's time spent submitting.
const SUBMIT_SHARE_MIN: f64 = 0.10;
/// Minimum reported growth of the median submission time from the first to the last quarter of the
/// calls.
const SUBMIT_GROWTH_MIN: f64 = 2.0;
/// Minimum number of submissions per quarter for a meaningful median.
const SUBMITS_MIN: usize = 16;
/// Minimum reported share of thread time in page faults. Reading the same bytes would block as
/// well, so only a share that affects the elapsed time counts.
const PAGING_MIN: f64 = 0.10;

/// More runnable threads than processors. If other programs or a quota take the processors, fewer
/// threads would not help.
pub(super) fn oversubscription(seen: &Observed<'_>) -> Option<Finding> {
    if ["other programs", "processor quota"].iter().any(|word| seen.is_limited_by(word)) {
        return None;
    }
    let waiting_ns = seen.all.of(State::Ready).saturating_add(seen.all.of(State::Preempted));
    let cpus = processors(seen.trace)?;
    let runnable = seen.of_run(waiting_ns.saturating_add(seen.all.of(State::OnCpu)));
    let waiting = seen.share(waiting_ns);
    if waiting < WAITING_FOR_CPU_MIN || runnable < f64::from(cpus) * RUNNABLE_PER_CPU_MIN {
        return None;
    }
    let mut evidence = vec![
        line("thread time waiting for a processor", pct(waiting)),
        line("runnable threads on average", format!("{runnable:.1}")),
        line("processors", cpus.to_string()),
    ];
    if let Some(others_ns) = seen.utilisation.within(0, seen.trace.elapsed_ns).others_ns {
        // Other programs also use the processors that this one may not use.
        let all_cpus = u64::from(cpus).max(seen.trace.cores.len() as u64);
        let capacity = seen.trace.elapsed_ns.saturating_mul(all_cpus).max(1);
        evidence.push(line(
            "processor time of other programs",
            pct(others_ns as f64 / capacity as f64),
        ));
    }
    Some(Finding {
        id: "oversubscription".to_owned(),
        title: "More runnable threads than processors".to_owned(),
        sentence: format!(
            "On average {runnable:.1} threads are runnable on {cpus} processors; they spend {} of \
             their time waiting for a processor.",
            pct(waiting)
        ),
        evidence,
        try_this: "Use as many compute threads as processors. To keep reads in flight, use a few \
                   threads with many reads each."
            .to_owned(),
    })
}

/// Returns the lengths of waits for kernel locks, and for locks of the program marked by spans unless the spans
/// come from samples: any wait for another thread is then a futex call, with a lock or without.
fn lock_waits(thread: &Thread, is_sampled: bool) -> Vec<u64> {
    let mut waits = Vec::new();
    for (i, segment) in thread.segments.iter().enumerate() {
        let in_lock_span = || {
            let after = thread.spans.partition_point(|s| s.start_ns <= segment.start_ns);
            after.checked_sub(1).is_some_and(|i| thread.spans[i].kind == SpanKind::Sync)
        };
        let waits_for_lock = match segment.state {
            State::Lock => true,
            State::Sync => !is_sampled && in_lock_span(),
            _ => false,
        };
        if waits_for_lock {
            let end = thread.segments.get(i + 1).map_or(thread.end_ns, |s| s.start_ns);
            waits.push(end - segment.start_ns);
        }
    }
    waits
}

/// Threads queue for a lock.
pub(super) fn lock_convoy(seen: &Observed<'_>) -> Option<Finding> {
    let own = seen.trace.threads.iter().filter(|t| is_program_thread(t));
    let is_sampled = seen.is_sampled();
    let mut waits: Vec<u64> = own.flat_map(|thread| lock_waits(thread, is_sampled)).collect();
    let sum = waits.iter().copied().fold(0, u64::saturating_add);
    let waiters = seen.of_run(sum);
    if waiters < LOCK_WAITERS_MIN || waits.len() < LOCK_WAITS_MIN {
        return None;
    }
    let kernel = seen.all.of(State::Lock);
    let in_kernel = kernel > sum / 2;
    let count = waits.len();
    let middle = median(&mut waits)?;
    Some(Finding {
        id: "lock-convoy".to_owned(),
        title: "Threads queue for a lock".to_owned(),
        sentence: format!(
            "On average {waiters:.1} threads wait for a lock, {} of the time of all threads.",
            pct(seen.share(sum))
        ),
        evidence: vec![
            line("threads waiting for a lock on average", format!("{waiters:.1}")),
            line("waits", count.to_string()),
            line("median wait", format_ns(middle as f64)),
            line("share in the kernel", pct(kernel as f64 / sum.max(1) as f64)),
        ],
        try_this: if in_kernel {
            "Spread the files over more directories, or use fewer threads to open, create and map \
             files; the kernel serialises these calls."
        } else {
            "Hold the lock for less time, split it, or hand over work in batches."
        }
        .to_owned(),
    })
}

/// Returns the time in which a thread had work, excluding sleep and waits for other threads and
/// events.
fn work_ns(thread: &Thread) -> u64 {
    let idle = [State::Sync, State::Event, State::Sleep, State::Unknown];
    let states = thread.states.iter().filter(|(state, _)| !idle.contains(state));
    states.filter_map(|(_, time)| time.ns).sum()
}

/// Returns the number of pieces of files that threads processed.
fn pieces(threads: &[&Thread]) -> usize {
    let computed = |t: &&Thread| t.spans.iter().filter(|s| s.kind == SpanKind::Compute).count();
    threads.iter().map(computed).sum()
}

/// A thread works much longer than others with the same role, although there are enough pieces for
/// all. Fewer pieces cannot be distributed evenly. Samples of another program do not show its pieces.
pub(super) fn uneven_work(seen: &Observed<'_>) -> Option<Finding> {
    if seen.is_sampled() {
        return None;
    }
    let own = seen.trace.threads.iter().filter(|t| is_program_thread(t));
    threads_by_role(own).into_iter().find_map(|(role, threads)| {
        let mut work: Vec<(u64, u32)> = threads.iter().map(|t| (work_ns(t), t.tid)).collect();
        work.sort_unstable();
        let (most, busiest) = *work.last()?;
        let least = work.first()?.0;
        let mean = work.iter().map(|w| w.0 as f64).sum::<f64>() / work.len() as f64;
        let loss = seen.of_run(most) - mean / seen.trace.elapsed_ns as f64;
        let few = pieces(&threads) < PIECES_PER_THREAD_MIN * work.len();
        if work.len() < 2 || few || most as f64 <= mean * UNEVEN_RATIO_MIN || loss < UNEVEN_LOSS_MIN
        {
            return None;
        }
        Some(Finding {
            id: "uneven-work".to_owned(),
            title: "Work is unevenly distributed".to_owned(),
            sentence: format!(
                "Thread {busiest} works for {}, while the mean of the {} threads with role {role} \
                is {}.",
                format_ns(most as f64),
                work.len(),
                format_ns(mean)
            ),
            evidence: vec![
                line("busiest thread", format_ns(most as f64)),
                line("mean of the role", format_ns(mean)),
                line("least", format_ns(least as f64)),
                line("share of the run that an even distribution could save", pct(loss)),
            ],
            try_this: "Distribute smaller pieces, process the largest files first, or let idle \
                       threads steal work."
                .to_owned(),
        })
    })
}

/// Returns the durations of submission calls of a thread that waits for completions separately.
fn submissions(thread: &Thread) -> Vec<u64> {
    let asynchronous =
        thread.spans.iter().any(|s| matches!(s.kind, SpanKind::RingWait | SpanKind::Completion));
    let reads = thread.spans.iter().filter(|s| asynchronous && s.kind == SpanKind::Read);
    reads.map(|s| s.ns).collect()
}

/// Submission slows down during the run.
pub(super) fn submission(seen: &Observed<'_>) -> Option<Finding> {
    seen.lanes.lanes().iter().filter(|lane| is_program_thread(lane.thread())).find_map(|lane| {
        let thread = lane.thread();
        let mut calls = submissions(thread);
        let quarter = calls.len() / 4;
        let length = thread.end_ns - thread.start_ns;
        let share = calls.iter().sum::<u64>() as f64 / length.max(1) as f64;
        if quarter < SUBMITS_MIN || share < SUBMIT_SHARE_MIN {
            return None;
        }
        let count = calls.len();
        let late = median(&mut calls[count - quarter..])?;
        let early = median(&mut calls[..quarter])?;
        let growth = late as f64 / early.max(1) as f64;
        if growth < SUBMIT_GROWTH_MIN {
            return None;
        }
        let reads = || thread.spans.iter().filter(|s| s.kind == SpanKind::Read);
        let in_state = |state: State| {
            let within = |s: &Span| lane.within(s.start_ns, s.start_ns + s.ns).of(state);
            reads().map(within).sum::<u64>() as f64 / (share * length as f64).max(1.0)
        };
        let [locked, waited, ran] = [State::Lock, State::Io, State::OnCpu].map(in_state);
        Some(Finding {
            id: "submission-bottleneck".to_owned(),
            title: "Submitting requests slows down".to_owned(),
            sentence: format!(
                "Thread {} spends {} of its time submitting; the median submission slowed down from {} to {}.",
                thread.tid,
                pct(share),
                format_ns(early as f64),
                format_ns(late as f64)
            ),
            evidence: vec![
                line("time spent submitting", pct(share)),
                line("median of the first quarter", format_ns(early as f64)),
                line("median of the last quarter", format_ns(late as f64)),
                line("submissions", count.to_string()),
                line("share waiting for a kernel lock", pct(locked)),
                line("share waiting for the device", pct(waited)),
                line("share running on a processor", pct(ran)),
            ],
            try_this: faster_submission(locked, waited, ran).to_owned(),
        })
    })
}

/// Returns what to do about slow submissions, from the shares of their time in three states.
fn faster_submission(locked: f64, waited: f64, ran: f64) -> &'static str {
    if locked > 0.5 {
        "The kernel serialises the submissions: use fewer submitting threads, or one ring per thread."
    } else if waited > 0.5 {
        "The submitting call waits for the device: keep fewer requests in flight, or use direct I/O."
    } else if ran > 0.5 {
        "The submitting call runs on a processor: submit from more threads, or use direct I/O."
    } else {
        "The trace does not show what the submitting call waits for: compare a run with fewer requests \
         in flight."
    }
}

/// Threads wait for pages of mapped files.
pub(super) fn page_faults(seen: &Observed<'_>) -> Option<Finding> {
    let paging_ns = seen.all.of(State::Paging);
    let share = seen.share(paging_ns);
    if share < PAGING_MIN {
        return None;
    }
    let mut stalls = Vec::new();
    for thread in seen.trace.threads.iter().filter(|t| is_program_thread(t)) {
        for (i, segment) in thread.segments.iter().enumerate() {
            if segment.state == State::Paging {
                let end = thread.segments.get(i + 1).map_or(thread.end_ns, |s| s.start_ns);
                stalls.push(end - segment.start_ns);
            }
        }
    }
    let count = stalls.len();
    let middle = median(&mut stalls)?;
    Some(Finding {
        id: "page-fault-stalls".to_owned(),
        title: "Threads wait for pages".to_owned(),
        sentence: format!(
            "Page faults that waited for the device take {} of the time of all threads.",
            pct(share)
        ),
        evidence: vec![
            line("time in page faults", pct(share)),
            line("stalls", count.to_string()),
            line("median stall", format_ns(middle as f64)),
        ],
        try_this: "Read instead of mapping, or prefetch the pages (mmap:willneed, \
                   mmap:populate)."
            .to_owned(),
    })
}

//! Assembles the raw events of a run from the collected data, with times relative to its start.

use super::check::{ClockTest, Costs};
use super::drain::{Collected, TOOL};
use super::gather::{Gather, Stream, enrich};
use super::message::Finished;
use super::probe::KERNEL;
use ioloom_model::evidence::{Checks, SourceReport};
use ioloom_model::{Evidence, Level};
use ioloom_sys_trace::tracefs::event::Kind;
use ioloom_trace::raw::{PROCESSORS, Raw, RawThread};
use ioloom_trace::{CoreRun, Series};
use std::path::Path;

/// Switches per second and processor above which level 1 costs about one percent.
const SWITCHES_WARN: f64 = 5_000.0;
/// Role of a worker thread that the kernel created for a ring.
const KERNEL_WORKER: &str = "kernel-worker";

/// Properties of an observation.
pub(super) struct Run {
    pub(super) level: Level,
    pub(super) own_events: bool,
    /// Whether root granted the tracefs instance; `None` without an instance.
    pub(super) delegated: Option<bool>,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) clock: ClockTest,
    pub(super) costs: Costs,
    pub(super) notes: Vec<String>,
    /// Number of registered threads.
    pub(super) registered: usize,
}

pub(super) fn assemble(run: Run, mut collected: Collected) -> Raw {
    let mut threads = Vec::new();
    let finished = std::mem::take(&mut collected.finished);
    let ours = finished.iter().filter(|done| done.role != TOOL).count().max(1) as u64;
    let lived_ns = ours.saturating_mul(run.end_ns.saturating_sub(run.start_ns));
    let evidence = evidence(&run, &collected, &finished, lived_ns);
    for mut done in finished {
        let stream = collected.gather.threads.remove(&done.tid).unwrap_or_default();
        // A thread may register before the run; its earlier events are ignored.
        done.start_ns = done.start_ns.max(run.start_ns);
        threads.push(thread(&run, done, stream));
    }
    let mut gather = collected.gather;
    let cores = cores(&run, &mut gather, &threads);
    for (tid, stream) in std::mem::take(&mut gather.threads) {
        if stream.kernel_worker {
            let done = Finished {
                tid,
                name: stream.name.clone().unwrap_or_default(),
                role: KERNEL_WORKER.to_owned(),
                start_ns: stream.begin_ns.unwrap_or(run.start_ns).max(run.start_ns),
                end_ns: stream.end_ns.unwrap_or(run.end_ns),
                ..Finished::default()
            };
            let mut raw = thread(&run, done, stream);
            // Without a switch or a clock it would count as on a processor.
            let is_unobserved = raw.switches.is_empty() && raw.end_ns > raw.start_ns;
            (raw.cpu_ns, raw.run_delay_ns) = (is_unobserved.then_some(0), None);
            threads.push(raw);
        }
    }
    raw(&run, threads, cores, gather, evidence)
}

/// Assembles everything.
pub(super) fn raw(
    run: &Run,
    threads: Vec<RawThread>,
    cores: Vec<Vec<CoreRun>>,
    gather: Gather,
    evidence: Evidence,
) -> Raw {
    let complete_until_ns = gather.full_ns.map(|at_ns| at_ns.saturating_sub(run.start_ns));
    let (devices, requests) = devices(run, gather);
    Raw {
        level: Some(run.level),
        elapsed_ns: run.end_ns.saturating_sub(run.start_ns),
        threads,
        requests,
        devices,
        cores,
        series: vec![processors()],
        complete_until_ns,
        evidence,
        ..Raw::default()
    }
}

/// Returns the number of usable processors, as a series with one point.
fn processors() -> Series {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Series {
        name: PROCESSORS.to_owned(),
        unit: PROCESSORS.to_owned(),
        points: vec![(0, count as f64)],
    }
}

/// Assembles one thread, with its events shifted to the start of the run.
pub(super) fn thread(run: &Run, done: Finished, stream: Stream) -> RawThread {
    let since = |at_ns: u64| at_ns.saturating_sub(run.start_ns);
    let Stream { mut own, mut sched, mut wakes, mut faults, mut locks, .. } = stream;
    own.sort_by_key(|s| s.at_ns);
    sched.sort_by_key(|s| s.at_ns);
    enrich(&mut own, &sched);
    let mut switches = if own.is_empty() { sched } else { own };
    switches.iter_mut().for_each(|s| s.at_ns = since(s.at_ns));
    wakes.iter_mut().for_each(|w| w.at_ns = since(w.at_ns));
    faults.iter_mut().for_each(|f| f.at_ns = since(f.at_ns));
    for lock in &mut locks {
        (lock.start_ns, lock.end_ns) = (since(lock.start_ns), since(lock.end_ns));
    }
    let mut spans = done.spans;
    spans.retain(|span| span.start_ns >= run.start_ns);
    spans.iter_mut().for_each(|span| span.start_ns = since(span.start_ns));
    let mut accounts = done.accounts;
    accounts.retain(|account| account.at_ns >= run.start_ns);
    accounts.iter_mut().for_each(|account| account.at_ns = since(account.at_ns));
    RawThread {
        tid: done.tid,
        name: done.name,
        role: done.role,
        start_ns: since(done.start_ns),
        end_ns: since(done.end_ns),
        spans,
        accounts,
        switches,
        wakes,
        faults,
        locks,
        cpu_ns: Some(done.cpu_ns),
        run_delay_ns: done.run_delay_ns,
    }
}

pub(super) fn cores(run: &Run, gather: &mut Gather, threads: &[RawThread]) -> Vec<Vec<CoreRun>> {
    let mut cores = gather.cores(run.end_ns);
    for held in cores.iter_mut().flatten() {
        held.ours |= threads.iter().any(|t| t.tid == held.tid && t.role != TOOL);
        held.start_ns = held.start_ns.saturating_sub(run.start_ns);
        held.end_ns = held.end_ns.saturating_sub(run.start_ns);
    }
    cores
}

/// Returns the names and requests of the devices.
fn devices(run: &Run, gather: Gather) -> (Vec<String>, Vec<ioloom_trace::Request>) {
    let mut requests = gather.requests;
    requests.retain(|r| r.issue_ns >= run.start_ns && r.issue_ns <= run.end_ns);
    for request in &mut requests {
        request.issue_ns -= run.start_ns;
        request.complete_ns = request.complete_ns.map(|at| at.saturating_sub(run.start_ns));
    }
    let names = gather.devices.iter().map(|number| device_name(*number)).collect();
    (names, requests)
}

fn device_name(number: u32) -> String {
    let (major, minor) = (number >> 20, number & ((1 << 20) - 1));
    let link = std::fs::read_link(Path::new(&format!("/sys/dev/block/{major}:{minor}")));
    let name = link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| format!("{major}:{minor}"))
}

/// Assembles the evidence: sources with their records and losses, self-tests and estimated costs, as a
/// share of the time `lived_ns` of all observed threads.
pub(super) fn evidence(
    run: &Run,
    collected: &Collected,
    finished: &[Finished],
    lived_ns: u64,
) -> Evidence {
    let gather = &collected.gather;
    let mut notes = run.notes.clone();
    let mut sources = user_sources(run, finished, &mut notes);
    let switch_ns = run.costs.switch_ns.map(|ns| ns / 2.0);
    if run.own_events {
        sources.push(source(
            "perf.switch",
            gather.own_kept,
            collected.own_lost + gather.unknown + gather.own_over,
            switch_ns,
            "user",
        ));
        sources.push(source("perf.major-fault", gather.own_faults, 0, None, "user"));
    }
    if let Some(delegated) = run.delegated {
        let privilege = if delegated { "delegated" } else { "root" };
        for (kind, name, _) in KERNEL {
            if matches!(kind, Kind::LockEnd | Kind::NewTask) {
                continue;
            }
            let records = gather.kept.get(&kind).copied().unwrap_or(0);
            // A round consists of the two events of a switch and one wake-up.
            let cost = run.costs.kernel_ns.map(|ns| ns / 3.0);
            // What was lost or dropped can be of any kind.
            let all_lost = collected.kernel_lost + gather.over.saturating_sub(gather.own_over);
            let lost = if kind == Kind::Switch { all_lost } else { 0 };
            sources.push(source(name, records, lost, cost, privilege));
        }
    }
    losses(collected, &mut notes);
    let elapsed_ns = run.end_ns.saturating_sub(run.start_ns).max(1);
    let kept_ns: f64 =
        sources.iter().filter_map(|s| Some(s.records as f64 * s.ns_per_event?)).sum();
    // Dropped switches cost as much as stored ones.
    let dropped = gather.own_switches.saturating_sub(gather.own_kept) as f64;
    let cost_ns = kept_ns + dropped * switch_ns.unwrap_or(0.0);
    let missing = run.registered.saturating_sub(finished.len().saturating_sub(1));
    if run.registered > 0 && missing > 0 {
        notes.push(format!("{missing} threads did not finish and are omitted"));
    }
    if run.clock.inside < run.clock.total {
        let (inside, total) = (run.clock.inside, run.clock.total);
        notes.push(format!(
            "the kernel clock differs: only {inside} of {total} events had correct times"
        ));
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let per_s = gather.own_switches as f64 / 2.0 / (elapsed_ns as f64 / 1e9) / cpus;
    if run.own_events && per_s > SWITCHES_WARN {
        notes.push(format!(
            "{per_s:.0} switches per second and processor: observation costs more than one \
            percent; compare with a run at level 0"
        ));
    }
    let checks = Checks {
        tiling_pct: 0.0,
        chain_breaks: run.delegated.map(|_| gather.chain_breaks),
        clock_inside: (run.clock.total > 0).then_some(run.clock.inside),
        clock_total: (run.clock.total > 0).then_some(run.clock.total),
        ..Checks::default()
    };
    // Records without the life of a thread are compared with the run.
    let lived_ns = if lived_ns == 0 { elapsed_ns } else { lived_ns };
    let overhead_pct = 100.0 * cost_ns / lived_ns as f64;
    Evidence { level: run.level, sources, checks, overhead_pct, notes, ..Evidence::default() }
}

fn user_sources(run: &Run, finished: &[Finished], notes: &mut Vec<String>) -> Vec<SourceReport> {
    let ours = || finished.iter().filter(|done| done.role != TOOL);
    let spans = ours().map(|done| done.spans.len() as u64).sum();
    let spans_lost = ours().map(|done| done.spans_lost).sum();
    let accounts = ours().map(|done| done.accounts.len() as u64).sum();
    let accounts_lost = ours().map(|done| done.accounts_lost).sum();
    if spans_lost > 0 {
        notes.push(format!(
            "{spans_lost} spans did not fit; their totals are exact, but their positions are unknown"
        ));
    }
    let mut sources = vec![source("spans", spans, spans_lost, run.costs.span_ns, "none")];
    if run.level < Level::Kernel || accounts > 0 {
        sources.push(source("thread-clock", accounts, accounts_lost, run.costs.account_ns, "none"));
    }
    sources
}

fn losses(collected: &Collected, notes: &mut Vec<String>) {
    let gather = &collected.gather;
    for (lost, what) in [
        (collected.own_lost, "switches or faults were lost: the per-thread rings were full"),
        (collected.kernel_lost, "kernel events were lost: the per-processor rings were full"),
        (gather.over, "events exceeded the limit and were dropped"),
        (gather.unknown, "records belonged to threads whose start was not recorded"),
        (gather.left_out.len() as u64, "threads exceeded the limit and are omitted"),
        (gather.broken, "records were malformed"),
    ] {
        if lost > 0 {
            notes.push(format!("{lost} {what}"));
        }
    }
}

pub(super) fn source(
    name: &str,
    records: u64,
    lost: u64,
    ns: Option<f64>,
    privilege: &str,
) -> SourceReport {
    SourceReport {
        name: name.to_owned(),
        records,
        lost,
        ns_per_event: ns,
        privilege: privilege.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::State;

    fn run(level: Level) -> Run {
        Run {
            level,
            own_events: true,
            delegated: (level == Level::Kernel).then_some(false),
            start_ns: 1_000,
            end_ns: 9_000,
            clock: ClockTest::default(),
            costs: Costs::default(),
            notes: Vec::new(),
            registered: 0,
        }
    }

    #[test]
    fn events_beyond_the_limit_are_lost() {
        let mut collected = Collected { own_lost: 1, kernel_lost: 10, ..Collected::default() };
        (collected.gather.over, collected.gather.own_over) = (500, 200);
        (collected.gather.own_switches, collected.gather.own_kept) = (300, 100);
        let evidence = evidence(&run(Level::Kernel), &collected, &[], 0);
        let lost = |name: &str| evidence.sources.iter().find(|s| s.name == name).map(|s| s.lost);
        assert_eq!(lost("perf.switch"), Some(201));
        assert_eq!(evidence.sources.iter().map(|s| s.records).sum::<u64>(), 100);
        assert_eq!(evidence.sources.iter().map(|s| s.lost).sum::<u64>(), 511);
    }

    #[test]
    fn the_states_of_a_ring_worker_without_switches_are_unknown() {
        let mut collected = Collected::default();
        let stream = Stream { kernel_worker: true, begin_ns: Some(2_000), ..Stream::default() };
        collected.gather.threads.insert(8, stream);
        let trace = ioloom_trace::classify(assemble(run(Level::Switch), collected));
        let states = &trace.threads[0].states;
        assert_eq!(trace.threads[0].role, KERNEL_WORKER);
        assert_eq!((states[&State::Unknown].ns, states[&State::OnCpu].ns), (Some(7_000), Some(0)));
    }
}

//! A run from its first list of the stocks to its last.

use crate::arrivals;
use crate::error::LoadError;
use crate::history::History;
use crate::judge::{Book, Known};
use crate::listing::{list, list_again};
use crate::plan::LoadPlan;
use crate::report::{Conservation, Latencies, Run, generator, seconds};
use crate::shared::Shared;
use crate::tally::Tally;
use crate::worker::Worker;
use ioloom_sys::{affinity, clock, proc};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// Descriptors that are no connections of the load.
const DESCRIPTORS_OTHER: usize = 64;
/// Between the moment at which all threads are ready and the start.
const HEAD_START_NS: u64 = 5_000_000;
/// How often it is looked whether the threads have ended.
const LOOK: Duration = Duration::from_millis(50);
/// Stocks that differ and are told.
const DIFFERENCES_MAX: usize = 20;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadProgress {
    /// Since the start.
    pub elapsed: Duration,
    /// Answers so far.
    pub answered: u64,
    /// Answers per second since the last report.
    pub answered_per_s: f64,
}

/// Runs a load. `stop` ends it early; `watch` is told about once a second how far it is.
///
/// # Errors
/// The plan cannot be, the machine does not allow it, or the server is not there or goes away.
pub fn run(
    plan: &LoadPlan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(LoadProgress),
) -> Result<(Run, Option<History>), LoadError> {
    plan.check()?;
    check_descriptors(plan.connections)?;
    check_processors(&plan.cpus)?;
    let before = list(plan, None)?;
    let known = Known::new(&before);
    let shared = Shared::new(plan, &known, stop);
    let tally = drive(&shared, watch)?;
    if let Some(error) = shared.take_error() {
        return Err(error);
    }
    let conservation = conserved(plan, &before, &tally);
    Ok(summary(plan, &before, tally, conservation, stop.load(Relaxed), &shared))
}

/// Refuses more connections than files may be open.
pub(crate) fn check_descriptors(connections: usize) -> Result<(), LoadError> {
    // Without the right to raise it the old limit stays, and is looked at.
    let _ = proc::raise_open_files_limit();
    let limit = proc::open_files_limit().and_then(|limit| usize::try_from(limit).ok());
    let possible = limit.map_or(usize::MAX, |limit| limit.saturating_sub(DESCRIPTORS_OTHER));
    if connections <= possible {
        return Ok(());
    }
    Err(LoadError::Refused(format!(
        "{connections} connections need {} open files, and the limit is {}; use --connections \
         {possible} or fewer, or raise the limit (ulimit -n)",
        connections + DESCRIPTORS_OTHER,
        possible + DESCRIPTORS_OTHER
    )))
}

/// Refuses processors that this program may not use.
fn check_processors(cpus: &[u32]) -> Result<(), LoadError> {
    let allowed = if cpus.is_empty() { Ok(Vec::new()) } else { affinity::allowed() };
    let allowed = allowed.map_err(LoadError::system("ask for the processors of this program"))?;
    let Some(missing) = cpus.iter().find(|cpu| !allowed.contains(cpu)) else { return Ok(()) };
    let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
    Err(LoadError::Refused(format!(
        "no thread can be held to processor {missing}; choose --cpus among those that this program \
         may use: {}",
        allowed.join(", ")
    )))
}

fn drive(shared: &Shared<'_>, watch: &mut dyn FnMut(LoadProgress)) -> Result<Tally, LoadError> {
    let plan = shared.plan;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..plan.threads {
            let cpu = (!plan.cpus.is_empty()).then(|| plan.cpus[index % plan.cpus.len()]);
            threads.push(scope.spawn(move || {
                let hold = LoadError::system("hold a thread of the load to its processor");
                let held = cpu.map(affinity::PinnedThread::pin).transpose().map_err(hold);
                // Both live until the thread has run.
                let made = held.and_then(|held| Ok((held, Worker::new(shared, index)?)));
                made.map_or_else(
                    |error| {
                        // The others wait for all.
                        shared.ready.wait();
                        shared.ready.wait();
                        Err(error)
                    },
                    |(_held, worker)| worker.run(),
                )
            }));
        }
        shared.ready.wait();
        let start_ns = clock::monotonic_ns() + HEAD_START_NS;
        shared.start_ns.store(start_ns, SeqCst);
        shared.ready.wait();
        let (mut told_ns, mut told) = (start_ns, 0);
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(LOOK);
            let now_ns = clock::monotonic_ns();
            if now_ns >= told_ns + 1_000_000_000 {
                let answered = shared.answered.load(Relaxed);
                let answered_per_s = (answered - told) as f64 * 1e9 / (now_ns - told_ns) as f64;
                let elapsed = Duration::from_nanos(now_ns - start_ns);
                watch(LoadProgress { elapsed, answered, answered_per_s });
                (told_ns, told) = (now_ns, answered);
            }
        }
        let mut all = Tally::new(shared.known.ids.len());
        for thread in threads {
            all.merge(thread.join().expect("a thread of the load does not panic")?);
        }
        Ok(all)
    })
}

pub(crate) fn conserved(plan: &LoadPlan, before: &Book, tally: &Tally) -> Conservation {
    let not = |reason: String| Conservation {
        checked: false,
        reason: Some(reason),
        stocks: 0,
        differences: Vec::new(),
    };
    if !plan.conserve {
        return not("not asked for".to_owned());
    }
    match list_again(plan, before.lines.len()) {
        Err(error) => not(error.to_string()),
        Ok(after) => {
            let mut differences = tally.holdings.differences(before, &after);
            differences.truncate(DIFFERENCES_MAX);
            Conservation { checked: true, reason: None, stocks: before.lines.len(), differences }
        }
    }
}

fn summary(
    plan: &LoadPlan,
    before: &Book,
    mut tally: Tally,
    conservation: Conservation,
    interrupted: bool,
    shared: &Shared<'_>,
) -> (Run, Option<History>) {
    let mut all = tally.commands[0].clone();
    tally.commands[1..].iter().for_each(|pair| all.merge(pair));
    let start_ns = shared.start_ns.load(Relaxed);
    // A run that ended early is as long as until its last answer. One whose server fell silent did not.
    let planned_ns = plan.duration.as_nanos() as u64;
    let early = interrupted || shared.is_exhausted();
    let ended_ns = tally.last_ns.saturating_sub(start_ns);
    let until_ns = if early { planned_ns.min(ended_ns) } else { planned_ns };
    let elapsed_ns = until_ns.saturating_sub(plan.warm_up.as_nanos() as u64).max(1);
    let due = arrivals::due(plan, until_ns);
    let commands = ["show", "buy", "sell"].into_iter().zip(tally.commands.iter().map(Into::into));
    let history =
        plan.keep_history.then(|| History::new(before, std::mem::take(&mut tally.history)));
    let run = Run {
        pace: plan.pace.name().to_owned(),
        connections: plan.connections,
        asked_per_s: plan.pace.arrivals().map(|(rate_per_s, _)| rate_per_s),
        due: due.filter(|_| !early),
        offered_per_s: due.map(|due| due as f64 * 1e9 / elapsed_ns as f64),
        answered_per_s: tally.outcomes.answered_in_time as f64 * 1e9 / elapsed_ns as f64,
        elapsed_ns,
        latency: Latencies::from(&all),
        commands: commands.collect::<BTreeMap<_, _>>(),
        seconds: seconds(&tally),
        conservation,
        generator: generator(plan.threads, &tally, &all),
        outcomes: tally.outcomes,
        wrong_samples: tally.samples,
        interrupted,
    };
    (run, history)
}

//! A run, from the first list of stocks to the last.

use crate::arrivals;
use crate::error::{LoadError, SystemOperation};
use crate::history::History;
use crate::judge::{KnownStocks, StockList};
use crate::listing::{list, list_again};
use crate::plan::LoadPlan;
use crate::prepare::prepare;
use crate::report::{Conservation, Latencies, Run, generator, seconds};
use crate::shared::Shared;
use crate::stall;
use crate::tally::Tally;
use crate::worker::Worker;
use ioloom_sys::{affinity, clock, proc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// Number of file descriptors not used for connections of the load.
const DESCRIPTORS_OTHER: usize = 64;
/// Time between all threads being ready and the start, in nanoseconds.
const HEAD_START_NS: u64 = 5_000_000;
/// Interval between checks for finished threads.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of mismatched stocks to report.
const DIFFERENCES_MAX: usize = 20;

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadProgress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Number of answers so far.
    pub answered: u64,
    /// Answers per second since the last report.
    pub answered_per_s: f64,
}

/// Runs a load. `stop` interrupts it; `watch` is called about once a second.
///
/// # Errors
/// Returns an error if the plan is invalid, if the system does not permit it, or if the server
/// cannot be reached at the start. If it disappears later, the run ends early ([`Run::lost`]).
pub fn run(
    plan: &LoadPlan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(LoadProgress),
) -> Result<(Run, Option<History>), LoadError> {
    plan.check()?;
    check_descriptors(plan.connections, "--connections")?;
    check_processors(&plan.cpus)?;
    let prepared;
    let (plan, before) = match &plan.commands {
        None => (plan, list(plan, None, Some(stop))?),
        Some(commands) => {
            let (commands, stocks) = prepare(commands, plan, stop)?;
            prepared = LoadPlan { commands: Some(Arc::new(commands)), ..plan.clone() };
            (&prepared, stocks)
        }
    };
    let known = KnownStocks::new(&before);
    let shared = Shared::new(plan, &known, stop);
    let tally = drive(&shared, watch)?;
    let lost = shared.take_gone();
    let conservation = match &lost {
        Some(reason) if plan.conserve && plan.commands.is_none() => unchecked(reason.clone()),
        _ => conserved(plan, &before, &tally, stop),
    };
    let early = Early { interrupted: stop.load(Relaxed), lost };
    Ok(summary(plan, &before, tally, conservation, early, &shared))
}

/// Rejects more connections than the open file limit permits. `flag` sets their number.
pub(crate) fn check_descriptors(connections: usize, flag: &str) -> Result<(), LoadError> {
    // Without permission to raise the limit, the old one applies.
    let _ = proc::raise_open_files_limit();
    let limit = proc::open_files_limit().and_then(|limit| usize::try_from(limit).ok());
    limit.map_or(Ok(()), |limit| check_limit(connections, limit, flag))
}

fn check_limit(connections: usize, limit: usize, flag: &str) -> Result<(), LoadError> {
    let possible = limit.saturating_sub(DESCRIPTORS_OTHER);
    if connections <= possible {
        return Ok(());
    }
    let fewer = match possible {
        0 => String::new(),
        _ => format!("use at most {flag} {possible}, or "),
    };
    Err(LoadError::Refused(format!(
        "{connections} connections need {} open files, but the limit is {limit}; {fewer}raise the \
         limit (ulimit -n)",
        connections.saturating_add(DESCRIPTORS_OTHER)
    )))
}

/// Rejects processors that this process may not use.
fn check_processors(cpus: &[u32]) -> Result<(), LoadError> {
    let allowed = if cpus.is_empty() { Ok(Vec::new()) } else { affinity::allowed() };
    let allowed = allowed.map_err(LoadError::system(SystemOperation::GetCpus))?;
    let Some(missing) = cpus.iter().find(|cpu| !allowed.contains(cpu)) else { return Ok(()) };
    let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
    Err(LoadError::Refused(format!(
        "cannot use processor {missing}; choose --cpus from those that this process may use: {}",
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
                let hold = LoadError::system(SystemOperation::PinThread);
                let held = cpu.map(affinity::PinnedThread::pin).transpose().map_err(hold);
                // Both exist until the thread has finished.
                let made = held.and_then(|held| Ok((held, Worker::new(shared, index)?)));
                made.map_or_else(
                    |error| {
                        // The other threads wait at both barriers.
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
        let (mut reported_ns, mut reported) = (start_ns, 0);
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(CHECK_INTERVAL);
            let now_ns = clock::monotonic_ns();
            if now_ns >= reported_ns + 1_000_000_000 {
                let answered = shared.answered.load(Relaxed);
                let answered_per_s =
                    (answered - reported) as f64 * 1e9 / (now_ns - reported_ns) as f64;
                let elapsed = Duration::from_nanos(now_ns - start_ns);
                watch(LoadProgress { elapsed, answered, answered_per_s });
                (reported_ns, reported) = (now_ns, answered);
            }
        }
        let mut all = Tally::new(shared.known.ids.len());
        for thread in threads {
            all.merge(thread.join().expect("a load thread must not panic")?);
        }
        Ok(all)
    })
}

/// Why a run ended before its time.
struct Early {
    interrupted: bool,
    /// Why the server is considered gone.
    lost: Option<String>,
}

fn unchecked(reason: String) -> Conservation {
    Conservation { checked: false, reason: Some(reason), stocks: 0, differences: Vec::new() }
}

/// Compares the stocks before and after a run with its answers. A stop request interrupts it, unless it
/// ended the run.
pub(crate) fn conserved(
    plan: &LoadPlan,
    before: &StockList,
    tally: &Tally,
    stop: &AtomicBool,
) -> Conservation {
    if !plan.conserve {
        return unchecked("not requested".to_owned());
    }
    if plan.commands.is_some() {
        return unchecked("a commands file does not say what its commands do".to_owned());
    }
    let stop = (!stop.load(Relaxed)).then_some(stop);
    match list_again(plan, before.lines.len(), stop) {
        Err(error) => unchecked(error.to_string()),
        Ok(after) => {
            let mut differences = tally.holdings.differences(before, &after);
            differences.truncate(DIFFERENCES_MAX);
            Conservation { checked: true, reason: None, stocks: before.lines.len(), differences }
        }
    }
}

fn summary(
    plan: &LoadPlan,
    before: &StockList,
    mut tally: Tally,
    conservation: Conservation,
    ended: Early,
    shared: &Shared<'_>,
) -> (Run, Option<History>) {
    let mut all = tally.commands[0].clone();
    tally.commands[1..].iter().for_each(|pair| all.merge(pair));
    let start_ns = shared.start_ns.load(Relaxed);
    // A run that ends early lasts until its last answer, unless the server stopped answering.
    let planned_ns = plan.duration.as_nanos() as u64;
    let early = ended.interrupted || ended.lost.is_some() || shared.is_exhausted();
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
        stall: stall::hidden(&plan.pace, &all.corrected),
        commands: commands.collect::<BTreeMap<_, _>>(),
        seconds: seconds(&tally),
        conservation,
        generator: generator(plan.threads, &tally, &all),
        outcomes: tally.outcomes,
        wrong_samples: tally.samples,
        interrupted: ended.interrupted,
        lost: ended.lost,
    };
    (run, history)
}

#[cfg(test)]
mod tests {
    use super::check_limit;

    #[test]
    fn too_few_descriptors_are_refused_with_the_limit_and_a_possible_remedy() {
        let text = |limit, flag| check_limit(100, limit, flag).unwrap_err().to_string();
        assert_eq!(
            text(12, "--connections"),
            "100 connections need 164 open files, but the limit is 12; raise the limit (ulimit -n)"
        );
        let few = text(80, "--multiclient");
        assert!(few.contains("the limit is 80; use at most --multiclient 16, or raise"), "{few}");
        assert!(check_limit(100, 164, "--connections").is_ok());
    }
}

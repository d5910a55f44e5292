//! `ioloom claims --verify`: gathers the runs that open claims need, and no others.
//!
//! A full study runs every arm at its published size, which takes hours per block. Verification
//! collects the arms of the open claims (`plan`), shares them between claims, reduces large file sets
//! unless a claim is about their size, and leaves out claims that no run here can decide. Each study
//! is one session with a list of 30 blocks. After 12, 18, 24 and 30 blocks the claims are judged
//! (`looks`); arms that no open claim needs end there. Every p-value is multiplied by the number of
//! looks, so that stopping early does not decide more false claims.
//!
//! An unfinished session is continued by the same command, with the arms it started with.

mod bench;
mod looks;
mod plan;

pub(crate) use bench::Request;

use crate::exit::{Ended, Exit, Failure};
use crate::study::{lab_failure, spec_failure};
use crate::study_progress::StudyProgress;
use crate::{out, stderr};
use bench::Bench;
use ioloom_claims::Rule;
use ioloom_lab::store::SessionHeader;
use ioloom_lab::{RunOptions, Session, run_study, sequential};
use ioloom_model::units::format_ns;
use looks::Judge;
use plan::{Plan, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Runs what the claims need.
pub(crate) fn run(request: &Request<'_>) -> Ended {
    let bench = Bench::new(request)?;
    let sessions = bench.sessions()?;
    let continued = continued(&bench, &sessions)?;
    let running: BTreeSet<&String> = continued.iter().flat_map(|task| &task.rule.claims).collect();
    let mut claims = request.claims.clone();
    claims.retain(|claim| !running.contains(&claim.id));
    let planned = Plan::new(&bench, &claims, &given_up(request, &sessions))?;
    report_plan(&continued, &planned);
    if request.dry_run {
        return Ok(Exit::Ok);
    }
    let tasks: Vec<Task> = continued.into_iter().chain(planned.tasks).collect();
    let began = Instant::now();
    for (at, task) in tasks.iter().enumerate() {
        let share = request.budget.map(|budget| {
            let rest: f64 = tasks[at..].iter().map(|task| task.first_s).sum();
            let part = (task.first_s / rest.max(1e-9)).clamp(0.0, 1.0);
            budget.saturating_sub(began.elapsed()).mul_f64(part)
        });
        let session = measure(&bench, task, share)?;
        if bench.stop.load(Ordering::Relaxed) {
            stderr::line("Stopped; finished runs are kept. Continue with the same command.");
            return Ok(Exit::Interrupted);
        }
        if session.end.is_none() {
            let name = session.header.session;
            stderr::line(&format!(
                "Session {name} is not finished. Continue with the same command."
            ));
        }
    }
    Ok(Exit::Ok)
}

/// Returns the unfinished sessions that test one of the claims.
fn continued(bench: &Bench<'_>, sessions: &[(SessionHeader, bool)]) -> Result<Vec<Task>, Failure> {
    let mut tasks: Vec<Task> = Vec::new();
    for (header, ended) in sessions.iter().rev() {
        let Some(rule) = header.sequential.as_ref().filter(|_| !ended) else { continue };
        let wanted = bench.request.claims.iter().any(|claim| rule.claims.contains(&claim.id));
        if !wanted || tasks.iter().any(|task| task.spec.name == header.study) {
            continue;
        }
        let spec = bench.study(&header.study).map_err(spec_failure)?;
        tasks.push(Task::new(bench, spec, sequential::selection(header), rule.clone())?);
    }
    Ok(tasks)
}

/// Returns the claims that a finished session with the same test left undecided, and that session.
fn given_up(request: &Request<'_>, sessions: &[(SessionHeader, bool)]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let ended = sessions.iter().filter(|(_, ended)| *ended && !request.named);
    for (header, rule) in ended.filter_map(|(h, _)| Some((h, h.sequential.as_ref()?))) {
        for claim in request.claims.iter().filter(|claim| rule.claims.contains(&claim.id)) {
            if header.claims.get(&claim.id) == Some(&claim.definition) {
                found.insert(claim.id.clone(), header.session.clone());
            }
        }
    }
    found
}

/// Prints the plan before anything runs.
fn report_plan(continued: &[Task], planned: &Plan) {
    let line = |text: &str| stderr::line(out::wrap(text, 80, 2).trim_end());
    for task in continued {
        line(&format!("Continues an unfinished session. {}", task.words()));
    }
    planned.tasks.iter().for_each(|task| line(&task.words()));
    let tasks = || continued.iter().chain(&planned.tasks);
    if tasks().next().is_none() {
        line("None of these claims can be decided by more runs here.");
    } else {
        let (first, most) = (tasks().map(|t| t.first_s).sum(), tasks().map(|t| t.most_s).sum());
        let about = |seconds: f64| format!("about {}", format_ns(seconds * 1e9));
        line(&format!(
            "Estimate: {} for {} blocks, {} if every claim needs {}.",
            about(first),
            Rule::LOOKS[0],
            about(most),
            Rule::LOOKS[Rule::LOOKS.len() - 1],
        ));
    }
    for (reason, claims) in &planned.left_out {
        line(&format!("Left out, {reason}: {}.", claims.join(", ")));
    }
}

/// Runs one session until its claims are decided, given up, or out of budget.
fn measure(bench: &Bench<'_>, task: &Task, budget: Option<Duration>) -> Result<Session, Failure> {
    let progress = StudyProgress::new();
    let judge = Judge::new(bench.request.ledger, &task.rule.claims);
    let mut options = task.options(bench, &progress);
    options.resume = task.continues;
    options.sequential = Some((task.rule.clone(), &judge));
    options.budget = budget;
    options.claims = bench.request.ledger.definitions(&task.spec.name);
    let media = bench.media(&task.spec, task.subject, &options)?;
    let mut options = RunOptions { images: &media.images, ..options };
    options.workspaces.clone_from(&media.places);
    options.overrides.ladders_on_further = media.further;
    let done = run_study(&task.spec, task.subject, &bench.store, &options);
    progress.finish();
    done.map(|run| run.session).map_err(|error| lab_failure(&error))
}

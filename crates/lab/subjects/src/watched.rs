//! Observes a run of any subject from inside its process.
//!
//! An engine that records its own spans observes itself ([`Subject::observes_itself`]). All others
//! are observed as by `ioloom watch`: every thread started by the run, its context switches, who
//! woke it and what the devices did, depending on the evidence level. Their threads report no
//! operations, so waits are classified by sampling /proc. The role of a thread is its name without
//! the trailing number. The thread that executes the order is named after the subject.
//!
//! If a scenario reads the machine's counters at marks, the trace also shows the marks, dirty pages
//! and pages under writeback.
//!
//! Cost: the cost of the level, plus a thread that reads the events.

use crate::stage;
use ioloom_lab::{ChildAnswer, Subject};
use ioloom_model::record::{Observe, RunOrder};
use ioloom_model::units::format_ns;
use ioloom_model::{Measured, Outcome, State};
use ioloom_observe::TraceFile;
use ioloom_observe::collect::{TraceOptions, Watch};
use ioloom_observe::counters::Record;
use ioloom_trace::lane::{ROLE_KERNEL_WORKER, ROLE_TOOL};
use ioloom_trace::{Trace, shares};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the thread that exits the child when its parent dies. It is not part of any run.
const PARENT_WATCH: &str = "parent-watch";
/// Name of the thread that samples the machine's counters.
const COUNTERS: &str = "ioloom-counters";
/// Counters shown as lanes. Device activity already has a lane.
const SHOWN: [&str; 2] = ["dirty", "writeback"];
/// Length in bytes to which the kernel truncates thread names.
const KERNEL_NAME_BYTES: usize = 15;

/// Executes the order and observes it if requested.
pub(crate) fn run(subject: &dyn Subject, order: &RunOrder) -> ChildAnswer {
    if subject.observes_itself() || !order.observe.events {
        return subject.run(order);
    }
    watched(subject, order).unwrap_or_else(|outcome| ChildAnswer { outcome, device_bytes: None })
}

fn watched(subject: &dyn Subject, order: &RunOrder) -> Result<ChildAnswer, Outcome> {
    let failed = |reason: String| Outcome::Failed { reason };
    let path = order.observe.trace.as_deref();
    let file = path.map(TraceFile::create).transpose().map_err(|e| failed(e.to_string()))?;
    // Threads are tracked from the thread that starts them, which is this one.
    let here = ioloom_sys_trace::perf::thread_id();
    let watch = Watch::start(order.observe.level, here, TraceOptions::default())
        .map_err(|refused| Outcome::Refused { reason: refused.to_string() })?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let inner = RunOrder { observe: Observe::default(), ..order.clone() };
    stage::listen();
    let mut answer = subject.run(&inner);
    let start_ns = watch.started_ns();
    let mut raw = watch.stop();
    for thread in raw.threads.iter_mut().filter(|thread| thread.name == COUNTERS) {
        thread.role = ROLE_TOOL.to_owned();
    }
    let mut trace = ioloom_trace::classify(raw);
    add(&stage::counted(), start_ns, &mut trace);
    name(&mut trace, subject.name(), here);
    trace.started_unix_ms = started.as_millis() as u64;
    let ending = match &mut answer.outcome {
        Outcome::Done { measured } => {
            fill(measured, &trace);
            format!("in {}", format_ns(measured.elapsed_ns as f64))
        }
        Outcome::Refused { reason } | Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::TimedOut { .. } => "failed: timed out".to_owned(),
    };
    trace.title = format!("{} {ending}", order.plan);
    match file.map(|file| file.write(&trace)) {
        Some(Err(e)) if matches!(answer.outcome, Outcome::Done { .. }) => {
            Err(failed(e.to_string()))
        }
        _ => Ok(answer),
    }
}

/// Adds the marks and counters of a scenario to the trace.
fn add(record: &Record, start_ns: u64, trace: &mut Trace) {
    if record.samples.is_empty() {
        return;
    }
    trace.marks.extend(record.marks(start_ns));
    let series = record.series(start_ns).into_iter();
    trace.series.extend(series.filter(|series| SHOWN.contains(&series.name.as_str())));
    record.add_to(&mut trace.evidence);
}

/// Sets the roles of threads and removes threads that are not part of the run.
fn name(trace: &mut Trace, subject: &str, here: u32) {
    trace.threads.retain(|thread| thread.name != PARENT_WATCH);
    for thread in &mut trace.threads {
        if thread.role == ROLE_TOOL || thread.role == ROLE_KERNEL_WORKER {
            continue;
        }
        let of_name = thread.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        let ran = thread.tid == here || of_name.is_empty();
        thread.role = if ran { subject.to_owned() } else { of_name.to_owned() };
    }
}

/// Adds the observations to the record: states by role, and by thread for unique names.
fn fill(measured: &mut Measured, trace: &Trace) {
    for time in &mut measured.threads {
        let short = |name: &str| name.bytes().take(KERNEL_NAME_BYTES).collect::<Vec<_>>();
        let mut named = trace.threads.iter().filter(|t| short(&t.name) == short(&time.name));
        if let (Some(one), None) = (named.next(), named.next()) {
            let sums = one.states.iter().map(|(state, time)| (*state, time.ns));
            time.states_ns = sums.collect::<BTreeMap<State, Option<u64>>>();
        }
    }
    measured.roles = shares::roles(trace);
    measured.evidence = Some(trace.evidence.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Walk, run_order};
    use ioloom_lab::subject::Sets;
    use ioloom_model::{Compute, Level};

    #[test]
    fn a_walk_is_watched_at_every_level_that_works_and_leaves_its_trace() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(ioloom_fileset::SetText::Spec(spec)) =
            "count=3000,size=exp(mean=900),data=sparse".parse()
        else {
            panic!("a set")
        };
        let set = dir.path().join("set");
        let sets = Walk.sets() as &dyn Sets;
        sets.prepare("t", &spec, &set, 0, &|_, _| true).unwrap();
        let mut levels = 0;
        for level in [None, Some(Level::Account), Some(Level::Switch), Some(Level::Kernel)] {
            let path = dir.path().join("walk.ioloom");
            let _ = std::fs::remove_file(&path);
            let order = RunOrder {
                plan: "walk:statx/threads=4".parse().unwrap(),
                compute: Compute::None,
                dir: sets.items(&set),
                set: Some(spec.clone()),
                files_max: None,
                seed: 1,
                spans_max: 0,
                observe: Observe { events: true, level, trace: Some(path.clone()) },
            };
            let measured = match run_order(&order).outcome {
                Outcome::Done { measured } => measured,
                Outcome::Refused { reason } if level.is_some() => {
                    assert!(reason.len() > 20, "{reason}");
                    assert!(!path.exists(), "a refused run must not leave a trace file");
                    continue;
                }
                other => panic!("{level:?}: {other:?}"),
            };
            levels += 1;
            assert_eq!(measured.files, 3000);
            let evidence = measured.evidence.as_ref().unwrap();
            assert!(level.is_none_or(|level| evidence.level == level));
            let bytes = std::fs::read(&path).unwrap();
            let trace = ioloom_trace::file::read(&bytes).unwrap();
            assert!(trace.title.starts_with("walk:statx/threads=4 in "), "{}", trace.title);
            if evidence.level > Level::Account {
                let walkers = measured.roles.iter().find(|r| r.role == "ioloom-walk");
                assert!(walkers.is_some(), "{:?}", measured.roles);
                for thread in &trace.threads {
                    let sum: u64 = thread.states.values().filter_map(|t| t.ns).sum();
                    assert_eq!(sum, thread.end_ns - thread.start_ns, "{}", thread.name);
                }
            }
        }
        assert!(levels >= 2, "level 0 always works");
    }

    #[test]
    fn the_trace_of_a_scenario_has_its_marks_and_counters() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let Ok(ioloom_fileset::SetText::Spec(spec)) = "count=1,size=100000".parse() else {
            panic!("a set")
        };
        let set = dir.path().join("set");
        let sets = crate::Copy.sets() as &dyn Sets;
        sets.prepare("t", &spec, &set, 0, &|_, _| true).unwrap();
        let path = dir.path().join("copy.ioloom");
        let order = RunOrder {
            plan: "copy:seed003-buffered/source=warm".parse().unwrap(),
            compute: Compute::None,
            dir: sets.items(&set),
            set: Some(spec),
            files_max: None,
            seed: 1,
            spans_max: 0,
            observe: Observe {
                events: true,
                level: Some(Level::Account),
                trace: Some(path.clone()),
            },
        };
        let outcome = run_order(&order).outcome;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        let trace = ioloom_trace::file::read(&std::fs::read(&path).unwrap()).unwrap();
        let names: Vec<_> = trace.marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["copy", "returned", "durable", "end"]);
        assert!(trace.marks.is_sorted_by_key(|mark| mark.at_ns));
        assert!(trace.marks.iter().all(|mark| mark.at_ns <= trace.elapsed_ns));
        assert!(trace.series.iter().any(|series| series.name == "dirty"));
        let sampling = trace.threads.iter().filter(|thread| thread.name == COUNTERS);
        assert!(sampling.into_iter().all(|thread| thread.role == ROLE_TOOL));
        assert!(trace.evidence.sources.iter().any(|source| source.name == "proc.counters"));
    }
}

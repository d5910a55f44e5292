//! Runs start the threads that `ioloom_model::layout` names: what `--explain` prints is what runs.

use crate::support::{expected, lacks, list, make, roots};
use ioloom::Plan;
use ioloom::engine::{self, RunOptions, Tracing};
use ioloom_model::layout::{Layout, Role, layout};
use ioloom_model::{Level, Method, Schedule, table};
use std::collections::BTreeMap;

const SCHEDULES: [&str; 9] = [
    "threads:n=1",
    "threads:n=3",
    "window:l=8,p=2",
    "window:l=3,p=2",
    "window:l=2,p=4",
    "roles:r=1,h=0,c=1,w=4",
    "roles:r=1,h=1,c=2,w=5",
    "roles:r=0,h=2,c=0,w=3,order=turns",
    "roles:r=2,h=0,c=1,w=all,open=1",
];

/// Counts the threads of a trace by role, without the one that samples.
fn traced(trace: &ioloom_trace::Trace) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for thread in &trace.threads {
        *counts.entry(thread.role.clone()).or_default() += 1;
    }
    counts.remove(ioloom_trace::lane::ROLE_TOOL);
    counts
}

fn allowed(layout: &Layout, role: &str) -> std::ops::RangeInclusive<u32> {
    let threads = layout.threads.iter().find(|threads| threads.role.name() == role);
    threads.map_or(0..=0, |threads| threads.first..=threads.max)
}

/// Runs one plan and compares its threads with the layout. Returns whether the plan ran.
fn runs_as_laid_out(plan: Plan, paths: &[std::path::PathBuf]) -> bool {
    let layout = layout(&plan).unwrap();
    let tracing = Tracing { level: Some(Level::Account), ..Tracing::default() };
    let options = RunOptions { mmap: true, tracing: Some(tracing), ..RunOptions::default() };
    let done = match engine::run(&list(paths), None, plan, &options, &crate::support::Hashing) {
        Ok(done) => done,
        Err(error) => {
            assert!(lacks(&plan, &error), "{plan}: {error}");
            return false;
        }
    };
    assert_eq!(done.files as usize, expected(paths).len(), "{plan}");
    let mut reported = BTreeMap::<String, u32>::new();
    for report in &done.reports {
        *reported.entry(report.time.role.clone()).or_default() += 1;
    }
    assert_eq!(traced(done.trace.as_ref().unwrap()), reported, "{plan}");
    for role in [Role::Worker, Role::Reader, Role::Hybrid, Role::Computer] {
        let ran = reported.get(role.name()).copied().unwrap_or(0);
        let allowed = allowed(&layout, role.name());
        assert!(allowed.contains(&ran), "{plan}: {ran} {}s, not {allowed:?}", role.name());
    }
    let in_flight = done.reports.iter().map(|report| report.in_flight_max).max().unwrap_or(0);
    let most = (0..layout.threads_max() as usize).map(|n| layout.window_of(n, paths.len() as u64));
    assert!(in_flight <= most.max().unwrap(), "{plan}: {in_flight} in flight on one thread");
    true
}

#[test]
fn every_cell_runs_the_threads_that_explain_prints() {
    let (_dir, paths) = make(&roots()[0], &[3000; 24]);
    let (mut ran, mut refused) = (Vec::new(), Vec::new());
    for method in Method::ALL {
        for text in SCHEDULES {
            let schedule: Schedule = text.parse().unwrap();
            let plan = Plan::new(method, schedule).complete(2);
            if let Some(reason) = table::refusal(method, &schedule) {
                let error = layout(&plan).unwrap_err();
                assert_eq!(error, format!("{plan}: {reason}"));
                refused.push((method, schedule.name()));
            } else if runs_as_laid_out(plan, &paths) {
                ran.push((method, schedule.name()));
            }
        }
    }
    refused.dedup();
    assert_eq!(
        refused,
        [Method::MmapPlain, Method::MmapSequential, Method::MmapPopulate].map(|m| (m, "window"))
    );
    let everywhere = [Method::Read, Method::Nowait, Method::MmapWillneed, Method::Null];
    for (method, schedule) in
        everywhere.into_iter().flat_map(|m| ["threads", "window", "roles"].map(|s| (m, s)))
    {
        assert!(ran.contains(&(method, schedule)), "{method} under {schedule} did not run");
    }
}

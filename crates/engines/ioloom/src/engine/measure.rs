//! Turns the statistics of threads into the measurements of a run.

use super::work::Executed;
use ioloom_model::layout::layout;
use ioloom_model::{Measured, State, StateTable};
use ioloom_observe::{ThreadReport, bottleneck, merge_calls};
use ioloom_trace::{Trace, shares};
use std::collections::BTreeMap;

impl<L> Executed<L> {
    /// Returns the measurements of the run on `cores` usable processors of `cpus` online. Takes the
    /// thread reports and samples out of `self`. The caller fills in digest and errors.
    pub fn measured(&mut self, cores: u32, cpus: u32) -> Measured {
        let reports: Vec<ThreadReport> = std::mem::take(&mut self.reports);
        let area: u128 = reports.iter().map(|r| r.in_flight_area).sum();
        let in_flight = std::mem::take(&mut self.in_flight);
        let sampled_max = in_flight.iter().map(|(_, n)| *n).max().unwrap_or(0);
        let threads_max = || reports.iter().map(|r| r.in_flight_max);
        // Without samples an upper bound: threads may have had their most at different times.
        let in_flight_max = if in_flight.is_empty() {
            threads_max().fold(0, u32::saturating_add)
        } else {
            sampled_max.max(threads_max().max().unwrap_or(0))
        };
        let largest = reports.iter().map(|r| r.largest).max().unwrap_or_default();
        let mut measured = Measured {
            elapsed_ns: self.elapsed_ns,
            files: self.files,
            bytes: self.bytes,
            largest_file_bytes: largest.bytes,
            largest_file_ns: largest.ns,
            calls: merge_calls(&reports),
            calls_end_ns: reports.iter().filter_map(|r| r.last_issue_ns).max(),
            first_compute_ns: reports.iter().filter_map(|r| r.first_compute_ns).min(),
            last_compute_ns: reports.iter().filter_map(|r| r.last_compute_ns).max(),
            budget_peak_bytes: self.budget_peak_bytes,
            in_flight_mean: area as f64 / self.elapsed_ns.max(1) as f64,
            in_flight_max,
            in_flight,
            tuned: self.tuned.take(),
            spans_lost: reports.iter().map(|r| r.spans_lost).sum(),
            ..Measured::default()
        };
        let accounts = self.accounts(&reports);
        for report in reports {
            measured.threads.push(report.time);
            if !report.spans.is_empty() {
                measured.spans.push(report.spans);
            }
        }
        self.states(&mut measured, accounts);
        self.usage.fill(&mut measured, cpus);
        let permits = layout(&self.plan).ok().and_then(|layout| layout.permits);
        measured.bottleneck = Some(bottleneck(&measured, (cores, cpus), permits));
        measured
    }

    /// Returns state tables from the threads' own statistics, if they are good enough and no trace
    /// is better.
    fn accounts(
        &self,
        reports: &[ThreadReport],
    ) -> Option<(Vec<StateTable>, ioloom_model::Evidence)> {
        let clocked = !reports.is_empty() && reports.iter().all(|r| r.clocked);
        let waits = self.function_waits;
        let table = |report| ioloom_observe::states(report, waits);
        (clocked && self.trace.is_none())
            .then(|| (reports.iter().map(table).collect(), ioloom_observe::evidence(reports)))
    }

    /// Fills in states by thread and role, from the trace or else from the threads' own statistics.
    fn states(
        &self,
        measured: &mut Measured,
        accounts: Option<(Vec<StateTable>, ioloom_model::Evidence)>,
    ) {
        if let Some(trace) = &self.trace {
            for thread in &mut measured.threads {
                if let Some(states) = table_of(trace, &thread.name) {
                    thread.states_ns = sums(states);
                }
            }
            measured.roles = shares::roles(trace);
            measured.evidence = Some(trace.evidence.clone());
        } else if let Some((tables, evidence)) = accounts {
            for (thread, table) in measured.threads.iter_mut().zip(&tables) {
                thread.states_ns = sums(table);
            }
            let threads = measured.threads.iter().zip(tables);
            measured.roles =
                shares::sum_by_role(threads.map(|(t, states)| (&*t.role, t.elapsed_ns, states)));
            measured.evidence = Some(evidence);
        }
    }
}

fn table_of<'t>(trace: &'t Trace, name: &str) -> Option<&'t StateTable> {
    trace.threads.iter().find(|t| t.name == name).map(|t| &t.states)
}

fn sums(table: &StateTable) -> BTreeMap<State, Option<u64>> {
    table.iter().map(|(state, time)| (*state, time.ns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::ThreadTime;
    use ioloom_observe::{ThreadReport, UsageDelta};

    fn executed(plan: &str, reports: Vec<ThreadReport>) -> Executed<()> {
        let ms = 1_000_000;
        Executed {
            plan: plan.parse().unwrap(),
            locals: vec![()],
            elapsed_ns: 100 * ms,
            files: 10,
            bytes: 10,
            reports,
            usage: UsageDelta { user_ns: 100 * ms, ..UsageDelta::default() },
            in_flight: Vec::new(),
            budget_peak_bytes: 0,
            cancelled: false,
            stopped: false,
            trace: None,
            tuned: None,
            function_waits: None,
        }
    }

    /// One thread computes while the others wait for its permit.
    fn word(plan: &str) -> String {
        let ms = 1_000_000;
        let report = |time| ThreadReport { time, ..ThreadReport::default() };
        let time = ThreadTime { elapsed_ns: 100 * ms, ready_ns: Some(0), ..ThreadTime::default() };
        let computes = report(ThreadTime { on_cpu_ns: 100 * ms, ..time.clone() });
        let waits = || report(ThreadTime { sync_ns: 100 * ms, ..time.clone() });
        let mut executed = executed(plan, vec![computes, waits(), waits(), waits()]);
        executed.measured(4, 4).bottleneck.unwrap().word
    }

    #[test]
    fn without_samples_the_peak_in_flight_is_that_of_all_threads_together() {
        let report = |in_flight_max| ThreadReport { in_flight_max, ..ThreadReport::default() };
        let run = || executed("nowait/window:l=8,p=1", vec![report(3), report(4)]);
        assert_eq!(run().measured(4, 4).in_flight_max, 7);
        let mut sampled = run();
        sampled.in_flight = vec![(1, 5), (2, 2)];
        assert_eq!(sampled.measured(4, 4).in_flight_max, 5);
    }

    #[test]
    fn a_run_is_judged_by_the_processors_that_its_plan_uses() {
        assert_eq!(word("nowait/window:l=8,p=1"), "compute");
        assert_eq!(word("nowait/window:l=8,p=4"), "hand-over");
    }
}

//! From the accounts of threads to the numbers of a run.

use super::Executed;
use ioloom_model::Measured;
use ioloom_observe::{ThreadReport, bottleneck, merge_calls};

impl<L> Executed<L> {
    /// The numbers of the run on `cores` usable processors of `cpus` on line. Takes the accounts
    /// and the curve out of `self`; digest and errors are for the caller to fill.
    pub fn measured(&mut self, cores: u32, cpus: u32) -> Measured {
        let reports: Vec<ThreadReport> = std::mem::take(&mut self.reports);
        let area: u128 = reports.iter().map(|r| r.in_flight_area).sum();
        let in_flight = std::mem::take(&mut self.in_flight);
        let sampled_max = in_flight.iter().map(|(_, n)| *n).max().unwrap_or(0);
        let thread_max = reports.iter().map(|r| r.in_flight_max).max().unwrap_or(0);
        let mut measured = Measured {
            elapsed_ns: self.elapsed_ns,
            files: self.files,
            bytes: self.bytes,
            calls: merge_calls(&reports),
            calls_end_ns: reports.iter().filter_map(|r| r.last_issue_ns).max(),
            first_compute_ns: reports.iter().filter_map(|r| r.first_compute_ns).min(),
            last_compute_ns: reports.iter().filter_map(|r| r.last_compute_ns).max(),
            budget_peak_bytes: self.budget_peak_bytes,
            in_flight_mean: area as f64 / self.elapsed_ns.max(1) as f64,
            in_flight_max: sampled_max.max(thread_max),
            in_flight,
            spans_lost: reports.iter().map(|r| r.spans_lost).sum(),
            ..Measured::default()
        };
        for report in reports {
            measured.threads.push(report.time);
            if !report.spans.is_empty() {
                measured.spans.push(report.spans);
            }
        }
        self.usage.fill(&mut measured, cpus);
        measured.bottleneck = Some(bottleneck(&measured, cores));
        measured
    }
}

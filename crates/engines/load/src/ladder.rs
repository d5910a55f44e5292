//! Ladders: increasing rates up to the knee, and the scalability law over connections.
//!
//! The knee of a rate ladder is the highest sustained rate: at least 99 % of the due requests are
//! answered in time, no answer is wrong, and the 99th percentile of the corrected latency meets the
//! target. Requests of the warm-up do not count, except for wrong answers. Poisson
//! arrivals deviate slightly from their rate, so due requests are counted. The ladder continues
//! past the knee until two consecutive steps are not sustained; those steps are reported too. An
//! interrupted step does not count as sustained. The knee is only a lower bound if no step failed,
//! or if the load generator was the bottleneck in the first failed step.
//!
//! The universal scalability law is fitted to the throughput of a closed loop as a function of
//! connections. The error is reported for every point, relative to the measured throughput.
//! Predictions stop at twice the largest measured number of connections.

use crate::report::Run;
use ioloom_predict::Usl;
use serde::Serialize;
use std::time::Duration;

/// Fraction of due requests that must be answered in time.
pub const CARRIED: f64 = 0.99;
/// Number of steps to run past the knee.
const BEYOND: usize = 2;

/// One rate in a ladder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Requested rate per second.
    pub asked_per_s: f64,
    /// Average number of due requests per second.
    pub offered_per_s: f64,
    /// Number of requests answered in time per second.
    pub answered_per_s: f64,
    /// 99th percentile of the corrected latency in nanoseconds.
    pub p99_ns: u64,
    /// Whether the rate was sustained and met the target.
    pub carried: bool,
    /// Whether the load generator kept up.
    pub kept_up: bool,
    /// Whether anything was measured.
    #[serde(skip)]
    pub measured: bool,
}

impl Step {
    /// Evaluates a step.
    pub fn new(run: &Run, target: Duration) -> Self {
        let p99_ns = run.latency.corrected.p99_ns;
        let of = &run.outcomes;
        let counted = of.answered + of.failed + of.unsent;
        // In an interrupted run, more requests may have been due than were counted.
        let due = counted.max(run.due.unwrap_or(0));
        let enough = due > 0 && of.answered_in_time as f64 >= CARRIED * due as f64;
        let is_valid = of.wrong == 0 && !run.interrupted && run.lost.is_none();
        Self {
            asked_per_s: run.asked_per_s.unwrap_or(0.0),
            offered_per_s: run.offered_per_s.unwrap_or(0.0),
            answered_per_s: run.answered_per_s,
            p99_ns,
            carried: enough && is_valid && u128::from(p99_ns) <= target.as_nanos(),
            kept_up: run.generator.kept_up,
            measured: !run.is_unmeasured(),
        }
    }
}

/// Returns true if a ladder has gone far enough past its knee.
pub fn is_enough(steps: &[Step]) -> bool {
    steps.len() >= BEYOND
        && steps[steps.len() - BEYOND..].iter().all(|step| !step.carried && step.measured)
}

/// Returns the highest requested rate for which it and all lower rates were sustained.
pub fn knee(steps: &[Step]) -> Option<f64> {
    steps.iter().take_while(|step| step.carried).map(|step| step.asked_per_s).last()
}

/// Returns true if the knee may be higher than the result of [`knee`]: no higher rate was tried, the
/// load generator was the bottleneck at that rate, or nothing was measured at it.
pub fn knee_is_least(steps: &[Step]) -> bool {
    steps.iter().find(|step| !step.carried).is_none_or(|step| !step.kept_up || !step.measured)
}

/// The scalability law fitted to the throughput of a closed loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scaling {
    /// Throughput of one connection, per second.
    pub lambda_per_s: f64,
    /// Serial fraction of the work.
    pub sigma: f64,
    /// Coordination cost per pair.
    pub kappa: f64,
    /// Root mean square of the relative errors.
    pub error_rms: f64,
    /// Largest relative error.
    pub error_worst: f64,
    /// Predicted throughput divided by measured throughput, minus one, for each number of
    /// connections.
    pub errors: Vec<f64>,
    /// Number of connections above which throughput decreases. Null if throughput never decreases,
    /// or if the number exceeds twice the largest measured one.
    pub connections_best: Option<f64>,
}

/// Fits the law to pairs of connections and answers per second.
///
/// # Errors
/// Returns an error if there are fewer than four points, or if one is not a positive number.
pub fn scaling(points: &[(usize, f64)]) -> Result<Scaling, String> {
    let times: Vec<(u32, f64)> = points
        .iter()
        .map(|(n, rate)| (u32::try_from(*n).unwrap_or(u32::MAX), 1.0 / rate))
        .collect();
    let usl = Usl::fit(&times).map_err(|error| error.to_string())?;
    let most = points.iter().map(|(n, _)| *n).max().unwrap_or(0) as f64;
    // The law is fitted to times but reported as throughput: overestimating the time means
    // underestimating the throughput.
    let errors: Vec<f64> = usl.errors.each.iter().map(|error| 1.0 / (1.0 + error) - 1.0).collect();
    let square = errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64;
    Ok(Scaling {
        lambda_per_s: 1.0 / usl.one_s,
        sigma: usl.sigma,
        kappa: usl.kappa,
        error_rms: square.sqrt(),
        error_worst: errors.iter().fold(0.0_f64, |worst, error| worst.max(error.abs())),
        errors,
        connections_best: usl.best_threads().filter(|best| *best <= 2.0 * most),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use crate::report::{Conservation, Generator, Latencies};
    use crate::tally::Outcomes;
    use std::collections::BTreeMap;

    fn step(asked_per_s: f64, carried: bool) -> Step {
        let (offered_per_s, answered_per_s) = (asked_per_s - 0.5, asked_per_s - 0.5);
        Step {
            asked_per_s,
            offered_per_s,
            answered_per_s,
            p99_ns: 1,
            carried,
            kept_up: true,
            measured: true,
        }
    }

    /// An open-loop run at 1000 requests per second for one second.
    fn run(answered: u64, in_time: u64, unsent: u64) -> Run {
        let outcomes =
            Outcomes { answered, answered_in_time: in_time, unsent, ..Outcomes::default() };
        Run {
            pace: "open".to_owned(),
            connections: 1,
            asked_per_s: Some(1000.0),
            offered_per_s: Some((answered + unsent) as f64),
            due: Some(answered + unsent),
            answered_per_s: in_time as f64,
            elapsed_ns: 1_000_000_000,
            outcomes,
            stall: None,
            latency: Latencies::default(),
            commands: BTreeMap::new(),
            seconds: Vec::new(),
            wrong_samples: Vec::new(),
            conservation: Conservation {
                checked: false,
                reason: None,
                stocks: 0,
                differences: Vec::new(),
            },
            generator: Generator {
                threads: 1,
                late: Latency::default(),
                pickup: Latency::default(),
                cpu_share: Some(0.1),
                busy_share: Some(0.1),
                kept_up: true,
                reason: None,
                unknown: None,
            },
            interrupted: false,
            lost: None,
        }
    }

    #[test]
    fn a_rate_is_sustained_if_due_requests_are_answered_in_time() {
        let carried = |answered, in_time, unsent| {
            Step::new(&run(answered, in_time, unsent), Duration::from_millis(1)).carried
        };
        // Poisson arrivals: three percent below the rate, and all answered.
        assert!(carried(970, 970, 0));
        // Additional answers do not make up for unsent requests.
        assert!(!carried(1000, 1000, 30));
        assert!(!carried(1000, 980, 0));
        assert!(!carried(0, 0, 0));
        let mut vanished = run(970, 970, 0);
        vanished.due = Some(1000);
        assert!(!Step::new(&vanished, Duration::from_millis(1)).carried);
        let mut early = run(970, 970, 0);
        early.interrupted = true;
        assert!(!Step::new(&early, Duration::from_millis(1)).carried);
        let mut lost = run(970, 970, 0);
        lost.lost = Some("lost the server".to_owned());
        assert!(!Step::new(&lost, Duration::from_millis(1)).carried);
        let with = |change: fn(&mut Outcomes)| {
            let mut run = run(970, 970, 0);
            run.due = None;
            change(&mut run.outcomes);
            Step::new(&run, Duration::from_millis(1)).carried
        };
        // A single wrong answer makes the rate meaningless.
        assert!(!with(|outcomes| outcomes.wrong = 1));
        assert!(!with(|outcomes| (outcomes.unanswered, outcomes.failed) = (30, 30)));
        // During the warm-up.
        assert!(with(|outcomes| (outcomes.unanswered, outcomes.turned_away) = (500, 500)));
    }

    #[test]
    fn the_knee_is_the_last_rate_sustained_with_all_lower_ones() {
        let steps = [step(1.0, true), step(2.0, true), step(3.0, false), step(4.0, true)];
        assert_eq!(knee(&steps), Some(2.0));
        assert!(!is_enough(&steps));
        assert!(is_enough(&[step(1.0, true), step(2.0, false), step(3.0, false)]));
        assert_eq!(knee(&[step(1.0, false)]), None);
    }

    #[test]
    fn a_knee_may_be_a_lower_bound() {
        assert!(!knee_is_least(&[step(1.0, true), step(2.0, false)]));
        assert!(knee_is_least(&[step(1.0, true), step(2.0, true)]));
        let of_the_load = Step { kept_up: false, ..step(2.0, false) };
        assert!(knee_is_least(&[step(1.0, true), of_the_load.clone(), step(3.0, false)]));
        assert!(!knee_is_least(&[step(1.0, false), of_the_load]));
    }

    #[test]
    fn a_rate_without_due_requests_is_not_measured() {
        let idle = run(0, 0, 0);
        assert!(idle.had_nothing_due() && idle.is_unmeasured());
        let step_of = |run: &Run| Step::new(run, Duration::from_millis(1));
        let idle_step = step_of(&idle);
        assert!(!idle_step.carried && !idle_step.measured);
        assert!(!is_enough(&[idle_step.clone(), idle_step.clone()]));
        assert!(knee_is_least(&[idle_step, step(2.0, true)]));
        // Requests were due here, but none was sent.
        let unsent = run(0, 0, 5);
        assert!(!unsent.is_unmeasured() && step_of(&unsent).measured);
    }

    #[test]
    fn the_error_of_the_law_is_relative_to_throughput() {
        // The last point is twice as high as the line through the others.
        let rates = [100.0, 200.0, 400.0, 800.0, 3200.0];
        let points: Vec<(usize, f64)> = [1, 2, 4, 8, 16].into_iter().zip(rates).collect();
        let scaling = scaling(&points).unwrap();
        // The prediction is too low at that point, so its error is negative.
        assert!(scaling.errors[4] < 0.0, "{scaling:?}");
        let law = |n: f64| {
            let (s, k) = (scaling.sigma, scaling.kappa);
            scaling.lambda_per_s * n / (1.0 + s * (n - 1.0) + k * n * (n - 1.0))
        };
        for ((n, rate), error) in points.iter().zip(&scaling.errors) {
            assert!((law(*n as f64) / rate - 1.0 - error).abs() < 1e-9, "{n}: {scaling:?}");
        }
        let worst = scaling.errors.iter().map(|error| error.abs()).fold(0.0, f64::max);
        assert!((scaling.error_worst - worst).abs() < 1e-12 && scaling.error_rms <= worst);
    }

    #[test]
    fn the_law_is_recovered_from_its_own_rates() {
        let rate = |n: f64| 1000.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.001 * n * (n - 1.0));
        let points: Vec<(usize, f64)> = [1, 2, 4, 8, 16, 32].map(|n| (n, rate(n as f64))).to_vec();
        let scaling = scaling(&points).unwrap();
        assert!((scaling.lambda_per_s - 1000.0).abs() < 1e-6, "{scaling:?}");
        assert!((scaling.sigma - 0.05).abs() < 1e-9 && (scaling.kappa - 0.001).abs() < 1e-9);
        assert!(scaling.error_worst < 1e-9);
        let best = scaling.connections_best.unwrap();
        assert!((best - (0.95_f64 / 0.001).sqrt()).abs() < 1e-6);
        // Throughput that decreases from the first connection on: even the second connection
        // reduces it.
        let falling: Vec<(usize, f64)> =
            [1, 2, 3, 4].map(|n| (n, 1000.0 * n as f64 / (1.2 * n as f64 - 0.2))).to_vec();
        let falling = super::scaling(&falling).unwrap();
        assert!(falling.kappa < 1e-9 && falling.connections_best == Some(1.0), "{falling:?}");
        // With measurements for few connections, the same law makes no prediction for that many.
        let few: Vec<(usize, f64)> = points[..4].to_vec();
        assert_eq!(super::scaling(&few).unwrap().connections_best, None);
        assert!(super::scaling(&points[..3]).is_err());
    }
}

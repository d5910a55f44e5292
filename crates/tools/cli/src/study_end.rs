//! How studies end: exit codes, runs by outcome, and failures of the report.

use crate::exit::{Ended, Exit, Failure};
use crate::{out, stderr};
use ioloom_lab::spec::SpecError;
use ioloom_lab::{LabError, Session};
use ioloom_model::{Outcome, RunRecord};
use serde::Serialize;

/// An unreadable file is a failure; an invalid one is a usage error.
pub(crate) fn spec_failure(error: SpecError) -> Failure {
    match error {
        SpecError::Read { .. } => Failure::failed(error),
        SpecError::Text { .. } | SpecError::Unknown { .. } => Failure::usage(error),
    }
}

/// Returns the failure of a study with the exit code of the error.
pub(crate) fn lab_failure(error: &LabError) -> Failure {
    let exit = match error.exit_code() {
        2 => Exit::Usage,
        3 => Exit::Refused,
        130 => Exit::Interrupted,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// Number of runs by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Outcomes {
    #[serde(rename = "runs_done")]
    done: usize,
    #[serde(rename = "runs_refused")]
    refused: usize,
    /// Failed, or killed at the deadline.
    #[serde(rename = "runs_failed")]
    failed: usize,
}

impl Outcomes {
    pub(crate) fn of(runs: &[RunRecord]) -> Self {
        runs.iter().fold(Self::default(), |all, run| all.with(&run.outcome))
    }

    fn with(mut self, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done { .. } => self.done += 1,
            Outcome::Refused { .. } => self.refused += 1,
            Outcome::Failed { .. } | Outcome::TimedOut { .. } => self.failed += 1,
        }
        self
    }
}

/// Returns the failure of a command with these sessions: a study of which runs failed and none
/// succeeded, or refusals only. Other failed runs do not fail the command; the report shows them.
pub(crate) fn unsuccessful<'s>(sessions: impl Iterator<Item = &'s Session>) -> Option<Failure> {
    let counted = sessions.map(|s| (s.header.study.as_str(), Outcomes::of(&s.runs)));
    failure(&counted.collect::<Vec<_>>())
}

fn failure(studies: &[(&str, Outcomes)]) -> Option<Failure> {
    if let Some((study, runs)) = studies.iter().find(|(_, runs)| runs.done == 0 && runs.failed > 0)
    {
        return Some(Failure::failed(format!(
            "no run of study {study} succeeded: {} failed, {} refused",
            runs.failed, runs.refused
        )));
    }
    let refused: usize = studies.iter().map(|(_, runs)| runs.refused).sum();
    let none_done = studies.iter().all(|(_, runs)| runs.done == 0);
    (none_done && refused > 0).then(|| Failure::refused("no run succeeded: all were refused"))
}

/// Returns how the command ends after its report was written and printed, or was not: a failure of
/// the report hides neither that of a study nor an interrupt.
pub(crate) fn after_report(reported: Result<(), Failure>, ended: Ended) -> Ended {
    match (reported, ended) {
        (Err(failure), Ok(Exit::Interrupted)) => {
            if !failure.is_quiet() {
                stderr::message(&failure.message);
            }
            Ok(Exit::Interrupted)
        }
        (reported, ended) => out::then(reported, ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_and_failures_of_all_runs_have_their_codes() {
        let runs = |done, refused, failed| Outcomes { done, refused, failed };
        let code = |studies: &[(&str, Outcomes)]| failure(studies).map(|failure| failure.exit);
        assert_eq!(code(&[]), None);
        assert_eq!(code(&[("a", runs(0, 0, 0))]), None);
        assert_eq!(code(&[("a", runs(1, 8, 0))]), None);
        assert_eq!(code(&[("a", runs(1, 0, 8))]), None);
        assert_eq!(code(&[("a", runs(0, 9, 0))]), Some(Exit::Refused));
        assert_eq!(code(&[("a", runs(0, 9, 0)), ("b", runs(1, 0, 0))]), None);
        assert_eq!(code(&[("a", runs(1, 0, 0)), ("b", runs(0, 8, 1))]), Some(Exit::Failed));
        let seconds = 1.0;
        let timed_out = Outcomes::default().with(&Outcome::TimedOut { seconds });
        assert_eq!(timed_out, runs(0, 0, 1));
    }

    #[test]
    fn an_unwritten_report_hides_neither_a_failed_study_nor_an_interrupt() {
        let unwritten = || Err(Failure::failed("cannot write the report"));
        let ended = after_report(unwritten(), Err(Failure::refused("the study; continue with: x")));
        let failure = ended.unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.message.contains("continue with"), "{failure:?}");
        assert_eq!(after_report(unwritten(), Ok(Exit::Interrupted)).unwrap(), Exit::Interrupted);
        assert_eq!(after_report(unwritten(), Ok(Exit::Ok)).unwrap_err().exit, Exit::Failed);
    }
}

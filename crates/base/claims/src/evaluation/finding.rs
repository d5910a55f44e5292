//! The result of evaluating one contrast.

use super::answer::Answer;
use super::runs::{Arm, Columns, Runs};
use crate::verdict::{Effect, Evidence};
use ioloom_model::RunRecord;
use ioloom_model::units::format_counted;
use ioloom_stats::Interval;

/// Why a finding is limited in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Compute was simulated by sleeping.
    Sleeps,
    /// More threads were computing than there are cores.
    Crowded,
    /// Only some arms of a family ran.
    Partial,
}

impl Limit {
    /// Returns the words appended to the finding's sentence.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Sleeps => {
                " (compute was simulated by sleeping, as if every thread had its own core)"
            }
            Self::Crowded => " (more threads computed than there are cores)",
            Self::Partial => " (only some arms of the study ran)",
        }
    }
}

/// The result of evaluating one contrast.
#[derive(Debug, Default)]
pub(crate) struct Finding<'a> {
    /// Whether the statement holds; `None` if the numbers allow both answers.
    pub(crate) holds: Option<bool>,
    /// Two-sided p-value of the answer, 1 if there is none; `None` if it does not come from runs.
    pub(crate) p: Option<f64>,
    /// The reason, without the location.
    pub(crate) words: String,
    pub(crate) evidence: Evidence,
    /// Effect in each block, for the series tests.
    pub(crate) series: Vec<f64>,
    /// Scatter of the series that cannot matter, in its unit.
    pub(crate) negligible: f64,
    /// The underlying runs.
    pub(crate) used: Vec<&'a RunRecord>,
    /// Runs from which the compared arms were chosen. If one was disturbed, so was the choice.
    pub(crate) considered: Vec<&'a RunRecord>,
    /// Whether compute was simulated by sleeping.
    pub(crate) sleeps: bool,
    /// Whether only part of a family ran, so its best arm is unknown.
    pub(crate) partial: bool,
    /// Whether the effect does not exceed the difference between runs of the same plan, and is not shown to
    /// be within the margin.
    pub(crate) below_noise: bool,
    /// Whether the answer was withheld because it depends on disturbed blocks.
    pub(crate) withheld: bool,
}

impl<'a> Finding<'a> {
    /// Returns a finding with the effect and its interval as evidence.
    pub(crate) fn new(
        answer: Answer,
        effect_is: Effect,
        interval: &Interval,
        words: String,
    ) -> Self {
        let evidence = Evidence {
            effect: Some(interval.estimate),
            lo: Some(interval.lo),
            hi: Some(interval.hi),
            effect_is,
            ..Evidence::default()
        };
        Self { holds: answer.holds, p: Some(answer.p), words, evidence, ..Self::default() }
    }

    /// Adds the arms that were compared, their blocks, sessions and runs.
    pub(crate) fn of_arms(mut self, arms: &[&Arm<'a>], runs: &Runs<'a>, columns: &Columns) -> Self {
        self.evidence.arms = arms.iter().map(|a| a.name.clone()).collect();
        self.evidence.blocks = columns.values.first().map_or(0, Vec::len);
        self.evidence.sessions.clone_from(&columns.sessions);
        self.used = arms.iter().flat_map(|a| a.records()).collect();
        self.sleeps = runs.sleeps;
        self
    }

    /// Notes that some levels or arms could not run; `names` are those of one and of several.
    pub(crate) fn without(mut self, lost: usize, [one, several]: [&str; 2]) -> Self {
        if lost > 0 {
            let lost = format_counted(lost as u64, one, several);
            self.words.push_str(&format!("; {lost} could not run"));
            self.partial = true;
        }
        self
    }

    /// Adds the arms from which the compared ones were chosen.
    pub(crate) fn chosen_from<'r>(mut self, arms: impl IntoIterator<Item = &'r Arm<'a>>) -> Self
    where
        'a: 'r,
    {
        self.considered.extend(arms.into_iter().flat_map(Arm::records));
        self
    }

    /// Returns the runs on which the answer depends: those compared, and those that chose them.
    pub(crate) fn behind(&self) -> Vec<&'a RunRecord> {
        self.used.iter().chain(&self.considered).copied().collect()
    }

    /// Adds the noise floor, if known.
    pub(crate) fn noise(self, floor: Option<f64>) -> Self {
        match floor {
            Some(floor) => self.number("noise_floor", floor),
            None => self,
        }
    }

    /// Adds a number to the evidence.
    pub(crate) fn number(mut self, name: &str, value: f64) -> Self {
        self.evidence.numbers.insert(name.to_owned(), value);
        self
    }

    /// Returns what limits the scope of the finding. `crowded` means that more threads computed
    /// than there are cores.
    pub(crate) fn limits(&self, crowded: bool) -> Vec<Limit> {
        let limits = [
            (self.sleeps, Limit::Sleeps),
            (!self.sleeps && crowded, Limit::Crowded),
            (self.partial, Limit::Partial),
        ];
        limits.into_iter().filter(|(applies, _)| *applies).map(|(_, limit)| limit).collect()
    }
}

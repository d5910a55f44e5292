//! The doubts of a study: those of its runs, its experiments and the whole.

use crate::input::Input;
use ioloom_model::Doubt;
use std::collections::{BTreeMap, BTreeSet};

/// Where a doubt was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// Number of runs with it.
    pub runs: usize,
    /// Experiments with it; empty if it concerns the whole study.
    pub experiments: BTreeSet<&'a str>,
    /// Observations, each in a sentence.
    pub details: Vec<String>,
}

/// Returns every doubt of a study.
pub(crate) fn of_study(input: &Input) -> BTreeMap<Doubt, Found<'_>> {
    let mut seen: BTreeMap<Doubt, Found<'_>> = BTreeMap::new();
    for record in &input.records {
        for doubt in &record.doubts {
            let found = seen.entry(*doubt).or_default();
            found.runs += 1;
            found.experiments.insert(&record.key.experiment);
        }
    }
    for row in &input.doubts {
        let found = seen.entry(row.doubt).or_default();
        found.experiments.extend(row.experiment.as_deref());
        let place = match (&row.experiment, &row.arm) {
            (Some(e), Some(a)) => format!("{e}, {a}: "),
            (Some(e), None) => format!("{e}: "),
            _ => String::new(),
        };
        if !row.detail.is_empty() {
            found.details.push(format!("{place}{}", row.detail));
        }
    }
    seen
}

impl Found<'_> {
    /// Returns the experiments in words.
    pub(crate) fn places(&self) -> String {
        if self.experiments.is_empty() {
            return "the whole study".to_owned();
        }
        self.experiments.iter().copied().collect::<Vec<_>>().join(", ")
    }
}

//! The arms of a study that a session runs, if it does not run all of them.
//!
//! A session that verifies claims needs a few arms of large studies. A selection names them by
//! experiment, set, condition and compute, so that the same arm on another set is left out. The media of
//! the session are chosen elsewhere: a selected arm runs on each of them that runs its experiment.

use ioloom_model::{Compute, Condition};
use std::collections::BTreeSet;

/// The comparison of an arm.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The experiment.
    pub experiment: &'a str,
    /// The set of the experiment.
    pub set: &'a str,
    /// Condition of the runs.
    pub condition: Condition,
    /// Compute applied to the bytes.
    pub compute: &'a Compute,
}

/// Selected arms, by place and name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection(BTreeSet<[String; 5]>);

fn key(place: &Place<'_>, arm: &str) -> [String; 5] {
    let Place { experiment, set, condition, compute } = place;
    let (condition, compute) = (condition.name().to_owned(), compute.to_string());
    let [experiment, set, arm] = [experiment, set, &arm].map(|s| (*s).to_owned());
    [experiment, set, condition, compute, arm]
}

impl Selection {
    /// Adds an arm. Returns whether it is new.
    pub fn add(&mut self, place: &Place<'_>, arm: &str) -> bool {
        self.0.insert(key(place, arm))
    }

    /// Adds the arms of another selection.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    /// Reports whether an arm is selected.
    pub fn has(&self, place: &Place<'_>, arm: &str) -> bool {
        self.0.contains(&key(place, arm))
    }

    /// Returns the number of arms.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the experiments with selected arms.
    pub fn experiments(&self) -> BTreeSet<&str> {
        self.0.iter().map(|key| key[0].as_str()).collect()
    }
}

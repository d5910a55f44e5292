//! The interface of every contrast kind, and the data available to its evaluation.

use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::Runs;
use crate::family::{self, Whole};
use crate::location::Location;
use crate::rule::Rule;
use ioloom_model::RunRecord;

/// Name of the axis on which each compute of an experiment is a level, given by its mean demand in
/// nanoseconds.
pub(crate) const COMPUTE_AXIS: &str = "compute";

/// A kind of contrast. Each kind has one file in this directory, which defines its TOML fields, the
/// names it refers to and its evaluation, and one line in the list in `contrast/mod.rs`.
pub(crate) trait Kind {
    /// Returns the locations whose runs it needs; empty if it needs no runs.
    fn locations(&self) -> Vec<&Location> {
        Vec::new()
    }

    /// Returns the arms and families it refers to.
    fn patterns(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns the arms and families that it needs at each location.
    fn needs(&self) -> Vec<(&Location, Vec<&str>)> {
        self.locations().into_iter().map(|at| (at, self.patterns())).collect()
    }

    /// Reports whether it compares runs on several media.
    fn on_several_media(&self) -> bool {
        false
    }

    /// Returns the families of which it needs every arm.
    fn families(&self) -> Vec<Whole<'_>> {
        Vec::new()
    }

    /// Reports whether a single run can refute it, also one that was disturbed or in which something
    /// failed: that can be what it is about.
    fn is_about_every_run(&self) -> bool {
        false
    }

    /// Reports whether its p-value comes from resamples, whose number limits how small it can be.
    fn is_resampled(&self) -> bool {
        false
    }

    /// Returns the factor whose levels it uses.
    fn axis(&self) -> Option<&str> {
        None
    }

    /// Reports whether it uses a level of that factor.
    fn uses_level(&self, _level: f64) -> bool {
        true
    }

    /// Returns the metrics and formulas it uses.
    fn metrics(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Describes where its numbers come from.
    fn place(&self) -> String {
        self.locations().iter().map(ToString::to_string).collect::<Vec<_>>().join(" / ")
    }

    /// Reports whether quick mode omits every arm of a pattern that the contrast needs.
    fn skipped_by_quick(&self) -> bool {
        let patterns = self.patterns();
        self.locations()
            .iter()
            .any(|at| patterns.iter().any(|pattern| family::skipped_by_quick(at, &[pattern])))
    }

    /// Checks constraints that the TOML schema cannot express. Returns the reason if fields
    /// contradict each other.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Evaluates the contrast.
    ///
    /// # Errors
    /// Fails if runs or numbers are missing.
    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap>;
}

/// The stored runs and the rule used to evaluate contrasts.
#[derive(Clone)]
pub(crate) struct Context<'a> {
    pub(crate) records: Vec<&'a RunRecord>,
    pub(crate) rule: Rule,
}

impl<'a> Context<'a> {
    /// Returns the runs at a location of `kind`, on the medium shared by all its locations that name none, or
    /// the same one.
    pub(crate) fn runs(&self, at: &Location, kind: &dyn Kind) -> Runs<'a> {
        let by_compute = kind.axis() == Some(COMPUTE_AXIS);
        let mut sharing = kind.needs();
        sharing.retain(|(place, _)| place.medium == at.medium);
        Runs::of(&self.records, at, &sharing, by_compute, self.rule.blocks_min)
    }
}

/// Checks that the bounds of a range are in order.
pub(crate) fn ordered(range: &[f64; 2]) -> Result<(), String> {
    if range[0] <= range[1] { Ok(()) } else { Err(format!("the range {range:?} is reversed")) }
}

/// Returns the default metric of contrasts.
pub(crate) fn elapsed() -> String {
    "elapsed_ns".to_owned()
}

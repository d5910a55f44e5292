//! What every kind of contrast implements, and what it is given to evaluate itself.

use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::evaluation::runs::Runs;
use crate::family;
use crate::location::Location;
use crate::rule::Rule;
use ioloom_model::RunRecord;

/// The name of the axis on which each compute of an experiment is a level: its mean demand in
/// nanoseconds.
pub(crate) const COMPUTE_AXIS: &str = "compute";

/// A kind of contrast. Each kind is one file of this directory with its TOML fields, what it names
/// and how it is evaluated, and one line in the list of `contrast/mod.rs`.
pub(crate) trait Kind {
    /// Returns the locations it needs runs from; none if it needs no runs.
    fn locations(&self) -> Vec<&Location> {
        Vec::new()
    }

    /// Returns the arms and families it names.
    fn patterns(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns the factor whose levels it uses.
    fn axis(&self) -> Option<&str> {
        None
    }

    /// Returns the metrics and formulas it uses.
    fn metrics(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns where its numbers come from, in words.
    fn place(&self) -> String {
        self.locations().iter().map(ToString::to_string).collect::<Vec<_>>().join(" / ")
    }

    /// Returns whether quick mode leaves out every arm of a pattern that the contrast needs.
    fn skipped_by_quick(&self) -> bool {
        let patterns = self.patterns();
        self.locations()
            .iter()
            .any(|at| patterns.iter().any(|pattern| family::skipped_by_quick(at, &[pattern])))
    }

    /// Checks what its TOML fields alone cannot express. Returns the reason if they contradict each
    /// other.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Evaluates the contrast.
    ///
    /// # Errors
    /// Fails if runs or numbers are missing.
    fn evaluate<'a>(&self, context: &Context<'a>) -> Result<Finding<'a>, Gap>;
}

/// The stored runs and the rule that contrasts are evaluated with.
#[derive(Clone)]
pub(crate) struct Context<'a> {
    pub(crate) records: Vec<&'a RunRecord>,
    pub(crate) rule: Rule,
}

impl<'a> Context<'a> {
    /// Returns the runs at a location of `kind`.
    pub(crate) fn runs(&self, at: &Location, kind: &dyn Kind) -> Runs<'a> {
        let by_compute = kind.axis() == Some(COMPUTE_AXIS);
        Runs::of(&self.records, at, &kind.patterns(), by_compute, self.rule.blocks_min)
    }
}

/// Checks that a range is not reversed.
pub(crate) fn ordered(range: &[f64; 2]) -> Result<(), String> {
    if range[0] <= range[1] {
        Ok(())
    } else {
        Err(format!("the range {range:?} ends before it starts"))
    }
}

/// Returns the metric of contrasts that name none.
pub(crate) fn elapsed() -> String {
    "elapsed_ns".to_owned()
}

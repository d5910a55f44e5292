//! Refusals of input that no statistic is defined for.

/// Input that cannot be used: which one, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// Fewer values than the statistic needs.
    #[error("{what}: {have} values, at least {need} are needed")]
    TooFew {
        /// The statistic.
        what: &'static str,
        /// How many were given.
        have: usize,
        /// How many it needs.
        need: usize,
    },
    /// Two slices that belong together have different lengths.
    #[error("{what}: {left} values against {right}; give one pair for each block")]
    LengthMismatch {
        /// The statistic.
        what: &'static str,
        /// Length of the first slice.
        left: usize,
        /// Length of the second.
        right: usize,
    },
    /// A value is NaN or infinite.
    #[error("{what}: value {index} is {value}; only finite numbers can be used")]
    NotFinite {
        /// The statistic.
        what: &'static str,
        /// Position of the value, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A value is zero or negative where a ratio is taken.
    #[error("{what}: value {index} is {value}; a ratio needs values above zero")]
    NotPositive {
        /// The statistic.
        what: &'static str,
        /// Position of the value, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The statistic has no value for this sample, such as a correlation with a constant.
    #[error("{what}: not defined for these values, because they do not vary")]
    Undefined {
        /// The statistic.
        what: &'static str,
    },
    /// A parameter is outside its range.
    #[error("{what} is {value}; it must be {accepted}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// The value given.
        value: f64,
        /// The range in words.
        accepted: &'static str,
    },
}

/// At least `need` values, all finite.
pub(crate) fn check_finite(
    what: &'static str,
    values: &[f64],
    need: usize,
) -> Result<(), StatsError> {
    if values.len() < need {
        return Err(StatsError::TooFew { what, have: values.len(), need });
    }
    match values.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(StatsError::NotFinite { what, index, value: values[index] }),
        None => Ok(()),
    }
}

/// Two slices of the same length with at least `need` finite values each.
pub(crate) fn check_pairs(
    what: &'static str,
    left: &[f64],
    right: &[f64],
    need: usize,
) -> Result<(), StatsError> {
    if left.len() != right.len() {
        return Err(StatsError::LengthMismatch { what, left: left.len(), right: right.len() });
    }
    check_finite(what, left, need)?;
    check_finite(what, right, need)
}

/// All values above zero.
pub(crate) fn check_positive(what: &'static str, values: &[f64]) -> Result<(), StatsError> {
    match values.iter().position(|v| *v <= 0.0) {
        Some(index) => Err(StatsError::NotPositive { what, index, value: values[index] }),
        None => Ok(()),
    }
}

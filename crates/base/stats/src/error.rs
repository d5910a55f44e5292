//! Errors for input on which a statistic is undefined.

/// Invalid input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// Too few values for the statistic.
    #[error("{what}: got {have} values, need at least {need}")]
    TooFew {
        /// The statistic.
        what: &'static str,
        /// Number of values passed.
        have: usize,
        /// Minimum number of values.
        need: usize,
    },
    /// Two paired slices have different lengths.
    #[error("{what}: {left} values paired with {right}; each block needs both values")]
    LengthMismatch {
        /// The statistic.
        what: &'static str,
        /// Length of the first slice.
        left: usize,
        /// Length of the second slice.
        right: usize,
    },
    /// A value is NaN or infinite.
    #[error("{what}: value {index} is {value}; it must be finite")]
    NotFinite {
        /// The statistic.
        what: &'static str,
        /// Position of the value, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A value in a ratio is zero or negative.
    #[error("{what}: value {index} is {value}; a ratio needs values above zero")]
    NotPositive {
        /// The statistic.
        what: &'static str,
        /// Position of the value, from 0.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The statistic is undefined for this sample, such as a correlation with a constant.
    #[error("{what}: undefined for values that do not vary")]
    Undefined {
        /// The statistic.
        what: &'static str,
    },
    /// A parameter is outside its range.
    #[error("{what} is {value}; it must be {accepted}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// The specified value.
        value: f64,
        /// Description of the accepted range.
        accepted: &'static str,
    },
}

/// Checks that there are at least `need` values and that all are finite.
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

/// Checks that two slices have the same length and at least `need` finite values each.
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

/// Checks that all values are above zero.
pub(crate) fn check_positive(what: &'static str, values: &[f64]) -> Result<(), StatsError> {
    match values.iter().position(|v| *v <= 0.0) {
        Some(index) => Err(StatsError::NotPositive { what, index, value: values[index] }),
        None => Ok(()),
    }
}

//! Refusals of numbers that no law is defined for.

/// A number that a law cannot use: which one, and what would be right.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// A number is outside its range.
    #[error("{what} is {value}; it must be {accepted}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// The value given.
        value: f64,
        /// The range in words.
        accepted: &'static str,
    },
    /// A network in which nobody ever needs time.
    #[error("a network needs at least one station with a demand above zero")]
    NoDemand,
}

/// A finite number of at least zero.
pub(crate) fn at_least_zero(what: &'static str, value: f64) -> Result<f64, PredictError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(PredictError::OutOfRange { what, value, accepted: "a finite number of at least 0" })
    }
}

/// A finite number above zero.
pub(crate) fn above_zero(what: &'static str, value: f64) -> Result<f64, PredictError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(PredictError::OutOfRange { what, value, accepted: "a finite number above 0" })
    }
}

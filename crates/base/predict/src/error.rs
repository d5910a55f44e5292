//! Errors for numbers outside the domain of a law.

use ioloom_model::units::format_size;

/// A number that a law cannot accept.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// A number is outside its range.
    #[error("{what} is {}; it must be {accepted}", short(*.value))]
    OutOfRange {
        /// Name of the number.
        what: &'static str,
        /// The specified value.
        value: f64,
        /// Description of the accepted range.
        accepted: &'static str,
    },
    /// No station in the network has a demand above zero.
    #[error("a network needs at least one station with a demand above zero")]
    NoDemand,
    /// The measured device was chosen, and this machine has not been measured.
    #[error("this machine is not calibrated for this prediction")]
    NotCalibrated,
    /// The probes do not show the asked order of files.
    #[error(
        "the probes of this machine read files in device order, so another order cannot be predicted"
    )]
    UnknownOrder,
    /// Files are larger than the small ones of the probes, and no larger ones were probed.
    #[error(
        "this machine was calibrated with files of {} on average and none of 1 MiB or more, so the time \
         of larger files is unknown",
        format_size(*.bytes)
    )]
    UnknownSize {
        /// Mean size of the small files in bytes.
        bytes: u64,
    },
    /// A published table is not compiled in, or is malformed.
    #[error("the published table '{table}' is missing or malformed")]
    Table {
        /// Name of the table.
        table: &'static str,
    },
}

/// Formats a number, a huge one with an exponent.
fn short(value: f64) -> String {
    let is_huge = value.is_finite() && value.abs() >= 1e15;
    if is_huge { format!("{value:.2e}") } else { value.to_string() }
}

/// Returns `value` if it is finite and at least zero.
pub(crate) fn at_least_zero(what: &'static str, value: f64) -> Result<f64, PredictError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(PredictError::OutOfRange { what, value, accepted: "a finite number of at least 0" })
    }
}

/// Returns `value` if it is finite and above zero.
pub(crate) fn above_zero(what: &'static str, value: f64) -> Result<f64, PredictError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(PredictError::OutOfRange { what, value, accepted: "a finite number above 0" })
    }
}

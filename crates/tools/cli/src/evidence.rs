//! Evidence levels on the command line.

use crate::exit::Failure;
use ioloom::EVIDENCE_VARIABLE;
use ioloom_model::Level;

/// Returns the level with this number.
pub(crate) fn level(number: u8) -> Option<Level> {
    [Level::Account, Level::Switch, Level::Kernel].into_iter().find(|l| l.number() == number)
}

/// Checks the variable that pins the level of a trace. The library refuses an invalid value, which is an
/// error in the command line like that of `--evidence`.
///
/// # Errors
/// The value is not 0, 1 or 2.
pub(crate) fn check_variable() -> Result<(), Failure> {
    let value = std::env::var_os(EVIDENCE_VARIABLE).filter(|value| !value.is_empty());
    let Some(value) = value else { return Ok(()) };
    let number = value.to_str().and_then(|text| text.parse::<u8>().ok());
    if number.and_then(level).is_some() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "invalid value '{}' for {EVIDENCE_VARIABLE}: must be 0, 1 or 2; unset it for the highest level \
         that works",
        value.to_string_lossy()
    )))
}

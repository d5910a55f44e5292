//! Pauses between attempts.

use std::time::Duration;

/// The shortest pause.
const MIN: Duration = Duration::from_millis(50);
/// The longest pause.
const MAX: Duration = Duration::from_secs(2);

/// Returns the pause before an attempt, numbered from 1.
pub(crate) fn pause(attempt: u32) -> Duration {
    MAX.min(MIN * 2u32.saturating_pow(attempt.min(8)))
}

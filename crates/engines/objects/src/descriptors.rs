//! How many requests the limit on open files permits.

use crate::error::{Action, Kind, ObjectError};
use crate::location::Location;
use ioloom_sys::proc::open_files_limit;

/// Descriptors of an event loop and the statistics of its thread.
const LANE: u64 = 4;
/// Kept free for listings, requests for credentials, and the caller.
const RESERVE: u64 = 6;
/// Descriptors of a request: its connection, and the files of its object.
const REQUEST: u64 = 3;

/// Returns how many requests may be in flight at most. `lanes` event loops are opened later. `least` requests are
/// needed.
///
/// # Errors
///
/// Returns an error of the kind [`Kind::Descriptors`] if the limit does not permit `least` connections.
pub(crate) fn requests_max(
    location: &Location,
    lanes: u32,
    least: u32,
) -> Result<u32, ObjectError> {
    let Some(limit) = open_files_limit() else { return Ok(u32::MAX) };
    // Without /proc only the standard streams are known.
    let open = std::fs::read_dir("/proc/self/fd").map_or(3, |all| all.count() as u64);
    permitted(limit, open + u64::from(lanes) * LANE + RESERVE, least)
        .map_err(|reason| ObjectError::new(Action::Open, location.url(), Kind::Descriptors, reason))
}

/// Returns how many requests a limit permits apart from `other` descriptors.
fn permitted(limit: u64, other: u64, least: u32) -> Result<u32, String> {
    // One with the files of its object, or all with connections only.
    let needed = other + u64::from(least).max(REQUEST);
    if needed > limit {
        return Err(format!(
            "at least {needed} open files are needed in total, but the limit is {limit}"
        ));
    }
    let most = u32::try_from((limit - other) / REQUEST).unwrap_or(u32::MAX);
    Ok(most.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_permits_requests_or_is_refused() {
        assert_eq!(permitted(60, 24, 1), Ok(12));
        assert_eq!(permitted(27, 24, 1), Ok(1));
        assert_eq!(permitted(60, 24, 36), Ok(36), "connections alone");
        assert_eq!(permitted(u64::MAX, 24, 1), Ok(u32::MAX));
        for (limit, least, needed) in [(26, 1, 27), (59, 36, 60)] {
            let reason = permitted(limit, 24, least).unwrap_err();
            assert!(reason.starts_with(&format!("at least {needed} open files")), "{reason}");
        }
    }
}

//! Error codes of the numbered protocol and of RESP.

use crate::answer::{Fault, Stop};
use crate::stock::Refused;

/// Returns the code of a malformed request.
pub(super) fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::Command => "unknown-command",
        Fault::Number => "bad-number",
        Fault::TooLong => "too-long",
        Fault::Frame => "bad-frame",
        Fault::Version => "unknown-version",
        Fault::Token => "no-token",
        Fault::Rights => "read-only",
        Fault::Host => "bad-host",
    }
}

/// Returns the code of a refused order.
pub(super) fn refusal(why: Refused) -> &'static str {
    match why {
        Refused::NotEnough => "not-enough",
        Refused::UnknownStock => "unknown-stock",
        Refused::TooMany => "too-many",
    }
}

/// Returns the code of a request that was not executed, or whose outcome is unknown.
pub(super) fn stop(why: Stop) -> &'static str {
    match why {
        Stop::Busy => "busy",
        Stop::Late => "late",
        Stop::TooOld => "too-old",
        Stop::Unsure => "unknown-outcome",
    }
}

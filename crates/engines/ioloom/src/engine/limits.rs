//! The memory and file descriptors that a plan needs, checked before any file is opened.

use crate::error::Error;
use crate::fetch::{self, FIRST_READ};
use crate::required::{self, FIRST_READ_MIN};
use ioloom_model::layout::{Layout, RING_MAX};
use ioloom_model::{Method, Plan, ReadAhead};

/// Returns the bytes of a first buffer, or refuses a plan whose buffers do not fit the budget.
pub(super) fn first_bytes(plan: &Plan, at_once: u64) -> Result<u64, Error> {
    if plan.method == Method::Null || plan.method.is_mmap() {
        return Ok(0);
    }
    if let Some(chunk) = plan.chunk_bytes {
        return Ok(chunk);
    }
    // Half of the budget is for first buffers, the other half for files that turn out to be large.
    let room = plan.memory_bytes / 2 / at_once.max(1);
    let first = FIRST_READ.min(room / FIRST_READ_MIN * FIRST_READ_MIN);
    if first < FIRST_READ_MIN {
        return Err(Error::Refused(format!(
            "{plan}: {at_once} files at once need a memory budget of at least {}; raise memory=",
            ioloom_model::units::format_size(required::memory_bytes(at_once))
        )));
    }
    Ok(first)
}

/// Refuses a plan that may open too many files. Returns how many descriptors another one leaves under the
/// limit.
pub(super) fn refuse_too_many_files(
    plan: &Plan,
    layout: &Layout,
    at_once: u64,
) -> Result<u64, Error> {
    let ring = match layout.window {
        ReadAhead::All => at_once,
        ReadAhead::Files(_) => u64::from(layout.window_of(0, at_once)),
    };
    if plan.method.needs_ring() && ring > u64::from(RING_MAX) {
        return Err(Error::Refused(format!(
            "{plan}: {ring} requests in flight exceed the limit of {RING_MAX} per ring; use a \
             smaller window"
        )));
    }
    let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    let wanted = required::descriptors(plan, layout, at_once);
    let needed = required::open_files_limit(wanted);
    if matches!(plan.method, Method::Null) || needed <= limit {
        return Ok(limit.saturating_sub(needed));
    }
    let files = counted(at_once, "file");
    let threads = counted(wanted - at_once, "descriptor");
    let smaller = if at_once > 1 { ", or use a plan with fewer files at once" } else { "" };
    Err(Error::Refused(format!(
        "the plan {plan} opens up to {files} at once, its threads use {threads}, and {} are kept \
         free: {needed} in total, but the limit is {limit}; raise the limit with \
         'ulimit -n {needed}'{smaller}",
        needed - wanted
    )))
}

/// Returns a number with its noun.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns the largest buffer that is always available: the budget without first buffers. In chunk
/// form no thread holds two buffers, so it is the whole budget.
pub(super) fn whole_max(plan: &Plan, layout: &Layout, at_once: u64, first_bytes: u64) -> u64 {
    let first = match (plan.method, plan.chunk_bytes) {
        (_, Some(_)) => 0,
        (Method::UringRegistered, None) => {
            let reading = layout.roles().enumerate().filter(|(_, role)| role.reads());
            let buffers: u64 =
                reading.map(|(number, _)| u64::from(layout.window_of(number, at_once))).sum();
            buffers * fetch::REGISTERED_BYTES as u64
        }
        _ => at_once * crate::arena::rounded(first_bytes),
    };
    plan.memory_bytes.saturating_sub(first) / FIRST_READ_MIN * FIRST_READ_MIN
}

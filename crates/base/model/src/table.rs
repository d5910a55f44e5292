//! Rules for which plans can run.
//!
//! Incompatible methods and schedules, and options without effect, are refused here before anything
//! is opened. Restrictions that depend on the machine (a file system without direct I/O, a kernel
//! without io_uring) are probed and refused by the engine. [`crate::layout`] determines how valid
//! plans run.

use crate::{Buffers, Method, Plan, Schedule, Tuning};

/// Least memory budget of a plan.
pub const MEMORY_LEAST_BYTES: u64 = 64 << 10;

/// Returns why a method cannot run under a schedule, or `None` if it can.
pub const fn refusal(method: Method, schedule: &Schedule) -> Option<&'static str> {
    match (schedule, method) {
        (
            Schedule::Window { .. },
            Method::MmapPlain | Method::MmapSequential | Method::MmapPopulate,
        ) => Some(
            "a window requires a method that can read ahead; the only such mmap method is \
            mmap:willneed; use it or the threads schedule",
        ),
        _ => None,
    }
}

/// Checks a plan.
///
/// # Errors
///
/// Returns the reason if no machine can run the plan as specified.
pub fn check(plan: &Plan) -> Result<(), String> {
    let refuse = |reason: &str| Err(format!("{plan}: {reason}"));
    if let Some(reason) = refusal(plan.method, &plan.schedule) {
        return refuse(reason);
    }
    // A plan that is built as a value did not pass the parser.
    if let Some(reason) = plan.schedule.refusal().or_else(|| plan.refusal_of_options()) {
        return refuse(reason);
    }
    if plan.method.is_mmap() && plan.buffers != Buffers::Pool {
        return refuse("mmap uses no buffers; omit buffers=");
    }
    if plan.method == Method::Null && plan.buffers != Buffers::Pool {
        return refuse("null uses no buffers; omit buffers=");
    }
    if plan.method == Method::UringRegistered && plan.buffers != Buffers::Pool {
        return refuse("registered buffers are always pooled; use plain uring with buffers=fresh");
    }
    let windowed = matches!(plan.schedule, Schedule::Window { .. });
    if plan.blocking.is_some() && !(plan.method == Method::Nowait && windowed) {
        return refuse("blocking= requires the method nowait and the schedule window");
    }
    if plan.tuning != Tuning::Fixed && !(plan.method == Method::Nowait && windowed) {
        return refuse("auto requires the method nowait and the schedule window");
    }
    if plan.memory_bytes < MEMORY_LEAST_BYTES {
        return refuse("memory must be at least 64KiB");
    }
    if let Some(chunk) = plan.chunk_bytes {
        if plan.schedule.name() == "roles" {
            return refuse(
                "the roles schedule does not preserve chunk order; use the threads or window \
                schedule",
            );
        }
        if plan.method.is_direct() && chunk % 4096 != 0 {
            return refuse("chunks of direct reads must be a multiple of 4KiB");
        }
        if chunk > plan.memory_bytes {
            return refuse("one chunk does not fit the memory budget");
        }
        if plan.method.is_mmap() {
            return refuse("mmap maps whole files; omit chunk= or use another method");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HybridOrder, ReadAhead};

    #[test]
    fn refused_pairs_come_with_advice() {
        let refused = Method::ALL.into_iter().filter_map(|method| {
            ["threads:n=2", "window:l=8,p=2", "roles:r=1,h=1,c=1"]
                .into_iter()
                .find_map(|text| refusal(method, &text.parse().unwrap()))
        });
        let reasons: Vec<&str> = refused.collect();
        assert_eq!(reasons.len(), 3);
        assert!(reasons.iter().all(|reason| reason.contains("use")), "{reasons:?}");
    }

    /// Values that no text has.
    #[test]
    fn counts_of_constructed_plans_are_checked() {
        let roles = |readers, hybrids, computers, window| Schedule::Roles {
            readers,
            hybrids,
            computers,
            window,
            open_limit: None,
            order: HybridOrder::ReadFirst,
        };
        let one = ReadAhead::Files(1);
        for (schedule, part) in [
            (Schedule::Threads { n: 0 }, "n must be"),
            (Schedule::Threads { n: u32::MAX }, "n must be"),
            (Schedule::Window { window: 0, permits: None }, "l must be"),
            (Schedule::Window { window: 1, permits: Some(0) }, "p must be"),
            (roles(0, 0, 1, one), "no thread reads"),
            (roles(1, 0, 0, one), "no thread computes"),
            (roles(u32::MAX, 2, 0, one), "at most 4096"),
            (roles(1, 0, 1, ReadAhead::Files(0)), "w and open"),
        ] {
            let error = check(&Plan::new(Method::Nowait, schedule)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let plan = Plan::auto(Tuning::Fixed);
        assert_eq!(check(&plan), Ok(()));
        for (plan, part) in [
            (Plan { chunk_bytes: Some(0), ..plan }, "chunk must be at least one byte"),
            (Plan { stripe: 0, ..plan }, "stripe must be 1 to 65536"),
            (Plan { blocking: Some(0), ..plan }, "blocking must be 1 to 4096"),
        ] {
            let error = check(&plan).unwrap_err();
            assert!(error.ends_with(part), "{error}");
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        for text in [
            "mmap:plain/window:l=4",
            "mmap:plain/threads:n=1/buffers=fresh",
            "direct:read/threads:n=1/chunk=1000",
            "read/roles:r=1,c=1/chunk=4KiB",
            "read/threads:n=1/chunk=1GiB",
            "read/threads:n=1/memory=1KiB",
            "read/window:l=4/blocking=8",
            "nowait/threads:n=1/blocking=8",
            "uring/window:l=4/auto",
            "nowait/threads:n=1/auto=polite",
        ] {
            let plan: Plan = text.parse().unwrap();
            assert!(check(&plan).is_err(), "{text}");
        }
        let reason = check(&"read/window:l=32/auto".parse().unwrap()).unwrap_err();
        assert!(reason.ends_with("requires the method nowait and the schedule window"), "{reason}");
    }
}

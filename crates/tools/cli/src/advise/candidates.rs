//! The plans that a trial compares.

use ioloom::Method::{self, DirectUring, Nowait, Read, Uring, UringOpen};
use ioloom::{Plan, Schedule, Tuning};
use ioloom_model::schedule::THREADS_MAX;

/// Size from which a file is large: the device then limits bytes rather than requests.
pub(super) const LARGE: f64 = (1 << 20) as f64;

/// Returns the plan that the others are compared with.
pub(super) fn default_plan() -> Plan {
    let default = ioloom::default_plan(ioloom::default_memory_bytes());
    Plan { tuning: Tuning::Fixed, ..default }
}

/// Returns a plan of an earlier trial with the present memory budget: the limit of the control group may
/// have been another one.
pub(super) fn budgeted(plan: Plan) -> Plan {
    Plan { memory_bytes: ioloom::default_memory_bytes(), ..plan }
}

/// Returns the plans to compare, most promising first; the default is the first, and all have its memory
/// budget. `mean` is the mean size of a file; `cold`: files come from a device.
pub(super) fn candidates(default: Plan, mean: f64, cold: bool, cores: u32) -> Vec<Plan> {
    let window = |method, window| window_of(default, method, window, cores);
    let threads = |n| threads_of(default, n);
    let auto = Plan { tuning: Tuning::Auto, ..default };
    let plans = match (mean >= LARGE, cold) {
        (false, true) => vec![
            window(UringOpen, 256),
            window(Read, 128),
            window(Nowait, 64),
            auto,
            window(Read, 32),
            threads(cores),
            window(UringOpen, 64),
            window(Nowait, 16),
            window(Read, 8),
        ],
        (true, true) => vec![
            window(Read, 8),
            window(DirectUring, 8),
            window(DirectUring, 32),
            auto,
            window(Read, 32),
            threads(cores),
            window(Uring, 32),
            window(Nowait, 16),
        ],
        (_, false) => {
            vec![threads(cores), window(Nowait, 64), threads(4 * cores), window(UringOpen, 64)]
        }
    };
    let mut all = vec![default];
    for plan in plans {
        if !all.contains(&plan) {
            all.push(plan);
        }
    }
    all
}

/// Returns a window of a method; of reads that do not block, one like the default in everything else.
fn window_of(default: Plan, method: Method, window: u32, cores: u32) -> Plan {
    let schedule = Schedule::Window { window, permits: Some(cores) };
    match method {
        Nowait => Plan { schedule, ..default },
        _ => Plan { memory_bytes: default.memory_bytes, ..Plan::new(method, schedule) },
    }
}

/// Returns threads that read one file each, at most as many as a plan may have.
fn threads_of(default: Plan, n: u32) -> Plan {
    let n = n.min(THREADS_MAX);
    let plan = Plan::new(Method::Read, Schedule::Threads { n });
    Plan { memory_bytes: default.memory_bytes, ..plan }
}

/// Returns the plans of an exhaustive sweep.
pub(super) fn sweep(default: Plan, mean: f64, cores: u32) -> Vec<Plan> {
    let mut all = candidates(default, mean, true, cores);
    let more = |method, windows: &[u32]| {
        windows.iter().map(|window| window_of(default, method, *window, cores)).collect::<Vec<_>>()
    };
    all.extend(more(Method::Nowait, &[4, 16, 64, 256]));
    all.extend(more(Method::Read, &[2, 8, 32, 128, 256]));
    all.extend(more(Method::Uring, &[16, 64, 256]));
    all.extend(more(Method::UringOpen, &[16, 64, 256]));
    all.extend(more(Method::DirectUring, &[2, 8, 32]));
    all.extend([1, cores, 2 * cores, 4 * cores].map(|n| threads_of(default, n)));
    let mut once = Vec::new();
    for plan in all {
        if !once.contains(&plan) {
            once.push(plan);
        }
    }
    once
}

/// Returns the requests in flight of a plan at most.
pub(super) fn window(plan: &Plan) -> u32 {
    match plan.schedule {
        Schedule::Window { window, .. } => window,
        Schedule::Threads { n } => n,
        Schedule::Roles { readers, hybrids, .. } => readers + hybrids,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::layout::layout;

    #[test]
    fn every_candidate_can_run_and_is_listed_once() {
        let default = default_plan();
        for (mean, cold) in [(4e3, true), (4e3, false), (3e7, true), (3e7, false)] {
            let plans = candidates(default, mean, cold, 2);
            assert_eq!(plans[0].method, Method::Nowait, "the default is the first");
            for set in [plans, sweep(default, mean, 2)] {
                for (i, plan) in set.iter().enumerate() {
                    assert!(layout(plan).is_ok(), "{plan}");
                    assert!(!set[..i].contains(plan), "{plan} is listed twice");
                    assert!(window(plan) >= 1);
                }
            }
        }
    }

    #[test]
    fn candidates_are_accepted_with_very_many_cores() {
        let default = default_plan();
        for plan in [candidates(default, 4e3, false, 2000), sweep(default, 4e3, 2000)].concat() {
            let schedule = plan.schedule;
            assert!(schedule.to_string().parse::<Schedule>().is_ok(), "{plan}");
        }
    }

    #[test]
    fn every_candidate_has_the_memory_budget_of_the_default() {
        let default = Plan { memory_bytes: 64 << 20, ..default_plan() };
        for (mean, cold) in [(4e3, true), (3e7, true), (4e3, false)] {
            for plan in [candidates(default, mean, cold, 2), sweep(default, mean, 2)].concat() {
                assert_eq!(plan.memory_bytes, 64 << 20, "{plan}");
            }
        }
    }

    #[test]
    fn the_plan_of_an_earlier_trial_gets_the_memory_budget_of_the_default() {
        let default = default_plan();
        assert_eq!(budgeted(Plan { memory_bytes: 1 << 20, ..default }), default);
    }
}

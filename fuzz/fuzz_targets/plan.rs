//! Plans and their schedules: no input causes a panic, and plans survive a round trip through text.
#![no_main]

use ioloom_model::{Method, Plan, Schedule, table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = text.parse::<Method>();
    if let Ok(schedule) = text.parse::<Schedule>() {
        assert_eq!(schedule.to_string().parse::<Schedule>().ok(), Some(schedule));
    }
    if let Ok(plan) = text.parse::<Plan>() {
        assert_eq!(plan.to_string().parse::<Plan>().ok(), Some(plan));
        // May be accepted or refused; complete plans need at least one thread.
        let _ = table::check(&plan);
        assert!(plan.complete(1).threads() > 0);
    }
});

//! Kinds of work: no input causes a panic, and parsed values survive a round trip through text.
#![no_main]

use ioloom_model::Compute;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > 512 {
        return;
    }
    if let Ok(work) = text.parse::<Compute>() {
        assert!(work.to_string().parse::<Compute>().is_ok(), "{text} → {work}");
        let _ = work.demand_ns(None, 7, 3);
    }
});

//! Sizes and durations: no input causes a panic, and parsed values survive a round trip through
//! text.
#![no_main]

use ioloom_model::units::{parse_duration_ns, parse_size, spell_ns, spell_size};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(bytes) = parse_size(text) {
        assert_eq!(parse_size(&spell_size(bytes)).ok(), Some(bytes));
    }
    if let Ok(ns) = parse_duration_ns(text) {
        assert_eq!(parse_duration_ns(&spell_ns(ns)).ok(), Some(ns));
    }
});

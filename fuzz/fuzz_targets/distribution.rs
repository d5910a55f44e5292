//! Distributions: no input causes a panic, every parsed distribution can be drawn from, and the
//! same position in the same stream gives the same value.
#![no_main]

use ioloom_model::Distribution;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Longer inputs only repeat parts, and each draw from a part takes time.
    if text.len() > 512 {
        return;
    }
    if let Ok(shape) = text.parse::<Distribution>() {
        for index in [0, 1, u64::MAX] {
            assert_eq!(shape.value(7, index), shape.value(7, index));
        }
        assert!(shape.to_string().parse::<Distribution>().is_ok(), "{text} → {shape}");
    }
});

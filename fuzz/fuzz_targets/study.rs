//! Study files: no input causes a panic, and errors refer to a line of the input.
#![no_main]

use ioloom_lab::spec::{SpecError, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(SpecError::Text { line, .. }) = parse(text, "fuzz") {
        assert!(line >= 1 && line <= text.lines().count().max(1) + 1, "line {line}");
    }
});

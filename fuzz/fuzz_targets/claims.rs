//! Ledger files and their formulas: no input causes a panic.
#![no_main]

use ioloom_claims::{formula, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = load([("fuzz", text)]);
    let _ = formula::names(text);
    let _ = formula::evaluate(text, |name| Some(name.len() as f64));
});

//! /proc/self/mountinfo, in which paths are bytes with escapes.
#![no_main]

use ioloom_sys::mount::parse_mountinfo;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    assert!(parse_mountinfo(text).len() <= text.split(|&b| b == b'\n').count());
});

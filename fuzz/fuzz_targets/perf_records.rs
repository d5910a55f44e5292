//! Perf ring records: no input causes a panic, and every iteration terminates.
#![no_main]

use ioloom_sys_trace::perf::record::records;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!(records(bytes).count() <= bytes.len() / 8 + 1);
});

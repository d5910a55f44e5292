//! The kernel's texts under /proc: whatever stands there, reading ends with a value or with none.
#![no_main]

use ioloom_sys::proc::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = parse::parse_io(text);
    let _ = parse::parse_status(text);
    let _ = parse::parse_smaps_rollup(text);
    let _ = parse::parse_schedstat(text);
    let _ = parse::parse_system_stat(text);
    let _ = parse::parse_process_stat(text);
    let _ = parse::parse_diskstats(text);
    let _ = parse::parse_disk_stat(text);
    let _ = parse::parse_inflight(text);
});

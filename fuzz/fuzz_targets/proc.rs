//! Files under /proc: any contents parse to a value or to `None`.
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
    let _ = parse::parse_mapped_files(text).count();
    let _ = parse::parse_disk_counters(text);
    let _ = parse::parse_pressure(text);
    // Parse two inputs in a row: the second is read at the offsets of the first.
    let mut keyed = ioloom_sys::proc::Keyed::new(&["a", "nr_dirty", "MemFree"]);
    let mut values = [None; 3];
    for half in text.split('\0').take(4) {
        keyed.read(half, &mut values);
    }
});

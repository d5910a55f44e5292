//! Runs each scenario on a small file and checks the results.

use super::*;
use crate::run_on_set::run_on_set;

const BYTES: u64 = 2 << 20;

/// Runs a plan on a set of one file; `None` if it is refused.
fn run_plan(plan: &str) -> Option<Measured> {
    run_on_set(&PageCache, plan, "count=1,size=2MiB", "cachestat is not available")
}

#[test]
fn the_second_reading_needs_no_device() {
    // During a run, other programs can drop the caches of the machine or need its memory.
    for _ in 0..20 {
        let Some(seen) = run_plan("pagecache:read-twice/block=64KiB") else { return };
        let bytes = BYTES as f64;
        assert_eq!(seen.extra["file_bytes"], bytes);
        assert!(seen.extra["device_cold_bytes"] >= bytes, "{:?}", seen.extra);
        assert!(seen.extra["pagein_cold_bytes"] >= bytes);
        assert!(seen.extra["cold_ns"] > 0.0 && seen.elapsed_ns > 0);
        if seen.extra["resident_after_bytes"] == bytes && seen.extra["device_warm_bytes"] == 0.0 {
            return;
        }
    }
    panic!("the second reading needed the device in each of 20 runs");
}

#[test]
fn a_removed_file_is_never_written() {
    // A `sync` by another program between the write and the removal would write the file.
    for _ in 0..20 {
        let Some(seen) = run_plan("pagecache:write/end=rm,bytes=2MiB") else { return };
        assert!(!seen.extra.contains_key("durable_ns"), "a removed file is not durable");
        if seen.extra["cancelled_bytes"] > 0.0 {
            return;
        }
    }
    panic!("a removed file was written to the device in each of 20 runs");
}

#[test]
fn durable_is_what_was_flushed() {
    let Some(seen) = run_plan("pagecache:write/end=fdatasync,bytes=2MiB") else { return };
    assert!(seen.extra["durable_ns"] >= seen.extra["returned_ns"], "{:?}", seen.extra);
    assert_eq!(seen.extra["resident_after_bytes"], BYTES as f64);
    for how in ["sync", "dsync"] {
        let plan = format!("pagecache:write/how={how},block=64KiB,bytes=2MiB");
        let Some(seen) = run_plan(&plan) else { return };
        assert_eq!(seen.extra["unwritten_bytes"], 0.0, "{how}");
        assert_eq!(seen.extra["durable_ns"], seen.extra["returned_ns"]);
    }
}

#[test]
fn a_file_left_to_writeback_is_written_or_not() {
    let Some(seen) = run_plan("pagecache:write/end=left,bytes=2MiB,wait=1") else { return };
    // The kernel may or may not write it within a second.
    let left = seen.extra["unwritten_end_bytes"];
    assert_eq!(left == 0.0, seen.extra.contains_key("settled_ns"), "{:?}", seen.extra);
    assert!(left <= BYTES as f64 && !seen.extra.contains_key("durable_ns"));
    assert!(left == 0.0 || seen.elapsed_ns >= 1_000_000_000);
}

#[test]
fn direct_writes_leave_nothing_behind() {
    let Some(seen) = run_plan("pagecache:write/how=direct,bytes=2MiB") else { return };
    assert_eq!(seen.extra["resident_after_bytes"], 0.0);
    assert!(seen.extra["pageout_bytes"] >= BYTES as f64);
}

#[test]
fn limits_are_recorded_with_what_they_are_shares_of() {
    // Other programs can free memory during a run.
    for _ in 0..20 {
        let Some(seen) = run_plan("pagecache:limits") else { return };
        assert!(seen.extra["dirty_limit_bytes"] > seen.extra["background_limit_bytes"]);
        assert!(seen.extra["available_bytes"] <= seen.extra["total_bytes"]);
        if ioloom_sys::cgroup::memory_limit_bytes().is_some() {
            return;
        }
        assert!(seen.extra["held_bytes"] > 0.0 && seen.extra["dirty_limit_held_bytes"] > 0.0);
        if seen.extra["available_held_bytes"] < seen.extra["available_bytes"] {
            return;
        }
    }
    panic!("memory that was held was available in each of 20 runs");
}

#[test]
fn files_written_in_a_row_are_all_told() {
    let Some(seen) = run_plan("pagecache:again/runs=6,bytes=1MiB") else { return };
    assert_eq!(seen.curves["series"].len(), 6);
    assert!(seen.extra["fastest_ns"] <= seen.extra["slowest_ns"], "{:?}", seen.extra);
    assert_eq!(seen.extra["file_bytes"], (1 << 20) as f64);
}

#[test]
fn a_device_that_may_not_be_opened_is_refused_with_what_to_do() {
    let reason = device::probe(Path::new("/proc")).unwrap_err();
    assert!(reason.contains("is on proc") && reason.contains("; run as root"), "{reason}");
    if let Some(seen) = run_plan("pagecache:device/bytes=1MiB") {
        assert_eq!(seen.extra["equal_bytes"], (1 << 20) as f64, "{:?}", seen.extra);
    }
}

#[test]
fn nothing_is_written_in_a_directory_of_the_user() {
    let own = tempfile::tempdir().unwrap();
    for plan in [
        "pagecache:write/end=rm,bytes=2MiB",
        "pagecache:write/how=direct,bytes=2MiB",
        "pagecache:again/runs=6,bytes=1MiB",
        "pagecache:reclaim/limit=64MiB",
        "pagecache:drop",
        "pagecache:device/bytes=1MiB",
    ] {
        let plan: AnyPlan = plan.parse().unwrap();
        let reason = PageCache.probe(&plan, &Compute::None, own.path()).unwrap_err();
        assert!(reason.contains("omit --files"), "{plan}: {reason}");
    }
    let read: AnyPlan = "pagecache:read-twice/block=64KiB".parse().unwrap();
    let refused = PageCache.probe(&read, &Compute::None, own.path()).err();
    assert!(refused.is_none_or(|reason| !reason.contains("omit --files")), "only reads");
}

#[test]
fn a_command_whose_output_may_not_be_written_never_begins() {
    let Some(seen) = run_plan("pagecache:shell") else { return };
    let seen = &seen.extra;
    assert!(seen["shells"] >= 1.0 && seen["sh_there"] == 1.0, "{seen:?}");
    assert_eq!((seen["shells_began"], seen["target_kept"]), (0.0, 1.0), "{seen:?}");
    assert!(seen["sh_exit_code"] > 0.0, "{seen:?}");
    let own = format!("ioloom-shell-{}-", std::process::id());
    for entry in std::fs::read_dir(std::env::temp_dir()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with(&own), "{} is left", name.display());
    }
}

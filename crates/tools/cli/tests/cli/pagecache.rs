//! Page cache scenarios that need explicit permission or a control group, each in a child process as
//! in a study.

use crate::home::Home;
use ioloom_testbed::Disk;
use serde_json::Value;
use std::path::Path;

/// A study of one scenario on a 24 MiB file.
fn study(plan: &str) -> String {
    format!(
        r#"
name = "tiny"
title = "A small question"
subject = "pagecache"
question = "What does one scenario show?"
quick_budget_s = 600
[sets.T]
about = "One file."
full = {{ count = 1, size = "24MiB", layout = "flat", seed = 3 }}
[[experiment]]
name = "one"
question = "What?"
sets = ["T"]
conditions = ["as-is"]
blocks_quick = 1
[[experiment.arm]]
name = "play"
plan = "{plan}"
headline = true
"#
    )
}

/// Returns the outcome of the first run of a scenario with its file set in a directory.
fn scenario_in(sets: &Path, plan: &str) -> Value {
    let home = Home::new();
    let dir = home.studies(&study(plan));
    let ran = home.run(&["study", "tiny", "--studies", &dir, "--dir", sets.to_str().unwrap()]);
    let outcome = home.records()[0]["outcome"].clone();
    let code = match outcome["kind"].as_str().unwrap() {
        "done" => 0,
        "refused" => 3,
        _ => 1,
    };
    // One of the runs repeats the arm, and its outcome can differ.
    let is_mixed = home.records().iter().any(|run| run["outcome"]["kind"] != outcome["kind"]);
    assert!(is_mixed || ran.code == Some(code), "{:?}: {}", ran.code, ran.err);
    outcome
}

/// Returns how many times any process dropped the caches of the machine.
fn drops() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("drop_pagecache "))?;
    line.parse().ok()
}

/// Returns the numbers of a scenario during which no caches were dropped. If the scenario is refused,
/// prints a message and returns `None`.
fn numbers_of(sets: &Path, plan: &str) -> Option<Value> {
    for _ in 0..20 {
        let before = drops();
        let outcome = scenario_in(sets, plan);
        if outcome["kind"] != "done" {
            let reason = outcome["reason"].as_str().unwrap();
            println!("skipped: {reason}");
            let known = ["; ", "cachestat is not available", "cannot be made cold"];
            assert!(known.iter().any(|words| reason.contains(words)), "{reason}");
            return None;
        }
        if drops() == before {
            return Some(outcome["measured"]["extra"].clone());
        }
    }
    panic!("{plan}: other processes keep dropping the caches of this machine");
}

fn of(extra: &Value, name: &str) -> f64 {
    extra[name].as_f64().unwrap_or_else(|| panic!("no {name}: {extra}"))
}

/// A private disk can be opened even if the machine's disk cannot.
#[test]
fn a_file_and_its_device_have_a_page_each_of_the_same_bytes() {
    let own_dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Some(disk) = Disk::make(&own_dir.path().join("image"), 600 << 20) else { return };
    let Some(extra) = numbers_of(disk.path(), "pagecache:device/bytes=4MiB") else { return };
    let range = (4 << 20) as f64;
    for (name, wanted) in [
        ("equal_bytes", range),
        ("file_pages_by_file_bytes", range),
        ("device_pages_by_file_bytes", 0.0),
        ("file_pages_by_device_bytes", range),
        ("device_pages_by_device_bytes", range),
        ("device_pages_after_advice_bytes", 0.0),
        ("fresh_new_after_advice_bytes", of(&extra, "fresh_bytes")),
        // The device pages are independent of the file pages, and the kernel decides when to write the
        // file.
        ("fresh_old_after_sync_bytes", of(&extra, "fresh_old_before_sync_bytes")),
    ] {
        assert_eq!(of(&extra, name), wanted, "{name}: {extra}");
    }
    assert!(of(&extra, "read_by_device_bytes") >= range, "{extra}");
}

#[test]
fn the_caches_of_the_system_are_dropped_only_on_request() {
    let sets = tempfile::tempdir().unwrap();
    let outcome = scenario_in(sets.path(), "pagecache:drop/bytes=1MiB");
    assert_eq!(outcome["kind"], "refused", "{outcome}");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(reason.contains("allow it with --drop-caches as root"), "{reason}");
}

/// The limit of a 64 MiB group determines which data it can contain and read back. The scenario itself
/// checks that no dirty data is lost.
#[test]
fn pages_evicted_from_a_small_group_are_read_again() {
    let sets = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let numbers = numbers_of(sets.path(), "pagecache:reclaim/limit=64MiB");
    let Some(extra) = numbers else { return };
    let of = |name: &str| of(&extra, name);
    let kind = (24 << 20) as f64;
    assert_eq!((of("limit_bytes"), of("taken_bytes")), ((64 << 20) as f64, 2.0 * kind));
    for sort in ["clean_before_bytes", "changed_before_bytes"] {
        // The group is also charged for kernel memory.
        assert!((kind / 2.0..=kind).contains(&of(sort)), "{sort}: {extra}");
    }
    let left = of("clean_after_bytes") + of("changed_after_bytes");
    assert!(left + of("taken_bytes") <= of("limit_bytes"), "exceeds the limit: {extra}");
    // Data not in memory is read from the device, and refaults are a subset of these pages.
    let gone = kind - of("clean_after_bytes");
    assert!(of("again_device_bytes") >= gone, "{extra}");
    assert!(of("refaulted_bytes") <= of("again_device_bytes") + 1e6, "{extra}");
    assert!(of("refaulted_bytes") > 0.0, "no refaults were counted: {extra}");
    for part in ["eighth", "half"] {
        for sort in ["clean", "changed"] {
            let went = of(&format!("{sort}_gone_at_{part}_bytes"));
            assert!((0.0..=kind).contains(&went), "{sort} at {part}: {extra}");
        }
    }
}

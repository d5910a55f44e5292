//! Runs each scenario on a small file and checks the results.

use super::*;

const BYTES: f64 = 3_333_333.0;

/// Runs a plan on a set; `None` if it is refused.
fn run_on_set(plan: &str, set_text: &str) -> Option<Measured> {
    crate::run_on_set::run_on_set(&Copy, plan, set_text, "cannot be proved")
}

fn run_plan(plan: &str) -> Option<Measured> {
    run_on_set(plan, "count=1,size=3333333")
}

#[test]
fn every_way_gives_the_same_bytes_and_its_times_are_in_order() {
    let mut digests = std::collections::BTreeSet::new();
    for way in
        ["seed003-buffered", "seed003-direct", "buffered", "uncached", "range", "mmap", "auto"]
    {
        let Some(seen) = run_plan(&format!("copy:{way}/source=warm")) else { continue };
        let number = |name: &str| seen.extra[name];
        assert_eq!(number("file_bytes"), BYTES);
        assert!(number("durable_ns") >= number("returned_ns"), "{way}: {:?}", seen.extra);
        if let Some(settled) = seen.extra.get("settled_ns") {
            assert!(*settled >= number("durable_ns"), "{way}");
        }
        digests.extend((!seen.digest.is_empty()).then_some(seen.digest));
    }
    assert!(digests.len() <= 1, "{digests:?}");
}

#[test]
fn a_copy_past_the_cache_leaves_no_more_than_its_last_page_in_it() {
    let Some(seen) = run_plan("copy:direct/block=64KiB,depth=4,source=cold") else { return };
    // On truncation of the padded end, the kernel zeroes the rest of one page in memory.
    let page = ioloom_sys::proc::page_bytes() as f64;
    assert!(seen.extra["target_resident_bytes"] <= page, "{:?}", seen.extra);
    assert!(seen.extra["copy_device_bytes"] >= BYTES * 0.99, "{:?}", seen.extra);
    if let Some(read) = seen.extra.get("reader_device_bytes") {
        assert!(*read >= BYTES * 0.99, "{:?}", seen.extra);
    }
}

#[test]
fn a_verified_copy_records_where_its_bytes_came_from() {
    let Some(seen) = run_plan("copy:buffered/verify=device") else { return };
    assert_eq!(seen.extra["verified"], 2.0, "{:?}", seen.extra);
    assert!(seen.extra["verify_device_bytes"] >= BYTES * 0.99, "{:?}", seen.extra);
    let Some(seen) = run_plan("copy:buffered/verify=cache") else { return };
    assert_eq!(seen.extra["verified"], 1.0);
}

#[test]
fn a_series_records_every_copy() {
    for target in ["new", "over", "kept"] {
        let plan = format!("copy:series/way=seed003-buffered,runs=6,target={target}");
        let Some(seen) = run_plan(&plan) else { return };
        assert_eq!(seen.curves["series"].len(), 6);
        let sum: f64 = seen.curves["series"].iter().map(|(_, ns)| ns).sum();
        assert!((sum - seen.elapsed_ns as f64).abs() <= 1.0, "{sum}");
        assert!(seen.extra["copy_slowest_ns"] >= seen.extra["copy_median_ns"]);
    }
}

#[test]
fn a_run_needs_room_for_every_copy_that_it_keeps() {
    let Ok(ioloom_fileset::SetText::Spec(spec)) = "count=1,size=1000000".parse() else { panic!() };
    let bytes = |plan: &str| Copy.writes(&plan.parse().unwrap(), &spec).bytes;
    let series =
        |target: &str| bytes(&format!("copy:series/way=seed003-buffered,runs=60,target={target}"));
    assert!(series("kept") >= 60_000_000, "{}", series("kept"));
    assert!((2_000_000..60_000_000).contains(&series("over")), "{}", series("over"));
    assert!(bytes("copy:direct/source=warm") >= 1_000_000);
    let bystander = bytes("copy:beside/way=buffered,bystander=64MiB,memory=192MiB");
    assert!(bystander >= (64 << 20) + 1_000_000, "{bystander}");
}

#[test]
fn copies_that_are_on_the_device_have_a_place() {
    for target in ["new", "over", "kept"] {
        let plan = format!("copy:series/way=seed003-direct,runs=6,target={target}");
        let Some(seen) = run_plan(&plan) else { return };
        let (known, places) = (seen.extra["places_known"], &seen.curves["place_bytes"]);
        assert_eq!((places.len() as f64, seen.curves["pieces"].len() as f64), (known, known));
        if known < 6.0 {
            println!("skipped: this file system does not report extents");
            return;
        }
        // Files that coexist cannot share blocks.
        let stayed = seen.extra["place_stayed_share"];
        assert!(target == "new" || stayed == 0.0, "{target}: {:?} {places:?}", seen.extra);
        let most = if target == "kept" { 6.0 } else { 1.0 };
        assert!(seen.extra["places"] >= most, "{target}: {:?}", seen.extra);
    }
    let Some(seen) = run_plan("copy:direct/source=warm") else { return };
    assert!(seen.extra["pieces"] >= 1.0 && seen.extra["place_bytes"] > 0.0, "{:?}", seen.extra);
}

#[test]
fn odd_requests_are_refused_or_go_through_memory() {
    let Some(seen) = run_plan("copy:requests") else { return };
    let number = |name: &str| seen.extra[name];
    assert_eq!(number("odd_asked"), 6.0);
    if number("direct_multiple_bytes") > 0.0 {
        assert_eq!(number("odd_refused"), 6.0, "{:?}", seen.extra);
    }
    assert_eq!(number("tail_descriptors"), 1.0);
    if let Some(refused) = seen.extra.get("memory_odd_refused") {
        assert_eq!(*refused, 0.0, "{:?}", seen.extra);
    }
}

#[test]
fn a_tree_is_copied_whole() {
    for plan in [
        "copy:tree/workers=2,source=warm",
        "copy:tree/source=cold",
        "copy:tree/source=given",
        "copy:tree/durable=file,source=warm",
    ] {
        let Some(seen) = run_on_set(plan, "count=60,size=uniform(min=0,max=9000),layout=deep")
        else {
            return;
        };
        assert_eq!(seen.files, 60);
        assert!(seen.extra["durable_ns"] >= seen.extra["returned_ns"]);
    }
}

#[test]
fn no_copies_are_made_in_a_directory_of_the_user() {
    let own = tempfile::tempdir().unwrap();
    let plan: AnyPlan = "copy:buffered".parse().unwrap();
    let reason = Copy.probe(&plan, &Compute::None, &own.path().join("files")).unwrap_err();
    assert!(reason.contains("omit --files"), "{reason}");
}

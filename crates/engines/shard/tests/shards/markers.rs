//! Markers of shards that run.

use super::{HOST, alone, entries, interleave, plan, runner, scratch, work};
use ioloom_shard::census::census;
use ioloom_shard::part::{Claim, Runner, name};
use ioloom_shard::plan::Plan;
use ioloom_sys::fault;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

#[test]
fn the_marker_of_a_process_that_runs_is_not_removed() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let take = |plan: &Plan, parts: &Path, started_ns| {
        let entry = plan.entry(1, 1).unwrap();
        Claim::take(plan, &entry, work("xxh3"), runner(started_ns), parts, false).unwrap()
    };
    let started = |parts: &Path| {
        let all = census(&plan, &[parts.to_owned()], HOST).unwrap();
        all.unfinished.iter().map(|begun| begun.by.started_ns).collect::<Vec<_>>()
    };
    // Another one takes the shard while the marker is written.
    let parts = scratch();
    let other = Arc::new(Mutex::new(None));
    let (set, shared, at) = (Arc::clone(&other), plan.clone(), parts.path().to_owned());
    interleave("write", 1, move || *set.lock().unwrap() = Some(take(&shared, &at, 2)));
    let first = take(&plan, parts.path(), 1);
    fault::before_each(None);
    assert_eq!(started(parts.path()), [1, 2]);
    drop((first, other.lock().unwrap().take()));
    assert!(entries(parts.path()).is_empty());
    // The second one cannot read it.
    let first = take(&plan, parts.path(), 1);
    fault::set("read-file:2:5");
    let second = take(&plan, parts.path(), 2);
    fault::set("");
    assert_eq!(started(parts.path()), [1, 2]);
    drop((first, second));
    // It is empty: that of another version, which writes it later, or was killed before.
    let marker = parts.path().join(format!(".{}.{HOST}", name(1)));
    fs::write(&marker, "").unwrap();
    drop(take(&plan, parts.path(), 1));
    assert!(marker.exists());
    let before = SystemTime::now() - Duration::from_secs(120);
    fs::File::options().write(true).open(&marker).unwrap().set_modified(before).unwrap();
    drop(take(&plan, parts.path(), 1));
    assert!(entries(parts.path()).is_empty());
}

#[test]
fn a_marker_that_replaced_one_of_a_killed_process_is_put_back() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let take = |plan: &Plan, parts: &Path, by: Runner| {
        let entry = plan.entry(1, 1).unwrap();
        Claim::take(plan, &entry, work("xxh3"), by, parts, false).unwrap()
    };
    std::mem::forget(take(&plan, parts.path(), Runner { pid: u32::MAX, ..runner(7) }));
    // Another one takes the shard after the marker was read and before it is moved.
    let other = Arc::new(Mutex::new(None));
    let (set, shared, at) = (Arc::clone(&other), plan.clone(), parts.path().to_owned());
    interleave("rename", 1, move || *set.lock().unwrap() = Some(take(&shared, &at, runner(2))));
    let first = take(&plan, parts.path(), runner(1));
    fault::before_each(None);
    let all = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
    assert_eq!(all.unfinished.iter().map(|begun| begun.by.started_ns).collect::<Vec<_>>(), [1, 2]);
    drop((first, other.lock().unwrap().take()));
    assert!(entries(parts.path()).is_empty());
}

#[test]
fn a_marker_whose_usual_name_was_taken_is_put_back_under_its_own() {
    let _alone = alone();
    let dir = scratch();
    let plan = plan(dir.path(), 1);
    let parts = scratch();
    let take = |plan: &Plan, parts: &Path, by: Runner| {
        let entry = plan.entry(1, 1).unwrap();
        Claim::take(plan, &entry, work("xxh3"), by, parts, false).unwrap()
    };
    let started = || {
        let all = census(&plan, &[parts.path().to_owned()], HOST).unwrap();
        let mut all: Vec<_> = all.unfinished.iter().map(|begun| begun.by.started_ns).collect();
        all.sort_unstable();
        all
    };
    std::mem::forget(take(&plan, parts.path(), Runner { pid: u32::MAX, ..runner(7) }));
    // The second takes the shard after the marker was read and before it is moved, the third after that.
    let others = Arc::new(Mutex::new(Vec::new()));
    let (set, shared, at) = (Arc::clone(&others), plan.clone(), parts.path().to_owned());
    let next = Mutex::new(vec![("read-file", 3), ("rename", 2)]);
    fault::before_each(Some(Box::new(move |called| {
        let Ok(mut next) = next.try_lock() else { return };
        if let Some((_, started_ns)) = next.pop_if(|(op, _)| *op == called) {
            set.lock().unwrap().push(take(&shared, &at, runner(started_ns)));
        }
    })));
    let first = take(&plan, parts.path(), runner(1));
    fault::before_each(None);
    assert_eq!(started(), [1, 2, 3]);
    drop(first);
    assert_eq!(started(), [2, 3]);
    drop(others.lock().unwrap().remove(0));
    assert_eq!(started(), [3]);
    others.lock().unwrap().clear();
    assert!(entries(parts.path()).is_empty());
}

use super::*;
use crate::account::merge_calls;

fn total(t: &ThreadTime) -> u64 {
    t.on_cpu_ns
        + t.ready_ns.unwrap_or(0)
        + t.io_ns
        + t.sync_ns
        + t.input_ns
        + t.compute_blocked_ns
        + t.unknown_ns
}

#[test]
fn the_typical_time_follows_the_calls_and_not_one_outlier() {
    let after = |values: &[u64]| values.iter().fold(0, |mean, v| moved(mean, *v));
    let mut calls = vec![300; 50];
    calls.push(4_000_000);
    assert!(after(&calls) < 500, "one preempted call");
    calls.extend([5_000_000; 60]);
    assert!(after(&calls) > 4_000_000, "calls that became slow");
    assert!(after(&[90_000, 300, 300]) <= TYPICAL_START_NS);
}

#[test]
fn a_sample_of_files_is_timed_and_all_are_counted() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    for file in 0..800 {
        meter.file_starts();
        meter.in_flight(1);
        meter.lap(CallKind::Read, file);
        meter.in_flight(0);
        meter.lap(CallKind::Compute, file);
    }
    let report = meter.finish("t".to_owned(), "worker");
    assert_eq!(total(&report.time), report.time.elapsed_ns);
    let calls = merge_calls(&[report]);
    let read = calls[&CallKind::Read];
    assert_eq!((read.count, read.timed), (800, TIMED_FIRST + 800 / TIMED_ONE_IN - 1));
    assert!(read.max_ns <= read.total_ns);
}

#[test]
fn the_largest_file_is_timed_also_between_timed_files() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    let wait = std::time::Duration::from_millis(20);
    // The 17th and the 18th are not timed.
    for file in 1..=20_usize {
        meter.file_starts();
        let began = meter.file_begins();
        let bytes = match file {
            17 => 1 << 20,
            18 => 2 << 20,
            _ => 100,
        };
        if bytes > 100 {
            std::thread::sleep(wait);
        }
        meter.lap(CallKind::Compute, file);
        meter.file_done(began, bytes);
    }
    let wait_ns = wait.as_nanos() as u64;
    let report = meter.finish("t".to_owned(), "worker");
    assert_eq!((report.time.files, report.largest.bytes), (20, 2 << 20));
    let ns = report.largest.ns;
    assert!(ns >= wait_ns && ns + wait_ns <= report.time.elapsed_ns + 200_000, "{ns}");
}

#[test]
fn a_long_call_is_not_extrapolated_beyond_the_elapsed_time() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    let wait = std::time::Duration::from_millis(20);
    // The 64th is timed.
    for file in 1..=80 {
        meter.file_starts();
        if file == 64 {
            std::thread::sleep(wait);
        }
        meter.lap(CallKind::Read, file);
        meter.lap(CallKind::Compute, file);
    }
    let time = meter.finish("t".to_owned(), "worker").time;
    assert!(time.calls_ns[&CallKind::Read] >= 20_000_000, "{time:?}");
    assert!(time.calls_ns.values().sum::<u64>() <= time.elapsed_ns, "{time:?}");
    assert_eq!(total(&time), time.elapsed_ns);
}

#[test]
fn calls_that_were_never_timed_are_counted_and_waits_are_always_timed() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    let wait = std::time::Duration::from_millis(20);
    for file in 0..=TIMED_FIRST as usize {
        meter.file_starts();
        if file == TIMED_FIRST as usize {
            meter.waiting(CallKind::Memory, file, || std::thread::sleep(wait));
            meter.lap(CallKind::Close, file);
        }
    }
    let report = meter.finish("t".to_owned(), "worker");
    assert!(report.time.calls_ns[&CallKind::Memory] >= 20_000_000);
    let calls = merge_calls(&[report]);
    assert_eq!((calls[&CallKind::Memory].count, calls[&CallKind::Memory].timed), (1, 1));
    assert_eq!((calls[&CallKind::Close].count, calls[&CallKind::Close].timed), (1, 0));
}

#[test]
fn known_waits_are_not_extrapolated() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    let wait = std::time::Duration::from_millis(20);
    // The eighth is timed, and the eleventh is not.
    for file in 1..80 {
        meter.file_starts();
        meter.compute_starts();
        if [8, 11].contains(&file) {
            crate::waiting_for_child(|| std::thread::sleep(wait));
        }
        meter.lap(CallKind::Compute, file);
    }
    let report = meter.finish("t".to_owned(), "worker");
    let time = report.time.clone();
    assert_eq!(total(&time), time.elapsed_ns);
    assert!(time.child_ns >= 30_000_000, "{time:?}");
    let calls = merge_calls(&[report])[&CallKind::Compute];
    assert!(calls.timed < calls.count && calls.total_ns == time.calls_ns[&CallKind::Compute]);
    assert!(calls.total_ns < 2 * time.elapsed_ns, "{calls:?}");
}

/// Measures files whose function sleeps. Returns the times as an error unless almost all of the waiting
/// is that of the function.
fn slow_function_is_blocked() -> Result<(), String> {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    for file in 0..80 {
        meter.file_starts();
        meter.lap(CallKind::Read, file);
        meter.compute_starts();
        std::thread::sleep(std::time::Duration::from_millis(1));
        meter.lap(CallKind::Compute, file);
    }
    let report = meter.finish("t".to_owned(), "worker");
    let time = report.time.clone();
    assert_eq!(total(&time), time.elapsed_ns);
    // While the mean rises from its start, one in eight is timed.
    let calls = merge_calls(&[report])[&CallKind::Compute];
    assert!(calls.timed > TIMED_FIRST + 80 / TIMED_ONE_IN, "{calls:?}");
    let waits = time.compute_blocked_ns + time.ready_ns.unwrap_or(0);
    if waits > 10 * (time.io_ns + time.unknown_ns) { Ok(()) } else { Err(format!("{time:?}")) }
}

/// Processor time that the host takes away during other calls looks like a wait there, so one run of
/// several must be undisturbed.
#[test]
fn every_file_of_a_slow_function_is_timed_and_its_sleep_is_blocked() {
    let mut found = Ok(());
    for _ in 0..20 {
        found = slow_function_is_blocked();
        if found.is_ok() {
            break;
        }
    }
    found.unwrap();
}

#[test]
fn alternating_steps_are_both_timed() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Totals);
    // Many files begin before the first is computed, so all computing happens on odd steps.
    for file in 0..33 {
        meter.step_starts(Step::Begin);
        meter.lap(CallKind::Open, file);
    }
    for file in 0..800 {
        meter.step_starts(Step::Compute);
        meter.lap(CallKind::Compute, file);
        meter.step_starts(Step::Begin);
        meter.lap(CallKind::Open, 33 + file);
    }
    assert!(meter.typical_ns(CallKind::Compute).is_some());
    let calls = merge_calls(&[meter.finish("t".to_owned(), "worker")]);
    assert_eq!(calls[&CallKind::Compute].count, 800);
    assert_eq!(calls[&CallKind::Compute].timed, TIMED_FIRST + 800 / TIMED_ONE_IN - 1);
}

#[test]
fn sleeping_in_the_function_is_blocked_and_spinning_is_on_cpu() {
    let mut meter = Meter::start(monotonic_ns(), Detail::Full { spans_max: 3 });
    std::thread::sleep(std::time::Duration::from_millis(30));
    meter.lap(CallKind::Compute, 0);
    std::thread::sleep(std::time::Duration::from_millis(10));
    meter.lap(CallKind::HandOver, 0);
    let until = thread_cpu_ns() + 20_000_000;
    while thread_cpu_ns() < until {}
    meter.lap(CallKind::Compute, 1);
    meter.lap(CallKind::Close, 1);
    let report = meter.finish("t".to_owned(), "worker");
    let t = &report.time;
    assert_eq!(total(t), t.elapsed_ns);
    assert!(t.on_cpu_ns >= 20_000_000);
    assert!(t.compute_blocked_ns > 0 && t.sync_ns > 0, "{t:?}");
    assert_eq!((report.spans.len(), report.spans_lost), (3, 1));
    assert_eq!(merge_calls(&[report])[&CallKind::Compute].count, 2);
}

//! Properties of the closed-form laws.

use crate::{near, reader_s, synchronous_s};
use ioloom_predict::knee::KEPT_WALKS;
use ioloom_predict::{WalkModel, Workload};
use proptest::prelude::*;

#[test]
fn without_waiting_a_reader_never_pays_off() {
    assert!(Workload::new(5.0, 0.0).unwrap().break_even_threads().is_infinite());
}

#[test]
fn invalid_numbers_are_refused_by_name() {
    let e = Workload::new(-1.0, 0.0).unwrap_err();
    assert_eq!(e.to_string(), "total compute is -1; it must be a finite number of at least 0");
    assert!(Workload::new(0.0, f64::NAN).is_err());
    let walk = WalkModel {
        cpu_s: 1.0,
        device_s: 1.0,
        contention: 0.0,
        interleave: 0.0,
        interleave_half_threads: 28.0,
    };
    assert!(walk.elapsed_s(0).is_err());
    assert!(WalkModel { contention: -0.1, ..walk }.elapsed_s(1).is_err());
    near(walk.elapsed_s(1).unwrap(), 2.0, 1e-12);
}

proptest! {
    #[test]
    fn a_reader_pays_off_beyond_the_break_even(
        compute in 0.001..10.0_f64, wait in 0.001..10.0_f64, n in 2_u32..64
    ) {
        let work = Workload::new(compute, wait).unwrap();
        let even = work.break_even_threads();
        prop_assume!((even - f64::from(n)).abs() > 1e-6);
        prop_assert_eq!(reader_s(&work, n) < synchronous_s(&work, n), f64::from(n) > even);
    }
}

/// Returns what follows `"name":` in a line of JSON, up to a comma or the end of an object.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}

#[test]
fn the_kept_walks_are_those_of_the_stored_session() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../results/study-walk-ladder/2026-11-22-intel-xeon-2c/walk-20261122T125843Z.jsonl"
    );
    let text = std::fs::read_to_string(path).unwrap();
    for ((_, ladder), condition) in KEPT_WALKS.iter().zip(["cold", "warm"]) {
        for (threads, seconds) in ladder {
            let arm = format!("statx-{threads}");
            let runs = text.lines().filter(|line| {
                line.starts_with("{\"run\"")
                    && field(line, "arm") == arm
                    && field(line, "condition") == condition
            });
            let (plain, doubted): (Vec<&str>, Vec<&str>) =
                runs.partition(|line| line.contains("\"doubts\":[]"));
            // Runs with a doubt count if there are no others.
            let used = if plain.is_empty() { doubted } else { plain };
            let time = |line: &&str| field(line, "elapsed_ns").parse::<f64>().unwrap() / 1e9;
            let used: Vec<f64> = used.iter().map(time).collect();
            // At most two runs, so their median is their mean.
            assert!((1..=2).contains(&used.len()), "{arm} {condition}");
            let median = used.iter().sum::<f64>() / used.len() as f64;
            assert!((median - seconds).abs() < 0.001, "{arm} {condition}: {median}");
        }
    }
}

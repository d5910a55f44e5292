//! Writes a series of files with direct I/O to determine whether each takes the same time.
//!
//! Each file is new and unnamed, so nothing remains of the previous one. The series tests detect
//! whether the times form two groups, which a mean does not show.

use super::plan::Again;
use super::write;
use crate::stage::{Stage, cannot, sync_file_system};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_stats::{Alternation, TwoRegimes, median};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::file::scratch;

pub(super) fn run(order: &RunOrder, scenario: Again) -> Result<Measured, String> {
    let one = scenario.one();
    let mut buffer = Buffer::new(one.block);
    write::fill(buffer.whole_mut(), order.seed);
    let first = scratch(&order.dir, one.how).map_err(|e| cannot("create the file", &e))?;
    sync_file_system(&first)?;
    drop(first);
    let mut stage = Stage::open(&order.dir)?;
    let mut times = Vec::with_capacity(scenario.runs);
    for run in 0..scenario.runs {
        let file = scratch(&order.dir, one.how).map_err(|e| cannot("create the file", &e))?;
        let seed = order.seed.wrapping_add(run as u64);
        let calls = write::all(&file, one, &mut buffer, seed)?;
        times.push(calls.iter().sum::<u64>() as f64);
    }
    stage.put("file_bytes", scenario.bytes as f64);
    for (name, value) in numbers(&times) {
        stage.put(name, value);
    }
    let all_ns = times.iter().sum::<f64>() as u64;
    let (mut measured, _) = stage.close(all_ns, scenario.bytes * scenario.runs as u64);
    let curve = times.iter().enumerate().map(|(run, ns)| ((run + 1) as f64, *ns));
    measured.curves.insert("series".to_owned(), curve.collect());
    Ok(measured)
}

/// Returns statistics of the times in ns of at least six files.
fn numbers(times: &[f64]) -> Vec<(&'static str, f64)> {
    let mut all = vec![
        ("fastest_ns", times.iter().copied().fold(f64::INFINITY, f64::min)),
        ("median_ns", median(times)),
        ("slowest_ns", times.iter().copied().fold(0.0, f64::max)),
    ];
    if let Ok(found) = Alternation::test(times) {
        all.push(("lag1", found.lag1));
    }
    if let Ok(found) = TwoRegimes::test(times) {
        all.push(("two_states", f64::from(u8::from(found.found))));
        all.push(("states_apart", found.change));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::numbers;
    use std::collections::BTreeMap;

    #[test]
    fn two_groups_of_times_are_found() {
        let times: Vec<f64> =
            (0..20).map(|i| if i < 10 { 2.5 } else { 5.0 } + f64::from(i % 3) * 0.01).collect();
        let found: BTreeMap<_, _> = numbers(&times).into_iter().collect();
        assert_eq!((found["fastest_ns"], found["slowest_ns"]), (2.5, 5.02));
        assert_eq!(found["two_states"], 1.0, "{found:?}");
        let steady: BTreeMap<_, _> = numbers(&[1.0; 20]).into_iter().collect();
        assert_ne!(steady.get("two_states"), Some(&1.0));
    }
}

//! Random file sets under random plans, compared with the oracle.

use crate::support::{expected, lacks, list, make, plan, roots, run};
use ioloom::FileError;
use ioloom_model::table;
use proptest::prelude::*;

fn schedules() -> impl Strategy<Value = String> {
    let order = prop_oneof![Just("read-first"), Just("compute-first"), Just("turns")];
    prop_oneof![
        (1u32..5).prop_map(|n| format!("threads:n={n}")),
        (1u32..20, 1u32..5).prop_map(|(l, p)| format!("window:l={l},p={p}")),
        (0u32..3, 0u32..3, 0u32..3, 1u32..12, 1u32..3, order).prop_filter_map(
            "at least one thread reads and one computes",
            |(r, h, c, w, open, order)| {
                let team = format!("roles:r={r},h={h},c={c},w={w},open={open}");
                let order = if h > 0 { format!(",order={order}") } else { String::new() };
                (r + h > 0 && h + c > 0).then_some(team + &order)
            }
        ),
    ]
}

fn options() -> impl Strategy<Value = String> {
    let chunk = prop_oneof![Just(None), Just(Some("4KiB")), Just(Some("5000"))];
    let buffers = prop_oneof![Just("pool"), Just("fresh"), Just("prefaulted")];
    let order = prop_oneof![Just("list"), Just("inode")];
    (chunk, buffers, order, 2u32..8).prop_map(|(chunk, buffers, order, memory)| {
        let chunk = chunk.map_or(String::new(), |c| format!("chunk={c},"));
        format!("{chunk}buffers={buffers},order={order},memory={memory}MiB")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_plan_gives_what_the_standard_library_reads(
        sizes in proptest::collection::vec(
            prop_oneof![0usize..10, 4090usize..4100, 60_000usize..70_000, 0usize..900_000], 0..25),
        method in proptest::sample::select(ioloom_model::Method::ALL.to_vec()),
        schedule in schedules(),
        options in options(),
    ) {
        let plan = plan(&format!("{method}/{schedule}/{options}"));
        let (_dir, paths) = make(&roots()[0], &sizes);
        match run(list(&paths), plan) {
            Ok(got) if method == ioloom_model::Method::Null => {
                prop_assert_eq!(got.hashes.len(), paths.len());
            }
            Ok(got) => {
                prop_assert!(got.budget_peak_bytes <= plan.memory_bytes);
                let has_no_room = |e: &FileError| e.to_string().contains("the registered buffers");
                if got.failed.iter().any(has_no_room) {
                    // Large files may not fit into the rest of the budget.
                    prop_assert!(got.failed.iter().all(has_no_room), "{} {:?}", plan, got.failed);
                    let large = |e: &FileError| e.path.metadata().unwrap().len() > 4096;
                    prop_assert!(got.failed.iter().all(large), "{} {:?}", plan, got.failed);
                    return Ok(());
                }
                prop_assert!(got.failed.is_empty(), "{} {:?}", plan, got.failed);
                prop_assert_eq!(got.hashes, expected(&paths));
            }
            Err(error) => prop_assert!(
                table::check(&plan).is_err()
                    || lacks(&plan, &error)
                    || error.to_string().contains("of registered buffers do not fit"),
                "{}: {}", plan, error
            ),
        }
    }
}

//! The comparison of sessions whose values contain zeros.

use crate::records::sample;
use ioloom_model::{Outcome, RunRecord};
use ioloom_report::compare::{Change, matched, since};
use ioloom_report::{Input, compare, compare_html};

/// Peak memory of a run, by its block.
type Peak<'p> = &'p dyn Fn(u32) -> u64;

/// Returns a session of one experiment about peak memory, with an arm in twelve blocks.
fn session(peak: Peak<'_>) -> Input {
    let mut input = sample(1);
    input.study.experiments.truncate(1);
    input.study.experiments[0].metric = "memory_peak_bytes".to_owned();
    let name = &input.study.experiments[0].name;
    let is_it = |r: &&RunRecord| {
        r.key.experiment == *name && r.key.arm == "threads-2" && r.measured().is_some()
    };
    let model = input.records.iter().find(is_it).expect("a run").clone();
    input.records.clear();
    for block in 0..12 {
        let mut record = model.clone();
        record.key.block = block;
        if let Outcome::Done { measured } = &mut record.outcome {
            measured.memory_peak_bytes = peak(block);
        }
        input.records.push(record);
    }
    input
}

#[test]
fn changes_from_and_to_zero_are_found() {
    let (none, some) = (|_: u32| 0_u64, |_: u32| 64_u64 << 20);
    let half = |block: u32| if block.is_multiple_of(2) { 0_u64 } else { 64 << 20 };
    let once = |block: u32| if block == 3 { 0_u64 } else { 64 << 20 };
    let cases: [(Peak<'_>, Peak<'_>, Change, &str); 5] = [
        (&none, &none, Change::Same, "0 B / 0 B"),
        (&none, &some, Change::Worse, "64.0 MiB / 0 B"),
        (&some, &none, Change::Better, "0 B / 64.0 MiB"),
        (&once, &some, Change::Same, "64.0 MiB / 64.0 MiB"),
        (&half, &some, Change::Unclear, "contains zeros"),
    ];
    for (before, now, change, words) in cases {
        let (before, now) = (session(before), session(now));
        let found = matched(&before, &now);
        let [row] = &found.rows[..] else { panic!("{} rows", found.rows.len()) };
        assert_eq!((row.change, row.n(), row.ratio), (change, 12, None), "{words}");
        let (text, page) = (compare(&before, &now), compare_html(&before, &now));
        assert!(text.contains(words) && text.contains("Samples with zeros have no"), "{text}");
        assert!(page.contains(words) && !page.contains("too few values"), "{words}");
        let text = since(&before, &now);
        assert_eq!(text.contains("1 of 1 arms worse"), change == Change::Worse, "{text}");
    }
}

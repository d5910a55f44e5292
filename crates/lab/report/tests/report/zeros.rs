//! Sessions whose values contain zeros, or are extremely small or large.

use crate::records::sample;
use ioloom_model::{Outcome, RunRecord};
use ioloom_report::compare::{Change, matched, since};
use ioloom_report::{Input, compare, compare_html, html, json, markdown, terminal};

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
        assert!(text.contains("\n1 arm: "), "{text}");
        assert!(page.contains(words) && !page.contains("too few values"), "{words}");
        let text = since(&before, &now);
        assert_eq!(text.contains("1 of 1 arms worse"), change == Change::Worse, "{text}");
        let undecided = text.ends_with("1 of 1 arms undecided (values without a ratio).");
        assert_eq!(undecided, change == Change::Unclear, "{text}");
    }
}

/// A change from zero has no ratio, so it may be larger than the largest ratio.
#[test]
fn the_largest_change_is_not_named_if_a_change_has_no_ratio() {
    let of = |other: Peak<'_>, factor: u64| {
        let mut input = session(&|_| (64 * factor) << 20);
        let zeros = session(other).records.into_iter().map(|mut record| {
            record.key.arm = "default".to_owned();
            record
        });
        input.records.extend(zeros);
        input
    };
    let (none, some) = (|_: u32| 0_u64, |_: u32| 64_u64 << 20);
    let cases: [(Peak<'_>, bool); 2] = [(&some, true), (&none, false)];
    for (first, named) in cases {
        let (before, now) = (of(first, 1), of(&|_| 128 << 20, 2));
        let found = matched(&before, &now);
        assert_eq!(found.rows.len(), 2);
        assert!(found.rows.iter().all(|row| row.change == Change::Worse), "{named}");
        let (text, table) = (since(&before, &now), compare(&before, &now));
        assert!(text.contains("2 of 2 arms worse"), "{text}");
        assert_eq!(text.contains("; most: "), named, "{text}");
        assert_eq!(table.contains("Largest regression: "), named, "{table}");
    }
}

/// A store can contain any finite number.
#[test]
fn extreme_values_are_reported() {
    for value in [1e-300, 1e-9, 1.0, 1e15, 1e100, 1.7e308] {
        let mut input = sample(1);
        for experiment in &mut input.study.experiments {
            experiment.metric = "extra.durable_ns".to_owned();
        }
        for record in &mut input.records {
            let part = 1.0 - f64::from(record.key.block) / 100.0;
            if let Outcome::Done { measured } = &mut record.outcome {
                measured.extra.insert("durable_ns".to_owned(), value * part);
            }
        }
        let page = html(&input);
        assert!(page.contains("<svg") && !page.contains("\"NaN"), "{value}");
        let inputs = std::slice::from_ref(&input);
        assert!(!markdown(inputs).is_empty() && json(inputs).is_object(), "{value}");
        assert!(!terminal(&input, 80, false).is_empty(), "{value}");
    }
}

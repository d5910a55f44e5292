//! What the answer of a report says about comparisons that rank no plans, and about the file set.

use crate::records::sample;
use ioloom_model::Outcome;
use ioloom_report::group::groups;
use ioloom_report::headline::{answer, headlines, plain_text};
use ioloom_report::{Input, html, markdown, terminal};

fn first(input: &Input) -> String {
    let groups = groups(input);
    plain_text(&answer(&headlines(&groups), &groups)[0])
}

fn second(input: &Input) -> String {
    let groups = groups(input);
    plain_text(&answer(&headlines(&groups), &groups)[1])
}

/// An experiment on several sets, or with a metric without a direction, has results.
#[test]
fn comparisons_that_rank_nothing_are_not_called_unfinished() {
    let only = |name: &str| {
        let mut input = sample(1);
        input.study.experiments.retain(|e| e.name == name);
        input.records.retain(|r| r.key.experiment == name);
        input
    };
    let merged = only("call-cost-size");
    let mut neither = only("elapsed-small-files");
    neither.study.experiments[0].metric = "in_flight_mean".to_owned();
    for input in [&merged, &neither] {
        let text = first(input);
        assert!(text.contains("do not rank plans; the tables contain the numbers."), "{text}");
        assert!(!html(input).contains("no answer yet"));
    }
    let mut alone = only("elapsed-small-files");
    alone.records.retain(|r| r.key.arm == "threads-1");
    assert!(first(&alone).contains("no answer yet"));
}

/// A run can read its files several times.
#[test]
fn the_size_of_a_set_is_not_what_runs_read() {
    let mut input = sample(1);
    let before = first(&input);
    assert!(before.contains(", 19.5 MiB, cold)"), "{before}");
    for record in &mut input.records {
        if let Outcome::Done { measured } = &mut record.outcome {
            measured.bytes *= 2;
        }
    }
    assert_eq!(first(&input), before);
}

/// Runs that disagree do not show what limited a plan.
#[test]
fn a_limit_is_that_of_most_runs() {
    let wanted = "uring/window:l=64,p=2 was limited by ";
    for (odd, is_shown) in [("metadata", true), ("device", false)] {
        let mut input = sample(1);
        for record in &mut input.records {
            let is_odd = record.key.block % 2 == 1;
            if let Outcome::Done { measured } = &mut record.outcome
                && let Some(bottleneck) = &mut measured.bottleneck
            {
                bottleneck.word = if is_odd { odd } else { "metadata" }.to_owned();
            }
        }
        let text = second(&input);
        assert_eq!(text.contains(wanted), is_shown, "{text}");
    }
}

#[test]
fn a_single_run_is_in_the_singular() {
    let mut input = sample(1);
    input.records.truncate(1);
    let text = terminal(&input, 160, false);
    assert!(text.contains(", 1 run)"), "{text}");
    let md = markdown(&[input]);
    assert!(md.contains(" mode, 1 run, "), "{md}");
    assert!(![&text, &md].iter().any(|text| text.contains(" 1 runs")), "{text}{md}");
}

//! Chapters of studies on invented runs: long names, runs that were stopped, runs that saw wrong bytes.

use crate::records::sample;
use ioloom_model::record::RunKey;
use ioloom_model::{Condition, Doubt, Measured, Outcome, RunRecord, StudySpec};
use ioloom_report::{Input, html};
use std::collections::BTreeMap;

/// A study with one experiment on one set.
fn study(name: &str, experiment: &str, arms: &str) -> StudySpec {
    let text = format!(
        "name = \"{name}\"\ntitle = \"t\"\nquestion = \"q\"\nseed = 1\n\
         [sets.S]\nabout = \"s\"\nfull = {{ count = 9, size = \"1KiB\" }}\n\
         [[experiment]]\nname = \"{experiment}\"\nquestion = \"which?\"\nsets = [\"S\"]\n\
         {arms}\n"
    );
    toml::from_str(&text).expect("a study")
}

fn record(study: &StudySpec, arm: &str, plan: &str, block: u32, outcome: Outcome) -> RunRecord {
    let invented = sample(1).records.remove(0);
    let key = RunKey {
        study: study.name.clone(),
        experiment: study.experiments[0].name.clone(),
        arm: arm.to_owned(),
        set: "S".to_owned(),
        condition: study.experiments[0].conditions[0],
        compute: "none".parse().expect("work"),
        block,
        position: block,
        factors: BTreeMap::new(),
        ..invented.key.clone()
    };
    let plan = plan.parse().expect("a plan");
    RunRecord { key, plan, outcome, doubts: Vec::new(), proof: None, ..invented }
}

fn done(ms: u64, extra: &[(&str, f64)]) -> Outcome {
    let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let measured = Measured {
        elapsed_ns: ms * 1_000_000,
        files: 9,
        bytes: 9216,
        extra,
        ..Measured::default()
    };
    Outcome::Done { measured: Box::new(measured) }
}

fn input(study: StudySpec, records: Vec<RunRecord>) -> Input {
    Input { study, records, verdicts: Vec::new(), doubts: Vec::new(), ..sample(1) }
}

/// Heads of tables on a page: class and text without its markup.
fn heads(page: &str) -> Vec<(String, String)> {
    let all = page.split("<th scope=\"col\"").skip(1);
    all.filter_map(|rest| {
        let (class, rest) = rest.split_once('>')?;
        let (text, _) = rest.split_once("</th>")?;
        Some((class.to_owned(), text.replace("<wbr>", "")))
    })
    .collect()
}

#[test]
fn a_long_directory_makes_no_wide_head_and_stays_told_apart() {
    let ladder = "conditions = [\"warm\"]\naxis = \"threads\"\narm = [{ name = \"t-{threads}\", \
                  plan = \"walk:statx/threads={threads}\", with = { threads = [1, 2] } }]";
    let study = study("walk", "threads-warm", ladder);
    assert_eq!(study.experiments[0].conditions, [Condition::Warm]);
    let long =
        "/mnt/a/directory/of/which/the/name/is/much/longer/than/any/head/of/a/table/could/be";
    let media = [format!("{long}/first"), format!("{long}/second")];
    let mut records = Vec::new();
    for medium in &media {
        for threads in [1.0, 2.0] {
            for block in 0..3 {
                let arm = format!("t-{threads}");
                let plan = format!("walk:statx/threads={threads}");
                let took = done((100.0 / threads) as u64 + u64::from(block), &[]);
                let mut run = record(&study, &arm, &plan, block, took);
                run.key.medium.clone_from(medium);
                run.key.factors.insert("threads".to_owned(), threads);
                records.push(run);
            }
        }
    }
    let page = html(&input(study, records));
    let heads = heads(&page);
    for name in ["here, warm, …/first", "here, warm, …/second"] {
        assert!(heads.iter().any(|(_, text)| text == name), "{name}: {heads:?}");
    }
    for (class, text) in &heads {
        assert!(text.chars().count() <= 28 || class.contains("long"), "{class}: {text}");
    }
    assert!(page.contains("a/<wbr>directory/<wbr>of"), "a path in a cell may break");
}

#[test]
fn a_run_that_was_stopped_is_told_as_that_and_is_no_time() {
    let arms = "conditions = [\"as-is\"]\nmetric = \"settled_ns\"\narm = [\
                { name = \"buffered\", plan = \"copy:buffered/settle=alone\" }, \
                { name = \"uncached\", plan = \"copy:uncached/settle=alone\" }]";
    let study = study("copy", "left-alone", arms);
    let stopped = |block| {
        let outcome = Outcome::TimedOut { seconds: 26.625_324_25 };
        record(&study, "buffered", "copy:buffered/settle=alone", block, outcome)
    };
    let settled = |block| {
        let took = done(210, &[("settled_ns", 210e6)]);
        record(&study, "uncached", "copy:uncached/settle=alone", block, took)
    };
    let all = vec![stopped(0), settled(0), stopped(1), settled(1)];
    let page = html(&input(study.clone(), all));
    assert!(page.contains("left to write after: uncached 210 ms."), "the one that ran");
    let why = "buffered, 2 runs timed out (stopped at its deadline of 26.6 s)";
    assert!(page.contains(why), "the one that was stopped");
    assert!(!page.contains("26.62532425"), "no more digits than a person reads");
    // Of three runs two were stopped: the one that ended says nothing of the middle.
    let ended = record(&study, "buffered", "copy:buffered/settle=alone", 2, {
        done(20_000, &[("settled_ns", 20e9)])
    });
    let mostly = input(study.clone(), vec![stopped(0), stopped(1), ended.clone()]);
    let groups = ioloom_report::group::groups(&mostly);
    assert!(groups[0].arms[0].estimate.is_none() && groups[0].arms[0].is_stopped());
    assert!(!html(&mostly).contains("left to write after"));
    let mut again = ended.clone();
    again.key.block = 3;
    let rarely = input(study.clone(), vec![stopped(0), ended, again]);
    let groups = ioloom_report::group::groups(&rarely);
    assert_eq!(groups[0].arms[0].estimate.as_ref().expect("two of three").median, 20e9);
    // Nobody is left out silently when no other ran.
    let alone = html(&input(study.clone(), vec![stopped(0)]));
    assert!(alone.contains("buffered, 1 run timed out") && !alone.contains("left to write after"));
}

#[test]
fn a_run_that_saw_wrong_bytes_stands_in_no_number() {
    let arms = "conditions = [\"cold\"]\narm = [{ name = \"sound\", plan = \
                \"read/threads:n=1\" }, { name = \"broken\", plan = \"read/threads:n=2\" }]";
    let study = study("own", "x", arms);
    let mut records = Vec::new();
    for block in 0..4 {
        records.push(record(&study, "sound", "read/threads:n=1", block, done(100, &[])));
        let mut broken = record(&study, "broken", "read/threads:n=2", block, done(1, &[]));
        broken.doubts.push(Doubt::WrongBytes);
        records.push(broken);
    }
    let input = input(study, records);
    let groups = ioloom_report::group::groups(&input);
    assert_eq!(groups[0].best().expect("one arm").name, "sound");
    let broken = groups[0].arms.iter().find(|arm| arm.name == "broken").expect("it was tried");
    assert!(broken.runs.is_empty() && broken.estimate.is_none());
    assert_eq!((broken.not_done[0].0, broken.not_done[0].2), ("wrong bytes", 4));
    assert!(html(&input).contains("left out of every number"));
}

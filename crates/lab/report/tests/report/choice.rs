//! What the answer and the first page say about plans that are equal. Seeded; the counts are printed by
//! `cargo test -p ioloom-report choice -- --nocapture`.

#![allow(clippy::print_stdout, reason = "the tables are for a reader of the output")]

use crate::records::sample;
use ioloom_model::{Measured, Outcome, RunRecord};
use ioloom_report::Input;
use ioloom_report::advice::advice;
use ioloom_report::group::groups;
use ioloom_report::headline::{answer, headlines, plain_text};

const STUDIES: usize = 400;

/// Numbers from a linear congruence with an output permutation.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (((mixed ^ (mixed >> 32)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Returns a duration with median 1. `quiet`: with a scatter of 1 %, whatever the kind.
    fn duration(&mut self, kind: &str, quiet: bool) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
        match kind {
            _ if quiet => (0.01 * normal).exp(),
            "even" => (0.15 * normal).exp(),
            "wide" => (0.6 * normal).exp(),
            "skewed" => (1.0 - 0.5 * self.uniform().ln()) / (1.0 + 0.5 * std::f64::consts::LN_2),
            _ => unreachable!("an unknown kind"),
        }
    }
}

/// Returns a study of one experiment without runs, and a run of each of its arms.
fn bare() -> (Input, Vec<RunRecord>) {
    let mut input = sample(1);
    input.study.experiments.truncate(1);
    let experiment = &mut input.study.experiments[0];
    experiment.topic = Some("files".to_owned());
    experiment.usual = Some("default".to_owned());
    let mut models: Vec<RunRecord> = Vec::new();
    for record in input.records.drain(..) {
        let new = record.key.experiment == experiment.name
            && record.measured().is_some()
            && !record.key.arm.ends_with("(again)")
            // A single plain plan, so that the answer compares the best with one plan only.
            && !matches!(record.key.arm.as_str(), "threads-2" | "threads-8")
            && models.iter().all(|known| known.key.arm != record.key.arm);
        models.extend(new.then_some(record));
    }
    for model in &mut models {
        let Outcome::Done { measured } = &mut model.outcome else { continue };
        let work = (measured.files, measured.bytes);
        **measured = Measured { files: work.0, bytes: work.1, ..Measured::default() };
    }
    (input, models)
}

/// Fills the study with the runs of this many blocks.
fn fill(
    (input, models): &mut (Input, Vec<RunRecord>),
    blocks: u32,
    mut duration: impl FnMut(&str) -> f64,
) {
    input.records.clear();
    for block in 0..blocks {
        for model in models.iter() {
            let mut record = model.clone();
            record.key.block = block;
            record.doubts.clear();
            if let Outcome::Done { measured } = &mut record.outcome {
                measured.elapsed_ns = (1e9 * duration(&record.key.arm)) as u64;
            }
            input.records.push(record);
        }
    }
}

/// Returns the line of the first page and the first sentence of the answer.
fn texts(input: &Input) -> (String, String) {
    let groups = groups(input);
    let lines = advice(input, &groups);
    assert_eq!(lines.len(), 1);
    (plain_text(&lines[0].pieces()), plain_text(&answer(&headlines(&groups), &groups)[0]))
}

/// If all plans are equal, the first page advises a change, and the answer calls one faster, in at most
/// 5 % of studies. The default may scatter less than the others.
#[test]
fn equal_plans_are_rarely_called_faster() {
    let (mut study, mut noise) = (bare(), Noise(23));
    println!("blocks  noise   default  change to  is faster");
    for blocks in [8, 12, 24] {
        for (kind, quiet) in
            [("even", false), ("wide", false), ("skewed", false), ("wide", true), ("skewed", true)]
        {
            let (mut change, mut faster) = (0, 0);
            for _ in 0..STUDIES {
                let is_quiet = |arm: &str| quiet && matches!(arm, "default" | "threads-1");
                fill(&mut study, blocks, |arm| noise.duration(kind, is_quiet(arm)));
                let (line, sentence) = texts(&study.0);
                change += usize::from(line.contains("change to"));
                faster += usize::from(sentence.contains("is faster"));
            }
            let [change, faster] = [change, faster].map(|n| n as f64 / STUDIES as f64);
            let default = if quiet { "quiet" } else { "same" };
            println!("{blocks:6}  {kind:6}  {default:7}  {change:9.3}  {faster:9.3}");
            assert!(change <= 0.05, "{blocks} {kind} {default}: {change}");
            assert!(faster <= 0.05, "{blocks} {kind} {default}: {faster}");
        }
    }
}

/// A plan that is faster is found, in eight blocks as well.
#[test]
fn a_faster_plan_is_named() {
    let (mut study, mut noise) = (bare(), Noise(24));
    for blocks in [8, 12] {
        let found = (0..100).filter(|_| {
            fill(&mut study, blocks, |arm| {
                let level = if arm == "uring-window" { 0.7 } else { 1.0 };
                level * noise.duration("even", true).powi(5)
            });
            let (line, sentence) = texts(&study.0);
            line.starts_with("change to") && sentence.contains("uring/window:l=64,p=2 is faster")
        });
        let found = found.count();
        println!("{blocks} blocks: {found} of 100 found");
        assert!(found >= 95, "{blocks} blocks: {found}");
    }
}

/// With fewer blocks than choosing and comparing take, nothing is called faster.
#[test]
fn too_few_blocks_decide_nothing() {
    let mut study = bare();
    for blocks in [2, 5, 7] {
        fill(&mut study, blocks, |arm| if arm == "uring-window" { 0.1 } else { 1.0 });
        let (line, sentence) = texts(&study.0);
        assert!(line.ends_with(&format!("{blocks} blocks are too few to decide.")), "{line}");
        assert!(!sentence.contains("is faster"), "{sentence}");
        assert!(
            sentence.contains("too few blocks ran to determine the fastest plan"),
            "{sentence}"
        );
    }
}

/// If the simplest plan has the best median, a ratio whose interval contains 1 shows no difference.
#[test]
fn a_simplest_plan_that_is_not_shown_to_be_faster_is_marked() {
    let mut study = bare();
    let mut block = 0;
    fill(&mut study, 12, |arm| {
        if arm != "threads-1" {
            return 1.0;
        }
        block += 1;
        match (block - 1) % 4 {
            0 => 0.5,
            2 => 1.25,
            _ => 0.8,
        }
    });
    let (_, sentence) = texts(&study.0);
    let plan = "the simplest plan, read/threads:n=1, has ";
    assert!(sentence.contains(&format!("no clear difference: {plan}")), "{sentence}");
    fill(&mut study, 5, |arm| if arm == "threads-1" { 0.9 } else { 1.0 });
    let (_, sentence) = texts(&study.0);
    let start = "too few blocks ran to determine the fastest plan: ";
    assert!(sentence.contains(&format!("{start}{plan}")), "{sentence}");
}

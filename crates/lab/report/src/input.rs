//! The input of a report: values only, set by the caller.

use crate::svg::treemap::Tile;
use crate::table::Table;
pub use ioloom_model::Verdict;
pub use ioloom_model::study::Mode;
use ioloom_model::{Compute, Doubt, MachineFacts, RunRecord, StudySpec};
use ioloom_stats::Rule;
use ioloom_trace::Trace;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRow {
    /// Identifier, such as `000-P27`.
    pub id: String,
    /// The claim that this one repeats. Its tests decide both, and they are counted once.
    pub same_as: Option<String>,
    /// The statement in plain English.
    pub statement: String,
    /// The published numbers in words; empty if none were published.
    pub published: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The evidence in one sentence, with our numbers.
    pub sentence: String,
    /// Effect as a ratio with its 95 % interval (value, low, high).
    pub effect: Option<(f64, f64, f64)>,
    /// The measured curves that the verdict is based on.
    pub curves: Vec<ClaimCurve>,
    /// The published numbers: name, value, unit.
    pub published_values: Vec<(String, f64, String)>,
}

/// A measured curve behind a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCurve {
    /// Where it was measured: experiment, file set, condition.
    pub place: String,
    /// Name of the factor on the horizontal axis.
    pub axis: String,
    /// Name of the number on the vertical axis.
    pub metric: String,
    /// Pairs of factor level and median over blocks.
    pub points: Vec<(f64, f64)>,
}

/// A doubt about the study, an experiment or an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtRow {
    /// The doubt.
    pub doubt: Doubt,
    /// The experiment it concerns; `None` for the whole study.
    pub experiment: Option<String>,
    /// The arm it concerns; `None` for the whole experiment.
    pub arm: Option<String>,
    /// The observation in one sentence; may be empty.
    pub detail: String,
}

/// A traced run, for a timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct PictureRow {
    /// Name of its experiment.
    pub experiment: String,
    /// Name of the arm.
    pub arm: String,
    /// Compute per file.
    pub compute: Compute,
    /// The trace; its title is shown.
    pub trace: Trace,
}

/// The tree that was walked, for a treemap.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// Name of the file set.
    pub set: String,
    /// Number of files.
    pub files: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Two levels of its directories.
    pub tiles: Vec<Tile>,
}

/// Everything shown in a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The study as it was requested.
    pub study: StudySpec,
    /// Quick or full.
    pub mode: Mode,
    /// Whether the session verifies claims with file sets below their published sizes.
    pub is_scaled: bool,
    /// The command line, quoted for a shell.
    pub command: String,
    /// Facts of the machine.
    pub machine: MachineFacts,
    /// Every run of this session, in any order.
    pub records: Vec<RunRecord>,
    /// Number of runs in the list of the session.
    pub runs_planned: usize,
    /// The command that continues the session; `None` if it has ended.
    pub continued_by: Option<&'static str>,
    /// Whether the files are a directory of the user, which can have the name of a file set of the study.
    pub user_files: bool,
    /// Traced runs; the first two are drawn on one axis.
    pub pictures: Vec<PictureRow>,
    /// Claims and verdicts.
    pub verdicts: Vec<ClaimRow>,
    /// Identifier of this execution of the study.
    pub session: String,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long it took, seconds, without the time between a command and the one that resumed it.
    pub duration_s: f64,
    /// Version and commit of the program.
    pub version: String,
    /// Seed of the study.
    pub seed: u64,
    /// Fingerprint of the comparisons and arms.
    pub spec_hash: String,
    /// Doubts about all runs; those of single runs are in the records.
    pub doubts: Vec<DoubtRow>,
    /// What changed since an earlier session of the same study, in a sentence.
    pub since: Option<String>,
    /// Path of the report, printed at the end of the terminal summary.
    pub report_path: Option<String>,
    /// Path of the full records.
    pub store_path: Option<String>,
    /// The effect of each plan of a subject other than files, by plan.
    pub explained: BTreeMap<String, String>,
    /// Display names of the metrics defined by the study's subject, by name without prefix and
    /// unit.
    pub metric_names: BTreeMap<String, String>,
    /// The published tables for the claims that the study tests, by name.
    pub published: BTreeMap<String, Table>,
    /// The tree of a walk study, if the study specifies it.
    pub tree: Option<TreeRow>,
    /// Prefix of every identifier on a page with several studies; otherwise empty.
    pub prefix: String,
}

impl Input {
    /// Returns the advice about a doubt. With too few blocks, it depends on the mode of the study. With
    /// smaller file sets, it depends on the command.
    pub fn advice(&self, doubt: Doubt) -> Cow<'static, str> {
        let few = doubt == Doubt::FewSamples;
        match self.mode {
            Mode::Quick if few => Cow::Owned(format!(
                "repeat with --full, or with --blocks {} and a longer --budget",
                Rule::FULL.blocks_min
            )),
            Mode::Full if few => {
                Cow::Owned(format!("repeat with --blocks {}", Rule::FULL.blocks_min))
            }
            _ if self.is_scaled && doubt == Doubt::Scaled => {
                Cow::Borrowed("use `claims --verify --full-size` for the published size")
            }
            _ => Cow::Borrowed(doubt.advice()),
        }
    }

    /// Says that the session has not ended, and how to continue it; `None` if it has ended.
    pub fn unfinished(&self) -> Option<String> {
        let command = self.continued_by?;
        let (name, runs) = (&self.study.name, runs_done(std::slice::from_ref(self)));
        Some(format!("Study {name} is not finished: {runs} runs; continue with {command}."))
    }

    /// Returns the start time of the study in UTC, to the second.
    pub fn started(&self) -> String {
        time(self.started_unix_ms)
    }

    /// Returns the duration of the study in words.
    pub fn duration(&self) -> String {
        ioloom_model::units::format_ns(self.duration_s * 1e9)
    }
}

/// Returns the number of runs as [`runs_done`] does, with the noun.
pub(crate) fn runs_words(input: &Input) -> String {
    let runs = runs_done(std::slice::from_ref(input));
    let noun = if runs == "1" { "run" } else { "runs" };
    format!("{runs} {noun}")
}

/// Formats milliseconds since 1970 as a time in UTC, to the second.
pub(crate) fn time(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .and_then(|t| t.round(jiff::Unit::Second).ok())
        .map_or_else(
            || "unknown".to_owned(),
            |t| t.to_string().replace('T', " ").replace('Z', " UTC"),
        )
}

/// Returns the number of runs, with that of the planned ones if a session has not ended.
pub(crate) fn runs_done(inputs: &[Input]) -> String {
    let done: usize = inputs.iter().map(|input| input.records.len()).sum();
    if inputs.iter().all(|input| input.continued_by.is_none()) {
        return done.to_string();
    }
    let planned = |input: &Input| match input.continued_by {
        Some(_) => input.runs_planned,
        None => input.records.len(),
    };
    format!("{done} of {}", inputs.iter().map(planned).sum::<usize>())
}

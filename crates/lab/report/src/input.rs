//! What the report is made from: values only, filled in by the caller.

use crate::svg::treemap::Tile;
use crate::table::Table;
pub use ioloom_model::Verdict;
pub use ioloom_model::study::Mode;
use ioloom_model::{Compute, Doubt, MachineFacts, RunRecord, StudySpec};
use ioloom_stats::Rule;
use ioloom_trace::Trace;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A claim and what the runs say of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRow {
    /// Identifier, such as `000-P27`.
    pub id: String,
    /// The statement in plain English.
    pub statement: String,
    /// The published numbers in words; empty when none were published.
    pub published: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The evidence in one sentence, with our numbers.
    pub sentence: String,
    /// Effect as a ratio with its 95 % interval: value, low, high.
    pub effect: Option<(f64, f64, f64)>,
    /// The measured curves that the verdict was read off.
    pub curves: Vec<ClaimCurve>,
    /// The published numbers: what, value, unit.
    pub published_values: Vec<(String, f64, String)>,
}

/// A measured curve behind a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCurve {
    /// Where it was measured: experiment, set, condition.
    pub place: String,
    /// Name of the factor on the horizontal axis.
    pub axis: String,
    /// Name of the number on the vertical axis.
    pub metric: String,
    /// Level of the factor and median over blocks.
    pub points: Vec<(f64, f64)>,
}

/// A doubt on the study, an experiment or an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtRow {
    /// Which doubt.
    pub doubt: Doubt,
    /// The experiment it touches; `None` is the whole study.
    pub experiment: Option<String>,
    /// The arm it touches; `None` is the whole experiment.
    pub arm: Option<String>,
    /// What was seen, in one sentence; may be empty.
    pub detail: String,
}

/// A run that was traced, for a timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct PictureRow {
    /// Name of its experiment.
    pub experiment: String,
    /// Name of the arm.
    pub arm: String,
    /// Work on the bytes.
    pub compute: Compute,
    /// What every thread did when; its title is shown.
    pub trace: Trace,
}

/// The tree that was walked, as areas.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// Name of the set.
    pub set: String,
    /// Files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Its directories, two levels of them.
    pub tiles: Vec<Tile>,
}

/// Everything that a report shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The study as it was asked for.
    pub study: StudySpec,
    /// Quick or full.
    pub mode: Mode,
    /// The command line, ready to be typed again.
    pub command: String,
    /// Facts of the machine.
    pub machine: MachineFacts,
    /// Every run of this session, in any order.
    pub records: Vec<RunRecord>,
    /// Runs that were traced; the first two stand on one axis.
    pub pictures: Vec<PictureRow>,
    /// Claims and verdicts.
    pub verdicts: Vec<ClaimRow>,
    /// Identifier of this execution of the study.
    pub session: String,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Version and commit of the program.
    pub version: String,
    /// Seed of the study.
    pub seed: u64,
    /// Doubts found over all runs; those of single runs stand in the records.
    pub doubts: Vec<DoubtRow>,
    /// Where the report lies, printed at the end of the terminal summary.
    pub report_path: Option<String>,
    /// Where the full records lie.
    pub store_path: Option<String>,
    /// What each plan of another subject than files does, by its spelling.
    pub explained: BTreeMap<String, String>,
    /// Names of metrics that the subject of the study defines: without prefix and unit, and in words.
    pub metric_names: BTreeMap<String, String>,
    /// The published tables of the seeds whose claims the study tests, by name.
    pub published: BTreeMap<String, Table>,
    /// The tree that a study of walks walked, where it follows from the study.
    pub tree: Option<TreeRow>,
    /// Stands before every identifier on a page of several studies; empty on a page of one.
    pub prefix: String,
}

impl Input {
    /// What to do about a doubt in a study of this mode: of too few blocks, how many decide.
    pub fn advice(&self, doubt: Doubt) -> Cow<'static, str> {
        let few = doubt == Doubt::FewSamples;
        match self.mode {
            Mode::Quick if few => Cow::Owned(format!(
                "repeat it with --full, or with --blocks {} and a longer --budget",
                Rule::QUICK.blocks_min
            )),
            Mode::Full if few => {
                Cow::Owned(format!("repeat it with --blocks {}", Rule::FULL.blocks_min))
            }
            _ => Cow::Borrowed(doubt.advice()),
        }
    }

    /// When the study started, in UTC to the second.
    pub fn started(&self) -> String {
        i64::try_from(self.started_unix_ms)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
            .and_then(|t| t.round(jiff::Unit::Second).ok())
            .map_or_else(
                || "unknown".to_owned(),
                |t| t.to_string().replace('T', " ").replace('Z', " UTC"),
            )
    }

    /// How long the study took, in words.
    pub fn duration(&self) -> String {
        ioloom_model::units::format_ns(self.duration_s * 1e9)
    }
}

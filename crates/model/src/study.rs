//! A study file: experiments, their arms and their sets, as TOML.
//!
//! An arm's `plan` and `name` may hold `{n}`, `{n-1}` or `{n+1}` for a factor `n` of its `with`
//! table; the arm is then expanded over all values. `headline = true` marks an arm that runs in
//! quick mode; `headline_with` names the factor values that do.

use crate::{Compute, Condition, FileSetSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudySpec {
    /// Name, as given on the command line.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// What the study asks, one or two sentences.
    pub question: String,
    /// Seed of order, sizes and times unless the command line gives one.
    #[serde(default = "one")]
    pub seed: u64,
    /// Seconds that quick mode may take.
    #[serde(default = "ninety")]
    pub quick_budget_s: f64,
    /// File sets by name.
    pub sets: BTreeMap<String, SetSpec>,
    /// Experiments in the order of the report.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
}

fn one() -> u64 {
    1
}

fn ninety() -> f64 {
    90.0
}

/// A file set at published size, and the smaller one of quick mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSpec {
    /// What it stands for, for people.
    pub about: String,
    /// The set at `--full`.
    pub full: FileSetSpec,
    /// The set in quick mode; without it the full one is used.
    #[serde(default)]
    pub quick: Option<FileSetSpec>,
}

/// One question of a study: arms that are compared block by block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name, unique in the study.
    pub name: String,
    /// What it asks, one sentence.
    pub question: String,
    /// Sets it runs on; each is an own comparison.
    pub sets: Vec<String>,
    /// Conditions; each is an own comparison.
    #[serde(default = "cold")]
    pub conditions: Vec<Condition>,
    /// Work; each is an own comparison.
    #[serde(default = "nothing")]
    pub computes: Vec<Compute>,
    /// How the report draws it.
    #[serde(default)]
    pub chart: Chart,
    /// Factor on the horizontal axis of a chart.
    #[serde(default)]
    pub axis: Option<String>,
    /// Metric on the vertical axis, as in `Measured::metric`.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// Blocks at `--full`; at least 12 for a verdict.
    #[serde(default = "twelve")]
    pub blocks_full: u32,
    /// Blocks in quick mode; at least 8 for a verdict.
    #[serde(default = "eight")]
    pub blocks_quick: u32,
    /// Arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
}

fn cold() -> Vec<Condition> {
    vec![Condition::Cold]
}

fn nothing() -> Vec<Compute> {
    vec![Compute::None]
}

fn elapsed() -> String {
    "elapsed_ns".to_owned()
}

fn twelve() -> u32 {
    12
}

fn eight() -> u32 {
    8
}

/// How an experiment is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// A dot with its interval for each arm.
    #[default]
    Dots,
    /// A line over the factor `axis`, one for each arm name before expansion.
    Ladder,
    /// Readers × computers, shade for the metric.
    Heat,
    /// Cost over a logarithmic factor, one line for each arm name before expansion.
    Curve,
}

/// A plan to compare, or a family of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Name with factors in braces, such as `sync-n{n}`.
    pub name: String,
    /// Plan with factors in braces, such as `read/threads:n={n}`.
    pub plan: String,
    /// Factor values; the arm is expanded over their product.
    #[serde(default)]
    pub with: BTreeMap<String, Vec<f64>>,
    /// Runs in quick mode, all values.
    #[serde(default)]
    pub headline: bool,
    /// Runs in quick mode with these values only.
    #[serde(default)]
    pub headline_with: BTreeMap<String, Vec<f64>>,
    /// At most this many files of the set, factors in braces allowed.
    #[serde(default)]
    pub files_max: Option<String>,
    /// Overrides the set of the experiment, factors in braces allowed (`G-{size}`).
    #[serde(default)]
    pub set: Option<String>,
}

impl Arm {
    /// The name without its factors: the family that one line of a chart stands for.
    pub fn family(&self) -> String {
        let mut out = String::new();
        let mut depth = 0;
        for c in self.name.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ if depth == 0 => out.push(c),
                _ => {}
            }
        }
        out.trim_matches(|c| c == '-' || c == ' ').to_owned()
    }
}

//! Study files in TOML: experiments with their arms and file sets.
//!
//! The `plan` and `name` of an arm can contain `{n}`, `{n-1}` or `{n+1}` for a factor `n` in its
//! `with` table. The arm is then expanded for each value. `headline = true` marks arms that run in
//! quick mode, and `headline_with` selects their factor values.

use crate::{ColdBy, Compute, Condition, FileSetSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudySpec {
    /// Name on the command line.
    pub name: String,
    /// Title.
    pub title: String,
    /// Question answered by the study, in one or two sentences.
    pub question: String,
    /// Subject of the plans: `files` or another subject.
    #[serde(default = "files")]
    pub subject: String,
    /// Seed for the run order, unless specified on the command line, and for sets without a seed.
    #[serde(default = "one")]
    pub seed: u64,
    /// Time budget of quick mode, in seconds.
    #[serde(default = "ninety")]
    pub quick_budget_s: f64,
    /// File sets by name; empty if the subject does not use files.
    #[serde(default)]
    pub sets: BTreeMap<String, SetSpec>,
    /// Experiments in report order.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
}

fn one() -> u64 {
    1
}

fn files() -> String {
    "files".to_owned()
}

fn ninety() -> f64 {
    90.0
}

/// A file set, usually at its published size, with a smaller one for quick mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSpec {
    /// Description.
    pub about: String,
    /// The set for `--full`.
    pub full: FileSetSpec,
    /// The set for quick mode; the full set by default.
    #[serde(default)]
    pub quick: Option<FileSetSpec>,
    /// Number of files in the publication, if the full set has fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<u64>,
}

impl SetSpec {
    /// Returns the set with the number of files in the publication.
    pub fn as_published(&self) -> FileSetSpec {
        FileSetSpec { count: self.published.unwrap_or(self.full.count), ..self.full.clone() }
    }
}

/// Default number of blocks per experiment with `--full`.
pub const BLOCKS_FULL: u32 = 12;

/// An experiment: arms compared block by block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name, unique in the study.
    pub name: String,
    /// Question answered, in one sentence.
    pub question: String,
    /// File sets; each is a separate comparison. Empty only if the study has none.
    #[serde(default)]
    pub sets: Vec<String>,
    /// Conditions; each is a separate comparison.
    #[serde(default = "cold")]
    pub conditions: Vec<Condition>,
    /// Work on the data; each kind is a separate comparison.
    #[serde(default = "nothing")]
    pub computes: Vec<Compute>,
    /// What users ask that this experiment answers on the first page, such as `many small files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Name, with factors filled in, of the arm that the tools use by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<String>,
    /// Chart in the report.
    #[serde(default)]
    pub chart: Chart,
    /// Factor on the horizontal axis of the chart.
    #[serde(default)]
    pub axis: Option<String>,
    /// Metric on the vertical axis, as in `Measured::metric`.
    #[serde(default = "elapsed")]
    pub metric: String,
    /// Number of blocks with `--full`; a verdict requires at least 12. `--blocks` does not raise a
    /// smaller number, unless the experiment is selected by name.
    #[serde(default = "twelve")]
    pub blocks_full: u32,
    /// Number of blocks in quick mode; a verdict requires at least 12.
    #[serde(default = "eight")]
    pub blocks_quick: u32,
    /// Whether one arm runs twice per block, to measure the noise between runs of the same plan.
    /// Disabled if runs are long and no arms are compared.
    #[serde(default = "yes")]
    pub again: bool,
    /// Media on which it runs.
    #[serde(default)]
    pub media: MediaUse,
    /// Names, with factors filled in, of arms that run once before the first block with the most
    /// detailed trace that the system allows. These traces become the timelines of the report.
    /// Quick mode also runs them if their set already exists.
    #[serde(default)]
    pub pictures: Vec<String>,
    /// Arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
}

/// Media on which an experiment runs. Every experiment runs on media specified by the user. Media
/// added by a study (memory, a throttled disk) run only the ladders for the media table because
/// anything else would take hours and answer nothing new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MediaUse {
    /// The first medium and those specified by the user.
    #[default]
    First,
    /// Added media also run the arms with the `threads` schedule.
    Ladder,
    /// Like `ladder`, but skipped if there is only one medium. All arms run in quick mode.
    LadderOfSeveral,
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
    BLOCKS_FULL
}

fn yes() -> bool {
    true
}

fn eight() -> u32 {
    8
}

/// Extent of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Headline arms, smaller sets and a time budget.
    Quick,
    /// Every arm at published size.
    Full,
}

impl Mode {
    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// Name suffix of an arm's second run in a block, which measures how much repeated runs of a plan
/// differ.
pub const AGAIN: &str = " (again)";

/// Chart type of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// A dot with an interval for each arm.
    #[default]
    Dots,
    /// A line over the factor `axis` for each unexpanded arm.
    Ladder,
    /// Readers × compute threads, shaded by the metric.
    Heat,
    /// Cost over a logarithmic factor, with a line for each unexpanded arm.
    Curve,
}

/// A plan or a family of plans to compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Name with factors in braces, such as `sync-n{n}`.
    pub name: String,
    /// Plan with factors in braces, such as `read/threads:n={n}`.
    pub plan: String,
    /// What a user would call the plan, with factors in braces, such as `{n} threads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Factor values. The arm is expanded for every combination.
    #[serde(default)]
    pub with: BTreeMap<String, Vec<f64>>,
    /// Whether all values run in quick mode.
    #[serde(default)]
    pub headline: bool,
    /// Factor values that run in quick mode.
    #[serde(default)]
    pub headline_with: BTreeMap<String, Vec<f64>>,
    /// Maximum number of files, with factors in braces.
    #[serde(default)]
    pub files_max: Option<String>,
    /// File set that overrides the experiment's, with factors in braces (`G-{size}`).
    #[serde(default)]
    pub set: Option<String>,
    /// Cache eviction method for cold runs; by default the best available one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_by: Option<ColdBy>,
    /// Kernel settings for its runs, by name below `/proc/sys/vm`. Such an arm runs only if the
    /// user permits it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, u64>,
}

impl Arm {
    /// Returns the name without factors, used as the name of a line in a chart.
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

    /// Returns the points of its expansion: all combinations of factor values, with the last factor
    /// changing fastest. Without factors there is one empty point.
    pub fn points(&self) -> Vec<BTreeMap<String, f64>> {
        let mut points = vec![BTreeMap::new()];
        for (factor, values) in &self.with {
            let with_one = |point: &BTreeMap<String, f64>| {
                let point = point.clone();
                values.iter().map(move |value| {
                    let mut next = point.clone();
                    next.insert(factor.clone(), *value);
                    next
                })
            };
            points = points.iter().flat_map(with_one).collect();
        }
        points
    }

    /// Reports whether this point runs in quick mode.
    pub fn in_quick(&self, point: &BTreeMap<String, f64>) -> bool {
        if self.headline_with.is_empty() {
            return self.headline;
        }
        self.headline_with.iter().all(|(f, v)| point.get(f).is_some_and(|x| v.contains(x)))
    }
}

/// Replaces the braces in a template: `{n}` is a factor, and `{n-1}` is a factor and a whole number
/// joined by `+`, `-`, `*` or `/` (rounding down).
///
/// # Errors
/// Fails if a brace is unclosed or its content is invalid. The message lists the factors.
pub fn fill(template: &str, factors: &BTreeMap<String, f64>) -> Result<String, String> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let inner = &rest[open + 1..];
        let close = inner
            .find('}')
            .ok_or_else(|| format!("invalid template '{template}': missing '}}'"))?;
        let value = evaluate(inner[..close].trim(), factors).ok_or_else(|| {
            let known: Vec<_> = factors.keys().map(String::as_str).collect();
            format!(
                "invalid template '{template}': '{{{}}}' is not a factor (known: {}), optionally with + - \
                 * / and a whole number",
                &inner[..close],
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )
        })?;
        out.push_str(&value.to_string());
        rest = &inner[close + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn evaluate(expression: &str, factors: &BTreeMap<String, f64>) -> Option<f64> {
    if let Some(value) = factors.get(expression) {
        return Some(*value);
    }
    let at = expression.rfind(['+', '-', '*', '/'])?;
    let left = *factors.get(expression[..at].trim())?;
    let right = f64::from(expression[at + 1..].trim().parse::<u32>().ok()?);
    match expression.as_bytes()[at] {
        b'+' => Some(left + right),
        b'-' => Some(left - right),
        b'*' => Some(left * right),
        _ if right > 0.0 => Some((left / right).floor()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_template_causes_a_panic(template in "[a-z{}+*/ 0-9-]{0,30}", n in -1e6f64..1e6) {
            let factors = BTreeMap::from([("n".to_owned(), n)]);
            if let Ok(text) = fill(&template, &factors) {
                prop_assert!(!text.contains('{'), "{} from {}", text, template);
            }
        }
        #[test]
        fn factors_and_numbers_are_added_as_numbers(n in -1000i32..1000, m in 0u32..1000) {
            let factors = BTreeMap::from([("n".to_owned(), f64::from(n))]);
            let sum = (i64::from(n) + i64::from(m)).to_string();
            prop_assert_eq!(fill(&format!("{{n+{m}}}"), &factors).unwrap(), sum);
        }
    }

    #[test]
    fn braces_are_replaced() {
        let factors = BTreeMap::from([("n".to_owned(), 8.0), ("mib".to_owned(), 0.25)]);
        for (template, text) in [
            ("sync-{n}", "sync-8"),
            ("c={n-1},h={ n + 1 }", "c=7,h=9"),
            ("B-{mib}", "B-0.25"),
            ("{n*4}/{n/3}", "32/2"),
            ("plain", "plain"),
        ] {
            assert_eq!(fill(template, &factors).unwrap(), text);
        }
        for template in ["{m}", "{n", "{n-}", "{n/0}", "{}", "{n--1}"] {
            assert!(fill(template, &factors).is_err(), "{template}");
        }
    }

    #[test]
    fn arms_expand_over_all_values_and_quick_mode_selects_some() {
        let text = r#"{"name": "r{r}-c{c}", "plan": "x", "with": {"r": [1, 2], "c": [4, 8, 16]},
            "headline_with": {"c": [8]}}"#;
        let arm: Arm = serde_json::from_str(text).unwrap();
        let points = arm.points();
        assert_eq!(points.len(), 6);
        assert_eq!(points.iter().filter(|p| arm.in_quick(p)).count(), 2);
        let names: Vec<_> = points.iter().map(|p| fill(&arm.name, p).unwrap()).collect();
        assert_eq!(names[0], "r1-c4");
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 6);
        let text = r#"{"name": "a", "plan": "x", "headline": true}"#;
        let plain: Arm = serde_json::from_str(text).unwrap();
        assert_eq!(plain.points(), [BTreeMap::new()]);
        assert!(plain.in_quick(&plain.points()[0]));
    }
}

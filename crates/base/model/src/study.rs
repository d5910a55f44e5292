//! A study file: experiments, their arms and their sets, as TOML.
//!
//! An arm's `plan` and `name` may hold `{n}`, `{n-1}` or `{n+1}` for a factor `n` of its `with`
//! table; the arm is then expanded over all values. `headline = true` marks an arm that runs in
//! quick mode; `headline_with` names the factor values that do.

use crate::{ColdBy, Compute, Condition, FileSetSpec};
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
    /// Whose plans the arms are: the word of a subject, `files` or the name of another engine.
    #[serde(default = "files")]
    pub subject: String,
    /// Seed of the order of runs unless the command line gives one, and of sets without their own.
    #[serde(default = "one")]
    pub seed: u64,
    /// Seconds that quick mode may take.
    #[serde(default = "ninety")]
    pub quick_budget_s: f64,
    /// File sets by name; none if the subject needs no files.
    #[serde(default)]
    pub sets: BTreeMap<String, SetSpec>,
    /// Experiments in the order of the report.
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

/// Blocks of an experiment at `--full`, unless its study says otherwise.
pub const BLOCKS_FULL: u32 = 12;

/// One question of a study: arms that are compared block by block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name, unique in the study.
    pub name: String,
    /// What it asks, one sentence.
    pub question: String,
    /// Sets it runs on; each is an own comparison. Empty only where the study has none.
    #[serde(default)]
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
    /// Blocks at `--full`; at least 12 for a verdict. One that asks for fewer gets no more of them by
    /// `--blocks`, unless it is named.
    #[serde(default = "twelve")]
    pub blocks_full: u32,
    /// Blocks in quick mode; at least 8 for a verdict.
    #[serde(default = "eight")]
    pub blocks_quick: u32,
    /// Whether one of its arms runs twice in each block, so that a plan against itself shows the noise.
    /// Not where a run takes long and no two arms are compared.
    #[serde(default = "yes")]
    pub again: bool,
    /// What becomes of it where more than one medium is measured.
    #[serde(default)]
    pub media: MediaUse,
    /// Arms, by name with factors filled in, that run once more before the first block, watched as
    /// closely as the system allows: their traces become the timelines of the report. Quick mode runs
    /// them too, if their set is made anyway.
    #[serde(default)]
    pub pictures: Vec<String>,
    /// Arms.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
}

/// On which media an experiment runs. Media that the user names get every experiment; those that a
/// study adds by itself (memory, a slowed disk) get the ladders of the table of media alone, because
/// all else would take hours there and answer nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MediaUse {
    /// On the first medium, and on those that the user names.
    #[default]
    First,
    /// Its arms with a number of plain threads run on added media too.
    Ladder,
    /// As `ladder`, but not at all with one medium; all its arms run in quick mode.
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

/// How much of a study runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Headline arms, smaller sets, a budget of time.
    Quick,
    /// Every arm at published size.
    Full,
}

impl Mode {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// What the second run of the same arm in a block is called: the arm's name and this. It shows
/// how much a plan differs from itself.
pub const AGAIN: &str = " (again)";

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
    /// The one way in which its cold runs are made cold; without it the best there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_by: Option<ColdBy>,
    /// Settings of the kernel that are other ones for its runs, by their names below `/proc/sys/vm`.
    /// Such an arm runs only where the user agrees.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, u64>,
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

    /// The points that it is expanded over: the product of its factor values, the last factor
    /// changing fastest. One point without factors when it has none.
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

    /// Whether quick mode runs this point of it.
    pub fn in_quick(&self, point: &BTreeMap<String, f64>) -> bool {
        if self.headline_with.is_empty() {
            return self.headline;
        }
        self.headline_with.iter().all(|(f, v)| point.get(f).is_some_and(|x| v.contains(x)))
    }
}

/// A text of a study with every brace filled in: `{n}` is a factor, `{n-1}` a factor and a whole
/// number joined by `+`, `-`, `*` or `/` (which rounds down).
///
/// # Errors
/// A brace that is left open, or holds something else; the sentence names the factors there are.
pub fn fill(template: &str, factors: &BTreeMap<String, f64>) -> Result<String, String> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let inner = &rest[open + 1..];
        let close = inner.find('}').ok_or_else(|| format!("'{template}': a '}}' is missing"))?;
        let value = evaluate(inner[..close].trim(), factors).ok_or_else(|| {
            let known: Vec<_> = factors.keys().map(String::as_str).collect();
            format!(
                "'{template}': {{{}}} is no factor (there are: {}), nor one with + - * / and a \
                 whole number",
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
        fn no_template_panics(template in "[a-z{}+*/ 0-9-]{0,30}", n in -1e6f64..1e6) {
            let factors = BTreeMap::from([("n".to_owned(), n)]);
            if let Ok(text) = fill(&template, &factors) {
                prop_assert!(!text.contains('{'), "{} from {}", text, template);
            }
        }
        #[test]
        fn a_factor_and_a_number_are_added_as_numbers(n in -1000i32..1000, m in 0u32..1000) {
            let factors = BTreeMap::from([("n".to_owned(), f64::from(n))]);
            let sum = (i64::from(n) + i64::from(m)).to_string();
            prop_assert_eq!(fill(&format!("{{n+{m}}}"), &factors).unwrap(), sum);
        }
    }

    #[test]
    fn braces_are_filled_in() {
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
    fn an_arm_has_a_point_for_each_pair_of_values_and_quick_takes_the_named_ones() {
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

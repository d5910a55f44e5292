//! The output: a verdict with its reason and evidence, as printed by `ioloom claims --json`.

use ioloom_model::{Doubt, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`VerdictList`] and its contents.
pub const VERDICT_SCHEMA: u32 = 1;

/// What the effect of a contrast measures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Effect {
    /// No effect was measured.
    #[default]
    None,
    /// A ratio of two arms.
    Ratio,
    /// A difference in percentage points.
    Points,
    /// Share of the variance explained by a line.
    Explained,
    /// A level of a factor.
    Level,
    /// A rank correlation.
    Correlation,
    /// A difference of two shares.
    Share,
    /// A difference in the unit of the metric.
    Difference,
    /// A number of bytes.
    Bytes,
    /// A growth factor.
    Times,
    /// A recomputed published number, described in the claim.
    Stated(String),
}

impl Effect {
    /// Effects with a fixed name.
    const NAMED: [Self; 9] = [
        Self::Ratio,
        Self::Points,
        Self::Explained,
        Self::Level,
        Self::Correlation,
        Self::Share,
        Self::Difference,
        Self::Bytes,
        Self::Times,
    ];

    /// Returns the name used in documents, or an empty string without an effect.
    pub fn name(&self) -> &str {
        match self {
            Self::None => "",
            Self::Ratio => "ratio",
            Self::Points => "points",
            Self::Explained => "explained",
            Self::Level => "level",
            Self::Correlation => "correlation",
            Self::Share => "share",
            Self::Difference => "difference",
            Self::Bytes => "bytes",
            Self::Times => "times",
            Self::Stated(words) => words,
        }
    }
}

impl From<String> for Effect {
    fn from(name: String) -> Self {
        if name.is_empty() {
            return Self::None;
        }
        Self::NAMED.into_iter().find(|e| e.name() == name).unwrap_or(Self::Stated(name))
    }
}

impl From<Effect> for String {
    fn from(effect: Effect) -> Self {
        effect.name().to_owned()
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The basis of a verdict.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Effect size, in the unit of `effect_is`; `None` without an effect.
    pub effect: Option<f64>,
    /// Lower bound of the 95 % interval; `None` if there are too few blocks for an interval.
    pub lo: Option<f64>,
    /// Upper bound of the 95 % interval.
    pub hi: Option<f64>,
    /// What the effect measures.
    pub effect_is: Effect,
    /// Number of blocks in which every arm finished.
    pub blocks: usize,
    /// Arms that were compared.
    pub arms: Vec<String>,
    /// Sessions of the runs.
    pub sessions: Vec<String>,
    /// Additional numbers by name, with the unit as suffix.
    pub numbers: BTreeMap<String, f64>,
}

/// The result of one contrast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Kind of contrast, as in claims files.
    pub kind: String,
    /// Source of the numbers: experiment, file set, condition, compute.
    pub place: String,
    /// Verdict on this contrast alone.
    pub verdict: Verdict,
    /// Whether the statement held, even if simulated compute or a partial family limits the verdict
    /// to `scope`.
    pub holds: Option<bool>,
    /// The reason, in one sentence.
    pub sentence: String,
    /// Whether this is a note, which does not affect the verdict of the claim.
    pub note: bool,
    /// Evidence for the verdict.
    pub evidence: Evidence,
    /// Reasons to distrust it.
    pub doubts: Vec<Doubt>,
}

/// A published number with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedValue {
    /// Description of the number.
    pub what: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimVerdict {
    /// Identifier of the claim.
    pub id: String,
    /// Number of the published study the claim comes from.
    #[serde(rename = "seed")]
    pub source: u32,
    /// The statement.
    pub statement: String,
    /// Published numbers for the claim.
    pub published: Vec<PublishedValue>,
    /// Circumstances in which the claim can hold.
    pub scope: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, including the effect and its interval in words.
    pub sentence: String,
    /// Evidence of the first contrast that decided the verdict.
    pub evidence: Evidence,
    /// Reasons to distrust the verdict.
    pub doubts: Vec<Doubt>,
    /// The result of each contrast and note.
    pub parts: Vec<Part>,
}

/// The document of `ioloom claims --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictList {
    /// [`VERDICT_SCHEMA`].
    pub schema: u32,
    /// Claims, in the order of the built-in files.
    pub claims: Vec<ClaimVerdict>,
}

impl VerdictList {
    /// Returns a document that contains these verdicts.
    pub fn new(claims: Vec<ClaimVerdict>) -> Self {
        Self { schema: VERDICT_SCHEMA, claims }
    }
}

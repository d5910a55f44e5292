//! The output: a verdict with its reason and its evidence, as `ioloom claims --json` prints it.

use ioloom_model::{Doubt, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`VerdictList`] and of everything in it.
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
    /// A share of the variance explained by a line.
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
    /// A published number that was recomputed, in the words of the claim.
    Stated(String),
}

impl Effect {
    /// Every effect with a fixed name.
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

    /// Returns the name in documents; empty without an effect.
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

/// What a verdict is based on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Size of the effect, in the unit of `effect_is`; `None` without an effect.
    pub effect: Option<f64>,
    /// Lower end of its 95 % interval; `None` if there are too few blocks for an interval.
    pub lo: Option<f64>,
    /// Upper end of its 95 % interval.
    pub hi: Option<f64>,
    /// What the effect measures.
    pub effect_is: Effect,
    /// Number of blocks in which every arm finished.
    pub blocks: usize,
    /// Arms that were compared.
    pub arms: Vec<String>,
    /// Sessions of the runs.
    pub sessions: Vec<String>,
    /// Further numbers by name; a unit is the end of the name.
    pub numbers: BTreeMap<String, f64>,
}

/// The result of one contrast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Kind of the contrast, as in files of claims.
    pub kind: String,
    /// Where its numbers come from: experiment, file set, condition, compute.
    pub place: String,
    /// The verdict on this contrast alone.
    pub verdict: Verdict,
    /// Whether the statement held, even if simulated compute or a partial family limits the verdict
    /// to `scope`.
    pub holds: Option<bool>,
    /// The reason, in one sentence.
    pub sentence: String,
    /// Whether it is a note, which does not affect the verdict of the claim.
    pub note: bool,
    /// What it is based on.
    pub evidence: Evidence,
    /// Reasons to distrust it.
    pub doubts: Vec<Doubt>,
}

/// A published number with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedValue {
    /// What the number is.
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
    /// Number of the published study that the claim comes from.
    #[serde(rename = "seed")]
    pub source: u32,
    /// The statement.
    pub statement: String,
    /// The numbers published for it.
    pub published: Vec<PublishedValue>,
    /// The circumstances in which it can hold.
    pub scope: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, with the effect and its interval in words.
    pub sentence: String,
    /// What the verdict is based on: the evidence of the first contrast that decided.
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
    /// The claims, in the order of the built-in files.
    pub claims: Vec<ClaimVerdict>,
}

impl VerdictList {
    /// Returns a document of these verdicts.
    pub fn new(claims: Vec<ClaimVerdict>) -> Self {
        Self { schema: VERDICT_SCHEMA, claims }
    }
}

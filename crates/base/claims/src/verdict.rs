//! What comes out: a verdict with its reason and its evidence, as `ioloom claims --json` prints it.

use ioloom_model::{Doubt, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`VerdictList`] and of everything inside it.
pub const VERDICT_SCHEMA: u32 = 1;

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Size of the effect, in the unit that `effect_is` names; `None` without one.
    pub effect: Option<f64>,
    /// Lower end of its 95 % interval; what has too few blocks for one has no effect here.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// What the effect is: `ratio`, `points`, `explained`, `ns`, `level` and the like.
    pub effect_is: String,
    /// Blocks in which every arm finished.
    pub blocks: usize,
    /// Arms that were compared.
    pub arms: Vec<String>,
    /// Sessions that the runs come from.
    pub sessions: Vec<String>,
    /// Further numbers by name, units last.
    pub numbers: BTreeMap<String, f64>,
}

/// The answer of one contrast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Kind of the contrast, as in the ledger.
    pub kind: String,
    /// Where: experiment, set, condition, compute.
    pub place: String,
    /// Its answer.
    pub verdict: Verdict,
    /// Whether the statement held, also where stand-ins make the verdict `scope`.
    pub holds: Option<bool>,
    /// Why, in one sentence.
    pub sentence: String,
    /// Whether it was only noted and did not decide.
    pub note: bool,
    /// What it rests on.
    pub evidence: Evidence,
    /// Reasons to distrust it.
    pub doubts: Vec<Doubt>,
}

/// A published number with its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedValue {
    /// What it is.
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
    /// Number of its seed.
    pub seed: u32,
    /// The statement.
    pub statement: String,
    /// What was published for it.
    pub published: Vec<PublishedValue>,
    /// When it can hold.
    pub scope: String,
    /// The answer.
    pub verdict: Verdict,
    /// Why, with the effect and its interval in words.
    pub sentence: String,
    /// What the answer rests on: that of the first contrast that decided.
    pub evidence: Evidence,
    /// Reasons to distrust the answer.
    pub doubts: Vec<Doubt>,
    /// The answer of each contrast and note.
    pub parts: Vec<Part>,
}

/// The document of `ioloom claims --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictList {
    /// [`VERDICT_SCHEMA`].
    pub schema: u32,
    /// The claims in the order of the ledger.
    pub claims: Vec<ClaimVerdict>,
}

impl VerdictList {
    /// A document of these verdicts.
    pub fn new(claims: Vec<ClaimVerdict>) -> Self {
        Self { schema: VERDICT_SCHEMA, claims }
    }
}

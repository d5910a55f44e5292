//! Claims: a statement, the numbers published for it, and the contrasts that test it.
//!
//! Contrasts are data: anyone can read in advance what would confirm a claim. A contrast names arms
//! by the patterns of the study (`sync-{n}` is a family) and numbers by a metric of
//! `ioloom_model::Measured` or a formula over metrics (`elapsed_ns - calls.read.total_ns`). It
//! names published numbers by a path into `studies/NAME/data`. Every contrast contributes to the
//! verdict on its claim; see [`crate::verdict()`].

use crate::contrast::Contrast;
use crate::{ClaimsError, data};
use serde::Deserialize;

/// A claims file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerFile {
    /// The claims in the file.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// A testable statement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Identifier, such as `000-P01`.
    pub id: String,
    /// Number of the published study that the claim comes from.
    #[serde(rename = "seed")]
    pub source: u32,
    /// Identifier of an equivalent claim. If set, this claim uses its tests and has none itself.
    #[serde(default)]
    pub same_as: Option<String>,
    /// The statement in plain English.
    pub statement: String,
    /// Published numbers; empty if the claim was published without any.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Circumstances in which the claim can hold.
    pub scope: String,
    /// Alternative explanations for the published result.
    #[serde(default)]
    pub confounds: Vec<String>,
    /// Results that would confirm the claim, in words.
    pub confirms: String,
    /// Results that would refute the claim, in words.
    pub refutes: String,
    /// How contrast results combine into one verdict.
    #[serde(default)]
    pub combine: Combine,
    /// Tests: at least one, unless `same_as` is set.
    #[serde(rename = "contrast", default)]
    pub contrasts: Vec<Contrast>,
    /// Tests that are evaluated and reported but do not affect the verdict.
    #[serde(rename = "note", default)]
    pub notes: Vec<Contrast>,
}

/// How contrast results combine into one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Each contrast covers a different situation. A claim that holds in some and fails in others
    /// is limited in scope.
    #[default]
    Places,
    /// All contrasts must hold; a single failure refutes the claim.
    All,
}

/// A published number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Description of the number.
    pub what: String,
    /// Path to the number, such as `000_roles[12,12].elapsed_ms`.
    pub from: String,
    /// Unit of the number.
    pub unit: String,
}

impl Published {
    /// Returns the number.
    ///
    /// # Errors
    /// Fails if the path does not resolve to a number.
    pub fn value(&self) -> Result<f64, ClaimsError> {
        data::number(&self.from)
    }
}

//! Claims: a statement, the numbers published for it, and the contrasts that test it.
//!
//! Contrasts are data, so that anyone can read what would confirm a claim before it is measured.
//! Arms are named by the patterns of the study (`sync-{n}` is a family), numbers by metrics of
//! `ioloom_model::Measured` or by a formula over them (`elapsed_ns - calls.read.total_ns`), and
//! published numbers by a path into `studies/NAME/data`. All contrasts of a claim take part in its
//! verdict; see [`crate::verdict()`].

use crate::contrast::Contrast;
use crate::{ClaimsError, data};
use serde::Deserialize;

/// A file of claims.
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
    /// Identifier of an equivalent claim, whose tests are used. This claim then has none of its own.
    #[serde(default)]
    pub same_as: Option<String>,
    /// The statement in plain English.
    pub statement: String,
    /// The numbers published for it; empty if it was stated without numbers.
    #[serde(default)]
    pub published: Vec<Published>,
    /// The circumstances in which it can hold.
    pub scope: String,
    /// Other explanations for what was published.
    #[serde(default)]
    pub confounds: Vec<String>,
    /// What confirms it, in words.
    pub confirms: String,
    /// What refutes it, in words.
    pub refutes: String,
    /// How the results of its contrasts combine into one verdict.
    #[serde(default)]
    pub combine: Combine,
    /// The tests: at least one, unless `same_as` is set.
    #[serde(rename = "contrast", default)]
    pub contrasts: Vec<Contrast>,
    /// Tests that are evaluated and shown but do not affect the verdict.
    #[serde(rename = "note", default)]
    pub notes: Vec<Contrast>,
}

/// How the results of the contrasts combine into one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Each contrast is a separate circumstance. A claim that holds in some and fails in others has
    /// a limited scope.
    #[default]
    Places,
    /// All contrasts must hold; one that fails refutes the claim.
    All,
}

/// A published number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What the number is, in words.
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
    /// Fails if the path does not lead to a number.
    pub fn value(&self) -> Result<f64, ClaimsError> {
        data::number(&self.from)
    }
}

//! Claims: a statement, the numbers published for it, and the contrasts that test it.
//!
//! Contrasts are data: anyone can read in advance what would confirm a claim. A contrast names arms
//! by the patterns of the study (`sync-{n}` is a family) and numbers by a metric of
//! `ioloom_model::Measured` or a formula over metrics (`elapsed_ns - calls.read.total_ns`). It
//! names published numbers by a path into `studies/NAME/data`. Every contrast contributes to the
//! verdict on its claim; see [`crate::verdicts()`]. A claim has a fingerprint of its contrasts and
//! thresholds. A session stores it before its first run, so a later change can be shown.

use crate::contrast::Contrast;
use crate::{ClaimsError, data, formula};
use ioloom_model::RunRecord;
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
    /// What the tests cannot show, in a sentence that is printed with the verdict.
    #[serde(default)]
    pub caveat: Option<String>,
    /// Results that would confirm the claim, in words.
    pub confirms: String,
    /// Results that would refute the claim, in words.
    pub refutes: String,
    /// Whether the claim is about the size of its file sets, so that smaller ones cannot decide it.
    #[serde(default)]
    pub full_size: bool,
    /// Hardware that the statement is about. Runs on other hardware only limit its scope.
    #[serde(default)]
    pub hardware: Option<Hardware>,
    /// How contrast results combine into one verdict.
    #[serde(default)]
    pub combine: Combine,
    /// Tests: at least one, unless `same_as` is set.
    #[serde(rename = "contrast", default)]
    pub contrasts: Vec<Test>,
    /// Tests that are evaluated and reported but do not affect the verdict.
    #[serde(rename = "note", default)]
    pub notes: Vec<Test>,
    /// Fingerprint of the contrasts and of how they combine, 16 digits.
    #[serde(skip)]
    pub definition: String,
    /// Fingerprints of the same contrasts under earlier versions of the rule.
    #[serde(skip)]
    pub earlier_definitions: Vec<String>,
}

/// The hardware that a claim is about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Its name, such as `a hard disk`.
    pub name: String,
    /// The `rotational` flag of its medium. Hardware that records do not describe is never recognised.
    #[serde(default)]
    pub rotational: Option<bool>,
}

impl Hardware {
    /// Reports whether a run used this hardware. The `rotational` flag of virtual disks is ignored: most
    /// claim to rotate. A virtual disk that presents itself as a SCSI disk is not recognised.
    pub fn is_of(&self, record: &RunRecord) -> bool {
        const VIRTUAL: [&str; 5] = ["vd", "xvd", "loop", "nbd", "zram"];
        let Some(medium) = record.set.medium.as_ref() else { return false };
        let Some(disk) = medium.block_device.as_deref() else { return false };
        let is_virtual = VIRTUAL.iter().any(|prefix| disk.starts_with(prefix));
        self.rotational.is_some() && medium.rotational == self.rotational && !is_virtual
    }
}

/// A contrast with the published effect that it repeats.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Test {
    /// The contrast.
    #[serde(flatten)]
    pub contrast: Contrast,
    /// Formula over paths to published numbers for the published size of the effect, in the unit of
    /// the contrast. It does not affect the verdict, but the verdict says whether the measured effect
    /// agrees with it.
    #[serde(default)]
    pub size: Option<String>,
    /// Why no size is stated. It is only a word, so it does not change the fingerprint.
    #[serde(default)]
    pub no_size: Option<NoSize>,
    /// Reason for the threshold of the contrast.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Why a contrast states no published size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum NoSize {
    /// The publication states a direction, an order or an equality without a number.
    #[serde(rename = "direction only")]
    Direction,
    /// The published numbers are of another quantity, or of other levels or circumstances.
    #[serde(rename = "another quantity")]
    Other,
    /// The statement is not published: it is proposed here to explain published results.
    #[serde(rename = "not published")]
    Unpublished,
}

impl std::ops::Deref for Test {
    type Target = Contrast;

    fn deref(&self) -> &Contrast {
        &self.contrast
    }
}

impl Test {
    /// Returns the published size of the effect, if it was published.
    ///
    /// # Errors
    /// Fails if the formula is malformed or a path does not resolve to a number.
    pub fn published_size(&self) -> Result<Option<f64>, ClaimsError> {
        let Some(size) = &self.size else { return Ok(None) };
        for path in formula::names(size) {
            data::number(path)?;
        }
        let wrong = |reason: String| ClaimsError::Path { path: size.clone(), reason };
        let value = formula::evaluate(size, |path| data::number(path).ok())
            .map_err(|e| wrong(e.to_string()))?;
        if value.is_finite() { Ok(Some(value)) } else { Err(wrong("it is not finite".to_owned())) }
    }
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
    /// One contrast that holds is enough; only if all fail is the claim refuted.
    Any,
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

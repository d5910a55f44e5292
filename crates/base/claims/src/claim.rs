//! What a claim is: a statement, what was published for it, and the contrasts that test it.
//!
//! A contrast is data, so that anyone can read what would confirm a claim before it is measured.
//! Arms are named by the patterns of the study (`sync-{n}` is a family), numbers by metrics of
//! `ioloom_model::Measured` or by a formula over them (`elapsed_ns - calls.read.total_ns`),
//! published numbers by a path into `studies/NAME/data`. A claim with several contrasts is judged by all
//! of them: see [`crate::verdict()`].

use crate::{ClaimsError, data};
use ioloom_stats::Claimed;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A ledger file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerFile {
    /// Its claims.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// A testable statement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Identifier, such as `000-P01`.
    pub id: String,
    /// Number of the seed it comes from.
    pub seed: u32,
    /// The claim that says the same: its tests are those of this one, which has none of its own.
    #[serde(default)]
    pub same_as: Option<String>,
    /// The statement in plain English.
    pub statement: String,
    /// The numbers published for it; empty if it was stated without numbers.
    #[serde(default)]
    pub published: Vec<Published>,
    /// When it can hold.
    pub scope: String,
    /// What else could explain what was published.
    #[serde(default)]
    pub confounds: Vec<String>,
    /// What confirms it, in words.
    pub confirms: String,
    /// What refutes it, in words.
    pub refutes: String,
    /// How its contrasts make one verdict.
    #[serde(default)]
    pub combine: Combine,
    /// The tests, at least one, or those of `same_as`.
    #[serde(rename = "contrast", default)]
    pub contrasts: Vec<Contrast>,
    /// Tests that are evaluated and shown, but do not decide.
    #[serde(rename = "note", default)]
    pub notes: Vec<Contrast>,
}

/// How the contrasts of a claim make one verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combine {
    /// Each is a circumstance: a claim that holds in one and not in another has a scope.
    #[default]
    Places,
    /// They belong together: one that does not hold refutes the claim.
    All,
}

/// A published number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it is, in words.
    pub what: String,
    /// Path to it, such as `000_roles[12,12].elapsed_ms`.
    pub from: String,
    /// Its unit.
    pub unit: String,
}

impl Published {
    /// The number.
    ///
    /// # Errors
    /// The path leads to no number.
    pub fn value(&self) -> Result<f64, ClaimsError> {
        data::number(&self.from)
    }
}

/// Which comparison of which study.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Name of the study.
    #[serde(default = "pipeline")]
    pub study: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the set; `G-*` stands for all names that begin so. Always given, so that runs on a
    /// user's own directory never decide a claim about a published set.
    pub set: String,
    /// Condition, needed where the experiment has several.
    #[serde(default)]
    pub condition: Option<ioloom_model::Condition>,
    /// Work, needed where the experiment has several.
    #[serde(default)]
    pub compute: Option<ioloom_model::Compute>,
    /// Word of the medium; without it the best group of sessions is taken, those of the work
    /// directory or of an image in its place before those of further media.
    #[serde(default)]
    pub medium: Option<String>,
}

fn pipeline() -> String {
    "pipeline".to_owned()
}

fn elapsed() -> String {
    "elapsed_ns".to_owned()
}

/// The shape of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Every level is the same as the lowest within the margin.
    Flat,
    /// The highest level is above the lowest, and no step goes clearly down.
    Rising,
    /// The highest level is below the lowest, and no step goes clearly up.
    Falling,
    /// The smallest level within the margin of the best lies in `within`.
    Knee,
    /// The level with the lowest value lies in `within`.
    Lowest,
}

/// One test of a claim.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Contrast {
    /// `a` over `b`, block by block.
    Ratio {
        /// Where both arms ran, or the first of them.
        at: Place,
        /// Where the second arm ran, if that is another place of the same study.
        #[serde(default)]
        at_b: Option<Box<Place>>,
        /// First arm.
        a: String,
        /// Second arm.
        b: String,
        /// Number or formula.
        #[serde(default = "elapsed")]
        metric: String,
        /// Another number or formula for `b`.
        #[serde(default)]
        metric_b: Option<String>,
        /// What is claimed of `a / b`.
        claim: Claimed,
        /// Claimed factor: `greater` with 10 claims that `a` is at least ten times `b`.
        #[serde(default)]
        times: Option<f64>,
        /// Smallest share that counts, in place of the rule's.
        #[serde(default)]
        margin: Option<f64>,
    },
    /// The best arm of one family over the best of another.
    RatioOfBest {
        /// Where all arms ran.
        at: Place,
        /// First family.
        a: Vec<String>,
        /// Second family.
        b: Vec<String>,
        /// Number or formula; lower is better.
        #[serde(default = "elapsed")]
        metric: String,
        /// What is claimed of `a / b`.
        claim: Claimed,
        /// Smallest share that counts, in place of the rule's.
        #[serde(default)]
        margin: Option<f64>,
    },
    /// The shape of a family over a factor.
    Ladder {
        /// Where the arms ran.
        at: Place,
        /// The family.
        arms: String,
        /// The factor.
        axis: String,
        /// Number or formula.
        #[serde(default = "elapsed")]
        metric: String,
        /// The claimed shape.
        shape: Shape,
        /// Lowest and highest level looked at; all without it.
        #[serde(default)]
        levels: Option<[f64; 2]>,
        /// Where the knee or the lowest value is claimed to lie.
        #[serde(default)]
        within: Option<[f64; 2]>,
        /// Smallest share that counts, in place of the rule's.
        #[serde(default)]
        margin: Option<f64>,
    },
    /// A straight line with a rising slope over a factor.
    Linear {
        /// Where the arms ran.
        at: Place,
        /// The family.
        arms: String,
        /// The factor.
        axis: String,
        /// Number or formula.
        metric: String,
        /// Least share of the variance that the line explains.
        r2: f64,
        /// Least growth from the lowest level to the highest, as a factor.
        growth: f64,
    },
    /// Where one family begins to beat another.
    Crossing {
        /// Where the arms ran; over `compute` all computes of the experiment are taken.
        at: Place,
        /// Family that is claimed to be higher above the crossing.
        a: String,
        /// Family that is claimed to be higher below it.
        b: String,
        /// A factor, or `compute` for the mean demand in nanoseconds.
        axis: String,
        /// Number or formula.
        #[serde(default = "elapsed")]
        metric: String,
        /// What the place of the crossing must agree with.
        #[serde(default)]
        law: Option<Law>,
    },
    /// Difference of two shares in percentage points.
    Share {
        /// Where both arms ran.
        at: Place,
        /// First arm.
        a: String,
        /// Second arm.
        b: String,
        /// Share or sum of shares, 0 to 1.
        metric: String,
        /// Claimed: `a - b` is at least this many points; negative claims at most.
        points: f64,
    },
    /// How the gain `a - b` changes between two levels.
    Gain {
        /// Where the arms ran; over `compute` all computes of the experiment are taken.
        at: Place,
        /// Slower family.
        a: String,
        /// Faster family.
        b: String,
        /// A factor, or `compute` for the mean demand in nanoseconds.
        axis: String,
        /// Lower and higher level.
        levels: [f64; 2],
        /// As a share of `a` and not in units of the metric.
        relative: bool,
        /// Number or formula.
        #[serde(default = "elapsed")]
        metric: String,
        /// What is claimed of the gain at the higher level against the lower.
        claim: Claimed,
    },
    /// The best arm of one place is not the best in another.
    Optimum {
        /// First place.
        at: Place,
        /// Second place.
        other: Place,
        /// The family.
        arms: String,
        /// Number or formula; lower is better.
        #[serde(default = "elapsed")]
        metric: String,
    },
    /// Two numbers go together over arms.
    Correlation {
        /// Where the arms ran.
        at: Place,
        /// Families.
        arms: Vec<String>,
        /// First number or formula.
        x: String,
        /// Second number or formula.
        y: String,
        /// Whether `y` grows with `x`.
        rising: bool,
        /// Least rank correlation, without its sign.
        rho: f64,
    },
    /// A curve that the run itself recorded.
    Curve {
        /// Where the arm ran.
        at: Place,
        /// The arm.
        arm: String,
        /// Name of the curve in the record: the stops of a walk, offset in bytes and time in
        /// nanoseconds, file after file.
        curve: String,
        /// What is read off it.
        of: CurveNumber,
        /// Where it is claimed to lie.
        within: [f64; 2],
    },
    /// One arm on two media.
    Media {
        /// Where the arm ran.
        at: Place,
        /// The arm.
        arm: String,
        /// Number or formula.
        metric: String,
        /// Smallest share that counts, in place of the rule's.
        #[serde(default)]
        margin: Option<f64>,
    },
    /// A statement about the published numbers, recomputed.
    Published {
        /// Paths to published numbers by the name that the formula uses.
        values: BTreeMap<String, String>,
        /// Formula over these names.
        formula: String,
        /// Where the result lies if the statement follows from the numbers.
        within: [f64; 2],
        /// What was recomputed, in words.
        says: String,
    },
    /// Not tested by this version or on such machines.
    Untested {
        /// What is missing.
        needs: String,
    },
}

/// A closed form that predicts where two families cross.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Law {
    /// `n = 1 + W/R`, W the compute and R the read wait of all threads.
    ReaderPays {
        /// Largest error, in units of the factor.
        within: f64,
    },
}

/// A number read off the stops of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CurveNumber {
    /// Median distance in bytes between neighbouring stops of a file.
    Period,
    /// Median time of the stops in the last quarter of the offsets over that in the first.
    Growth,
}

impl Place {
    /// Whether the set of a run is the one meant.
    pub fn has_set(&self, name: &str) -> bool {
        match self.set.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.set,
        }
    }
}

impl Contrast {
    /// The places it needs runs from.
    pub fn places(&self) -> Vec<&Place> {
        match self {
            Self::Ratio { at, at_b: Some(other), .. } => vec![at, other],
            Self::Ratio { at, .. }
            | Self::RatioOfBest { at, .. }
            | Self::Ladder { at, .. }
            | Self::Linear { at, .. }
            | Self::Crossing { at, .. }
            | Self::Share { at, .. }
            | Self::Gain { at, .. }
            | Self::Correlation { at, .. }
            | Self::Curve { at, .. }
            | Self::Media { at, .. } => vec![at],
            Self::Optimum { at, other, .. } => vec![at, other],
            Self::Published { .. } | Self::Untested { .. } => vec![],
        }
    }

    /// The arms and families it names.
    pub fn patterns(&self) -> Vec<&str> {
        match self {
            Self::Ratio { a, b, .. }
            | Self::Crossing { a, b, .. }
            | Self::Share { a, b, .. }
            | Self::Gain { a, b, .. } => vec![a, b],
            Self::RatioOfBest { a, b, .. } => a.iter().chain(b).map(String::as_str).collect(),
            Self::Correlation { arms, .. } => arms.iter().map(String::as_str).collect(),
            Self::Ladder { arms, .. } | Self::Linear { arms, .. } | Self::Optimum { arms, .. } => {
                vec![arms]
            }
            Self::Curve { arm, .. } | Self::Media { arm, .. } => vec![arm],
            Self::Published { .. } | Self::Untested { .. } => vec![],
        }
    }

    /// The factor that levels are taken from.
    pub fn axis(&self) -> Option<&str> {
        match self {
            Self::Ladder { axis, .. }
            | Self::Linear { axis, .. }
            | Self::Crossing { axis, .. }
            | Self::Gain { axis, .. } => Some(axis),
            _ => None,
        }
    }

    /// The metrics and formulas it uses.
    pub fn metrics(&self) -> Vec<&str> {
        match self {
            Self::Ratio { metric, metric_b, .. } => {
                std::iter::once(metric).chain(metric_b).map(String::as_str).collect()
            }
            Self::RatioOfBest { metric, .. }
            | Self::Ladder { metric, .. }
            | Self::Linear { metric, .. }
            | Self::Crossing { metric, .. }
            | Self::Share { metric, .. }
            | Self::Gain { metric, .. }
            | Self::Optimum { metric, .. }
            | Self::Media { metric, .. } => vec![metric],
            Self::Correlation { x, y, .. } => vec![x, y],
            Self::Curve { .. } | Self::Published { .. } | Self::Untested { .. } => vec![],
        }
    }
}

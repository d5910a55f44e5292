//! Two arms of one experiment, compared block by block.
//!
//! The runs of a block are adjacent in time, so a slow machine slows both and cancels out in their
//! ratio. The effect is the median of `ln(a / b)` over the blocks, with the exact interval between
//! order statistics; both are transformed back by the exponential. The logarithm
//! makes the result symmetric: `b` relative to `a` is exactly the inverse, and a margin of 5 % is a
//! factor of 1.05 in either direction. Swapping both the arms and the claim never changes a
//! judgement; only [`Claimed::AtMost`] has no counterpart.
//!
//! A difference is shown by the signed ranks of the blocks, which need fewer blocks than an interval
//! between order statistics and are exact if the arms of a block are exchangeable when nothing differs.
//! Equality is shown by the interval. So an interval can include 1 by little although the
//! difference is significant. Two arms with the same median, only one of which is skewed, are not
//! exchangeable, and signed ranks would call them different too often. The p-value therefore contains
//! as much of the sign test, which belongs to the interval, as the values are skewed or in two groups
//! ([`shift_test`], [`SignWeight`]). If the sign test has the whole weight, the p-value is at most `p` only
//! if the interval of confidence `1 - p` excludes 1.
//!
//! The rule in [`decide`], with `m` as the factor `1 + margin`:
//! - fewer blocks than the minimum, or than a 95 % interval needs (6): undecided;
//! - confirmed, for a claimed difference: significant at 5 %, on the claimed side, and the effect is
//!   at least `m`; for claimed equality: the interval is within `1/m ..= m`;
//! - refuted, for a claimed difference: significant on the other side, or the interval is within
//!   `1/m ..= m`; for claimed equality: the interval is entirely outside `1/m ..= m`;
//! - for the claim that `a` is greater by at most the margin, only the upper bound `m` matters: confirmed
//!   if the interval does not exceed it, refuted if the interval is entirely above it;
//! - anything else: undecided.

use crate::StatsError;
use crate::bootstrap::log_ratios;
use crate::interval::CONFIDENCE;
use crate::order::{median_interval, sign_test};
use crate::shape::SignWeight;
use crate::signed_rank::SignedRank;
use crate::summary::{MAD_TO_SD, mad};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Comparison of arm `a` with arm `b` on the same blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// `a / b`, from the median of the logarithms: 0.8 means that `a` is 20 % less.
    pub ratio: f64,
    /// Lower bound of the interval; below 6 blocks, the minimum.
    pub lo: f64,
    /// Upper bound of the interval; below 6 blocks, the maximum.
    pub hi: f64,
    /// Confidence of the two bounds, as in [`Interval::confidence`](crate::Interval::confidence).
    pub confidence: f64,
    /// Number of blocks.
    pub n: usize,
    /// Two-sided p-value of no difference over the blocks, by [`shift_test`].
    pub p: f64,
    /// Scatter of single-block ratios as a share: `exp(1.4826 MAD of ln(a/b)) - 1`. With 0.1,
    /// blocks typically deviate by 10 % from the ratio. This is not the uncertainty of the ratio.
    pub noise: f64,
}

impl Ratio {
    /// Compares two arms. `a[i]` and `b[i]` come from the same block.
    ///
    /// # Errors
    /// Fails if lengths differ, there are fewer than 2 blocks, or a value is not finite and above
    /// zero.
    pub fn of(a: &[f64], b: &[f64]) -> Result<Self, StatsError> {
        Self::of_logs(&log_ratios(a, b)?)
    }

    /// Summarises the logarithms of the ratios of at least 2 blocks.
    ///
    /// # Errors
    /// Fails if there are too few values or a value is not finite.
    pub fn of_logs(logs: &[f64]) -> Result<Self, StatsError> {
        let interval = median_interval(logs, CONFIDENCE)?.map(f64::exp);
        Ok(Self {
            ratio: interval.estimate,
            lo: interval.lo,
            hi: interval.hi,
            confidence: interval.confidence,
            n: logs.len(),
            p: shift_test(logs, 0.0)?.two_sided(),
            noise: (MAD_TO_SD * mad(logs)).exp() - 1.0,
        })
    }

    /// Returns the comparison of `b` with `a`.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self { ratio: 1.0 / self.ratio, lo: 1.0 / self.hi, hi: 1.0 / self.lo, ..self }
    }

    /// Reports whether the bounds form a 95 % interval. Otherwise there are too few blocks and the
    /// bounds are their range.
    pub fn reaches_confidence(&self) -> bool {
        self.confidence >= CONFIDENCE
    }

    /// Returns the effect size without its direction, as a share: 0.25 for a ratio of 1.25 or 0.8.
    pub fn effect(&self) -> f64 {
        self.ratio.ln().abs().exp() - 1.0
    }
}

/// The claim about `a / b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claimed {
    /// `a` is less than `b`.
    Less,
    /// `a` is greater than `b`.
    Greater,
    /// `a` and `b` are equal within the margin.
    Equal,
    /// `a` is less than `b`, or greater by at most the margin.
    AtMost,
}

/// Outcome of the rule for one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// The data support the claim.
    Confirmed,
    /// The data contradict the claim.
    Refuted,
    /// The data are compatible with both answers.
    Undecided,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Undecided => "undecided",
        })
    }
}

/// Reason for a judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Fewer blocks than required by the rule or by a 95 % interval.
    FewBlocks,
    /// The difference is significant, on the claimed side, and reaches the margin.
    ClaimedSide,
    /// The difference is significant and on the other side.
    OtherSide,
    /// The interval is within the margin.
    WithinMargin,
    /// The interval is entirely outside the margin.
    OutsideMargin,
    /// The interval does not exceed the upper bound of the margin.
    NotAboveMargin,
    /// The interval is entirely above the upper bound of the margin.
    AboveMargin,
    /// The difference is significant and on the claimed side, but does not reach the margin.
    SmallEffect,
    /// The blocks allow both answers.
    WideInterval,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FewBlocks => "fewer blocks than the rule requires",
            Self::ClaimedSide => {
                "the blocks are on the claimed side and the effect reaches the margin"
            }
            Self::OtherSide => "the blocks are on the other side",
            Self::WithinMargin => "the interval is within the margin",
            Self::OutsideMargin => "the interval is entirely outside the margin",
            Self::NotAboveMargin => "the interval does not exceed the margin",
            Self::AboveMargin => "the interval is entirely above the margin",
            Self::SmallEffect => {
                "the blocks are on the claimed side, but the effect does not reach the margin"
            }
            Self::WideInterval => "the blocks differ too much to decide",
        })
    }
}

/// Parameters of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Smallest effect that counts, as a share; 0.05 is a factor of 1.05 in either direction.
    pub margin: f64,
    /// Minimum number of blocks for a decided judgement.
    pub blocks_min: usize,
}

impl Rule {
    /// Margin 5 %, 12 blocks.
    pub const FULL: Self = Self { margin: 0.05, blocks_min: 12 };
}

/// A judgement with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The judgement.
    pub judgement: Judgement,
    /// Its reason.
    pub reason: Reason,
}

/// Judges a comparison by the rule of this module. A comparison or margin that is NaN gives
/// undecided.
pub fn decide(ratio: &Ratio, claimed: Claimed, rule: &Rule) -> Decision {
    let decision = |judgement, reason| Decision { judgement, reason };
    if ratio.n < rule.blocks_min || !ratio.reaches_confidence() {
        return decision(Judgement::Undecided, Reason::FewBlocks);
    }
    match claimed {
        Claimed::Less => decide_less(ratio, rule),
        Claimed::Greater => decide_less(&ratio.inverse(), rule),
        Claimed::Equal => {
            let factor = 1.0 + rule.margin;
            if within(ratio, rule.margin) {
                decision(Judgement::Confirmed, Reason::WithinMargin)
            } else if ratio.lo > factor || ratio.hi < 1.0 / factor {
                decision(Judgement::Refuted, Reason::OutsideMargin)
            } else {
                decision(Judgement::Undecided, Reason::WideInterval)
            }
        }
        Claimed::AtMost => {
            let factor = 1.0 + rule.margin;
            if ratio.hi <= factor {
                decision(Judgement::Confirmed, Reason::NotAboveMargin)
            } else if ratio.lo > factor {
                decision(Judgement::Refuted, Reason::AboveMargin)
            } else {
                decision(Judgement::Undecided, Reason::WideInterval)
            }
        }
    }
}

fn decide_less(ratio: &Ratio, rule: &Rule) -> Decision {
    let shown = ratio.p <= 1.0 - CONFIDENCE;
    let (judgement, reason) = if shown && ratio.ratio > 1.0 {
        (Judgement::Refuted, Reason::OtherSide)
    } else if within(ratio, rule.margin) {
        (Judgement::Refuted, Reason::WithinMargin)
    } else if shown && ratio.ratio * (1.0 + rule.margin) <= 1.0 {
        (Judgement::Confirmed, Reason::ClaimedSide)
    } else if shown {
        (Judgement::Undecided, Reason::SmallEffect)
    } else {
        (Judgement::Undecided, Reason::WideInterval)
    };
    Decision { judgement, reason }
}

/// Tests whether values are centred below or above a shift: by signed ranks, and by the sign test as far
/// as the shape of the values requires it. The p-values are at least those of signed ranks.
///
/// # Errors
/// Fails if there are no values or one is not finite.
pub fn shift_test(values: &[f64], shift: f64) -> Result<SignedRank, StatsError> {
    let ranks = SignedRank::test(values, shift)?;
    let weight = SignWeight::of(values);
    let (below, above) = sign_test(values, shift);
    Ok(SignedRank {
        below: SignWeight::between(weight.below, ranks.below, below),
        above: SignWeight::between(weight.above, ranks.above, above),
        ..ranks
    })
}

/// Reports whether the interval is within a factor of `1 + margin` around 1.
pub(crate) fn within(ratio: &Ratio, margin: f64) -> bool {
    let factor = 1.0 + margin;
    ratio.lo >= 1.0 / factor && ratio.hi <= factor
}

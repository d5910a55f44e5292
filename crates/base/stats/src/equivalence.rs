//! Tests whether two arms are equal for practical purposes.
//!
//! "No significant difference" is not equality: a noisy pair of arms never differs significantly.
//! Only an interval entirely within the margin shows equality. With an interval of confidence `1 -
//! 2α` this is the procedure of two one-sided tests at level α (Schuirmann, 1987). The 95 %
//! interval used here tests at 2.5 %, which is strict.

use crate::paired::{Ratio, within};
use serde::{Deserialize, Serialize};

/// Result of an equivalence test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equivalence {
    /// The interval is within a factor of `1 + margin` around 1.
    pub equivalent: bool,
    /// The interval is entirely outside: the arms differ by more than the margin.
    pub different: bool,
    /// The requested margin, as a share.
    pub margin: f64,
    /// The smallest margin at which the arms would be equivalent, as a share.
    pub margin_needed: f64,
}

/// Tests for equivalence using the interval of a comparison; `margin` is a share such as 0.05.
pub fn equivalence(ratio: &Ratio, margin: f64) -> Equivalence {
    let factor = 1.0 + margin;
    Equivalence {
        equivalent: within(ratio, margin),
        different: ratio.lo > factor || ratio.hi < 1.0 / factor,
        margin,
        margin_needed: ratio.hi.max(1.0 / ratio.lo).max(1.0) - 1.0,
    }
}

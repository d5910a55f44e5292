//! Whether two arms are the same for all practical purposes.
//!
//! "No significant difference" is not equality: a noisy pair of arms never differs. Equality is
//! shown only by an interval that lies wholly inside the margin. With the interval of confidence
//! `1 - 2α` this is the two one-sided tests procedure at level α (Schuirmann, 1987); the 95 %
//! interval used here tests at 2.5 %, on the strict side.

use crate::paired::{Ratio, within};
use serde::{Deserialize, Serialize};

/// Whether a ratio is 1 within a margin, and how far its interval reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equivalence {
    /// The interval lies within a factor of `1 + margin` around 1.
    pub equivalent: bool,
    /// The interval lies wholly outside: the arms differ by more than the margin.
    pub different: bool,
    /// The margin asked for, as a share.
    pub margin: f64,
    /// The smallest margin at which the arms would have been equivalent, as a share.
    pub margin_needed: f64,
}

/// Tests equivalence by the interval of a comparison; `margin` is a share such as 0.05.
pub fn equivalence(ratio: &Ratio, margin: f64) -> Equivalence {
    let factor = 1.0 + margin;
    Equivalence {
        equivalent: within(ratio, margin),
        different: ratio.lo > factor || ratio.hi < 1.0 / factor,
        margin,
        margin_needed: ratio.hi.max(1.0 / ratio.lo).max(1.0) - 1.0,
    }
}

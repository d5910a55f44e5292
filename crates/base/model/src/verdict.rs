//! Verdicts on claims.
//!
//! `confirmed`, `refuted` and `scope` are reproduced: they come from runs on this machine. Arithmetic
//! on published numbers shows only whether a publication agrees with itself, so its outcome has
//! different words and is counted apart.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Runs on this machine support the claim.
    #[serde(rename = "confirmed")]
    Confirmed,
    /// Runs on this machine contradict the claim.
    #[serde(rename = "refuted")]
    Refuted,
    /// The claim holds under some circumstances but not others, or was shown only for substitutes.
    #[serde(rename = "scope")]
    Scope,
    /// The evidence is compatible with both answers, insufficient or disturbed.
    #[serde(rename = "undecided")]
    Undecided,
    /// This machine or version cannot test the claim.
    #[serde(rename = "not testable here")]
    NotTestableHere,
    /// The statement follows from the published numbers; no run has tested it.
    #[serde(rename = "recomputed, consistent")]
    Consistent,
    /// The statement contradicts the published numbers.
    #[serde(rename = "recomputed, inconsistent")]
    Inconsistent,
}

impl Verdict {
    /// All verdicts, in table order.
    pub const ALL: [Self; 7] = [
        Self::Confirmed,
        Self::Refuted,
        Self::Scope,
        Self::Undecided,
        Self::NotTestableHere,
        Self::Consistent,
        Self::Inconsistent,
    ];

    /// Reports whether the verdict was reproduced from runs on this machine.
    pub const fn is_reproduced(self) -> bool {
        matches!(self, Self::Confirmed | Self::Refuted | Self::Scope)
    }

    /// Reports whether the verdict was recomputed from published numbers alone.
    pub const fn is_recomputed(self) -> bool {
        matches!(self, Self::Consistent | Self::Inconsistent)
    }

    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Scope => "scope",
            Self::Undecided => "undecided",
            Self::NotTestableHere => "not testable here",
            Self::Consistent => "recomputed, consistent",
            Self::Inconsistent => "recomputed, inconsistent",
        }
    }

    /// Returns a symbol, so that verdicts can be distinguished without colour.
    pub const fn icon(self) -> &'static str {
        match self {
            Self::Confirmed => "✓",
            Self::Refuted => "✕",
            Self::Scope => "◐",
            Self::Undecided => "?",
            Self::NotTestableHere => "–",
            Self::Consistent => "=",
            Self::Inconsistent => "≠",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_uses_the_text_form() {
        for verdict in Verdict::ALL {
            let text = serde_json::to_string(&verdict).unwrap();
            assert_eq!(text, format!("\"{verdict}\""));
            assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
        }
        let icons: std::collections::BTreeSet<_> = Verdict::ALL.iter().map(|v| v.icon()).collect();
        assert_eq!(icons.len(), Verdict::ALL.len());
    }
}

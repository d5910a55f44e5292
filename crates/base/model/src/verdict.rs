//! Verdicts on claims.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// The evidence supports the claim.
    #[serde(rename = "confirmed")]
    Confirmed,
    /// The evidence contradicts the claim.
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
}

impl Verdict {
    /// All verdicts, in table order.
    pub const ALL: [Self; 5] =
        [Self::Confirmed, Self::Refuted, Self::Scope, Self::Undecided, Self::NotTestableHere];

    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Scope => "scope",
            Self::Undecided => "undecided",
            Self::NotTestableHere => "not testable here",
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

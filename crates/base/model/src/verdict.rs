//! The answer to a claim in one word, as the ledger, the store's reports and the JSON spell it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// The evidence shows it.
    #[serde(rename = "confirmed")]
    Confirmed,
    /// The evidence shows the contrary.
    #[serde(rename = "refuted")]
    Refuted,
    /// It holds in one circumstance and not in another, or was shown for stand-ins only.
    #[serde(rename = "scope")]
    Scope,
    /// The evidence allows both, or there is too little of it, or it was disturbed.
    #[serde(rename = "undecided")]
    Undecided,
    /// This machine or this version cannot test it.
    #[serde(rename = "not testable here")]
    NotTestableHere,
}

impl Verdict {
    /// Every verdict in the order of tables.
    pub const ALL: [Self; 5] =
        [Self::Confirmed, Self::Refuted, Self::Scope, Self::Undecided, Self::NotTestableHere];

    /// The words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Scope => "scope",
            Self::Undecided => "undecided",
            Self::NotTestableHere => "not testable here",
        }
    }

    /// A shape that tells the verdicts apart without colour.
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
    fn json_says_the_words() {
        for verdict in Verdict::ALL {
            let text = serde_json::to_string(&verdict).unwrap();
            assert_eq!(text, format!("\"{verdict}\""));
            assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
        }
        let icons: std::collections::BTreeSet<_> = Verdict::ALL.iter().map(|v| v.icon()).collect();
        assert_eq!(icons.len(), Verdict::ALL.len());
    }
}

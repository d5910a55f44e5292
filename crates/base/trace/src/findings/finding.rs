//! A finding and its parts.

use serde::Serialize;

/// A finding, derived only from numbers in the trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Short stable name, such as `oversubscription`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Description in one sentence.
    pub sentence: String,
    /// Evidence: name and value with unit.
    pub evidence: Vec<(String, String)>,
    /// Suggestion.
    #[serde(rename = "try")]
    pub try_this: String,
}

/// Formats a share as a percentage.
pub(super) fn pct(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Creates a line of evidence.
pub(super) fn line(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

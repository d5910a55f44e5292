//! What the trace shows, in words: each finding with the numbers that led to it.

/// One finding. It is only made from numbers that the trace holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finding {
    /// Short stable name, such as `oversubscription`.
    pub id: String,
    /// A heading.
    pub title: String,
    /// What happens, in one sentence.
    pub sentence: String,
    /// What led to it: name of the number, and the number with its unit.
    pub evidence: Vec<(String, String)>,
    /// What to try.
    pub try_this: String,
}

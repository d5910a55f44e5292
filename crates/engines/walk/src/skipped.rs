//! Entries that are not regular files, counted by kind.

use crate::Kind;

/// The number of skipped entries of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// Kind of the entries.
    pub kind: Kind,
    /// Number of entries.
    pub count: u64,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.count == 1 { self.kind.singular() } else { self.kind.plural() };
        write!(f, "{} {word} skipped", self.count)
    }
}

/// Counts a skipped entry.
pub(crate) fn skip(skipped: &mut Vec<Skipped>, kind: Kind) {
    match skipped.iter_mut().find(|skipped| skipped.kind == kind) {
        Some(skipped) => skipped.count += 1,
        None => skipped.push(Skipped { kind, count: 1 }),
    }
}

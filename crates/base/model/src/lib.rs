//! The nouns of ioloom.
//!
//! Everything that two crates must agree on stands here and nowhere else: what a plan is and how it
//! is spelled, which method and schedule go together, what a file set, a condition, a run and a
//! verdict consist of. No input or output, no clock, no environment: the same text gives the same
//! value everywhere, so the crate can be used by the engine, the simulator and the report alike.
//! Types carry serde derives because a plan travels to a child process and a record to the store;
//! a second set of mirror types would only drift apart (docs/decisions/001.md).

pub mod any_plan;
pub mod compute;
pub mod condition;
pub mod distribution;
pub mod doubt;
pub mod evidence;
pub mod fileset;
pub mod layout;
pub mod machine;
pub mod memory;
pub mod method;
pub mod plan;
pub mod record;
pub mod schedule;
pub mod study;
pub mod table;
pub mod topology;
pub mod units;
pub mod verdict;

pub use any_plan::{AnyPlan, SubjectPlan};
pub use compute::Compute;
pub use condition::{ColdBy, Condition, Proof};
pub use distribution::Distribution;
pub use doubt::Doubt;
pub use evidence::{Evidence, Level, Quality, State, StateTable, StateTime};
pub use fileset::{Creation, DirectoryLayout, FileSetRealised, FileSetSpec};
pub use machine::MachineFacts;
pub use memory::MemoryResult;
pub use method::Method;
pub use plan::{Buffers, Plan, ReadOrder};
pub use record::{CallKind, CallStats, Measured, Outcome, RunRecord, ThreadTime};
pub use schedule::{HybridOrder, ReadAhead, Schedule};
pub use study::StudySpec;
pub use topology::Topology;
pub use verdict::Verdict;

/// A text that could not be understood: what was read, and what would have been right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} '{text}': {reason}")]
pub struct ParseError {
    /// What the text should have been, such as "method" or "size".
    pub what: &'static str,
    /// The text as given.
    pub text: String,
    /// Why it was refused, and what is accepted.
    pub reason: String,
}

impl ParseError {
    /// A refusal of `text` as a `what`.
    pub fn new(what: &'static str, text: &str, reason: impl Into<String>) -> Self {
        Self { what, text: text.to_owned(), reason: reason.into() }
    }
}

/// Serializes a type by its one spelling (`Display` and `FromStr`), so that JSON, TOML and the
/// command line say the same thing.
macro_rules! spelled {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use spelled;

//! Shared types of ioloom.
//!
//! Defines the types that several crates must agree on: plans and their text form, the combinations
//! of methods and schedules, file sets, conditions, runs and verdicts. The crate does no I/O and
//! reads neither clock nor environment, so the same text gives the same value everywhere. The types
//! implement serde traits because plans are sent to child processes and records are stored; a
//! second set of types for that purpose would diverge (docs/decisions/001.md).

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
pub mod tuned;
pub mod units;
pub mod verdict;

pub use any_plan::{AnyPlan, SubjectPlan};
pub use compute::{Compute, Hash};
pub use condition::{ColdBy, Condition, Proof};
pub use distribution::Distribution;
pub use doubt::Doubt;
pub use evidence::{Evidence, Level, Quality, State, StateTable, StateTime};
pub use fileset::{Creation, DirectoryLayout, FileSetRealised, FileSetSpec};
pub use machine::MachineFacts;
pub use memory::MemoryResult;
pub use method::Method;
pub use plan::{Buffers, Plan, ReadOrder, Tuning};
pub use record::{CallKind, CallStats, Measured, Outcome, RunRecord, ThreadTime};
pub use schedule::{HybridOrder, ReadAhead, Schedule};
pub use study::StudySpec;
pub use topology::Topology;
pub use tuned::{Decided, Tuned, TunedPoint};
pub use verdict::Verdict;

/// A text parsing error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} '{text}': {reason}")]
pub struct ParseError {
    /// Expected kind of value, such as "method" or "size".
    pub what: &'static str,
    /// The invalid text.
    pub text: String,
    /// The reason, including accepted values.
    pub reason: String,
}

impl ParseError {
    /// Creates an error for `text`, which is not a valid `what`.
    pub fn new(what: &'static str, text: &str, reason: impl Into<String>) -> Self {
        Self { what, text: text.to_owned(), reason: reason.into() }
    }
}

/// Implements serialization through `Display` and `FromStr`, so JSON, TOML and the command line use
/// the same text.
macro_rules! serialize_as_text {
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
pub(crate) use serialize_as_text;

//! Claims and the engine that judges them from stored runs.
//!
//! A claim is data ([`claim::Claim`]): the statement, the numbers published for it as paths into
//! the published tables ([`data`]), and the contrasts that test it ([`contrast`]). [`verdicts()`]
//! judges claims together by the stored runs and a rule, and returns for each a verdict, one
//! sentence, the evidence and the doubts. The crate does no input or output: built-in claims and tables are compiled in,
//! and the caller passes other claims as text ([`load`]) and runs as records. The bootstrap is
//! seeded, so the same runs always give the same verdict.

pub mod claim;
mod combine;
pub mod contrast;
pub mod data;
mod error;
mod evaluation;
mod family;
pub mod forecast;
pub mod formula;
mod judge;
mod ledger;
pub mod location;
mod needs;
pub mod pattern;
pub mod power;
mod rule;
mod sessions;
mod verdict;

pub use claim::{Claim, Combine, Test};
pub use contrast::Contrast;
pub use error::ClaimsError;
pub use ioloom_model::Verdict;
pub use judge::{verdict, verdicts, verdicts_at_looks};
pub use ledger::{ledger, load};
pub use location::Location;
pub use rule::Rule;
pub use verdict::{
    Agreement, ClaimVerdict, Effect, Evidence, Part, PublishedValue, Registered, Score,
    SessionEffect, VERDICT_SCHEMA, VerdictList,
};

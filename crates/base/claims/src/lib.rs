//! The ledger of claims and the engine that turns stored runs into verdicts.
//!
//! A claim is data ([`claim::Claim`]): the statement, the numbers published for it as paths into
//! the published tables ([`data`]), and the contrasts that test it. [`verdict()`] takes a claim, the
//! stored runs and the rule, and answers with a verdict, one sentence, the evidence and the doubts.
//! The crate does no input or output: ledger and tables are compiled in, other ledgers come as
//! texts ([`load`]), runs as records. The bootstrap is seeded, so the same runs give the same
//! verdict everywhere.

pub mod claim;
pub mod data;
mod engine;
mod error;
mod family;
pub mod formula;
mod ledger;
pub mod pattern;
mod verdict;

pub use claim::Claim;
pub use engine::{Rule, verdict};
pub use error::ClaimsError;
pub use ioloom_model::Verdict;
pub use ledger::{ledger, load};
pub use verdict::{ClaimVerdict, Evidence, Part, PublishedValue, VERDICT_SCHEMA, VerdictList};

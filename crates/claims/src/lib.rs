//! The ledger of claims and the engine that turns stored runs into verdicts.

pub mod data;
mod error;
pub mod pattern;

pub use error::ClaimsError;

//! The ledger of claims and the engine that turns stored runs into verdicts.

pub mod pattern;

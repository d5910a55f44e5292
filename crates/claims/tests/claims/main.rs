//! Tests of the ledger, the published tables, the built-in study and the verdict engine.

mod expansion;
mod published;
mod study;

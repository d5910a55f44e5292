//! Tests of the ledger, the published tables, the built-in study and the verdict engine.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod disturbed;
mod engine;
mod expansion;
mod ledger;
mod properties;
mod published;
mod shapes;
mod study;
mod synthetic;

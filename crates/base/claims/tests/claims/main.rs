//! Tests of the claims, the published tables, the built-in study and the verdict engine.

#![allow(clippy::print_stdout, reason = "a skipped test prints it")]

mod disturbed;

mod expansion;
mod judge;
mod ledger;
mod properties;
mod published;
mod shapes;
mod study;
mod synthetic;

//! Tests of claims, published tables, the built-in studies and the verdict engine.

#![allow(clippy::print_stdout, reason = "skipped tests print a notice")]

mod chain;
mod disturbed;

mod expansion;
mod judge;
mod ledger;
mod properties;
mod published;
mod sessions;
mod shapes;
mod study;
mod synthetic;

//! Admission and controllers: what a loop worker does next, and how many requests it may have in
//! flight.
//!
//! Plain state machines: events in, decisions out. No clock (times come with the events), no
//! atomics and no input or output, so that the engine and a simulator drive the same code. The
//! memory that all workers share is reached through [`Ledger`]: atomics in the engine, a `Cell` in
//! a simulator. A decision costs a few comparisons.

mod admission;
mod batch;
mod ramp;
mod walk_controller;

pub use admission::{Action, Admission};
pub use batch::Batch;
pub use ramp::Ramp;
pub use walk_controller::WalkController;

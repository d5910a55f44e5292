//! Admission and controllers: choose the next step of a worker and the number of threads.
//!
//! Plain state machines: events in, decisions out. They use no clock (events carry times), no
//! atomics and no I/O, so the engine and a simulator run the same code. A decision costs a few
//! comparisons.

mod admission;
mod batch;
mod ramp;
mod walk_controller;

pub use admission::{Action, Admission};
pub use batch::Batch;
pub use ramp::Ramp;
pub use walk_controller::WalkController;

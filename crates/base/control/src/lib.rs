//! Admission and controllers: choose the next step of a worker, the number of requests in flight, the
//! number of threads and the method of reading.
//!
//! Plain state machines: events in, decisions out. They use no clock (events carry times), no
//! atomics and no I/O, so the engine and a simulator run the same code. A decision costs a few
//! comparisons.

mod admission;
mod auto;
mod batch;
mod course;
mod crowding;
mod decision;
mod duel;
mod gather;
mod measure;
mod pace;
mod ramp;
mod thresholds;
mod tuner;
mod walk_controller;

pub use admission::{Action, Admission};
pub use auto::{Auto, AutoLimits, BATCH_NS, Prior};
pub use batch::Batch;
pub use crowding::Crowding;
pub use decision::{Cost, Decision, Log, Phase, Point, Reason};
pub use duel::{Duel, Rival, Signs, Turn};
pub use gather::Gather;
pub use pace::{Pace, Started, slow_start};
pub use ramp::Ramp;
pub use tuner::Tuner;
pub use walk_controller::WalkController;

//! One adapter per engine, so that the laboratory can run it.
//!
//! The laboratory knows engines only through `lab::Subject`; the program passes it the list from
//! here. An adapter has two halves: the parent's questions (can this plan run, what does a set
//! cost, make it) and the child's run, which takes a [`RunOrder`](ioloom_model::record::RunOrder)
//! and answers with what was measured.

pub mod kernel;
pub mod pipeline;

pub use kernel::Kernel;
pub use pipeline::{Files, run_order};

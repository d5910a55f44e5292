//! Closed-form laws of overlap, windows and thread counts.
//!
//! What a run should take, from a few numbers that a person can measure: total compute, total
//! waiting, bytes, bandwidth. No input or output, no clock, no randomness. A prediction that turns
//! out wrong is worth as much as a right one: it says that something is missing from the few
//! numbers. So every law here is as simple as the question allows, states what it leaves out, and
//! is tested against published measurements.
//!
//! - [`overlap`]: synchronous threads against one dedicated reader (law D1), and where they cross;
//! - [`little`]: requests in flight, rate and latency;
//! - [`closed`]: clients that ask, wait and think, and servers whose threads belong to connections;
//! - [`bounds`]: the asymptotes of a closed network, and the tighter ones of balanced jobs;
//! - [`network`]: its exact solution, by mean values and by convolution;
//! - [`walk`]: that network with one term for interleaved directories;
//! - [`scaling`]: fits of ladders of thread counts, by the universal scalability law and by that
//!   network, with their errors;
//! - [`device`]: what the device and the processors cannot beat.
//!
//! Times are seconds, rates per second; only quotients enter the laws, so any other unit works as
//! long as it is used throughout.

pub mod bounds;
pub mod closed;
pub mod device;
mod error;
pub mod little;
pub mod network;
pub mod overlap;
pub mod scaling;
pub mod walk;

pub use bounds::{RateBounds, asymptotic, balanced, saturation_customers};
pub use device::{DeviceLimits, JobBound, Limit};
pub use error::PredictError;
pub use network::{Network, Solution, Station, StationUse};
pub use overlap::Work;
pub use scaling::{Usl, WalkFit};
pub use walk::WalkModel;

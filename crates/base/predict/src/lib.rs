//! Closed-form performance laws for overlap and thread counts, and a simulated machine.
//!
//! Each law predicts the duration of a run from a few measurable numbers: total compute, total
//! waiting, elapsed times of a ladder. No I/O, no clock, no randomness. A wrong prediction is also
//! useful: it shows that those numbers do not capture everything. Every law is therefore as simple
//! as its question allows, documents what it ignores, and is tested against published measurements.
//!
//! - [`overlap`]: synchronous threads compared with one dedicated reader (law D1), and the number
//!   of threads at which the two break even;
//! - [`closed_loop`]: clients that send, wait and think, and servers that give each connection a
//!   thread;
//! - [`network`]: the exact solution of a closed queueing network, by mean value analysis and by
//!   convolution;
//! - [`walk`]: such a network with one additional term for interleaved directories;
//! - [`scaling`]: fits of elapsed times over thread counts, by the universal scalability law and by
//!   that network, with their errors;
//! - [`knee`]: times over the number in flight, from a few probes of one machine;
//! - [`least_squares`]: fits of any of these laws;
//! - [`walk_media`]: the media of source 001, together or from a few probes;
//! - [`table`], [`verify`]: the published tables, and the error of each law for every cell;
//! - [`answer`]: the questions of the command `predict`;
//! - [`machine`]: a simulated machine that drives the controllers of `ioloom_control`.
//!
//! Times are in seconds and rates per second. The laws use only quotients, so any other unit works
//! if used consistently.

pub mod answer;
pub mod closed_loop;
mod error;
pub mod knee;
pub mod least_squares;
pub mod machine;
pub mod network;
pub mod overlap;
pub mod scaling;
pub mod table;
pub mod verify;
pub mod walk;
pub mod walk_media;

pub use error::PredictError;
pub use network::{Network, Solution, Station, StationUse};
pub use overlap::Workload;
pub use scaling::{Usl, WalkFit};
pub use walk::WalkModel;

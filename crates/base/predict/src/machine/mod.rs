//! A seeded discrete-event machine that drives the controllers of `ioloom_control`.
//!
//! Cores, a page cache, the costs of calls, devices with four or five parameters, jobs, scripted
//! changes and a neighbour. It answers what closed laws cannot: order, changes over time, and what a
//! controller does with them. Times are simulated, so a score can be asserted, and the same seed
//! gives the same answer to the nanosecond. It does not measure anything: its devices are
//! laws with chosen parameters. Use it to compare controllers and to find cases that break one.
//!
//! - [`Scenario`]: a machine, a device, a job and what changes; [`Scenario::prepare`] draws its
//!   requests, [`Prepared::run`] runs it with a controller;
//! - [`grid`]: the scenarios for design, and for the test of what was designed;
//! - [`rivals`]: other controllers;
//! - [`policies`]: the rules of thumb of source 000;
//! - [`sample`]: more files than can be simulated one by one;
//! - [`score`]: the loss of a controller against the best fixed window of a sweep.

mod device;
pub mod grid;
mod job;
pub mod policies;
mod random;
pub mod rivals;
mod run;
pub mod sample;
pub mod score;

pub use device::{Cap, Device, Model};
pub use job::{CHUNK, Job, Order, Sizes};
pub use random::Draws;
pub use run::{Change, Machine, Moment, Neighbour, Outcome, Prepared, Scenario, Sent, Step, Work};

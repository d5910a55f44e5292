//! A load generator for stock exchange servers: ours, and any other that speaks the original
//! protocol.
//!
//! A [`LoadPlan`] specifies how requests are generated (closed, open or partly open loop), how
//! many, and of which types. [`run`] executes it against a server and returns a [`Run`]. Three
//! properties make the result meaningful:
//!
//! - latencies are measured from the time requests were due, not only from the time they could be
//!   sent;
//! - every answer is checked, and the final stocks must match the initial stocks and the answers,
//!   so a fast server that loses orders is detected;
//! - the load generator measures itself and reports when it was the bottleneck.
//!
//! [`multiclient`] is the original client, including its sleeps. [`NullServer`] and [`null_client`]
//! measure baselines. [`check`] decides whether a recorded [`History`] can be explained by
//! executing orders one after another.

mod arrivals;
mod channel;
pub mod check;
mod client_codec;
mod commands;
mod connection;
mod draw;
mod error;
mod history;
mod judge;
pub mod ladder;
mod latency;
mod listing;
mod multi;
mod null;
mod plan;
mod prepare;
mod report;
mod run;
mod shared;
mod stall;
mod tally;
mod wording;
mod worker;

pub use commands::Commands;
pub use draw::Op;
pub use error::{LoadError, SystemOperation};
pub use history::{Event, History, Outcome};
pub use latency::Latency;
pub use multi::{MultiRun, Multiclient, multiclient};
pub use null::{NullClient, NullServer, null_client};
pub use plan::{Arrival, CONNECTIONS_MAX, LoadPlan, Mix, Pace, Protocol, Skew, Think};
pub use report::{Conservation, Generator, Latencies, Run, Second, UNANSWERED_MAX};
pub use run::{LoadProgress, run};
pub use stall::Stall;
pub use tally::Outcomes;

/// Trust anchor for a load over TLS.
pub use ioloom_tls::Trust;

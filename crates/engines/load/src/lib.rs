//! Load for servers of the stock exchange, ours and any other of the original protocol.
//!
//! A [`LoadPlan`] says how requests arise (closed, open, partly open), how many and of what; [`run`] drives
//! a server with it and gives a [`Run`]. Three things make the result worth something:
//!
//! - latencies count from when requests were due, not only from when they could be sent;
//! - every answer is judged, and the stocks at the end must be those of the beginning and of the
//!   answers between, so a fast server that loses orders is found out;
//! - the load measures itself, and says when it was the bottleneck.
//!
//! [`multiclient`] is the original client with its sleep; [`NullServer`] and [`null_client`] are the
//! floors; [`check`] tells whether a recorded [`History`] can be explained by one order after the
//! other.

mod arrivals;
mod channel;
pub mod check;
mod connection;
mod draw;
mod error;
mod history;
mod judge;
pub mod ladder;
mod listing;
mod multi;
mod null;
mod plan;
mod report;
mod run;
mod shared;
mod speech;
mod tally;
mod worker;

pub use draw::Op;
pub use error::LoadError;
pub use history::{Event, History, Outcome};
pub use multi::{MultiRun, Multiclient, multiclient};
pub use null::{NullClient, NullServer, null_client};
pub use plan::{Arrival, CONNECTIONS_MAX, LoadPlan, Mix, Pace, Protocol, Skew, Think};
pub use report::{Conservation, Generator, Latencies, Latency, Run, Second};
pub use run::{LoadProgress, run};
pub use tally::Outcomes;

/// Whom a load trusts where it speaks TLS.
pub use ioloom_tls::Trust;

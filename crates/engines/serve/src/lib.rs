//! A server for the stock exchange, in every shape that is worth comparing.
//!
//! One service, many shells. What is answered comes from the pure crate `exchange`; here are the
//! [`Model`]s (which threads read, write and wait, and how), the ways to share the stocks
//! ([`Sharing`]), the order log with its group commit, and the stores, or a database in their place. All models pass the same
//! tests, because what they have in common exists once: a connection without blocking in
//! `connection`, its bytes in the clear or under TLS in `speech`, a turn of jobs through `service`.
//!
//! The order of a turn is the same everywhere: read, take the requests that are complete, answer
//! them, wait until the store holds what the answers rest on, then write. So an answer that leaves is
//! as safe as the durability says, and no model can get that wrong by itself.

mod choice;
mod connection;
#[cfg(feature = "postgres")]
mod database;
mod error;
mod journal;
mod limits;
mod model;
mod options;
mod server;
mod service;
mod sharing;
mod stock_file;
mod store;
mod transport;

pub use choice::{
    Durability, Model, OrderStore, Sharing, ShowMode, StoreKind, held_refusal, refusal,
    store_refusal,
};
pub use error::ServeError;
pub use limits::Limits;
pub use options::TlsFiles;
pub use options::{DATABASE_VARIABLE, DatabaseChoice, SERVICE_TIME_MAX, ServeOptions, StoreChoice};
pub use server::{ServeSummary, Server, StopHandle};
pub use service::Counts;
pub use store::{StoreError, detect_store, probe_store};

//! A server for the stock exchange, in every architecture worth comparing.
//!
//! There is one service behind many concurrency models. The pure crate `exchange` computes the
//! answers. This crate adds the [`Model`]s (which threads read, write and wait, and how), the ways
//! to share the stocks ([`Sharing`]), the order log with group commit, the stores, and a database
//! that can replace a store. All models pass the same tests because they share their common parts:
//! `connection` implements a non-blocking connection, `transport` its byte stream with or without
//! TLS, and `service` answers a turn of jobs.
//!
//! Every turn has the same steps: read, parse the complete requests, execute them, wait until the
//! store contains everything that the answers depend on, then write. So every answer that is sent
//! is as safe as the durability promises, and no model can get this wrong.

mod choice;
mod connection;
#[cfg(feature = "postgres")]
mod database;
mod error;
mod journal;
mod limits;
mod live;
mod lock;
mod metrics;
mod model;
mod options;
mod peers;
mod reports;
mod server;
mod service;
mod sharing;
mod stock_file;
mod stock_writer;
mod store;
mod temporary;
mod transport;

pub use choice::{
    Durability, Model, OrderStore, Sharing, ShowMode, StoreKind, held_refusal, refusal,
    show_refusal, store_refusal,
};
pub use error::{DatabaseOperation, ServeError, SystemOperation};
pub use ioloom_sys_net::{handover, inherited};
pub use limits::Limits;
pub use live::Reload;
pub use metrics::Counts;
pub use options::TlsFiles;
pub use options::{DATABASE_VARIABLE, DatabaseChoice, SERVICE_TIME_MAX, ServeOptions, StoreChoice};
pub use server::{ServeEnd, ServeSummary, Server, ServerHandle, named};
pub use store::{
    MarkFacts, StoreError, StoreFacts, backup_store, detect_store, inspect_store, probe_store,
};

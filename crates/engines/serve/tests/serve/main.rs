//! Tests of the server over real sockets: every model gets the same requests, valid and invalid.

#![allow(clippy::print_stdout, reason = "a skipped test reports it")]

mod bench;
mod conversation;
mod damaged;
#[cfg(feature = "postgres")]
mod database;
mod failing;
mod fixtures;
mod polite;
mod rude;
mod sealed;
mod shared;
mod stored;

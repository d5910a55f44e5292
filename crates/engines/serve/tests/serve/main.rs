//! Server tests over real sockets: every model gets the same requests, both valid and invalid.

#![allow(clippy::print_stdout, reason = "skipped tests print the reason")]

mod bench;
mod conversation;
mod damaged;
#[cfg(feature = "postgres")]
mod database;
#[cfg(feature = "postgres")]
mod encrypted_database;
mod failing;
#[cfg(feature = "postgres")]
mod failover;
mod fixtures;
mod log;
mod marked;
mod observed;
mod polite;
mod redis;
mod rude;
mod sealed;
mod shared;
mod stored;

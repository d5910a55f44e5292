//! The server over real sockets: every model is asked the same questions, politely and not.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod bench;
mod conversation;
mod damaged;
#[cfg(feature = "postgres")]
mod database;
mod failing;
mod polite;
mod rude;
mod sealed;
mod shared;
mod stored;

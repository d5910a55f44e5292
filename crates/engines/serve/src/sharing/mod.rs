//! How threads share the stocks.
//!
//! All strategies give the same answers to the same jobs; they differ in which threads wait for
//! which. A list shows all stocks at one moment, unless mode `per-stock` was requested. Each
//! strategy returns the log number that the store must contain before the answers may be sent:
//! refusals and lists also depend on earlier orders.

mod access;
mod atomic;
mod cpu_time;
#[cfg(feature = "postgres")]
pub(crate) mod database;
mod exclusive;
mod global;
mod job;
mod locks;
mod reply;
mod request_memory;
mod shards;
mod strategy;
mod writer;

use crate::choice::{Sharing, ShowMode};
use crate::journal::Journal;
use access::Access;
pub(crate) use cpu_time::spend;
use exclusive::Exclusive;
use ioloom_exchange::State;
pub(crate) use job::Job;
use std::io;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
pub(crate) use strategy::Strategy;

/// Creates the strategy for a state. `cores` is the number of shards; `hold_time` is the CPU time
/// that each order and each list spends while holding its stocks.
pub(crate) fn make(
    sharing: Sharing,
    show: ShowMode,
    state: State,
    journal: &Arc<Journal>,
    cores: usize,
    hold_time: Duration,
) -> Result<Box<dyn Strategy>, io::Error> {
    let access = Access { show, hold_time };
    Ok(match sharing {
        Sharing::Global => Box::new(global::Global::new(Exclusive::new(state, hold_time))),
        Sharing::Stock => Box::new(locks::Locks::<Mutex<_>>::new(state, access, journal)),
        Sharing::ReadWrite => Box::new(locks::Locks::<RwLock<_>>::new(state, access, journal)),
        Sharing::Atomic => Box::new(atomic::Atomic::new(state, show, journal)),
        Sharing::Shards => Box::new(shards::Shards::new(state, access, journal, cores)?),
        Sharing::Writer => {
            Box::new(writer::Writer::new(Exclusive::new(state, hold_time), Arc::clone(journal))?)
        }
        // The options have been checked: a database is started in a different way.
        Sharing::Database => return Err(io::Error::other("no database was specified")),
    })
}

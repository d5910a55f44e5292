//! The interface of every sharing strategy.

use super::job::Job;
use crate::error::ServeError;
use crate::journal::{Journal, StoreFailed};
use ioloom_exchange::Exchange;

/// A strategy for sharing the stocks between threads.
pub(crate) trait Strategy: Send + Sync {
    /// Answers the jobs that need the exchange, in order. The answers may be sent once the store
    /// contains the returned log number, which is 0 if the strategy has already waited for the
    /// store.
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<u64, StoreFailed>;

    /// Returns the current stocks and the log number of the latest order that they include.
    fn snapshot(&self) -> Result<(Exchange, u64), ServeError>;

    /// Returns why orders cannot be executed at the moment if the cause is outside the server.
    fn trouble(&self) -> Option<String> {
        None
    }
}

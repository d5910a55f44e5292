//! What every way of sharing the stocks provides.

use super::job::Job;
use crate::error::ServeError;
use crate::journal::{Journal, StoreFailed};
use ioloom_exchange::Exchange;

/// A way of sharing the stocks between threads.
pub(crate) trait Strategy: Send + Sync {
    /// Answers the jobs that need the exchange, in order. Their answers may leave once the store
    /// holds the returned log number; it is 0 if the strategy has already waited for the store.
    fn answer(&self, jobs: &mut Vec<Job>, journal: &Journal) -> Result<u64, StoreFailed>;

    /// Returns the current stocks and the log number of the latest order they include.
    fn snapshot(&self) -> Result<(Exchange, u64), ServeError>;

    /// Returns why orders cannot be executed at the moment, if the cause is outside the server.
    fn trouble(&self) -> Option<String> {
        None
    }
}

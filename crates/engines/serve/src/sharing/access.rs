//! Options for strategies in which several threads access the stocks.

use crate::choice::ShowMode;
use std::time::Duration;

/// How to access stocks that are not owned by a single thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) show: ShowMode,
    /// CPU time to spend while holding the lock on one stock for an order, or all locks for a list.
    pub(super) hold_time: Duration,
}

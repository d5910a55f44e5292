//! Options of strategies in which several threads access the stocks.

use crate::choice::ShowMode;
use std::time::Duration;

/// How stocks are accessed that no single thread owns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) show: ShowMode,
    /// CPU time that each order spends with its stock locked, and each list with all stocks locked.
    pub(super) hold_time: Duration,
}

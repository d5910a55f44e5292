//! Files whose data was not in memory.

use super::progress::PieceProgress;
use crate::arena::Lease;
use crate::source::Item;
use std::os::fd::OwnedFd;

/// An open file whose readahead was started. Any thread can read it.
pub(crate) struct Missed<'p, S> {
    pub(super) item: Item<'p, S>,
    pub(super) file: OwnedFd,
    pub(super) lease: Lease,
    pub(super) progress: PieceProgress,
}

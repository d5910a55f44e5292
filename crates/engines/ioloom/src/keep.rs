//! Bytes that outlive a call of the function.

use crate::arena::RetainedBytes;
use ioloom_budget::Budget;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// How long a run that has no memory waits for the next drop of retained bytes. The schedule
/// `roles` waits as long by its own naps.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// Creates the memory budget of a run.
pub(crate) fn new_budget(bytes: u64) -> Arc<Budget> {
    Arc::new(Budget::with_grace(bytes, GRACE))
}

/// Bytes retained by [`File::keep`](crate::File::keep). They count against the memory budget of
/// their run until they are dropped.
pub struct Bytes(pub(crate) RetainedBytes);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}

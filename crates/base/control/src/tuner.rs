//! What all controllers of a window have in common.

use crate::batch::Batch;
use crate::decision::Decision;

/// A controller of the number of requests in flight.
///
/// The owner of the counters calls [`observe`](Tuner::observe) every
/// [`BATCH_NS`](crate::BATCH_NS) or so, and admits requests while fewer than
/// [`window`](Tuner::window) are in flight.
pub trait Tuner {
    /// Returns the present window, at least 1.
    fn window(&self) -> u32;

    /// Takes the next batch. Returns the decision if the window changed.
    fn observe(&mut self, batch: &Batch) -> Option<Decision>;

    /// Returns whether the window never changes, so that batches need not be observed.
    fn is_fixed(&self) -> bool {
        false
    }
}

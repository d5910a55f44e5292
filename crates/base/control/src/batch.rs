//! The input of a controller.

/// Events since the last decision, summed over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Batch {
    /// Nanoseconds since the last decision.
    pub elapsed_ns: u64,
    /// Entries completed.
    pub files: u64,
    /// Share of worker time blocked by a device, 0 to 1.
    pub idle: f64,
    /// Share of worker time spent waiting for other workers, 0 to 1; not included in `idle`.
    pub locked: f64,
}

//! The input of a controller.

/// What happened since the last decision, over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Batch {
    /// Nanoseconds since the last decision.
    pub elapsed_ns: u64,
    /// Entries completed.
    pub files: u64,
    /// Share of the workers' time blocked by a device, 0 to 1.
    pub idle: f64,
    /// Share in which they waited for each other, 0 to 1; not part of `idle`.
    pub locked: f64,
}

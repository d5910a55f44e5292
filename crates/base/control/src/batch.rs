//! The input of a controller.

/// Events since the last batch, summed over all workers. Fields that do not apply stay zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Batch {
    /// Nanoseconds since the last batch.
    pub elapsed_ns: u64,
    /// Entries or files completed.
    pub files: u64,
    /// Share of worker time blocked by a device, 0 to 1. For [`Auto`](crate::Auto) the workers are
    /// the compute permits: a permit held by a function that sleeps is not idle.
    pub idle: f64,
    /// Share of worker time spent waiting for other workers, 0 to 1; not included in `idle`.
    pub locked: f64,
    /// Bytes read, including those of files in progress.
    pub bytes: u64,
    /// Requests answered by the page cache without waiting.
    pub hits: u64,
    /// Requests that waited for the device and are complete.
    pub misses: u64,
    /// Requests at the device, averaged over the batch, or at its end. Neither hits nor files that
    /// are ready count.
    pub in_flight: f64,
    /// Files read and waiting for a worker, at the end of the batch, unless they count towards the
    /// window. While this stock shrinks, busy workers do not prove that the window is sufficient.
    pub ready: u32,
    /// Share of time in which no request could be issued because no path was available, 0 to 1.
    pub input_limited: f64,
    /// Share of time in which no request could be issued because memory was short or results were
    /// not taken, 0 to 1.
    pub memory_limited: f64,
    /// Requests refused for lack of resources (EAGAIN, EMFILE, ENOMEM, a server's 503). Files that
    /// cannot be read for other reasons do not count.
    pub refused: u64,
    /// Time with requests in flight until the first of `misses` completed; the whole batch if it is not
    /// known better.
    pub first_ns: Option<u64>,
}

impl Batch {
    /// Returns the share of the requests that were refused for lack of resources.
    pub(crate) fn refused_share(&self) -> f64 {
        let requests = self.refused + self.misses + self.hits;
        self.refused as f64 / requests.max(1) as f64
    }
}

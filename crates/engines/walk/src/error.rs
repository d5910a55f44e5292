//! The errors that a walk collects.

/// Errors kept in full; further ones are only counted.
pub const ERRORS_KEPT_MAX: usize = 65_536;

/// The errors of one thread: the first ones, and the number of all.
#[derive(Debug)]
pub struct Errors<E> {
    /// The first [`ERRORS_KEPT_MAX`].
    pub kept: Vec<E>,
    /// Number of errors.
    pub count: u64,
}

impl<E> Default for Errors<E> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<E> Errors<E> {
    /// Adds an error.
    pub fn add(&mut self, error: E) {
        self.count += 1;
        if self.kept.len() < ERRORS_KEPT_MAX {
            self.kept.push(error);
        }
    }

    /// Adds the errors of another thread.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        let room = ERRORS_KEPT_MAX.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room));
    }
}

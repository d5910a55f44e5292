//! Notices that a submission was interrupted: nothing is queued, and it does not go on.

use std::time::{Duration, Instant};

/// How long a submission may queue nothing. One that runs stores several times per second how far it is.
const STALLED: Duration = Duration::from_secs(60);

/// How far a submission was when nothing was queued, and since when.
#[derive(Debug)]
pub struct Stalled {
    after: Duration,
    last: Option<(u64, Instant)>,
}

impl Default for Stalled {
    fn default() -> Self {
        Self::new(STALLED)
    }
}

impl Stalled {
    /// Waits for this time; the default is a minute.
    pub const fn new(after: Duration) -> Self {
        Self { after, last: None }
    }

    /// Begins again: shards are queued.
    pub fn renew(&mut self) {
        self.last = None;
    }

    /// Notes the last shard that was queued. Returns whether it has been the same for too long.
    pub fn note(&mut self, submitted: u64) -> bool {
        match self.last {
            Some((last, since)) if last == submitted => since.elapsed() >= self.after,
            _ => {
                self.last = Some((submitted, Instant::now()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_that_goes_on_is_not_stalled() {
        let mut stalled = Stalled::new(Duration::ZERO);
        assert!(!stalled.note(500));
        assert!(!stalled.note(1000));
        assert!(stalled.note(1000));
        stalled.renew();
        assert!(!stalled.note(1000));
        let mut stalled = Stalled::default();
        assert!(!stalled.note(0) && !stalled.note(0));
    }
}

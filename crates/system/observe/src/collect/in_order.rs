//! Orders the events of several rings by time.

/// Events that are not in their final order yet.
///
/// The rings are drained one after another. A thread can start while a ring is drained in which its creation is
/// recorded, and run on the processor of a ring that is drained afterwards. So events that are newer than the
/// start of the previous round wait for the next one.
#[derive(Debug)]
pub(super) struct InOrder<T> {
    waiting: Vec<(u64, T)>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { waiting: Vec::new() }
    }
}

impl<T> InOrder<T> {
    /// Adds an event of the current round.
    pub(super) fn push(&mut self, at_ns: u64, event: T) {
        self.waiting.push((at_ns, event));
    }

    /// Removes the events up to `until_ns` and returns them by time. Events with the same time keep their order.
    pub(super) fn until(&mut self, until_ns: u64) -> impl Iterator<Item = T> {
        self.waiting.sort_by_key(|(at_ns, _)| *at_ns);
        let count = self.waiting.partition_point(|(at_ns, _)| *at_ns <= until_ns);
        self.waiting.drain(..count).map(|(_, event)| event)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_later_round_can_be_older() {
        let mut events = InOrder::default();
        // The first ring was drained at 10, the second at 20.
        for (at_ns, event) in [(9, "a"), (19, "runs"), (7, "b")] {
            events.push(at_ns, event);
        }
        assert_eq!(events.until(0).count(), 0);
        events.push(12, "starts");
        assert_eq!(events.until(10).collect::<Vec<_>>(), ["b", "a"]);
        assert!(!events.is_empty());
        assert_eq!(events.until(u64::MAX).collect::<Vec<_>>(), ["starts", "runs"]);
        assert!(events.is_empty());
    }
}

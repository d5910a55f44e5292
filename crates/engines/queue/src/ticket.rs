//! The payload of a lease: `FIRST-LAST`, or `SHARD-SHARD TRIES UNCOUNTED` for a shard that was queued again.
//!
//! The server counts the deliveries of a message. A shard that is queued again is a new message, so its payload
//! carries what happened before.

use crate::terms::WITH_HISTORY;

/// The most shards of a lease.
pub(crate) const SHARDS_PER_LEASE_MAX: u64 = 100;

/// What happened to a shard before its message was stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Tries.
    pub(crate) tries: u32,
    /// Failures that were not counted as tries.
    pub(crate) uncounted: u32,
}

/// A range of shards, and what happened to them before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) history: History,
}

impl Ticket {
    /// Returns the ticket of shards that were not tried.
    pub(crate) fn new(first: u64, last: u64) -> Self {
        Self { first, last, history: History::default() }
    }

    /// Returns the payload.
    fn text(&self) -> String {
        let Self { first, last, history } = self;
        match *history == History::default() {
            true => format!("{first}-{last}"),
            false => format!("{first}-{last} {} {}", history.tries, history.uncounted),
        }
    }

    /// Returns the payload in a queue of this version.
    pub(crate) fn text_of(&self, version: u32) -> String {
        match version >= WITH_HISTORY {
            true => self.text(),
            false => Self::new(self.first, self.last).text(),
        }
    }

    /// Reads a payload of a plan with so many shards.
    pub(crate) fn parse(payload: &[u8], shards: u64) -> Option<Self> {
        let mut words = std::str::from_utf8(payload).ok()?.split(' ');
        let (first, last) = words.next()?.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let mut history = History::default();
        if let Some(tries) = words.next() {
            history =
                History { tries: tries.parse().ok()?, uncounted: words.next()?.parse().ok()? };
        }
        let is_short = last.checked_sub(first)? < SHARDS_PER_LEASE_MAX;
        let is_whole = words.next().is_none();
        (first >= 1 && last <= shards && is_short && is_whole).then_some(Self {
            first,
            last,
            history,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_ranges_of_the_plan() {
        assert_eq!(Ticket::parse(b"1-1", 9), Some(Ticket::new(1, 1)));
        assert_eq!(Ticket::parse(b"2-9", 9), Some(Ticket::new(2, 9)));
        let wrong =
            ["", "1", "0-1", "2-1", "9-10", "1-x", "-1-2", "1-101", "1-18446744073709551615"];
        for text in wrong {
            let shards = if text.starts_with("1-1") { u64::MAX } else { 9 };
            assert_eq!(Ticket::parse(text.as_bytes(), shards), None, "{text}");
        }
    }

    #[test]
    fn what_happened_before_is_part_of_a_lease() {
        let again = Ticket { history: History { tries: 2, uncounted: 3 }, ..Ticket::new(7, 7) };
        assert_eq!(again.text_of(2), "7-7 2 3");
        // Workers that expect this version discard longer payloads.
        assert_eq!(again.text_of(1), "7-7");
        assert_eq!(Ticket::parse(again.text().as_bytes(), 9), Some(again));
        assert_eq!(Ticket::new(7, 8).text(), "7-8");
        for wrong in ["7-7 ", "7-7 2", "7-7 2 x", "7-7 2 3 4", "7-7 -2 3"] {
            assert_eq!(Ticket::parse(wrong.as_bytes(), 9), None, "{wrong}");
        }
    }
}

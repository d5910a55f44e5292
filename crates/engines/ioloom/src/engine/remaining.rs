//! How many files a run still has to process.

use crate::source::Source;

/// The number of files of a run, once it is known: that of a tree or a stream when the last of them has
/// arrived.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Remaining {
    all: Option<u64>,
}

impl Remaining {
    /// Returns the number of files that remain after `ended` were processed or have failed.
    pub(super) fn files(&mut self, source: &Source<'_>, ended: u64) -> Option<u64> {
        if self.all.is_none() {
            let (arrived, complete) = source.arrived();
            self.all = complete.then_some(arrived as u64);
        }
        Some(self.all?.saturating_sub(ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{self, Entry};
    use ioloom_model::ReadOrder;
    use std::path::PathBuf;

    #[test]
    fn the_files_of_a_stream_are_known_when_the_last_has_arrived() {
        let (send, receive) = std::sync::mpsc::channel::<PathBuf>();
        let entries = feed::one_by_one(receive.into_iter().map(Entry::Path));
        let source = Source::stream(entries, ReadOrder::List, false);
        source.start().unwrap();
        let mut remaining = Remaining::default();
        for name in ["a", "b", "c"] {
            send.send(PathBuf::from(name)).unwrap();
        }
        assert_eq!(remaining.files(&source, 1), None, "the stream goes on");
        drop(send);
        while !source.arrived().1 {
            std::thread::yield_now();
        }
        assert_eq!(remaining.files(&source, 1), Some(2));
        assert_eq!(remaining.files(&source, 4), Some(0), "failures of the walk count, too");
    }
}

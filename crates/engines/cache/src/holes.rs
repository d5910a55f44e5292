//! Pages that need no device: those in holes, and those of files whose data is in the metadata of the file system. A
//! non-blocking read of one succeeds, whether or not the page is resident.

use ioloom_sys::{extents, proc, transfer};
use std::ops::Range;
use std::os::fd::AsFd;

/// The holes of one file. Remembers the data found last, as pages are asked for in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// What was looked at, and the first data in it.
    known: Option<(u64, Range<u64>)>,
}

impl Holes {
    /// Returns whether a page is in a hole or in the metadata. False if the file system does not report it.
    pub(crate) fn contain(&mut self, file: impl AsFd, page: u64) -> bool {
        let page_bytes = proc::page_bytes();
        let (start, end) = (page * page_bytes, (page + 1) * page_bytes);
        if let Some((from, data)) = &self.known
            && *from <= start
            && start < data.end
        {
            return end <= data.start;
        }
        let Ok(found) = transfer::next_data(&file, start) else { return false };
        let data = found.unwrap_or(u64::MAX..u64::MAX);
        let is_hole = end <= data.start;
        if page == 0 && !is_hole && data.end <= end && extents::is_inline(&file).unwrap_or(false) {
            return true;
        }
        self.known = Some((start, data));
        is_hole
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "skipped tests print a notice")]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn pages_with_any_data_are_not_in_holes() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        // Blocks can be larger than pages.
        let (page, far) = (proc::page_bytes(), 1 << 20);
        file.set_len(64 << 20).unwrap();
        for at in [16, 17, 40] {
            file.write_all_at(b"data", at * far).unwrap();
        }
        if transfer::next_data(&file, 0).unwrap().is_some_and(|data| data.start == 0) {
            println!("skipped: this file system does not report holes");
            return;
        }
        let mut holes = Holes::default();
        let mut contain = |at: u64| holes.contain(&file, at * far / page);
        let found = [0, 8, 16, 17, 30, 40, 50, 63, 16].map(&mut contain);
        assert_eq!(found, [true, true, false, false, true, false, true, true, false]);
    }
}

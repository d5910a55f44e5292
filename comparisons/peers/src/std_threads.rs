//! Standard library only: N threads each take the next file and call `std::fs::read`.

use crate::{FileList, PeerError, Totals, workers};

/// Reads and hashes all files.
///
/// # Errors
/// A file cannot be read, or a thread cannot be started.
pub fn run(list: &FileList, threads: usize) -> Result<Totals, PeerError> {
    workers::run(threads, list.len(), |take| {
        let mut totals = Totals::default();
        while let Some(index) = take() {
            let path = &list.paths()[index];
            let bytes = std::fs::read(path).map_err(PeerError::file("read", path))?;
            totals.add_file(list.relative(path), &bytes);
        }
        Ok(totals)
    })
}

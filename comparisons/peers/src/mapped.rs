//! memmap2: N threads map each file and hash the mapping.
//!
//! This is the only unsafe code in the peers: the crate has no safe way to map files. A mapping is
//! sound only while no process changes or truncates the file. The file sets here are written once.

use crate::{FileList, PeerError, Totals, workers};
use memmap2::Mmap;
use std::fs::File;

/// Maps and hashes all files with `threads` threads.
///
/// # Errors
/// A file cannot be opened, statted or mapped, or a thread cannot be started.
pub fn run(list: &FileList, threads: usize) -> Result<Totals, PeerError> {
    workers::run(threads, list.len(), |take| {
        let mut totals = Totals::default();
        while let Some(index) = take() {
            let path = &list.paths()[index];
            let file = File::open(path).map_err(PeerError::file("open", path))?;
            let size = file.metadata().map_err(PeerError::file("stat", path))?.len();
            if size == 0 {
                totals.add_file(list.relative(path), b"");
                continue;
            }
            let map = map(&file).map_err(PeerError::file("map", path))?;
            totals.add_file(list.relative(path), &map);
        }
        Ok(totals)
    })
}

#[expect(unsafe_code, reason = "memmap2 has no safe way to map a file")]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the caller only reads the map and drops it immediately; the peers' file sets do not
    // change while they run. If one did, the digest would differ or the program would die of
    // SIGBUS, and the runner would record either as a failed run.
    unsafe { Mmap::map(file) }
}

//! One thread with one reused buffer: open, read to the end, close.

use crate::digest::{Pieces, mix};
use crate::{FileList, PeerError, Totals};
use std::fs::File;
use std::io::{ErrorKind, Read};

/// Reads and hashes all files with a buffer of `buffer_bytes`.
///
/// # Errors
/// A file that cannot be opened or read.
pub fn run(list: &FileList, buffer_bytes: usize) -> Result<Totals, PeerError> {
    let mut buffer = vec![0; buffer_bytes];
    let mut pieces = Pieces::default();
    let mut totals = Totals::default();
    for path in list.paths() {
        let mut file = File::open(path).map_err(PeerError::file("open", path))?;
        let (mut bytes, mut filled) = (0, 0);
        loop {
            let n = match file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(PeerError::file("read", path)(e)),
            };
            (bytes, filled) = (bytes + n as u64, filled + n);
            if filled == buffer.len() {
                pieces.add(&buffer);
                filled = 0;
            }
        }
        totals.add(bytes, mix(pieces.finish(&buffer[..filled]), list.relative(path)));
    }
    Ok(totals)
}

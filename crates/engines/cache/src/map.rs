//! The positions of a file's resident pages: the file is split into equal stretches, each with its
//! own counts.

use crate::holes::Holes;
use crate::state::{pages_of, stretch};
use ioloom_sys::cache;
use std::io;
use std::os::fd::AsFd;

/// A stretch of a file; `None` means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cell {
    /// Number of pages in the stretch.
    pub total: u64,
    /// Resident pages. A sampled stretch has the state of its sampled page, which is unknown in a hole.
    pub resident: Option<u64>,
    /// Dirty pages.
    pub dirty: Option<u64>,
    /// Pages under writeback.
    pub writeback: Option<u64>,
}

/// Maps the first `bytes` of an open file in at most `cells` stretches, but never more than the
/// file has pages. The descriptor must not be shared. Makes one call per stretch.
///
/// # Errors
/// Returns any system call error other than "unsupported" and "not permitted".
pub fn map(file: impl AsFd, bytes: u64, cells: usize) -> io::Result<Vec<Cell>> {
    let total = pages_of(bytes);
    let parts = total.min(cells as u64);
    let page_bytes = ioloom_sys::proc::page_bytes();
    let mut out = Vec::with_capacity(parts as usize);
    let (mut random, mut holes) = (false, Holes::default());
    for i in 0..parts {
        let (start, end) = stretch(i, parts, total);
        let (at, len) = (start * page_bytes, (end - start) * page_bytes);
        let mut cell = Cell { total: end - start, ..Cell::default() };
        if let Some(found) = cache::state(&file, at, len)? {
            cell.resident = Some(found.resident);
            cell.dirty = Some(found.dirty);
            cell.writeback = Some(found.writeback);
        } else {
            if !random {
                cache::advise_random(&file)?;
                random = true;
            }
            let hit = cache::read_if_resident(&file, at + len / 2, &mut [0])?;
            cell.resident = match hit {
                Some(true) if holes.contain(&file, (at + len / 2) / page_bytes) => None,
                hit => hit.map(|hit| if hit { cell.total } else { 0 }),
            };
        }
        out.push(cell);
    }
    Ok(out)
}

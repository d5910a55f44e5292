//! Direct requests that are not a multiple of a sector, and truncation of a padded file: how this
//! file system and tmpfs respond.
//!
//! A request is rejected, served by direct I/O, or served through the page cache despite its size.
//! The resident pages distinguish the last two cases.

use crate::stage::put;
use ioloom_failure::{quoted, reason};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, direct_alignment_of, read_at, scratch, size};
use ioloom_sys::{cache, transfer};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Published request sizes that fail, in bytes.
const ODD_BYTES: [usize; 3] = [335, 981, 7171];
/// Published request sizes that succeed, in bytes.
const EVEN_BYTES: [usize; 4] = [512, 1024, 1536, 2048];
/// Usual mount point of a tmpfs.
const MEMORY: &str = "/dev/shm";

pub(super) fn run(order: &RunOrder) -> Result<Measured, String> {
    let start = monotonic_ns();
    let mut measured = Measured { files: 1, ..Measured::default() };
    measure(&mut measured, "", &order.dir)
        .map_err(|e| format!("{}: {}", quoted(&order.dir), reason(&e)))?;
    // For comparison: tmpfs rejects no requests and never uses direct I/O.
    let _ = measure(&mut measured, "memory_", Path::new(MEMORY));
    measured.elapsed_ns = monotonic_ns() - start;
    Ok(measured)
}

fn measure(measured: &mut Measured, prefix: &str, dir: &Path) -> io::Result<()> {
    let file = scratch(dir, WriteMode::Direct)?;
    let mut record =
        |name: &str, value: f64| put(measured, &format!("{prefix}{name}"), Some(value));
    let aligned = direct_alignment_of(&file)?.map_or(0.0, |found| f64::from(found.offset));
    record("direct_multiple_bytes", aligned);
    let mut buffer = Buffer::new(64 << 10);
    buffer.whole_mut().fill(7);
    let whole = buffer.capacity();
    transfer::write_at(&file, buffer.bytes(whole), 0)?;
    let (mut refused, mut served) = (0, 0);
    for bytes in ODD_BYTES {
        let answers = [
            ("write", transfer::write_at(&file, buffer.bytes(bytes), 0)),
            ("read", read_at(&file, &mut buffer.whole_mut()[..bytes], 0)),
        ];
        for (what, answer) in answers {
            let no = is_refusal(&answer);
            refused += u32::from(no);
            served += u32::from(answer.is_ok());
            record(&format!("{what}_{bytes}_refused"), f64::from(u8::from(no)));
        }
    }
    let went = EVEN_BYTES.iter().filter(|bytes| {
        transfer::write_at(&file, buffer.bytes(**bytes), 0).is_ok_and(|n| n == **bytes)
    });
    record("even_served", went.count() as f64);
    record("even_asked", EVEN_BYTES.len() as f64);
    record("odd_asked", 2.0 * ODD_BYTES.len() as f64);
    record("odd_refused", f64::from(refused));
    record("odd_served", f64::from(served));
    if let Ok(Some(state)) = cache::state(&file, 0, 0) {
        record("resident_pages", state.resident as f64);
    }
    record("tail_descriptors", if can_truncate(&file)? { 1.0 } else { 2.0 });
    Ok(())
}

fn is_refusal(answer: &io::Result<usize>) -> bool {
    matches!(answer, Err(e) if e.kind() == io::ErrorKind::InvalidInput)
}

/// Returns whether the descriptor that wrote a padded block with direct I/O can also truncate it.
fn can_truncate(file: &OwnedFd) -> io::Result<bool> {
    let odd = ODD_BYTES[2] as u64;
    Ok(transfer::set_len(file, odd).is_ok() && size(file)? == odd)
}

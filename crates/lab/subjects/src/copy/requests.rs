//! Requests past the page cache that are no multiple of a sector, and a padded file that is cut:
//! what this file system answers, and what the one in memory does.
//!
//! An answer has three kinds: refused, direct, or served although it does not fit, which is possible
//! only through the page cache. Which of the last two it was, the pages left in memory tell.

use crate::stage::put;
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, direct_alignment_of, read_at, scratch, size};
use ioloom_sys::{cache, transfer};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The published examples of sizes that do not go, bytes.
const ODD_BYTES: [usize; 3] = [335, 981, 7171];
/// One of those that go.
const EVEN_BYTES: [usize; 4] = [512, 1024, 1536, 2048];
/// Where a file system in memory is usually found.
const MEMORY: &str = "/dev/shm";

pub(super) fn run(order: &RunOrder) -> Result<Measured, String> {
    let start = monotonic_ns();
    let mut measured = Measured { files: 1, ..Measured::default() };
    ask(&mut measured, "", &order.dir).map_err(|e| format!("{}: {e}", order.dir.display()))?;
    // Beside the question: elsewhere nobody says no, and nothing is direct.
    let _ = ask(&mut measured, "memory_", Path::new(MEMORY));
    measured.elapsed_ns = monotonic_ns() - start;
    Ok(measured)
}

fn ask(measured: &mut Measured, prefix: &str, dir: &Path) -> io::Result<()> {
    let file = scratch(dir, WriteMode::Direct)?;
    let mut tell = |name: &str, value: f64| put(measured, &format!("{prefix}{name}"), Some(value));
    let aligned = direct_alignment_of(&file)?.map_or(0.0, |found| f64::from(found.offset));
    tell("direct_multiple_bytes", aligned);
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
            tell(&format!("{what}_{bytes}_refused"), f64::from(u8::from(no)));
        }
    }
    let went = EVEN_BYTES.iter().filter(|bytes| {
        transfer::write_at(&file, buffer.bytes(**bytes), 0).is_ok_and(|n| n == **bytes)
    });
    tell("even_served", went.count() as f64);
    tell("even_asked", EVEN_BYTES.len() as f64);
    tell("odd_asked", 2.0 * ODD_BYTES.len() as f64);
    tell("odd_refused", f64::from(refused));
    tell("odd_served", f64::from(served));
    if let Ok(Some(state)) = cache::state(&file, 0, 0) {
        tell("resident_pages", state.resident as f64);
    }
    tell("tail_descriptors", if cut_by_itself(&file)? { 1.0 } else { 2.0 });
    Ok(())
}

fn is_refusal(answer: &io::Result<usize>) -> bool {
    matches!(answer, Err(e) if e.kind() == io::ErrorKind::InvalidInput)
}

/// Whether the descriptor that wrote a padded block past the cache can also cut it.
fn cut_by_itself(file: &OwnedFd) -> io::Result<bool> {
    let odd = ODD_BYTES[2] as u64;
    Ok(transfer::set_len(file, odd).is_ok() && size(file)? == odd)
}

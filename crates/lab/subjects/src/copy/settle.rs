//! How long plays of copying may take: until the kernel writes by itself, and again and again over the
//! same bytes.
//!
//! A copy that nobody syncs is written when its pages are old enough, or when too many are changed on
//! the whole machine; the age is a setting. Where the kernel does not look at all, such a copy may
//! never be written, so a play that waits for it is refused.

use super::plan::{One, Scenario, Settle};
use ioloom_copy::{Durable, Verify};
use ioloom_sys::proc::read_text;
use std::path::Path;

/// What a slow disk moves and syncs: bytes per second, and seconds for a file.
const SLOW_BYTES_PER_S: f64 = 20e6;
const SLOW_SYNC_S: f64 = 0.02;

/// Seconds after which the kernel has begun to write a changed page that nobody asks for, whenever it
/// was changed.
///
/// # Errors
/// A sentence: it does not say, or does not look by itself.
pub(super) fn within_s() -> Result<f64, String> {
    let number = |name: &str| {
        let path = Path::new("/proc/sys/vm").join(name);
        let text = read_text(&path).map_err(|e| format!("read {}: {e}", path.display()))?;
        text.trim().parse::<u64>().map_err(|_| format!("{}: no number", path.display()))
    };
    begun_s(number("dirty_expire_centisecs")?, number("dirty_writeback_centisecs")?)
}

/// The same for settings, in hundredths of a second: pages of that age, and how often it looks. The
/// look that finds them old enough may be the one after the next.
fn begun_s(expire: u64, writeback: u64) -> Result<f64, String> {
    if writeback == 0 {
        return Err("this system does not write changed pages by their age \
                    (vm.dirty_writeback_centisecs is 0), so a copy that nobody syncs may stay \
                    unwritten; remedy: set it, 500 is usual"
            .to_owned());
    }
    Ok(expire as f64 / 100.0 + 2.0 * writeback as f64 / 100.0)
}

/// Seconds after the start of a copy of so many bytes in which it is written, asked for or not; later
/// than that something else is wrong.
pub(super) fn longest_s(settle: Settle, bytes: u64) -> f64 {
    let waits = if settle == Settle::Alone { within_s().unwrap_or(0.0) } else { SLOW_SYNC_S };
    2.0 * waits + 2.0 * bytes as f64 / SLOW_BYTES_PER_S + 5.0
}

/// What a play takes beyond going through its files once, seconds.
pub(super) fn takes_s(scenario: &Scenario, files: u64, bytes: u64) -> f64 {
    let pass = bytes as f64 / SLOW_BYTES_PER_S;
    match scenario {
        Scenario::One(One { settle, verify, .. }) => {
            let waits = if *settle == Settle::Alone { within_s().unwrap_or(0.0) } else { 0.0 };
            let again = if *verify == Verify::None { 0.0 } else { pass };
            // Read, written, and read by another process.
            waits + 2.0 * pass + again
        }
        Scenario::Series(series) => series.runs as f64 * 2.0 * pass,
        Scenario::Tree(tree) if tree.durable == Durable::None => pass,
        Scenario::Tree(_) => pass + files as f64 * SLOW_SYNC_S,
        // The bystander is written and read three times.
        Scenario::Bystander(scenario) => {
            pass + 4.0 * scenario.bystander_bytes as f64 / SLOW_BYTES_PER_S
        }
        Scenario::Requests => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_writes_what_is_old_when_it_looks() {
        assert_eq!(begun_s(3000, 500), Ok(40.0), "pages of 30 s, and two looks");
        assert_eq!(begun_s(100, 100), Ok(3.0));
        let reason = begun_s(3000, 0).unwrap_err();
        assert!(reason.contains("remedy: "), "{reason}");
    }

    #[test]
    fn a_play_has_the_time_that_it_needs() {
        const FILE: u64 = 132_506_485;
        let takes = |plan: &str, files| {
            takes_s(&Scenario::of(&format!("copy:{plan}").parse().unwrap()).unwrap(), files, FILE)
        };
        let pass = FILE as f64 / SLOW_BYTES_PER_S;
        if let Ok(waits) = within_s() {
            // Twice of it is the deadline, and the play itself gives up before.
            assert!(2.0 * takes("buffered/settle=alone", 1) > 2.0 * waits + pass);
            let deadline = 20.0 + pass + 2.0 * takes("buffered/settle=alone", 1);
            assert!(longest_s(Settle::Alone, FILE) + 10.0 < deadline);
        }
        assert!(takes("series/way=buffered,runs=12", 1) >= 24.0 * pass);
        assert!(takes("tree/durable=file", 20_000) >= 400.0);
        assert!(takes("tree", 20_000) < 10.0);
    }
}

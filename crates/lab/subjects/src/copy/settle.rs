//! Time limits of copy scenarios, including the kernel's writeback.
//!
//! A copy that is not synced is written when its pages are old enough or when too many pages on the
//! machine are dirty. The age is a kernel setting. If periodic writeback is disabled, such a copy
//! may never be written, so scenarios that wait for it are refused.

use super::plan::{One, Scenario, Settle};
use ioloom_copy::{Durable, Verify};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::proc::read_text;
use std::path::Path;

/// Speed of a slow disk: bytes per second, and seconds to sync a file.
const SLOW_BYTES_PER_S: f64 = 20e6;
const SLOW_SYNC_S: f64 = 0.02;

/// Returns the seconds after which the kernel has started to write a dirty page without a sync.
///
/// # Errors
/// The settings cannot be read, or periodic writeback is disabled.
pub(super) fn within_s() -> Result<f64, String> {
    let number = |name: &str| {
        let path = Path::new("/proc/sys/vm").join(name);
        let text =
            read_text(&path).map_err(|e| PathError::new(Operation::Read, &path, e).to_string())?;
        text.trim().parse::<u64>().map_err(|_| format!("{} is not a number", quoted(&path)))
    };
    begun_s(number("dirty_expire_centisecs")?, number("dirty_writeback_centisecs")?)
}

/// Computes the seconds from two settings in hundredths of a second: the page age and the writeback
/// interval. It may take two intervals until a page is found to be old enough.
fn begun_s(expire: u64, writeback: u64) -> Result<f64, String> {
    if writeback == 0 {
        return Err(
            "periodic writeback is disabled (vm.dirty_writeback_centisecs is 0), so a copy \
            may never be written without a sync; set it, for example to 500"
                .to_owned(),
        );
    }
    Ok(expire as f64 / 100.0 + 2.0 * writeback as f64 / 100.0)
}

/// Returns the seconds after the start of a copy by which it must have been written, synced or not.
/// A longer time indicates another problem.
pub(super) fn longest_s(settle: Settle, bytes: u64) -> f64 {
    let waits = if settle == Settle::Alone { within_s().unwrap_or(0.0) } else { SLOW_SYNC_S };
    2.0 * waits + 2.0 * bytes as f64 / SLOW_BYTES_PER_S + 5.0
}

/// Returns the seconds that a scenario needs beyond reading its files once.
pub(super) fn takes_s(scenario: &Scenario, files: u64, bytes: u64) -> f64 {
    let pass = bytes as f64 / SLOW_BYTES_PER_S;
    match scenario {
        Scenario::One(One { settle, verify, .. }) => {
            let waits = if *settle == Settle::Alone { within_s().unwrap_or(0.0) } else { 0.0 };
            let again = if *verify == Verify::None { 0.0 } else { pass };
            // The file is read, written, and read by another process.
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
        assert_eq!(begun_s(3000, 500), Ok(40.0), "30 s of age and two intervals");
        assert_eq!(begun_s(100, 100), Ok(3.0));
        let reason = begun_s(3000, 0).unwrap_err();
        assert!(reason.contains("; set it"), "{reason}");
    }

    #[test]
    fn a_scenario_has_the_time_that_it_needs() {
        const FILE: u64 = 132_506_485;
        let takes = |plan: &str, files| {
            takes_s(&Scenario::of(&format!("copy:{plan}").parse().unwrap()).unwrap(), files, FILE)
        };
        let pass = FILE as f64 / SLOW_BYTES_PER_S;
        if let Ok(waits) = within_s() {
            // The deadline is twice as long, and the scenario itself gives up earlier.
            assert!(2.0 * takes("buffered/settle=alone", 1) > 2.0 * waits + pass);
            let deadline = 20.0 + pass + 2.0 * takes("buffered/settle=alone", 1);
            assert!(longest_s(Settle::Alone, FILE) + 10.0 < deadline);
        }
        assert!(takes("series/way=buffered,runs=12", 1) >= 24.0 * pass);
        assert!(takes("tree/durable=file", 20_000) >= 400.0);
        assert!(takes("tree", 20_000) < 10.0);
    }
}

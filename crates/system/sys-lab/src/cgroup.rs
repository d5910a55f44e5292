//! cgroup limits for this process: device read rates, and memory including page cache.

mod group;
mod memory_limit;
mod throttle;

pub use group::is_alive;
pub use memory_limit::MemoryLimit;
pub use throttle::{ReadLimit, Throttle};

use std::io;

/// Removes groups left behind by killed processes; returns their number. Groups of running
/// processes are not affected.
pub fn remove_leftover_groups() -> io::Result<usize> {
    let disks = match throttle::hierarchy() {
        Ok(hierarchy) => group::remove_leftovers_in(hierarchy.point())?,
        Err(_) => 0,
    };
    let memory = match memory_limit::hierarchy() {
        Ok((point, _)) => group::remove_leftovers_in(&point)?,
        Err(_) => 0,
    };
    Ok(disks + memory)
}

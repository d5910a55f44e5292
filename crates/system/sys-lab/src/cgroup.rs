//! Limits for this process by cgroup: read rates of a device, and memory including page cache.

mod memory_limit;
mod throttle;

pub use memory_limit::MemoryLimit;
pub use throttle::{ReadLimit, Throttle, is_alive, remove_leftover_groups};

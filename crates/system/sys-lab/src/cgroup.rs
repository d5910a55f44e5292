//! Limits for this process by cgroup: read rates of a device, and memory including page cache.

mod memory_limit;
mod throttle;

pub use memory_limit::LittleMemory;
pub use throttle::{ReadLimit, Throttle, lives, undo_left_groups};

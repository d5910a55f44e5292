//! System mechanisms used only by the laboratory.
//!
//! Reading ext4 inode tables, mounting loop images, limiting a process by cgroup, changing sysctl
//! settings and timing raw memory do not belong in a library that other programs link, so this code
//! has its own crate. Every changed setting is restored on drop, and leftovers of a killed process
//! can be detected and removed by the next one.

pub mod cgroup;
pub mod ext4;
pub mod image;
pub mod memory;
pub mod sysctl;

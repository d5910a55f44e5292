//! System mechanisms that only the laboratory needs.
//!
//! Reading ext4 inode tables, mounting loop images, limiting a process by cgroup, changing sysctl
//! values and timing raw memory have no place in a library that other programs link, so they live
//! in a crate of their own. Everything that changes a setting restores it on drop, and what a
//! killed process left behind can be found and undone by the next one.

pub mod cgroup;
pub mod ext4;
pub mod image;
pub mod memory;
pub mod sysctl;

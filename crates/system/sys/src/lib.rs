//! Safe system call wrappers: files, rings, cache state, clocks, /proc and mounts.
//!
//! `unsafe` code exists only in this crate and its siblings `sys-trace`, `sys-net` and `sys-lab`.
//! Each module wraps one mechanism in a safe interface whose invariants do not depend on the
//! caller: a buffer that a ring is filling cannot be accessed, a mapping documents how reading it
//! can fail, an interrupted call is retried. Only Linux is supported for now; the modules are
//! divided so that another system can be added. Every call goes through [`fault::call`], so tests
//! can make the n-th call fail.
//!
//! The only cost is that of the calls: nothing here allocates per call, logs or locks.

pub mod address_space;
pub mod affinity;
pub mod alongside;
pub mod attr;
pub mod buffer;
mod bus;
pub mod cache;
pub mod cgroup;
pub mod clock;
pub mod descriptor;
pub mod descriptor_table;
pub mod dir;
pub mod disks;
pub mod extents;
pub mod fault;
pub mod file;
pub mod inode_flags;
pub mod linked;
pub mod make;
pub mod map;
pub mod mount;
pub mod new_file;
pub mod open_at;
pub mod pipe;
pub mod priority;
pub mod proc;
pub mod remove;
pub mod ring;
pub mod shared;
#[cfg(feature = "signals")]
pub mod signals;
pub mod stdio;
pub mod stream;
pub mod transfer;

//! Safe wrappers of system calls: files, rings, cache state, clocks, /proc and mounts.
//!
//! `unsafe` code exists only in this crate and its siblings `sys-trace`, `sys-net` and `sys-lab`.
//! Each module wraps one mechanism in a safe interface whose invariants do not depend on the
//! caller: a buffer that a ring is filling cannot be accessed, a mapping documents how reading it
//! can fail, an interrupted call is retried. Linux only for now; the modules are cut so that
//! another system can be added. Every call goes through [`fault::call`], so that a test can make
//! the n-th call fail.
//!
//! Costs are those of the calls: nothing here allocates per call, logs or locks.

pub mod affinity;
pub mod attr;
pub mod buffer;
pub mod cache;
pub mod clock;
pub mod dir;
pub mod extents;
pub mod fault;
pub mod file;
pub mod linked;
pub mod make;
pub mod map;
pub mod mount;
pub mod proc;
pub mod ring;
pub mod transfer;

//! The only `unsafe`, the only system calls and the only operating-system-specific code of ioloom.
//!
//! Each module wraps one mechanism in a safe interface whose invariants do not depend on the
//! caller: buffers that a ring is filling cannot be reached, a mapping says what can go wrong with
//! it, a call that is interrupted is repeated. Linux only for now; the modules are cut so that
//! another system can stand beside them. Every call passes [`fault::call`], so that a test can
//! make the n-th one fail.
//!
//! Costs are those of the calls themselves: nothing here allocates per call, logs or locks.

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

//! A read-only FUSE file system for tests and benchmarks of storage with latency.
//!
//! Files, their contents and their directories are generated from [`Options`]. Each kind of request
//! has a fixed delay. The server receives requests in one thread and answers them from a timer, so
//! any number of them overlap; [`Counters`] report how many opens and reads were in flight at the
//! same time. The kernel keeps nothing: entries and attributes expire at once, and each open
//! discards the cached pages of its file. Within one open, reads are buffered and read ahead.
//!
//! A process that reads a file system which it serves itself cannot be killed while a request is in
//! flight: the reader waits for an answer, uninterruptibly, and the thread that would send it is
//! gone. [`DelayFs::mount_in_child`] therefore serves from a child process; a test that reads in its
//! own process uses it. [`DelayFs::mount`] serves in this process and is for tests that start
//! another program as the reader.
//!
//! Mounting needs `/dev/fuse` and either root or `fusermount3`; [`available`] reports what is
//! missing.

mod child;
mod counters;
mod filesystem;
mod kind;
mod mount;
mod options;
mod service;
mod session;
mod tree;

pub use child::serve_for_parent;
pub use counters::Counters;
pub use mount::{DelayFs, Mounted, available};
pub use options::Options;
pub use tree::content;

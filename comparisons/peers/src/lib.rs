//! Programs that users would write today to read and hash every file below a directory.
//!
//! Each peer is the short program that a reader of its library's documentation would write, with no
//! tuning except the one number that the library leaves to its user (threads, tasks in flight). For
//! comparability, all of them get the same list, compute the same digest and print the same line.
//! None of them uses ioloom code.
//!
//! [`leanest`] is not a peer but a floor: the minimum number of system calls that read the bytes,
//! which shows how much CPU time the kernel itself needs.

pub mod digest;
mod error;
pub mod leanest;
pub mod list;
pub mod mapped;
pub mod rayon_pool;
pub mod read_loop;
pub mod std_threads;
pub mod tokio_fs;
pub mod usage;
mod workers;

pub use digest::{Totals, file_digest};
pub use error::PeerError;
pub use list::{FileList, Walker};

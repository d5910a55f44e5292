//! What users would write today to read and hash every file below a directory.
//!
//! Each peer is the short program that a reader of its library's documentation would write, without
//! tuning beyond the one number that the library leaves to its user (threads, tasks in flight). All
//! of them get the same list, compute the same digest and print the same line, so that they can be
//! compared. None of them uses code of ioloom.
//!
//! [`leanest`] is not a peer but a floor: the fewest system calls that fetch the bytes, which shows
//! how much processor time the kernel itself needs.

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

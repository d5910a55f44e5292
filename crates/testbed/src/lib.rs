//! What the tests of several crates need of a machine: a process of their own, a user for whom
//! permissions count, a program that ran, a directory of odd files, a disk without power, and a
//! database server.
//!
//! No crate uses it outside its tests. Everything here fails a test by a panic with the reason,
//! because a test can do nothing else about it.

mod disk;
mod place;
mod postgres;
mod process;

pub use disk::Disk;
pub use place::{ODD_NAMES, Place};
pub use postgres::Postgres;
pub use process::{Ran, alone, as_nobody, fed, is_root};

//! What the tests of several crates need of a machine: a process of their own, a user for whom
//! permissions count, a program that ran, a directory of odd files, a disk without power, a database
//! server, the list of stores that have to survive a crash, and a certificate of nobody.
//!
//! No crate uses it outside its tests, but `xtask`, whose crashes are tests. Everything here fails a
//! test by a panic with the reason, because a test can do nothing else about it.

mod certificate;
mod disk;
mod postgres;
mod process;
mod workspace;

pub use certificate::Certificate;
pub use disk::Disk;
pub use postgres::Postgres;
pub use process::{ProcessOutput, alone, as_nobody, fed, is_root};
pub use workspace::{ODD_NAMES, Workspace};

/// Every store of orders at every durability that it has, by name, for the tests and for
/// `cargo xtask crash`. A database is none of them: it is no file of its server.
pub fn stores() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    let lines = include_str!("stores.txt").lines();
    lines.map(|line| line.split_once(' ').expect("a store and a durability"))
}

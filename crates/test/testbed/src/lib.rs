//! Test support shared by several crates: tests in separate processes, an unprivileged user,
//! captured program output, a directory of odd files, directories in memory, a disk whose power can be
//! cut, a database server, a message server, the list of stores that must survive a crash, and a self-signed certificate.
//!
//! Only tests use this crate, and `xtask`, whose crash runs are tests. Every failure panics with
//! the reason, because a test cannot recover from it.

mod certificate;
mod disk;
mod memory;
mod nats;
mod postgres;
mod process;
mod workspace;

pub use certificate::Certificate;
pub use disk::Disk;
pub use memory::in_memory;
pub use nats::Nats;
pub use postgres::Postgres;
pub use process::{ProcessOutput, alone, as_nobody, fed, is_root};
pub use workspace::{ODD_NAMES, Workspace};

/// Returns every order store at every durability it supports, by name, for tests and for `cargo
/// xtask crash`. Databases are not included because their files do not belong to the server.
pub fn stores() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    let lines = include_str!("stores.txt").lines();
    lines.map(|line| line.split_once(' ').expect("a store and a durability"))
}

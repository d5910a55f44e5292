//! What lies below a directory: apparent size, disk size and inodes, with hard links counted once.
//!
//! [`scan`](scan::scan) walks roots with the walker and gives a [`Tree`] for each, in which every
//! inode is charged to exactly one directory. Which one follows from the paths alone, so every
//! method and every number of threads gives the same sums. The rules of what is counted are those
//! of GNU du; what differs is said where it does: file systems of the kernel and of other computers
//! are not entered from above ([`mounts`]), and a name that vanishes during the walk is no error.
//!
//! Memory follows what is kept ([`scan::Detail`]): a sum needs one node per root and about 90 bytes
//! for each inode with several links; under `-L` also some 20 bytes for every entry.
//!
//! [`ncdu`] writes and reads the export format of ncdu, [`document`] our own, with which two scans
//! are compared.

pub mod document;
pub mod exclude;
pub mod links;
pub mod mounts;
pub mod ncdu;
pub mod remove;
pub mod scan;
mod tally;
pub mod tree;

pub use scan::Scan;
pub use tally::{Measure, Tally};
pub use tree::Tree;

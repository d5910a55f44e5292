//! Disk usage below a directory: apparent size, disk size and inodes, with hard links counted once.
//!
//! [`scan`](scan::scan) walks the roots and returns a [`Tree`] for each, in which every inode is
//! charged to exactly one directory. The choice depends only on the paths, so every method and
//! every number of threads gives the same sums. The counting rules are those of GNU du, with
//! documented exceptions: kernel and network file systems are not entered from above ([`mounts`]),
//! and a name that vanishes during the walk is not an error.
//!
//! Memory depends on what is retained ([`scan::Detail`]): a sum needs one node per root and about
//! 90 bytes for each inode with several links; with `-L` also about 20 bytes for every entry.
//!
//! [`ncdu`] writes and reads the export format of ncdu; [`document`] is our own format, in which
//! two scans can be compared.

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

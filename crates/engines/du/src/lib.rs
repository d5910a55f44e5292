//! Disk usage below a directory: apparent size, disk usage and inodes, with hard links counted
//! once.
//!
//! [`scan`](scan::scan) walks the roots and returns a [`Tree`] for each, in which every inode is
//! charged to exactly one directory. The choice depends only on the paths, so all methods and
//! thread counts give the same totals. The counting rules are those of GNU du, with documented
//! exceptions: a walk does not descend into file systems of the kernel ([`mounts`]), and a name that
//! disappears during the walk is not an error.
//!
//! Memory use depends on what is retained ([`scan::Detail`]): a total needs one node per root and
//! about 90 bytes for each inode with several links; `-L` and roots that
//! are not known in advance add about 20 bytes for every entry.
//!
//! [`ncdu`] reads and writes the export format of ncdu; [`document`] is the native format, which
//! also allows two scans to be compared.

pub mod document;
pub mod exclude;
pub mod links;
pub mod mounts;
pub mod ncdu;
mod node;
mod options;
pub mod remove;
pub mod scan;
mod shared;
pub mod subtrees;
mod tally;
pub mod tree;
mod visit;

pub use scan::Scan;
pub use tally::{Measure, Newest, Tally};
pub use tree::Tree;

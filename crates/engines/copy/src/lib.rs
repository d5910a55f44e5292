//! Copies files and trees, completely or not at all, with their attributes.
//!
//! Correctness comes first. At any moment a target is absent, the old file, or complete: new files
//! have no name, and new directories have a hidden one, until they are complete. Short transfers
//! are continued. A source that changes during the copy causes an error rather than a torn copy.
//! Space is reserved before the first write. Holes, hard links and other attributes are preserved
//! as with `cp -a`.
//!
//! Speed comes second. A walk with one visitor per thread distributes the names, so all threads
//! copy small files, even those in a single wide directory, each with the fewest system calls that
//! ensure correctness. A pure [`plan`] chooses the method for a large file from probed facts:
//! shared blocks, the page cache with several threads per file, or direct I/O with many requests in
//! flight.
//!
//! ```text
//! sources ─► copy: targets ─► walk ─► tree: directories, links, special files
//!                                      └► file: plan ─► data ─► verify ─► meta ─► final name
//! ```
//!
//! Memory: one buffer per thread; the blocks of large files in flight; about 250 bytes for each
//! directory in progress and 150 for each file with several names; about 40 bytes for each directory that
//! existed before or is a source; and up to 100,000 paths if hashes are requested. A resumed copy
//! also needs about 50 bytes for each file in its journal (see [`CopyOptions::resume`]).

mod amount;
mod backup;
mod content;
mod context;
mod copy;
mod data;
mod dirs;
mod error;
mod evidence;
mod explain;
mod facts;
mod file;
mod file_ref;
mod file_transfer;
mod hash;
mod journal;
mod link_text;
mod links;
mod meta;
mod mode;
mod new_file;
mod new_owner;
mod newer;
mod options;
mod parents;
mod place;
pub mod plan;
mod report;
mod resolve;
mod resume;
mod route;
mod special;
mod streams;
mod subtrees;
mod sweep;
mod target;
mod tree;
mod turns;
mod verify;
mod view;
mod xattr_rules;

pub use amount::bytes_to_copy;
pub use copy::copy;
pub use error::{CopyError, ERRORS_KEPT_MAX, Reason};
pub use evidence::Evidence;
pub use explain::{Class, Explanation, explain};
pub use facts::unwritten_bytes;
pub use mode::Mode;
pub use options::{
    Attributes, Backup, BackupNames, CopyCounters, CopyOptions, Durable, Existing, Follow,
    HashKind, Make, Overwrite, Preserve, Silent, Tuning, Verify, Watcher, When,
};
pub use plan::{CopyPlan, Facts};
pub use report::{Counts, Hashed, Report};
pub use subtrees::{Linked, Subtree, SubtreesReport, copies_of, copy_subtrees, finish_subtrees};
pub use target::Target;

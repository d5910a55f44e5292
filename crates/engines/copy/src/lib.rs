//! Copies files and trees: whole or not at all, with everything that belongs to them, as fast as
//! measured facts allow, and says what it did.
//!
//! Correct first. A target is at any moment absent, the old one, or complete: files are made without
//! a name and new directories under a hidden one, and get their names last. Transfers that come up
//! short are gone on with; a source that changes meanwhile is an error, not a torn copy; space is
//! reserved before the first byte. What is kept, holes and hard links among it, is as `cp -a` has it.
//!
//! Then fast. A walk with a visitor per thread shares out names, so that small files are copied by
//! all threads, those of one wide directory too; each costs the fewest calls that keep it correct.
//! The way of a big file is chosen by a pure [`plan`] from facts that were tried: shared blocks, the
//! page cache with parts side by side, or past the cache with many requests under way.
//!
//! ```text
//! sources ─► copy: where each goes ─► walk ─► tree: directories, links, special files
//!                                              └► file: plan ─► data ─► verify ─► meta ─► name
//! ```
//!
//! Memory: a buffer per thread, the pieces of big files under way, about 150 bytes for each directory in
//! work and each file with several names, some 40 for each directory that was there before or is a
//! source of its own, and the paths of up to a hundred thousand hashes where hashes are wanted. A copy
//! that goes on needs what [its record](CopyOptions::resume) holds: about 50 bytes for each file.

mod amount;
mod copy;
mod data;
mod dirs;
mod error;
mod explain;
mod facts;
mod file;
mod hash;
mod journal;
mod links;
mod meta;
mod options;
mod place;
pub mod plan;
mod report;
mod resume;
mod run;
mod special;
mod tree;
mod verify;

pub use amount::bytes_to_copy;
pub use copy::{Target, copy};
pub use error::{CopyError, ERRORS_KEPT_MAX, Reason};
pub use explain::{Class, Explanation, explain};
pub use facts::unwritten_bytes;
pub use options::{
    CopyCounters, CopyOptions, Durable, Existing, Follow, HashKind, Preserve, Silent, Tuning,
    Verify, Watcher, When,
};
pub use plan::{CopyPlan, Facts, Mode};
pub use report::{Counts, Evidence, Hashed, Report};

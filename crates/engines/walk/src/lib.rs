//! A parallel directory walker.
//!
//! One task is one directory. It is opened relative to its parent's descriptor, and never through a
//! symbolic link unless links are followed. Its names are read into a buffer of the thread and used
//! in place, and each file is queried relative to the open directory. Nothing is allocated, sent or
//! locked per file, and no path is built unless the visitor requests it.
//!
//! ```text
//! worker:  own stack of directories ──pop──► openat, statx ─► enter
//!             ▲ subdirectories                 getdents64 ─► per name: statx ─► entry
//!             │                                 … end ─► part ─► (last one) leave
//!          oldest half, or half of a wide directory ──► pool ──► idle workers
//! ```
//!
//! Each worker takes the directory that it found last, so that few directories wait. It hands over
//! the oldest half of its tasks only while workers are idle, or half of the remaining names of a
//! directory, so that a wide directory is shared, too. `pool` explains how the end is detected.
//!
//! Cost per directory: open, statx, two reads, close, two small allocations. Per file: one statx,
//! or nothing for names alone. Memory grows with the waiting directories, about 200 bytes each, not
//! with the files. Few descriptors stay open: beyond [`Walk::descriptors_max`] a directory is
//! opened again by its path from the root, in steps if the path is too long for one call.
//!
//! Users implement [`Visitor`] and run it with [`Walk`]. [`files`], [`walk`] and [`walk_parallel`]
//! are built on it, for programs that need regular files with their paths.

mod context;
mod error;
mod files;
mod held;
mod list;
mod listing;
#[cfg(feature = "inode-tables")]
mod lookup;
#[cfg(not(feature = "inode-tables"))]
#[path = "lookup_absent.rs"]
mod lookup;
mod method;
mod node;
mod open;
mod paths;
mod pool;
mod read;
mod report;
mod run;
mod skipped;
mod sweep;
mod sweep_order;
#[cfg(feature = "inode-tables")]
mod tables;
#[cfg(not(feature = "inode-tables"))]
#[path = "tables_absent.rs"]
mod tables;
mod tables_use;
mod task;
mod visit;
mod walk;
mod watch;
mod worker;

pub use error::{ERRORS_KEPT_MAX, Errors};
pub use files::{Entry, Summary, WalkOptions, files, walk, walk_parallel};
pub use ioloom_sys::dir::{Fields, Kind, Meta};
pub use list::{ListError, ListReader, PATH_BYTES_MAX, Separator, read_list};
pub use method::{Method, Refused, THREADS_MAX, Threads};
pub use paths::{PathList, order_of};
pub use report::Report;
pub use skipped::Skipped;
pub use tables_use::TablesUse;
pub use visit::{Control, DirRef, Found, NewDir, RetainedDir, Visitor};
pub use walk::{Follow, Walk};
pub use watch::Waits;

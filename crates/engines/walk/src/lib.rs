//! A parallel directory walker.
//!
//! One task is one directory. It is opened below its parent's descriptor and never through a
//! symbolic link unless asked, its names are read into a buffer owned by the thread and used where
//! they lie, and each file is asked for relative to the open directory. Nothing is allocated, sent
//! or locked per file, and no path is built unless somebody asks for it.
//!
//! ```text
//! worker:  own stack of directories ──pop──► openat, statx ─► enter
//!             ▲ subdirectories                 getdents64 ─► per name: statx ─► entry
//!             │                                 … end ─► part ─► (last one) leave
//!          oldest half, or half of a wide directory ──► pool ──► whoever is hungry
//! ```
//!
//! Each worker takes the directory that it found last, so that what waits stays small; the oldest
//! half is given away only while somebody is hungry, and so is the later half of the names of a
//! directory, so that one wide directory is shared too. `pool` explains why the end is
//! certain.
//!
//! Cost per directory: open, statx, two reads, close, two small allocations. Per file: one statx, or
//! nothing for names alone. Memory grows with the directories that wait, about 200 bytes each, not
//! with the files. Few descriptors stay open: beyond [`Walk::descriptors_max`] a directory is opened
//! again from the root by its path, in pieces when the path is longer than the kernel takes.
//!
//! What a user writes is a [`Visitor`]; [`Walk`] runs it. [`files`], [`walk`] and [`walk_parallel`]
//! are made of that, for those who want regular files with their paths.

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
pub use paths::PathList;
pub use report::Report;
pub use skipped::Skipped;
pub use tables_use::TablesUse;
pub use visit::{Control, DirRef, Found, NewDir, RetainedDir, Visitor};
pub use walk::{Follow, Walk};
pub use watch::Waits;

//! Seeded file sets from distributions, and the shape of existing trees.
//!
//! A set is a directory with two things in it: a manifest (`.ioloom-set.json`), written before
//! anything else, which says that the directory is ours and what belongs in it, and the directory
//! `files`, which holds the files and nothing else. Sizes, demands and bytes follow from the seed
//! and the number of the file alone, so any file can be made and checked by itself: a half-made set
//! is finished, a finished one is verified, and removal takes only what was made.
//!
//! Bytes come from xoshiro256++ with a stream per file: nothing compresses or deduplicates them,
//! and making them costs far less than writing them. Files are made by several threads below held
//! directory descriptors and are not flushed one by one; [`CreateOptions::sync`] flushes the file system
//! once at the end.

mod check;
mod content;
mod error;
mod layout;
mod lock;
mod make;
mod manifest;
mod shape;
mod text;

pub use check::{Fault, Removed, Verified, remove, verify};
pub use content::fill;
pub use error::SetError;
pub use layout::{demand_ns, files_dir, hash, leaves, paths, relative_path, size};
pub use lock::{SetLock, lock};
pub use make::{CreateOptions, CreateProgress, create};
pub use manifest::{FORMAT, MANIFEST, Manifest, State, load};
pub use shape::{Shape, medium, spec_from_tree};
pub use text::{SetText, spell};

//! Seeded file sets from distributions, and the shape of existing trees.
//!
//! The directory of a set has two entries: a manifest (`.ioloom-set.json`), which is written first
//! and records that the directory is ours and what belongs in it, and the directory `files`, which
//! holds only the files. Sizes, compute times and contents follow from the seed and the index of
//! the file, so any file can be created and checked on its own: an incomplete set can be completed,
//! a complete one verified, and removal deletes only what was created.
//!
//! Contents come from xoshiro256++ with one stream per file: they cannot be compressed or
//! deduplicated, and generating them costs far less than writing them. Several threads create files
//! relative to open directories, without syncing each one; [`CreateOptions::sync`] syncs the file
//! system once at the end.

mod check;
mod content;
mod error;
mod layout;
mod lock;
mod make;
mod manifest;
mod names;
mod shape;
mod text;

pub use check::{Fault, Removed, Verified, remove, verify};
pub use content::fill;
pub use error::SetError;
pub use layout::{demand_ns, files_dir, hash, leaves, paths, relative_path, size};
pub use lock::{SetLock, lock};
pub use make::{CreateOptions, CreateProgress, create};
pub use manifest::{FORMAT, Manifest, State, load};
pub use names::MANIFEST;
pub use shape::{Shape, medium, spec_from_tree};
pub use text::{SetText, spell};

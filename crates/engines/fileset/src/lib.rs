//! Seeded file sets from distributions, and the shape of existing trees.
//!
//! The directory of a set has two entries. The manifest (`.ioloom-set.json`) is written first; it
//! identifies the directory as ours and records what belongs in it. The directory `files` contains
//! only the files. Sizes, compute times and contents follow from the seed and the file index, so
//! each file can be created and checked on its own: an incomplete set can be completed, a complete
//! one can be verified, and removal deletes only what was created.
//!
//! Contents come from xoshiro256++ with one stream per file: they can be neither compressed nor
//! deduplicated, and generating them costs far less than writing them. Several threads create files
//! relative to open directories, without syncing each file; [`CreateOptions::sync`] syncs the file
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

pub use check::{Fault, Removed, Verified, remove, remove_locked, verify};
pub use content::fill;
pub use error::SetError;
pub use layout::{demand_ns, files_dir, hash, leaves, paths, relative_path, size};
pub use lock::{SetLock, lock};
pub use make::{CreateOptions, CreateProgress, Created, create};
pub use manifest::{FORMAT, Manifest, State, load};
pub use names::MANIFEST;
pub use shape::{Shape, medium, spec_from_tree};
pub use text::{SetText, spell};

//! The operands of `shard`.

use crate::exit::Failure;
use crate::remote;
use clap::Args;
use ioloom_failure::quoted;
use std::path::{Path, PathBuf};

/// A plan and its parts.
#[derive(Debug, Args)]
pub(super) struct Parts {
    /// Plan that the shards belong to
    pub(super) plan: PathBuf,

    /// Directories with parts, or parts
    #[arg(required = true, value_name = "PARTS")]
    pub(super) places: Vec<PathBuf>,
}

/// Refuses the URL of an object store.
pub(super) fn check_local(path: &Path) -> Result<(), Failure> {
    match remote::url_of(path) {
        None => Ok(()),
        Some(url) => Err(Failure::refused(format!(
            "cannot plan {}: objects cannot be split into shards; write a local path of this name as \
             ./{url}",
            quoted(path)
        ))),
    }
}

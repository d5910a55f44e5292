//! The operands of `shard merge` and `shard status`.

use clap::Args;
use std::path::PathBuf;

/// A plan and its parts.
#[derive(Debug, Args)]
pub(super) struct Parts {
    /// Plan that the shards belong to
    pub(super) plan: PathBuf,

    /// Directories with parts, or parts
    #[arg(required = true, value_name = "PARTS")]
    pub(super) places: Vec<PathBuf>,
}

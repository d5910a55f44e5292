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
    match remote::url_of(path).map(remote::shown) {
        None => Ok(()),
        Some(url) => Err(Failure::refused(format!(
            "cannot plan {}: objects cannot be split into shards; write a local path of this name as \
             ./{url}",
            quoted(Path::new(&url))
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_url_is_shown_without_its_secrets() {
        for url in ["s3://KEY:SEC/RET@b/a", "az://c/a?sv=1&sig=SECRET", "https://u:SECRET@h/a"] {
            let text = check_local(Path::new(url)).unwrap_err().message;
            assert!(text.contains("objects cannot be split") && !text.contains("RET"), "{text}");
        }
    }
}

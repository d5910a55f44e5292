//! The files of one shard.
//!
//! After the two lines of every file of this crate, the paths follow, each ended by a zero byte, so
//! `sed 1,2d MANIFEST | xargs -0` reads them. Paths are bytes: neither UTF-8 nor free of line ends.

use crate::durable;
use crate::envelope::{self, Kind};
use crate::error::{Invalid, ShardError};
use crate::raw::Raw;
use ioloom_walk::PathList;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a manifest says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestHeader {
    /// The number of the shard, from 1.
    pub shard: u64,
    /// The number of shards of its plan.
    pub shards: u64,
    /// The directory to which relative paths refer.
    pub directory: Raw,
    /// The number of paths.
    pub files: u64,
    /// Whether each path was a regular file, and not a symbolic link, when the plan was made.
    pub regular: bool,
}

/// Returns the bytes of a manifest of the paths in `range`, and their checksum.
pub(crate) fn encode(
    header: &ManifestHeader,
    names: &PathList,
    range: std::ops::Range<usize>,
) -> (Vec<u8>, String) {
    let mut body = Vec::new();
    for index in range {
        body.extend_from_slice(names.get(index));
        body.push(0);
    }
    envelope::seal(Kind::Manifest, header, &body)
}

/// Reads a manifest. Returns its header, its paths and its checksum.
pub(crate) fn read(path: &Path) -> Result<(ManifestHeader, PathList, String), ShardError> {
    let bytes = durable::read(path)?;
    let invalid = |reason| ShardError::Invalid { path: path.to_owned(), reason };
    let opened = envelope::open::<ManifestHeader>(Kind::Manifest, &bytes).map_err(invalid)?;
    let mut names = PathList::new();
    let mut rest = opened.body;
    while let Some(end) = rest.iter().position(|b| *b == 0) {
        match opened.header.regular {
            true => names.push_found(&[&rest[..end]], 0),
            false => names.push(&rest[..end]),
        }
        rest = &rest[end + 1..];
    }
    if !rest.is_empty() || names.len() as u64 != opened.header.files {
        let files = opened.header.files;
        let reason = format!("{} paths instead of {files}", names.len());
        return Err(invalid(Invalid::Content(reason)));
    }
    Ok((opened.header, names, opened.checksum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_repeat_the_arguments_of_the_plan_are_read() {
        let text =
            r#"{"shard":1,"shards":2,"directory":"/","roots":["a"],"files":3,"regular":true}"#;
        let header: ManifestHeader = serde_json::from_str(text).unwrap();
        assert_eq!((header.shard, header.files), (1, 3));
    }
}

//! Errors that occur when establishing a condition.

use ioloom_failure::{PathError, reason};
use std::io;

/// A condition that could not be established.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// The condition is impossible here; the run is stored as refused.
    #[error("{0}")]
    Refused(String),
    /// A call on a file failed; the run is stored as failed.
    #[error(transparent)]
    Pass(#[from] PathError),
    /// The image that contains the files could not be remounted; the run is stored as failed.
    #[error(transparent)]
    Image(#[from] ioloom_sys_lab::image::ImageError),
    /// The page cache of the machine could not be dropped; the run is stored as failed.
    #[error("cannot drop the page cache: {}; run as root, or omit --drop-caches", reason(.0))]
    DropCaches(#[source] io::Error),
}

//! Why a condition could not be made.

use ioloom_failure::{PathError, reason};
use std::io;

/// A condition that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConditionError {
    /// It cannot exist here; the run is stored as refused with this reason.
    #[error("{0}")]
    Refused(String),
    /// A file or the system stood in the way; the run is stored as failed.
    #[error(transparent)]
    Pass(#[from] PathError),
    /// The image that the files lie in could not be mounted anew; the run is stored as failed.
    #[error(transparent)]
    Image(#[from] ioloom_sys_lab::image::ImageError),
    /// The page cache of the machine could not be dropped; the run is stored as failed.
    #[error("cannot drop the page cache: {}; run as root, or omit --drop-caches", reason(.0))]
    DropCaches(#[source] io::Error),
}

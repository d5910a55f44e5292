//! The state of one file during its transfer.

use crate::context::CopyContext;
use crate::data::Meter;
use crate::new_file::NewFile;
use crate::options::When;
use crate::route::{Route, Source};
use ioloom_sys::attr::Attr;
use std::sync::atomic::AtomicU64;

/// One file during its transfer.
pub(crate) struct FileTransfer<'a> {
    pub(crate) context: &'a CopyContext<'a>,
    pub(crate) route: &'a Route<'a>,
    pub(crate) source: &'a Source,
    pub(crate) new: &'a NewFile<'a>,
    /// Number of bytes copied so far.
    pub(crate) mine: &'a AtomicU64,
    /// Whether a source that changes is copied in part.
    pub(crate) tolerant: bool,
    /// Whether the target is a pipe or device.
    pub(crate) writes_stream: bool,
}

impl FileTransfer<'_> {
    pub(crate) fn meter(&self) -> Meter<'_> {
        self.context.meter(self.mine)
    }

    /// Returns true if source or target have no offsets.
    pub(crate) fn is_stream(&self) -> bool {
        self.writes_stream || self.source.is_stream()
    }
}

/// Returns true if a source has holes to preserve or is to be searched for zeros.
pub(crate) fn has_holes(context: &CopyContext<'_>, attr: &Attr) -> bool {
    match context.options.sparse {
        When::Always => attr.bytes > 0,
        When::Never => false,
        // A hole of one page or less is not worth the system calls needed to find it.
        When::Auto => attr.bytes > 4096 && attr.blocks_512 * 512 < attr.bytes,
    }
}

//! Methods of reading files.

use crate::{ParseError, serialize_as_text};
use std::fmt;
use std::str::FromStr;

/// A method of reading files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Blocking `pread` through the page cache.
    Read,
    /// `preadv2(RWF_NOWAIT)`. A miss starts readahead; the oldest miss is then read with a blocking
    /// call.
    Nowait,
    /// io_uring read, with plain system calls for open and close.
    Uring,
    /// io_uring read, with open and stat through the ring as well.
    UringOpen,
    /// io_uring read into buffers registered with the ring.
    UringRegistered,
    /// `O_DIRECT` with blocking `pread`.
    DirectRead,
    /// `O_DIRECT` through io_uring.
    DirectUring,
    /// `mmap` without advice.
    MmapPlain,
    /// `mmap` with `MADV_SEQUENTIAL`.
    MmapSequential,
    /// `mmap` with `MADV_WILLNEED` for files ahead of the current one.
    MmapWillneed,
    /// `mmap` with `MAP_POPULATE`: the pages are present when the call returns.
    MmapPopulate,
    /// No I/O: passes empty files through the same queues, to measure library overhead.
    Null,
}

impl Method {
    /// All methods, in table order.
    pub const ALL: [Self; 12] = [
        Self::Read,
        Self::Nowait,
        Self::Uring,
        Self::UringOpen,
        Self::UringRegistered,
        Self::DirectRead,
        Self::DirectUring,
        Self::MmapPlain,
        Self::MmapSequential,
        Self::MmapWillneed,
        Self::MmapPopulate,
        Self::Null,
    ];

    /// Returns the text form used on the command line, in TOML and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Nowait => "nowait",
            Self::Uring => "uring",
            Self::UringOpen => "uring:open",
            Self::UringRegistered => "uring:registered",
            Self::DirectRead => "direct:read",
            Self::DirectUring => "direct:uring",
            Self::MmapPlain => "mmap:plain",
            Self::MmapSequential => "mmap:sequential",
            Self::MmapWillneed => "mmap:willneed",
            Self::MmapPopulate => "mmap:populate",
            Self::Null => "null",
        }
    }

    /// Reports whether the method requires an io_uring instance.
    pub const fn needs_ring(self) -> bool {
        matches!(self, Self::Uring | Self::UringOpen | Self::UringRegistered | Self::DirectUring)
    }

    /// Reports whether a thread blocks on every file, so a window of L requires L threads.
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Read | Self::DirectRead)
    }

    /// Reports whether the method bypasses the page cache.
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::DirectRead | Self::DirectUring)
    }

    /// Reports whether the method maps files. Truncating a mapped file raises SIGBUS, so such plans
    /// run only in child processes.
    pub const fn is_mmap(self) -> bool {
        matches!(
            self,
            Self::MmapPlain | Self::MmapSequential | Self::MmapWillneed | Self::MmapPopulate
        )
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = ParseError;

    /// Parses the text form. `direct` is short for `direct:uring`, and `mmap` for `mmap:plain`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "direct" => return Ok(Self::DirectUring),
            "mmap" => return Ok(Self::MmapPlain),
            _ => {}
        }
        Self::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|m| m.name()).collect();
            ParseError::new("method", text, format!("must be one of {}", names.join(", ")))
        })
    }
}

serialize_as_text!(Method);

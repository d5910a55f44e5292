//! How bytes are fetched.

use crate::{ParseError, spelled};
use std::fmt;
use std::str::FromStr;

/// One way to get the bytes of a file into the user's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Blocking `pread` on a buffered file.
    Read,
    /// `preadv2(RWF_NOWAIT)`: a miss has already started read-ahead, the oldest miss is then
    /// read with a blocking call.
    Nowait,
    /// io_uring read, open and close by plain system calls.
    Uring,
    /// io_uring read, open and stat also through the ring.
    UringOpen,
    /// io_uring read into buffers registered with the ring.
    UringRegistered,
    /// `O_DIRECT` with blocking `pread`.
    DirectRead,
    /// `O_DIRECT` through io_uring.
    DirectUring,
    /// `mmap` without advice.
    MmapPlain,
    /// `mmap` and `MADV_SEQUENTIAL`.
    MmapSequential,
    /// `mmap` and `MADV_WILLNEED`, files ahead of the one that is touched.
    MmapWillneed,
    /// `mmap` with `MAP_POPULATE`: the pages are there when the call returns.
    MmapPopulate,
    /// No input at all: empty bytes through the same queues, the price of our own machinery.
    Null,
}

impl Method {
    /// Every method, in the order in which tables print them.
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

    /// The spelling used on the command line, in TOML and in JSON.
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

    /// Whether an io_uring instance is needed.
    pub const fn needs_ring(self) -> bool {
        matches!(self, Self::Uring | Self::UringOpen | Self::UringRegistered | Self::DirectUring)
    }

    /// Whether a thread waits in the call for each single file, so that a window of L is L threads.
    pub const fn blocks(self) -> bool {
        matches!(self, Self::Read | Self::DirectRead)
    }

    /// Whether the page cache is bypassed.
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::DirectRead | Self::DirectUring)
    }

    /// Whether the bytes are a mapping: a truncated file is then SIGBUS, so such a plan runs only
    /// in a child process.
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

    /// Reads a spelling; `direct` alone means `direct:uring`, `mmap` alone `mmap:plain`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "direct" => return Ok(Self::DirectUring),
            "mmap" => return Ok(Self::MmapPlain),
            _ => {}
        }
        Self::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|m| m.name()).collect();
            ParseError::new("method", text, format!("one of {}", names.join(", ")))
        })
    }
}

spelled!(Method);

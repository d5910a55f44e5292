//! How a walk queries files, and with how many threads.

use std::fmt;
use std::str::FromStr;

/// Most threads of a walk.
pub const THREADS_MAX: usize = 256;

/// How the walk queries files. Every method finds the same entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `statx` by name relative to the open directory, the shortest path through the kernel.
    Statx,
    /// Names and kinds from the directory only. Files are not queried, so sizes are unknown.
    NamesOnly,
    /// `statx` by the full path from the root, as most programs do; the kernel resolves every
    /// directory of the path again. Names whose path is too long are queried relative to their
    /// directory.
    Lstat,
    /// `statx` through io_uring. The kernel never completes it inline but hands each request to a
    /// worker thread, so this is a thread pool inside the kernel.
    Uring,
    /// Two phases: all names first, then all files in the order of their inode numbers, so that a
    /// seeking medium passes its inode tables once. Costs about 100 bytes per file of a window.
    Sweep,
    /// Names first, then the inode tables of ext4, read from the block device in long reads,
    /// without a call per file. Only for root, only on ext4, as of a sync at the start.
    InodeTables,
}

impl Method {
    /// Every method, in the order of the documents.
    pub const ALL: [Self; 6] =
        [Self::Statx, Self::NamesOnly, Self::Lstat, Self::Uring, Self::Sweep, Self::InodeTables];

    /// Returns the spelling in plans and flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Statx => "statx",
            Self::NamesOnly => "names-only",
            Self::Lstat => "lstat",
            Self::Uring => "uring",
            Self::Sweep => "sweep",
            Self::InodeTables => "inode-tables",
        }
    }

    /// Describes the method in one phrase.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Statx => "queries each file by name relative to the open directory",
            Self::NamesOnly => "queries no files; takes names and kinds from the directory",
            Self::Lstat => "queries each file by its full path",
            Self::Uring => "queries each file through io_uring; kernel threads answer",
            Self::Sweep => "reads all names first, then queries all files in inode order",
            Self::InodeTables => {
                "reads all names first, then the inode tables of ext4 from the block device"
            }
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Method {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let found = Self::ALL.into_iter().find(|method| method.word() == text);
        found.ok_or_else(|| Refused::UnknownMethod(text.to_owned()))
    }
}

/// How many threads walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Threads {
    /// This many, 1 to [`THREADS_MAX`]. They start as soon as there is work for them.
    Count(usize),
    /// Automatic: starts with the usable cores and adapts to what it measures.
    Auto,
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Threads {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(count @ 1..=THREADS_MAX) => Ok(Self::Count(count)),
            _ => Err(Refused::Threads(text.to_owned())),
        }
    }
}

/// Why a walk was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The method does not exist.
    #[error(
        "unknown method '{0}'; use statx, names-only, lstat, uring, sweep or \
             inode-tables"
    )]
    UnknownMethod(String),
    /// A thread count is out of range.
    #[error("invalid thread count '{0}': must be 1 to 256, or auto")]
    Threads(String),
    /// io_uring is not available.
    #[error("cannot walk by uring: io_uring is not available ({}); use statx", ioloom_failure::reason(.0))]
    Ring(std::io::Error),
    /// The inode tables cannot be read.
    #[error("cannot walk by inode-tables: {0}")]
    InodeTables(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse::<Method>().unwrap(), method);
            assert!(!method.sentence().is_empty());
        }
        for threads in [Threads::Auto, Threads::Count(1), Threads::Count(256)] {
            assert_eq!(threads.to_string().parse::<Threads>().unwrap(), threads);
        }
        for text in ["0", "257", "-1", "many", ""] {
            assert!(text.parse::<Threads>().unwrap_err().to_string().contains("1 to 256"));
            assert!(text.parse::<Method>().is_err());
        }
    }
}

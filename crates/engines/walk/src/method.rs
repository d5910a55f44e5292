//! How a walk asks what a name is, and with how many threads.

use std::fmt;
use std::str::FromStr;

/// Threads that a walk may have at most.
pub const THREADS_MAX: usize = 256;

/// How the walk learns what it is asked about each file. Every method finds the same entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `statx` by name below the open directory: the shortest way through the kernel.
    Statx,
    /// Names and kinds only, as the directory tells them; no file is asked for. Sizes stay unknown.
    NamesOnly,
    /// `statx` by the full path from the root, as most programs do; the kernel looks up every
    /// directory of the path again. Names whose path is longer than the kernel takes are asked for
    /// below their directory.
    Lstat,
    /// `statx` through io_uring. The kernel hands each to a worker thread of its own and never
    /// answers inline, so this is a thread pool inside the kernel.
    Uring,
    /// Two phases: names first, then all files in the order of their inode numbers, so that a
    /// seeking medium passes its inode tables once. Costs about 100 bytes per file in a window.
    Sweep,
    /// Names first, then the inode tables of ext4, read from the block device in long pieces: no
    /// call per file. For root on ext4 alone; a view of the file system as of a sync at the start.
    InodeTables,
}

impl Method {
    /// Every method, in the order of the documents.
    pub const ALL: [Self; 6] =
        [Self::Statx, Self::NamesOnly, Self::Lstat, Self::Uring, Self::Sweep, Self::InodeTables];

    /// The word for plans and flags.
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

    /// One sentence on what it does.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Statx => "asks for each file by its name below the open directory",
            Self::NamesOnly => "asks for no file; names and kinds as the directory tells them",
            Self::Lstat => "asks for each file by its full path",
            Self::Uring => "asks for each file through io_uring, answered by kernel threads",
            Self::Sweep => "reads all names first, then asks for all files in inode order",
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
    /// That many, 1 to [`THREADS_MAX`]. They start as soon as there is work for them.
    Count(usize),
    /// As many as pay: begins with the usable cores and follows what it measures.
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

/// Why a walk does not start.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such method.
    #[error(
        "there is no method '{0}'; use statx, names-only, lstat, uring, sweep or \
             inode-tables"
    )]
    UnknownMethod(String),
    /// A thread count out of range.
    #[error("'{0}' is no number of threads; give 1 to 256, or auto")]
    Threads(String),
    /// The kernel gives no ring.
    #[error("cannot walk by uring: io_uring is not available here ({0}); use statx")]
    Ring(std::io::Error),
    /// Inode tables cannot be read here.
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

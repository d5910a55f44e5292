//! The nodes of a tree: directories, and the files that are kept.

use crate::Tally;
use crate::links::FileId;

/// The link count of a file with several links, of which the number is not known.
pub(crate) const LINKS_UNKNOWN: u32 = u32::MAX;

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device.
    Other,
}

/// Why an entry of an import does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excluded {
    /// It matches a pattern.
    Pattern,
    /// It is on another file system.
    OtherFileSystem,
    /// It is a file system of the kernel.
    KernelFileSystem,
    /// It is a firmlink.
    Firmlink,
}

impl Excluded {
    /// All reasons.
    pub const ALL: [Self; 4] =
        [Self::Pattern, Self::OtherFileSystem, Self::KernelFileSystem, Self::Firmlink];

    /// Returns the name in an export.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::OtherFileSystem => "otherfs",
            Self::KernelFileSystem => "kernfs",
            Self::Firmlink => "frmlnk",
        }
    }
}

/// A node as recorded by a thread.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Node type.
    pub kind: Kind,
    /// Size of the entry itself.
    pub size: Tally,
    /// Device and inode.
    pub id: FileId,
    /// Link count of the inode.
    pub links: u32,
    /// Whether its size is counted here; this is decided at the end for inodes with several links.
    pub counts: bool,
}

/// A node of a finished tree. Nodes are stored in the order of a walk by name.
#[derive(Debug, Clone)]
pub struct Node {
    /// Depth below the root.
    pub depth: u32,
    /// Index of the parent; the root is its own parent.
    pub parent: u32,
    /// Index after the last node below this one.
    pub end: u32,
    /// Node type.
    pub kind: Kind,
    /// Whether this is a directory that could not be read, or in an import, any entry with a read error.
    pub unreadable: bool,
    /// Whether entries of this directory could not be read, although it could.
    pub incomplete: bool,
    /// Why an import excludes this entry, which then does not count, unless it is a directory with contents.
    pub excluded: Option<Excluded>,
    /// Size of the entry itself.
    pub size: Tally,
    /// Totals of the entry itself and the entries below it that are not nodes.
    pub own: Tally,
    /// Totals of [`Node::own`] and all nodes below.
    pub total: Tally,
    /// Disk usage in bytes of files with hard links both inside and outside this directory.
    pub shared_bytes: u64,
    /// Device and inode.
    pub id: FileId,
    /// Link count of the inode.
    pub links: u32,
    pub(crate) name_at: usize,
    pub(crate) name_bytes: u32,
}

impl Node {
    /// Creates a node whose name has `name.1` bytes from `name.0`. `sum` is that of the entries below that are
    /// not nodes.
    pub(crate) fn new(
        found: Found,
        name: (usize, u32),
        parent: u32,
        depth: u32,
        sum: Tally,
    ) -> Self {
        let own = if found.counts { found.size + sum } else { sum };
        Self {
            depth,
            parent,
            end: 0,
            kind: found.kind,
            unreadable: false,
            incomplete: false,
            excluded: None,
            size: found.size,
            own,
            total: Tally::default(),
            shared_bytes: 0,
            id: found.id,
            links: found.links,
            name_at: name.0,
            name_bytes: name.1,
        }
    }

    /// Returns whether this is a link to a file with several.
    pub(crate) fn is_linked(&self) -> bool {
        self.kind != Kind::Directory && self.links > 1
    }

    /// Returns the totals counted here. `total` contains what the children have reported so far.
    pub(crate) fn total(&self) -> Tally {
        self.total + self.own
    }
}

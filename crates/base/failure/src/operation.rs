//! What was tried when a call failed.

use std::fmt;

/// What was tried. Displays as the verb of the message: "open directory" in
/// "cannot open directory 'x'".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `stat` and its relatives.
    Stat,
    /// Resolving a path to one without links and dots.
    Resolve,
    /// `stat` of the entries of a directory as a batch.
    StatEntries,
    /// Comparing an inode read from the device with `stat`.
    VerifyInode,
    /// Opening a file.
    Open,
    /// Opening a directory.
    OpenDir,
    /// Listing a directory that is open.
    ReadDir,
    /// Walking a tree as a whole.
    Walk,
    /// Reading a file.
    Read,
    /// Writing a file.
    Write,
    /// Mapping a file.
    Map,
    /// Reserving memory for a file.
    Reserve,
    /// Creating a file.
    Create,
    /// Creating a file in a directory.
    CreateIn,
    /// Creating the file that will replace another one in its directory.
    CreateBeside,
    /// Creating a directory.
    CreateDir,
    /// Creating a symbolic link.
    Symlink,
    /// Creating a hard link.
    HardLink,
    /// Creating a device, pipe or socket.
    MakeNode,
    /// Reading a symbolic link.
    ReadLink,
    /// Renaming.
    Rename,
    /// Giving a new file or directory its final name.
    Publish,
    /// Removing a file or directory.
    Remove,
    /// Removing files from a directory.
    RemoveFrom,
    /// Removing an empty directory.
    RemoveDir,
    /// Changing the length of a file.
    Truncate,
    /// Reserving space on the device.
    Allocate,
    /// Moving the position in a file.
    Seek,
    /// Copying as a whole.
    Copy,
    /// Copying to a target.
    CopyTo,
    /// Choosing how to copy.
    PlanCopy,
    /// Replacing an existing file.
    Replace,
    /// Resuming from the record of an interrupted copy.
    Resume,
    /// Opening the record of a copy that can be resumed.
    OpenJournal,
    /// Appending to that record.
    WriteJournal,
    /// Removing that record.
    RemoveJournal,
    /// Sharing the blocks of another file.
    Clone,
    /// Comparing a copy with its source.
    Verify,
    /// Changing owner or group.
    ChangeOwner,
    /// Changing permissions.
    ChangeMode,
    /// Changing times.
    ChangeTimes,
    /// Reading extended attributes.
    ReadAttributes,
    /// Writing extended attributes or ACLs.
    WriteAttributes,
    /// Syncing to the device.
    Sync,
    /// Syncing a whole file system.
    SyncFileSystem,
    /// Locking.
    Lock,
    /// Attaching an image to a loop device.
    AttachLoop,
    /// Mounting.
    Mount,
    /// Unmounting.
    Unmount,
    /// Finding the mount of a path.
    FindMount,
    /// `statfs` and its relatives.
    StatFs,
    /// Syncing a whole file system.
    SyncFs,
    /// Asking how much of a file is in the page cache.
    Residency,
    /// Evicting pages from the page cache.
    Evict,
    /// Loading into the page cache.
    Prefetch,
    /// Starting a program.
    Execute,
    /// Running a function of the caller on a file.
    Process,
}

impl Operation {
    /// Returns the verb of the message.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Resolve => "resolve",
            Self::StatEntries => "stat the entries of",
            Self::VerifyInode => "verify the inode of",
            Self::Open => "open",
            Self::OpenDir => "open directory",
            Self::ReadDir => "read directory",
            Self::Walk => "walk",
            Self::Read => "read",
            Self::Write => "write to",
            Self::Map => "map",
            Self::Reserve => "reserve memory for",
            Self::Create => "create",
            Self::CreateIn => "create a file in",
            Self::CreateBeside => "create a temporary file next to",
            Self::CreateDir => "create directory",
            Self::Symlink => "create symbolic link",
            Self::HardLink => "create hard link",
            Self::MakeNode => "create special file",
            Self::ReadLink => "read symbolic link",
            Self::Rename => "rename",
            Self::Publish => "move the new copy to",
            Self::Remove => "remove",
            Self::RemoveFrom => "remove files from",
            Self::RemoveDir => "remove directory",
            Self::Truncate => "truncate",
            Self::Allocate => "allocate space for",
            Self::Seek => "seek in",
            Self::Copy => "copy",
            Self::CopyTo => "copy to",
            Self::PlanCopy => "plan a copy of",
            Self::Replace => "replace",
            Self::Resume => "resume from",
            Self::OpenJournal => "open the resume journal for",
            Self::WriteJournal => "write the resume journal for",
            Self::RemoveJournal => "remove the resume journal for",
            Self::Clone => "clone",
            Self::Verify => "verify",
            Self::ChangeOwner => "change the owner of",
            Self::ChangeMode => "change the permissions of",
            Self::ChangeTimes => "change the times of",
            Self::ReadAttributes => "read the extended attributes of",
            Self::WriteAttributes => "write the extended attributes of",
            Self::Sync => "sync",
            Self::SyncFileSystem => "sync the file system of",
            Self::Lock => "lock",
            Self::AttachLoop => "attach a loop device to",
            Self::Mount => "mount",
            Self::Unmount => "unmount",
            Self::FindMount => "find the mount of",
            Self::StatFs => "query the file system of",
            Self::SyncFs => "sync the file system of",
            Self::Residency => "query the page cache for",
            Self::Evict => "evict",
            Self::Prefetch => "load",
            Self::Execute => "run",
            Self::Process => "process",
        }
    }

    /// Reports whether the operation only reads.
    pub(crate) const fn reads(self) -> bool {
        matches!(
            self,
            Self::Stat
                | Self::StatEntries
                | Self::Resolve
                | Self::StatFs
                | Self::PlanCopy
                | Self::VerifyInode
                | Self::Open
                | Self::OpenDir
                | Self::ReadDir
                | Self::Walk
                | Self::Read
                | Self::Map
                | Self::ReadLink
                | Self::ReadAttributes
                | Self::Residency
                | Self::Prefetch
                | Self::Verify
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())
    }
}

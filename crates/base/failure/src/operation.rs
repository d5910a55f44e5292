//! The operation attempted by a failed call.

use std::fmt;

/// An attempted operation. Displays as the verb of the message: "open directory" in "cannot open
/// directory 'x'".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// `stat` and related calls.
    Stat,
    /// The same, named as GNU du names it.
    Access,
    /// Resolving a path to one without symbolic links and dots.
    Resolve,
    /// `stat` on the entries of a directory in a batch.
    StatEntries,
    /// Comparing an inode read from the device with `stat`.
    VerifyInode,
    /// Opening a file.
    Open,
    /// Opening a directory.
    OpenDir,
    /// Listing an open directory.
    ReadDir,
    /// Walking a whole tree.
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
    /// Creating a temporary file that will replace another one in the same directory.
    CreateBeside,
    /// Creating a directory.
    CreateDir,
    /// Creating a symbolic link.
    Symlink,
    /// Creating a hard link.
    HardLink,
    /// Creating a device or socket.
    MakeNode,
    /// Creating a named pipe.
    MakeFifo,
    /// Closing a file, which reports failed writes.
    Close,
    /// Keeping an existing file under another name.
    Backup,
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
    /// Truncating or extending a file.
    Truncate,
    /// Reserving space on the device.
    Allocate,
    /// Changing the file offset.
    Seek,
    /// Copying a whole file or tree.
    Copy,
    /// Copying to a target.
    CopyTo,
    /// Choosing a copy method.
    PlanCopy,
    /// Replacing an existing file.
    Replace,
    /// Resuming from the journal of an interrupted copy.
    Resume,
    /// Opening the journal of a resumable copy.
    OpenJournal,
    /// Appending to that journal.
    WriteJournal,
    /// Removing that journal.
    RemoveJournal,
    /// Sharing blocks with another file.
    Clone,
    /// Comparing a copy with its source.
    Verify,
    /// Changing owner or group.
    ChangeOwner,
    /// Changing permissions.
    ChangeMode,
    /// Changing timestamps.
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
    /// `statfs` and related calls.
    StatFs,
    /// Syncing a whole file system.
    SyncFs,
    /// Querying how much of a file is in the page cache.
    Residency,
    /// Evicting pages from the page cache.
    Evict,
    /// Loading into the page cache.
    Prefetch,
    /// Starting a program.
    Execute,
    /// Running a caller's function on a file.
    Process,
}

impl Operation {
    /// Returns the verb used in the message.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Access => "access",
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
            Self::MakeFifo => "create fifo",
            Self::Close => "close",
            Self::Backup => "backup",
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
                | Self::Access
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

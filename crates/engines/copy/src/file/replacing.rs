//! Replaces an old file: what the new one takes over from it, and when the old one is written in place instead.

use super::{Attempt, PRIVATE, is_unsupported};
use crate::error::{CopyError, Reason};
use crate::file_transfer::FileTransfer;
use crate::meta::{FileRef, Rules};
use crate::new_file::NewFile;
use crate::options::Overwrite;
use crate::route::TargetState;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr, FileSystem};
use ioloom_sys::descriptor::Descriptor;
use ioloom_sys::dir::Kind;
use ioloom_sys::inode_flags::InodeFlags;
use ioloom_sys::open_at::open_to_read;
use ioloom_sys::{extents, make};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

impl Attempt<'_> {
    /// Returns true if a replacement gets the owner of the old file, which stays if that of the source
    /// cannot be set. Root can set it unless it lacks the capability, and must not let the old owner into the file before.
    pub(super) fn takes_over_owner(&self) -> bool {
        !(self.context.options.preserve.owner && self.context.rules.may_give_away())
    }

    pub(super) fn take_over_owner(&self, old: &Attr, new: &NewFile<'_>) -> Result<(), CopyError> {
        let (rules, parent_attr) = (&self.context.rules, self.route.parent_attr);
        let on = FileRef::Open(new.file().as_fd());
        // A server that gives the file to another user does not let root change that.
        if !self.takes_over_owner() && rules.owns_new(on, parent_attr) {
            return Ok(());
        }
        let taken = rules.take_over_owner(old, on, parent_attr);
        let is_forced = self.context.options.overwrite == Overwrite::Replace;
        taken.map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::PERM) if is_forced => {
                let why = "its owner or group cannot be kept; use --remove-destination, or omit \
                           --replace";
                CopyError::cannot(Operation::Replace, &(self.route.paths)().1, why)
            }
            _ => self.route.failed_to(Operation::CreateBeside, e),
        })
    }

    /// Fails before a target that is written in place is emptied: if it is the source, seen through a view with other inode
    /// numbers, or if the required method cannot be used.
    pub(super) fn check_before_emptying(&self, end: &Attr) -> Result<(), CopyError> {
        let is_emptied = !self.context.options.attributes_only && end.kind == Kind::Regular;
        // An empty file loses nothing; most files of the kernel report that size.
        if !is_emptied || end.bytes == 0 || self.source.is_stream() {
            return Ok(());
        }
        self.check_view(end)?;
        self.check_method(end)
    }

    /// Fails if the target is the source. Costs no call where both file systems are known to show only files of their own.
    fn check_view(&self, end: &Attr) -> Result<(), CopyError> {
        let (route, source, file_systems) = (self.route, self.source, &self.context.file_systems);
        let source_shows = file_systems.shows_others(source.attr.device, &source.file);
        if !source_shows && file_systems.is_plain(end.device) {
            return Ok(());
        }
        // An overlay copies a file of a lower layer when it is opened for writing. The target can be the end of a symbolic
        // link. Opening it again reports why that fails.
        let opened = open_to_read(route.to, route.to_name, true)
            .or_else(|_| make::open_in_place(route.to, route.to_name, false));
        let Ok(target) = opened.map(Descriptor::new) else { return Ok(()) };
        let may_be_same = file_systems.shows_others(end.device, &target) || source_shows;
        if may_be_same && file_systems.is_same(&source.file, &target, end.device) {
            let (from, to) = (route.paths)();
            let text = format!("{} and {} are the same file", quoted(&from), quoted(&to));
            return Err(CopyError::whole(&to, text));
        }
        Ok(())
    }

    /// Fails if the required method cannot be used, as far as that is known before the copy.
    fn check_method(&self, end: &Attr) -> Result<(), CopyError> {
        let (context, route, source) = (self.context, self.route, self.source);
        if context.pinned_other_than_buffered().is_none() {
            return Ok(());
        }
        // Facts are gathered by a write, which must not change the old file.
        let is_known = context.has_facts((source.attr.device, end.device));
        let unnamed = if is_known { None } else { make::unnamed_file(route.to, PRIVATE).ok() };
        let is_there =
            |file: &OwnedFd| attr::of_file(file).is_ok_and(|new| new.device == end.device);
        let file = match unnamed.filter(is_there) {
            Some(file) => Ok(file),
            None => make::open_in_place(route.to, route.to_name, false),
        };
        // Opening it again reports why that fails.
        let Ok(file) = file else { return Ok(()) };
        let new = NewFile::in_place(route.to, route.to_name, file);
        let mine = AtomicU64::new(0);
        let (tolerant, writes_stream) = (self.tolerant, false);
        FileTransfer { context, route, source, new: &new, mine: &mine, tolerant, writes_stream }
            .check_method()
    }

    /// Fails if the new file has other flags (`chattr`) or another project than the old one, as it inherits both from
    /// its directory, or cannot have its attributes of security modules: the old one is then written in place. One
    /// open, four ioctls, and one call for the names of the attributes. A disk that is too full for such an attribute
    /// may be too full for the content, so the old file stays as it is.
    pub(super) fn check_flags(&self, new: &NewFile<'_>) -> Result<(), CopyError> {
        let route = self.route;
        let is_replaced = matches!(self.target, TargetState::Replace(_));
        if !is_replaced || self.context.options.overwrite != Overwrite::Auto {
            return Ok(());
        }
        let opened = if route.parent_attr.is_remote {
            // There, the flags are not those of the server.
            None
        } else {
            // A program that is running and cannot be read cannot be opened.
            let opened = open_to_read(route.to, route.to_name, false)
                .or_else(|_| make::open_in_place(route.to, route.to_name, false));
            opened.map(Descriptor::new).ok()
        };
        let mut keeps = true;
        if let Some(old) = &opened {
            let same = InodeFlags::of_file(old)
                .and_then(|old| InodeFlags::of_file(new.file()).map(|new| new == old));
            keeps = same.map_err(|e| route.failed_to(Operation::Stat, e))?;
        }
        let old = match &opened {
            Some(old) => FileRef::Open(old.as_fd()),
            None => FileRef::Name(route.to, route.to_name),
        };
        let on = FileRef::Open(new.file().as_fd());
        let failed = |e| route.failed_to(Operation::WriteAttributes, e);
        if keeps && Rules::take_over_security(old, on).map_err(failed)? {
            return Ok(());
        }
        Err(route.failed_to(Operation::CreateBeside, Errno::PERM.into()))
    }

    /// Returns true if the old file cannot be replaced for a reason that does not prevent writing
    /// it in place: the directory or the owner. A full disk or quota does: the content could end halfway.
    pub(super) fn must_be_in_place(&self, error: &CopyError) -> bool {
        let replaces = matches!(error.operation, Operation::CreateBeside | Operation::Publish);
        let denied = matches!(
            error.errno(),
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY | Errno::INVAL)
        ) || is_unsupported(error);
        // An existing file needs no other name. In /proc, other names do not exist; in a directory that was removed,
        // the old file does not exist either.
        let no_name = error.operation == Operation::CreateBeside
            && matches!(error.errno(), Some(Errno::NAMETOOLONG | Errno::NOENT));
        replaces && (denied || no_name) && self.context.options.overwrite == Overwrite::Auto
    }

    /// Returns the error of an old file that could not be opened for writing, with advice if it is not permitted: a
    /// regular file of this user can be replaced.
    pub(super) fn unwritable(&self, error: io::Error) -> CopyError {
        let route = self.route;
        if Errno::from_io_error(&error) != Some(Errno::ACCESS) {
            return route.failed_to(Operation::Create, error);
        }
        let there = attr::of_name(route.to, route.to_name, false);
        let is_own = there.is_ok_and(|there| {
            let is_plain = there.kind == Kind::Regular && !there.mount_root && !there.stays();
            is_plain && there.user == attr::own_ids().0
        });
        let can_remove = !route.parent_attr.append_only && attr::may_write_at(route.to, c".");
        let advice = match is_own && can_remove {
            true => "use -f to replace the read-only file",
            false => "run as a user with write permission on the file",
        };
        let ((_, path), operation) = ((route.paths)(), Operation::Create);
        CopyError { operation, path, other: None, reason: Reason::Unwritable(error, advice) }
    }

    /// Returns the error of a full disk with the advice of `--in-place`, if the content fits in place of the old file.
    pub(super) fn advised(&self, error: CopyError) -> CopyError {
        let TargetState::Replace(old) = self.target else { return error };
        let is_of_new = matches!(
            error.operation,
            Operation::Write | Operation::Allocate | Operation::CreateBeside
        );
        if !is_of_new || !error.is_out_of_space() || self.context.options.backup.is_some() {
            return error;
        }
        let Ok(system) = attr::file_system(self.route.to) else { return error };
        let (source, old) = (&self.source.attr, old.blocks_512.saturating_mul(512));
        let needed = source.bytes.max(source.blocks_512.saturating_mul(512));
        // What is left of a quota is not known.
        let has_quota = error.errno() != Some(Errno::NOSPC);
        let free = if has_quota { 0 } else { system.free_bytes };
        if old.saturating_add(free) < needed || !self.frees_blocks(&system) {
            return error;
        }
        let reason = match error.reason {
            Reason::Io(error) => Reason::FitsInPlace(error),
            reason => reason,
        };
        CopyError { reason, ..error }
    }

    /// Returns true if truncating the old file frees its blocks: it shares none with other files or snapshots. False
    /// if that is not known.
    fn frees_blocks(&self, system: &FileSystem) -> bool {
        // The lower layers of overlayfs do not change; snapshots of bcachefs and NILFS2 keep blocks. A server of SMB
        // reports a map that does not say what is shared.
        const KEEP_BLOCKS: [u64; 3] = [0x794c_7630, 0xca45_1a4e, 0x3434];
        if system.in_memory {
            return true;
        }
        if system.one_tree || system.remote || KEEP_BLOCKS.contains(&system.kind) {
            return false;
        }
        let opened = open_to_read(self.route.to, self.route.to_name, false);
        let map = opened.and_then(|old| extents::of_file(&old)).ok().flatten();
        map.is_some_and(|extents| extents.iter().all(|extent| !extent.shared))
    }
}

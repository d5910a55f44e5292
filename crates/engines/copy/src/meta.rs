//! Copies the attributes of a file: owner, extended attributes and ACLs, permissions, times.
//!
//! The order matters because setting one attribute can change those set after it.

use crate::options::Preserve;
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr, XattrOf};
use ioloom_sys::dir::{Dir, Kind};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const ACL_ACCESS: &CStr = c"system.posix_acl_access";
const ACL_DEFAULT: &CStr = c"system.posix_acl_default";

/// The attributes to preserve, and the defaults of this process.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) preserve: Preserve,
    /// Whether new files get default permissions rather than those of the source.
    plain_mode: bool,
    umask: OnceLock<u32>,
    own: (u32, u32),
    /// Whether the target rejected an extended attribute; this is reported once.
    pub(crate) no_xattrs: AtomicBool,
}

/// The attributes of the directory that contains a new file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ParentAttr {
    pub(crate) device: (u32, u32),
    /// The group, which new files can inherit.
    pub(crate) group: u32,
    /// Whether new files inherit an ACL.
    pub(crate) has_default_acl: bool,
}

/// The operation that failed, and its error.
pub(crate) type MetaError = (Operation, io::Error);

/// A file, by descriptor or name.
#[derive(Clone, Copy)]
pub(crate) enum FileRef<'a> {
    Open(BorrowedFd<'a>),
    Name(&'a Dir, &'a CStr),
}

impl<'a> FileRef<'a> {
    fn xattrs(self) -> XattrOf<'a> {
        match self {
            Self::Open(file) => XattrOf::Open(file),
            Self::Name(dir, name) => XattrOf::Name(dir, name),
        }
    }

    fn set_owner(self, user: u32, group: u32) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_owner(file, user, group),
            Self::Name(dir, name) => attr::set_owner_at(dir, name, user, group),
        }
    }

    fn set_mode(self, mode: u32) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_mode(file, mode),
            Self::Name(dir, name) => attr::set_mode_at(dir, name, mode),
        }
    }

    fn set_times(self, of: &Attr) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_times(file, of.accessed, of.modified),
            Self::Name(dir, name) => attr::set_times_at(dir, name, of.accessed, of.modified),
        }
    }
}

/// How a target was created, which determines what remains to be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Creation {
    /// The mode it was created with, before the umask.
    pub(crate) mode: u32,
    pub(crate) parent_attr: ParentAttr,
    /// Whether it is a symbolic link, which has no permissions.
    pub(crate) is_link: bool,
    pub(crate) is_dir: bool,
    /// Whether it existed before this copy; if so, only preserved attributes are set.
    pub(crate) is_old: bool,
}

impl Creation {
    /// Describes a new file.
    pub(crate) fn file(mode: u32, parent_attr: ParentAttr) -> Self {
        Self { mode, parent_attr, is_link: false, is_dir: false, is_old: false }
    }
}

impl Rules {
    pub(crate) fn new(preserve: Preserve, plain_mode: bool) -> Self {
        let plain_mode = plain_mode && !preserve.mode;
        let (umask, no_xattrs) = (OnceLock::new(), AtomicBool::new(false));
        Self { preserve, plain_mode, umask, own: attr::own_ids(), no_xattrs }
    }

    /// Returns the umask of this process. It is read on first use because the kernel has to format
    /// all of `/proc/self/status` for it.
    pub(crate) fn umask(&self) -> u32 {
        *self.umask.get_or_init(|| attr::umask().unwrap_or(0o077))
    }

    /// Returns the final permissions of a copy of `source`, before the umask.
    fn mode_of(&self, source: &Attr) -> u32 {
        match source.kind {
            _ if !self.plain_mode => source.mode,
            Kind::Directory | Kind::Socket => 0o777,
            _ => 0o666,
        }
    }

    /// Returns the mode with which to create a copy of `source`. Until the owner is changed, only
    /// the current one may open it.
    pub(crate) fn initial_mode(&self, source: &Attr) -> u32 {
        let others = self.preserve.owner && (source.user, source.group) != self.own;
        self.mode_of(source) & if others { 0o700 } else { inheritable_bits(source.kind) }
    }

    /// Returns the permissions of a file created with `made.mode`, if known.
    fn mode_after_creation(&self, made: &Creation) -> Option<u32> {
        // The umask does not apply to a file that inherits an ACL.
        (!made.parent_attr.has_default_acl).then_some(made.mode & !self.umask())
    }

    /// Sets the preserved attributes of a new file.
    pub(crate) fn put(
        &self,
        source: &Attr,
        from: FileRef<'_>,
        on: FileRef<'_>,
        made: Creation,
    ) -> Result<(), MetaError> {
        let kept_owner = self.put_owner(source, on, made.parent_attr)?;
        if self.preserve.xattrs || (self.preserve.mode && !made.is_link) {
            self.put_xattrs(from.xattrs(), on.xattrs(), made)?;
        }
        if !made.is_link && (self.preserve.mode || !made.is_old) {
            self.put_mode(source, on, made, kept_owner)?;
        }
        if self.preserve.times {
            on.set_times(source).map_err(|e| (Operation::ChangeTimes, e))?;
        }
        Ok(())
    }

    /// Sets owner and group; returns which of them now match the source.
    fn put_owner(
        &self,
        source: &Attr,
        on: FileRef<'_>,
        parent_attr: ParentAttr,
    ) -> Result<(bool, bool), MetaError> {
        let wanted = (source.user, source.group);
        let same =
            (wanted.0 == self.own.0, wanted.1 == self.own.1 && parent_attr.group == self.own.1);
        if !self.preserve.owner || same == (true, true) {
            return Ok(same);
        }
        match on.set_owner(wanted.0, wanted.1) {
            Ok(()) => Ok((true, true)),
            // Unprivileged users cannot change the owner but can choose among their groups.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let group = on.set_owner(self.own.0, wanted.1).is_ok();
                Ok((same.0, group))
            }
            Err(e) => Err((Operation::ChangeOwner, e)),
        }
    }

    fn put_mode(
        &self,
        source: &Attr,
        on: FileRef<'_>,
        made: Creation,
        kept_owner: (bool, bool),
    ) -> Result<(), MetaError> {
        let mut mode = self.mode_of(source);
        if !self.preserve.mode {
            // Remove permissions needed only while the target was being written.
            if made.mode == mode & inheritable_bits(source.kind) {
                return Ok(());
            }
            mode &= inheritable_bits(source.kind) & !self.umask();
        }
        if !kept_owner.0 {
            mode &= !SET_USER;
        }
        if !kept_owner.1 {
            mode &= !SET_GROUP;
        }
        // A directory may have inherited the set-group-ID bit.
        if !made.is_dir && self.mode_after_creation(&made) == Some(mode) {
            return Ok(());
        }
        on.set_mode(mode).map_err(|e| (Operation::ChangeMode, e))
    }

    fn put_xattrs(
        &self,
        from: XattrOf<'_>,
        on: XattrOf<'_>,
        made: Creation,
    ) -> Result<(), MetaError> {
        let is_acl = |name: &CStr| name == ACL_ACCESS || name == ACL_DEFAULT;
        let names = from.names().map_err(|e| (Operation::ReadAttributes, e))?;
        if made.parent_attr.has_default_acl && self.preserve.mode {
            for acl in [ACL_ACCESS, ACL_DEFAULT] {
                if !names.iter().any(|name| name.as_c_str() == acl) {
                    on.remove(acl).map_err(|e| (Operation::WriteAttributes, e))?;
                }
            }
        }
        for name in names {
            if !(if is_acl(&name) { self.preserve.mode } else { self.preserve.xattrs }) {
                continue;
            }
            let value = from.get(&name).map_err(|e| (Operation::ReadAttributes, e))?;
            let Some(value) = value else { continue };
            match on.set(&name, &value) {
                Ok(()) => {}
                Err(e) if Errno::from_io_error(&e) == Some(Errno::OPNOTSUPP) => {
                    self.no_xattrs.store(true, Ordering::Relaxed);
                }
                // The security module assigns security labels.
                Err(_) if name.to_bytes().starts_with(b"security.") => {
                    self.no_xattrs.store(true, Ordering::Relaxed);
                }
                Err(e) => return Err((Operation::WriteAttributes, e)),
            }
        }
        Ok(())
    }

    /// Returns true if new files in a directory inherit an ACL. The query is made only if it
    /// matters.
    pub(crate) fn has_default_acl(&self, dir: &Dir) -> bool {
        let asks = self.preserve.mode || self.preserve.xattrs;
        asks && XattrOf::Open(dir.as_fd())
            .names()
            .is_ok_and(|names| names.iter().any(|name| name.as_c_str() == ACL_DEFAULT))
    }

    /// Gives a replacement file the attributes of the old file, as if that had been overwritten,
    /// except those preserved from the source.
    pub(crate) fn take_over_attributes(&self, old: &Attr, old_on: FileRef<'_>, on: FileRef<'_>) {
        // Ignore failures: the new file then has the attributes that this user can set.
        if !self.preserve.owner && (old.user, old.group) != self.own {
            let _ = on.set_owner(old.user, old.group);
        }
        if !self.preserve.mode {
            let _ = on.set_mode(old.mode & 0o1777);
            if let Ok(Some(acl)) = old_on.xattrs().get(ACL_ACCESS) {
                let _ = on.xattrs().set(ACL_ACCESS, &acl);
            }
        }
    }
}

/// Returns the permission bits copied from the source if permissions are not preserved. For
/// directories, this includes the sticky bit.
const fn inheritable_bits(kind: Kind) -> u32 {
    if matches!(kind, Kind::Directory) { 0o1777 } else { 0o777 }
}

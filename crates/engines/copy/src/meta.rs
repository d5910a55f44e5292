//! What belongs to a file beside its bytes, put onto its copy: owner, attributes and access lists,
//! permissions, times, in this order, because each of them can undo one that comes before.

use crate::options::Preserve;
use ioloom_sys::attr::{self, Attr, XattrOf};
use ioloom_sys::dir::{Dir, Kind};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const ACL_ACCESS: &CStr = c"system.posix_acl_access";
const ACL_DEFAULT: &CStr = c"system.posix_acl_default";

/// What is kept, and what new files get by themselves.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) preserve: Preserve,
    /// What is new gets the permissions that anything new gets, not those of its source.
    plain_mode: bool,
    umask: OnceLock<u32>,
    own: (u32, u32),
    /// The target takes no extended attributes; told once.
    pub(crate) no_xattrs: AtomicBool,
}

/// What is known of the directory that holds a new file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Home {
    /// Its device.
    pub(crate) device: (u32, u32),
    /// Its group: a new file may inherit it.
    pub(crate) group: u32,
    /// New files inherit an access list from it.
    pub(crate) gives_acl: bool,
}

/// What failed, in a word for the message.
pub(crate) type MetaTrouble = (&'static str, io::Error);

/// A file whose properties are set: open, or a name.
#[derive(Clone, Copy)]
pub(crate) enum On<'a> {
    Open(BorrowedFd<'a>),
    Name(&'a Dir, &'a CStr),
}

impl<'a> On<'a> {
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

/// How a new file came about, which tells what is still to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// Permissions it was made with, before the umask.
    pub(crate) mode: u32,
    pub(crate) home: Home,
    /// It has no permissions of its own (a symbolic link).
    pub(crate) is_link: bool,
    pub(crate) is_dir: bool,
    /// It was there before this copy: only what is kept is put onto it.
    pub(crate) is_old: bool,
}

impl Made {
    /// A new file.
    pub(crate) fn file(mode: u32, home: Home) -> Self {
        Self { mode, home, is_link: false, is_dir: false, is_old: false }
    }
}

impl Rules {
    pub(crate) fn new(preserve: Preserve, plain_mode: bool) -> Self {
        let plain_mode = plain_mode && !preserve.mode;
        let (umask, no_xattrs) = (OnceLock::new(), AtomicBool::new(false));
        Self { preserve, plain_mode, umask, own: attr::own_ids(), no_xattrs }
    }

    /// The umask of this process, asked for once and only where it matters: the kernel gathers much
    /// else for the answer.
    pub(crate) fn umask(&self) -> u32 {
        *self.umask.get_or_init(|| attr::umask().unwrap_or(0o077))
    }

    /// The permissions that a copy of `source` is to have, before the umask.
    fn mode_of(&self, source: &Attr) -> u32 {
        match source.kind {
            _ if !self.plain_mode => source.mode,
            Kind::Directory | Kind::Socket => 0o777,
            _ => 0o666,
        }
    }

    /// The permissions to make a copy of `source` with. While the owner is to change, nobody else
    /// may open it.
    pub(crate) fn mode_at_first(&self, source: &Attr) -> u32 {
        let others = self.preserve.owner && (source.user, source.group) != self.own;
        self.mode_of(source) & if others { 0o700 } else { passed_on(source.kind) }
    }

    /// Permissions that a file made with `mode` has.
    fn mode_as_made(&self, made: &Made) -> Option<u32> {
        // With an inherited access list the umask does not count; nobody knows without asking.
        (!made.home.gives_acl).then_some(made.mode & !self.umask())
    }

    /// Puts everything that is kept onto a new file.
    pub(crate) fn put(
        &self,
        source: &Attr,
        from: On<'_>,
        on: On<'_>,
        made: Made,
    ) -> Result<(), MetaTrouble> {
        let kept_owner = self.put_owner(source, on, made.home)?;
        if self.preserve.xattrs || (self.preserve.mode && !made.is_link) {
            self.put_xattrs(from.xattrs(), on.xattrs(), made)?;
        }
        if !made.is_link && (self.preserve.mode || !made.is_old) {
            self.put_mode(source, on, made, kept_owner)?;
        }
        if self.preserve.times {
            on.set_times(source).map_err(|e| ("set the times of", e))?;
        }
        Ok(())
    }

    /// Which of owner and group the copy has in common with the source.
    fn put_owner(
        &self,
        source: &Attr,
        on: On<'_>,
        home: Home,
    ) -> Result<(bool, bool), MetaTrouble> {
        let wanted = (source.user, source.group);
        let same = (wanted.0 == self.own.0, wanted.1 == self.own.1 && home.group == self.own.1);
        if !self.preserve.owner || same == (true, true) {
            return Ok(same);
        }
        match on.set_owner(wanted.0, wanted.1) {
            Ok(()) => Ok((true, true)),
            // A plain user gives nothing away, but may set a group of their own.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let group = on.set_owner(self.own.0, wanted.1).is_ok();
                Ok((same.0, group))
            }
            Err(e) => Err(("set the owner of", e)),
        }
    }

    fn put_mode(
        &self,
        source: &Attr,
        on: On<'_>,
        made: Made,
        kept_owner: (bool, bool),
    ) -> Result<(), MetaTrouble> {
        let mut mode = self.mode_of(source);
        if !self.preserve.mode {
            // What was made with more than its due loses it.
            if made.mode == mode & passed_on(source.kind) {
                return Ok(());
            }
            mode &= passed_on(source.kind) & !self.umask();
        }
        if !kept_owner.0 {
            mode &= !SET_USER;
        }
        if !kept_owner.1 {
            mode &= !SET_GROUP;
        }
        // A directory may have inherited bits from the one above.
        if !made.is_dir && self.mode_as_made(&made) == Some(mode) {
            return Ok(());
        }
        on.set_mode(mode).map_err(|e| ("set the permissions of", e))
    }

    fn put_xattrs(
        &self,
        from: XattrOf<'_>,
        on: XattrOf<'_>,
        made: Made,
    ) -> Result<(), MetaTrouble> {
        let is_acl = |name: &CStr| name == ACL_ACCESS || name == ACL_DEFAULT;
        let names = from.names().map_err(|e| ("list the extended attributes of", e))?;
        if made.home.gives_acl && self.preserve.mode {
            for acl in [ACL_ACCESS, ACL_DEFAULT] {
                if !names.iter().any(|name| name.as_c_str() == acl) {
                    on.remove(acl).map_err(|e| ("remove an inherited access list of", e))?;
                }
            }
        }
        for name in names {
            if !(if is_acl(&name) { self.preserve.mode } else { self.preserve.xattrs }) {
                continue;
            }
            let value = from.get(&name).map_err(|e| ("read an extended attribute of", e))?;
            let Some(value) = value else { continue };
            match on.set(&name, &value) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(OPERATION_NOT_SUPPORTED) => {
                    self.no_xattrs.store(true, Ordering::Relaxed);
                }
                // Labels of a security module are for it to give.
                Err(_) if name.to_bytes().starts_with(b"security.") => {
                    self.no_xattrs.store(true, Ordering::Relaxed);
                }
                Err(e) => return Err(("set an extended attribute of", e)),
            }
        }
        Ok(())
    }

    /// Whether new files in a directory inherit an access list. Asked only where it matters.
    pub(crate) fn gives_acl(&self, dir: &Dir) -> bool {
        let asks = self.preserve.mode || self.preserve.xattrs;
        asks && XattrOf::Open(dir.as_fd())
            .names()
            .is_ok_and(|names| names.iter().any(|name| name.as_c_str() == ACL_DEFAULT))
    }

    /// A file that replaces another one without being told what to keep takes its place in the
    /// permissions too: as if it had been written over.
    pub(crate) fn take_place(&self, old: &Attr, old_on: On<'_>, on: On<'_>) {
        // As much as this user may; what cannot be is what writing anew would give.
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

/// The bits that a new file has in common with its source where permissions are not kept: those of a
/// directory say, too, that names in it are their owners' alone.
const fn passed_on(kind: Kind) -> u32 {
    if matches!(kind, Kind::Directory) { 0o1777 } else { 0o777 }
}

/// `EOPNOTSUPP`, which has no stable kind.
const OPERATION_NOT_SUPPORTED: i32 = 95;

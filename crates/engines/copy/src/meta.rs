//! Copies the attributes of a file: owner, extended attributes and ACLs, permissions, times.
//!
//! The order matters because setting one attribute can change those set after it, or forbid it: a
//! user can set extended attributes only while the file is writable, so they come before the mode. The ACLs of NFSv4
//! come after it, because a server derives them from it.
//! An attribute that cannot be set does not stop the others, and never costs the content.

mod replacement;

pub(crate) use crate::file_ref::FileRef;
use crate::new_owner::NewOwner;
use crate::options::{Attributes, CopyOptions, Preserve};
use crate::xattr_rules::{Action, XattrRules};
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr, XattrOf};
use ioloom_sys::dir::{Dir, Kind};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
pub(crate) const STICKY: u32 = 0o1000;
const SPECIAL: u32 = SET_USER | SET_GROUP | STICKY;
/// The permissions needed to fill a directory.
pub(crate) const OWNER_ALL: u32 = 0o700;
const ACL_ACCESS: &CStr = c"system.posix_acl_access";
const ACL_DEFAULT: &CStr = c"system.posix_acl_default";
const LABEL: &CStr = c"security.selinux";
/// Free space of a file system that is not full: more than the attributes of a file can take, bytes.
const ROOM_FOR_ATTRIBUTES: u64 = 1 << 20;
/// Beginning of the names of ACLs.
const SYSTEM: &[u8] = b"system.";

/// The attributes to preserve, and the defaults of this process.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) preserve: Preserve,
    /// Whether new files get default permissions rather than those of the source.
    plain_mode: bool,
    umask: OnceLock<u32>,
    /// Read for the first attribute that is not an ACL or label.
    xattr_rules: OnceLock<XattrRules>,
    attributes: Attributes,
    context: Attributes,
    own: (u32, u32),
    new_owner: NewOwner,
    /// Whether this process may change owners.
    may_chown: bool,
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
    /// Whether a server decides about the modes of new files, so they must be set in any case.
    pub(crate) is_remote: bool,
    /// Whether entries can be added and neither renamed nor removed, so that a hidden name would
    /// remain.
    pub(crate) append_only: bool,
}

/// The operation that failed, and its error.
pub(crate) type MetaError = (Operation, io::Error);

/// How a target was created, which determines what remains to be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Creation {
    /// The mode it was created with, before the umask.
    pub(crate) mode: u32,
    pub(crate) parent_attr: ParentAttr,
    /// Whether it is a symbolic link, which has no permissions.
    pub(crate) is_link: bool,
    /// Whether it existed before this copy; if so, only preserved attributes are set.
    pub(crate) is_old: bool,
    /// The owner and group that it has, if known. Setting the same ones again would remove set-id
    /// bits and capabilities.
    pub(crate) owner: Option<(u32, u32)>,
    /// Only for directories.
    pub(crate) dir: Option<DirModes>,
}

/// The modes of a directory before its attributes are set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirModes {
    /// Its mode when it was opened, before its owner got all permissions.
    pub(crate) found: u32,
    /// The permissions of the source that are given at the end, except by the umask, because a
    /// directory does not get them when it is created.
    pub(crate) withheld: u32,
}

impl Creation {
    /// Describes a new file.
    pub(crate) fn file(mode: u32, parent_attr: ParentAttr) -> Self {
        Self { mode, parent_attr, is_link: false, is_old: false, owner: None, dir: None }
    }

    /// Describes a directory.
    pub(crate) fn dir(mode: u32, parent_attr: ParentAttr, is_old: bool, dir: DirModes) -> Self {
        Self { is_old, dir: Some(dir), ..Self::file(mode, parent_attr) }
    }
}

/// What happened to the owner of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It is as wanted, or not preserved.
    Kept,
    /// This user may not change it.
    Lost,
    /// Only the group was changed, which clears set-id bits.
    Group,
}

impl Rules {
    pub(crate) fn new(options: &CopyOptions) -> Self {
        let preserve = options.preserve;
        let plain_mode = options.plain_mode && !preserve.mode;
        let (umask, no_xattrs) = (OnceLock::new(), AtomicBool::new(false));
        let (attributes, own) = (options.attributes, attr::own_ids());
        let may_chown = rustix::thread::capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN));
        let context = options.context;
        let new_owner = NewOwner::new(own);
        Self {
            preserve,
            plain_mode,
            umask,
            xattr_rules: OnceLock::new(),
            attributes,
            context,
            own,
            new_owner,
            may_chown,
            no_xattrs,
        }
    }

    /// Returns the umask of this process. It is read on first use because the kernel has to format
    /// all of `/proc/self/status` for it.
    pub(crate) fn umask(&self) -> u32 {
        *self.umask.get_or_init(|| attr::umask().unwrap_or(0o077))
    }

    /// Clears the sticky bit of a directory in a source path, unless permissions are preserved: as
    /// in GNU cp, only directories that are copied themselves keep it.
    pub(crate) fn without_sticky(&self, source: Attr) -> Attr {
        let bits = if self.plain_mode { !STICKY } else { u32::MAX };
        Attr { mode: source.mode & bits, ..source }
    }

    /// Returns the final permissions of a copy of `source`, before the umask.
    fn mode_of(&self, source: &Attr) -> u32 {
        match source.kind {
            _ if !self.plain_mode => source.mode,
            // GNU cp changes only the permissions of what it has created.
            Kind::Directory => 0o777 | source.mode & STICKY,
            Kind::Socket => 0o777 | source.mode & !0o777,
            Kind::Regular => 0o666,
            _ => 0o666 | source.mode & !0o777,
        }
    }

    /// Returns the mode with which to create a copy of `source`. Until the owner is changed, only
    /// the current one may open it, and until extended attributes are set, it is writable.
    pub(crate) fn initial_mode(&self, source: &Attr) -> u32 {
        let is_own = self.preserve.mode && (source.user, source.group) == self.own;
        // The group bits of a directory with an ACL are not those of the group.
        let others = self.preserve.owner && (!is_own || source.kind == Kind::Directory);
        let bits = inheritable_bits(source.kind);
        let mode = self.mode_of(source) & if others { bits & !0o077 } else { bits };
        let is_plain = self.sets_xattrs() && source.kind == Kind::Regular && self.own.0 != 0;
        if is_plain { mode | 0o200 } else { mode }
    }

    fn sets_xattrs(&self) -> bool {
        self.preserve.xattrs || self.preserve.context
    }

    /// Returns the permissions that GNU cp withholds from a new directory in a tree.
    pub(crate) fn withheld(&self) -> u32 {
        if self.preserve.owner { 0o077 } else { 0o022 }
    }

    /// Returns the mode of a file or directory that others can see before it has its final owner and
    /// permissions.
    pub(crate) fn visible_mode(&self, mode: u32) -> u32 {
        match (self.preserve.owner, self.preserve.mode) {
            (true, _) => mode & !0o077,
            (false, true) => mode & !0o022,
            (false, false) => mode,
        }
    }

    /// Returns true if root may give files to other users.
    pub(crate) fn may_give_away(&self) -> bool {
        self.is_root() && self.may_chown
    }

    pub(crate) fn is_root(&self) -> bool {
        self.own.0 == 0
    }

    /// Returns true if this user owns a file, or may change the owner of any file.
    pub(crate) fn may_own(&self, old: &Attr) -> bool {
        self.own.0 == 0 || old.user == self.own.0
    }

    /// Returns the permissions of a file created with `made.mode`, if known.
    fn mode_after_creation(&self, made: &Creation) -> Option<u32> {
        // The umask does not apply to a file that inherits an ACL.
        (!made.parent_attr.has_default_acl).then_some(made.mode & !self.umask())
    }

    /// Sets the preserved attributes of a file; returns those that could not be set.
    pub(crate) fn put(
        &self,
        source: &Attr,
        from: FileRef<'_>,
        on: FileRef<'_>,
        made: Creation,
    ) -> Vec<MetaError> {
        let mut failed = Vec::new();
        let owner = self.put_owner(source, on, made).unwrap_or_else(|error| {
            failed.push(error);
            Owner::Lost
        });
        let mut later = Vec::new();
        if self.sets_xattrs() || (self.preserve.mode && !made.is_link) {
            failed.extend(self.put_xattrs(from.xattrs(), on.xattrs(), made, &mut later).err());
        }
        if !made.is_link && (self.preserve.mode || !made.is_old) {
            failed.extend(self.put_mode(source, on, made, owner).err());
        }
        later.iter().for_each(|name| put_if_possible(from.xattrs(), on.xattrs(), name));
        if self.preserve.times {
            failed.extend(on.set_times(source).err().map(|e| (Operation::ChangeTimes, e)));
        }
        // An ACL and the mode are both permissions.
        failed.dedup_by(|b, a| b.0 == a.0 && b.1.raw_os_error() == a.1.raw_os_error());
        failed
    }

    /// Sets owner and group if they are preserved.
    fn put_owner(
        &self,
        source: &Attr,
        on: FileRef<'_>,
        made: Creation,
    ) -> Result<Owner, MetaError> {
        let wanted = (source.user, source.group);
        let has_it = match made.owner {
            Some(owner) => owner == wanted,
            None => {
                let expected = (self.own.0, made.parent_attr.group);
                let is_new = !made.is_old && self.preserve.owner;
                is_new
                    && wanted == expected
                    && wanted == self.own
                    && self.owns_new(on, made.parent_attr)
            }
        };
        if !self.preserve.owner || has_it {
            return Ok(Owner::Kept);
        }
        if made.is_old && self.preserve.mode && !made.is_link {
            self.restrict(source, on)?;
        }
        match on.set_owner(wanted.0, wanted.1) {
            Ok(()) => Ok(Owner::Kept),
            // Unprivileged users cannot change the owner but can choose among their groups.
            Err(e) if self.own.0 != 0 && is_forbidden(&e) => {
                Ok(on.set_group(wanted.1).map_or(Owner::Lost, |()| Owner::Group))
            }
            Err(e) => Err((Operation::ChangeOwner, e)),
        }
    }

    /// Takes the old permissions from all but the owner of an existing file, as GNU cp does: another owner or group must
    /// not have them before it gets those of the source. The mask of an ACL becomes empty.
    fn restrict(&self, source: &Attr, on: FileRef<'_>) -> Result<(), MetaError> {
        // A user keeps the file, and may need to write its extended attributes.
        let kept = if self.is_root() { source.mode & OWNER_ALL } else { OWNER_ALL };
        match on.attr().and_then(|old| on.set_mode(old.mode & kept)) {
            Err(e) if self.is_root() || !is_forbidden(&e) => Err((Operation::ChangeMode, e)),
            _ => Ok(()),
        }
    }

    fn put_mode(
        &self,
        source: &Attr,
        on: FileRef<'_>,
        made: Creation,
        owner: Owner,
    ) -> Result<(), MetaError> {
        let failed = |e| (Operation::ChangeMode, e);
        let drops_acl = self.plain_mode && made.parent_attr.has_default_acl && !self.preserve.mode;
        if drops_acl {
            on.xattrs().remove(ACL_ACCESS).map_err(failed)?;
        }
        if let Some(dir) = made.dir {
            let mode = self.dir_mode(source, dir, owner);
            let is_set = !made.is_old && !self.preserve.mode && !drops_acl;
            if is_set && mode == dir.found | OWNER_ALL {
                return Ok(());
            }
            return on.set_mode(mode).map_err(failed);
        }
        let mut mode = self.mode_of(source);
        if !self.preserve.mode {
            if self.preserve.owner {
                // As in GNU cp, the change of the owner clears it.
                mode &= !SET_USER;
            }
            // Remove permissions needed only while the target was being written.
            if made.mode == mode & inheritable_bits(source.kind) && !drops_acl {
                return Ok(());
            }
            mode &= inheritable_bits(source.kind) & !self.umask();
            if drops_acl {
                return on.set_mode(mode).map_err(failed);
            }
        }
        if owner != Owner::Kept {
            // As in GNU cp, they would have another meaning for another owner or group.
            mode = mode & !SPECIAL | left_over(source, &made, owner);
        }
        // A change of the owner clears set-id bits.
        let is_new = !made.is_old && !made.parent_attr.is_remote;
        if is_new
            && mode & (SET_USER | SET_GROUP) == 0
            && self.mode_after_creation(&made) == Some(mode)
        {
            return Ok(());
        }
        on.set_mode(mode).map_err(failed)
    }

    /// Returns the final mode of a directory, by the rules of GNU cp.
    fn dir_mode(&self, source: &Attr, dir: DirModes, owner: Owner) -> u32 {
        if self.preserve.mode {
            let lost = if owner == Owner::Kept { 0 } else { SPECIAL };
            let mode = source.mode & !lost;
            // It keeps the bits that it inherited or was created with.
            return if mode & SPECIAL == 0 { mode | dir.found & SPECIAL } else { mode };
        }
        if self.plain_mode {
            let inherited = dir.found & SET_GROUP;
            return (0o777 | source.mode & STICKY) & !self.umask() | inherited;
        }
        // What an inherited ACL left of the mode, which the umask does not apply to.
        let found = dir.found & !(OWNER_ALL & !source.mode);
        match source.mode & dir.withheld {
            0 => found,
            withheld => found | withheld & !self.umask(),
        }
    }

    /// Copies extended attributes, except those that a change of the mode can rewrite: adds them to `later`.
    fn put_xattrs(
        &self,
        from: XattrOf<'_>,
        on: XattrOf<'_>,
        made: Creation,
        later: &mut Vec<CString>,
    ) -> Result<(), MetaError> {
        let is_acl = |name: &CStr| name == ACL_ACCESS || name == ACL_DEFAULT;
        let names =
            from.names().or_else(|e| self.judge(e, LABEL, Operation::ReadAttributes, Vec::new))?;
        let mut first = Ok(());
        if (made.parent_attr.has_default_acl || made.is_old) && self.preserve.mode && !made.is_link
        {
            for acl in [ACL_ACCESS, ACL_DEFAULT] {
                if !names.iter().any(|name| name.as_c_str() == acl) {
                    first = first.and(on.remove(acl).map_err(|e| (Operation::ChangeMode, e)));
                }
            }
        }
        for name in names.into_iter().filter(|name| !is_raw_acl(name)) {
            let acl = is_acl(&name);
            let is_label = name.as_c_str() == LABEL;
            let action = || self.xattr_rules.get_or_init(XattrRules::of_system).action(&name);
            let action = if acl || is_label { None } else { action() };
            let is_wanted = match action {
                _ if acl => self.preserve.mode,
                _ if is_label => self.preserve.context,
                None => self.preserve.xattrs,
                Some(Action::Skip) => false,
                Some(Action::Permissions) => self.preserve.mode,
            };
            if !is_wanted {
                continue;
            }
            if action.is_some() {
                match name.to_bytes().starts_with(SYSTEM) {
                    true => later.push(name),
                    false => put_if_possible(from, on, &name),
                }
                continue;
            }
            let value = from
                .get(&name)
                .or_else(|e| self.judge(e, &name, Operation::ReadAttributes, || None));
            let set = value.and_then(|value| match value {
                None => Ok(()),
                Some(value) => match on.set(&name, &value) {
                    Ok(()) => Ok(()),
                    Err(e) if acl => Err((Operation::ChangeMode, e)),
                    Err(e) if is_limited(on, &e) => self.judge_limit(&e, &name),
                    Err(e) => self.judge(e, &name, Operation::WriteAttributes, || ()),
                },
            });
            first = first.and(set);
        }
        first
    }

    /// Decides whether a failure with the extended attribute `name` is an error. Attributes that the
    /// target or the user cannot have are expected with `-a`; a full disk is not.
    fn judge<T>(
        &self,
        error: io::Error,
        name: &CStr,
        operation: Operation,
        instead: impl FnOnce() -> T,
    ) -> Result<T, MetaError> {
        use Errno as E;
        let cannot = matches!(
            Errno::from_io_error(&error),
            Some(E::OPNOTSUPP | E::NODATA | E::PERM | E::ACCESS | E::INVAL)
        );
        if self.requires(name) || !cannot {
            return Err((operation, error));
        }
        self.no_xattrs.store(true, Ordering::Relaxed);
        Ok(instead())
    }

    /// Decides like [`judge`](Self::judge) about an attribute for which a file has no space.
    fn judge_limit(&self, error: &io::Error, name: &CStr) -> Result<(), MetaError> {
        if self.requires(name) {
            let reason = ioloom_failure::reason(error);
            let text = format!("{reason}; the file system limits the attributes of a file");
            return Err((Operation::WriteAttributes, io::Error::other(text)));
        }
        self.no_xattrs.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if a file without the extended attribute `name` is an error.
    fn requires(&self, name: &CStr) -> bool {
        self.attributes == Attributes::Required
            || (name == LABEL && self.context == Attributes::Required)
    }

    /// Returns true if new files in a directory inherit an ACL, or if that is unknown: the ACL could grant more than
    /// the mode.
    pub(crate) fn has_default_acl(&self, dir: &Dir) -> bool {
        let names = XattrOf::Open(dir.as_fd()).names();
        names.map_or(true, |names| names.iter().any(|name| name.as_c_str() == ACL_DEFAULT))
    }

    /// Returns true if the new file `on` belongs to this user.
    pub(crate) fn owns_new(&self, on: FileRef<'_>, parent_attr: ParentAttr) -> bool {
        self.new_owner.is_own(parent_attr.device, parent_attr.group, || on.attr())
    }

    /// Returns true if the owner and group of an old file are certainly those of the new one `on`.
    pub(crate) fn is_owner_of_new(
        &self,
        old: &Attr,
        on: FileRef<'_>,
        parent_attr: ParentAttr,
    ) -> bool {
        (old.user, old.group) == self.own
            && parent_attr.group == self.own.1
            && self.owns_new(on, parent_attr)
    }
}

/// Copies an extended attribute that belongs to the permissions. Failures are ignored: the mode says what matters, and
/// the target can have another kind of ACL.
fn put_if_possible(from: XattrOf<'_>, on: XattrOf<'_>, name: &CStr) {
    if let Ok(Some(value)) = from.get(name) {
        let _ = on.set(name, &value);
    }
}

/// Returns true if an attribute was rejected for lack of space although the file system has some: its attributes have
/// no space in the file.
fn is_limited(on: XattrOf<'_>, error: &io::Error) -> bool {
    let system = || match on {
        XattrOf::Open(file) => attr::file_system(file),
        XattrOf::Name(dir, _) => attr::file_system(dir),
    };
    error.kind() == io::ErrorKind::StorageFull
        && system().is_ok_and(|system| system.free_bytes >= ROOM_FOR_ATTRIBUTES)
}

/// Returns true for the form in which XFS stores ACLs, which root can see. Setting it would bring
/// back an ACL.
fn is_raw_acl(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"trusted.SGI_ACL_")
}

/// Returns the set-id and sticky bits that a pipe, socket or device was created with and keeps
/// because this user may not give it to its owner. A change of the group clears set-id bits.
fn left_over(source: &Attr, made: &Creation, owner: Owner) -> u32 {
    let left = if owner == Owner::Group { STICKY } else { SPECIAL };
    let has_none = source.kind == Kind::Regular || made.is_old;
    if has_none { 0 } else { source.mode & left }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::INVAL | Errno::ACCESS))
}

/// Returns the permission bits copied from the source if permissions are not preserved. For
/// directories, this includes the sticky bit, and for special files all bits, as in GNU cp.
const fn inheritable_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => 0o1777,
        Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => 0o7777,
        _ => 0o777,
    }
}

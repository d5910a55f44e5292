//! The permissions of downloaded files.
//!
//! A new file gets the permissions of the file that it replaces, or else those of a file created with the mode 0666.
//! Until it is complete, only its owner can read it. In a directory with a default ACL, the mode at creation limits
//! what the ACL grants, and a later `fchmod` could grant more: such a file is created with its final mode.
//!
//! The new file can have another group than the old one. Members of that group get no permission that they would have
//! neither for a new file nor as others.

use ioloom_sys::attr::{self, XattrOf};
use ioloom_sys::dir::Dir;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Mode of a file that is not complete.
const PRIVATE: u32 = 0o600;
/// Mode of a file that replaces none, without the umask.
const SHARED: u32 = 0o666;
/// The bits of a mode that are taken over from an old file.
const PERMISSIONS: u32 = 0o777;
/// Those of the group.
const GROUP: u32 = 0o070;

/// A file that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Old {
    mode: u32,
    group: u32,
}

impl Old {
    /// Returns what is known of a regular file.
    pub(crate) fn of(found: &Metadata) -> Option<Self> {
        found.is_file().then(|| Self { mode: found.mode() & PERMISSIONS, group: found.gid() })
    }

    /// Returns the mode of a new file in another group.
    fn in_another_group(self, umask: u32) -> u32 {
        let of_others = (self.mode & 0o007) << 3;
        self.mode & (!GROUP | (SHARED & !umask) | of_others)
    }
}

/// The modes of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    /// With which it is created.
    pub(crate) created: u32,
    /// Which it gets when it is complete, if that is another one.
    complete: Option<u32>,
    /// The group of the file that it replaces, and the mode in another group.
    old: Option<(u32, u32)>,
}

impl Modes {
    /// Returns the modes of a file that replaces `old`. `has_default_acl` is that of its directory.
    pub(crate) fn of(has_default_acl: bool, old: Option<Old>, umask: u32) -> Self {
        if has_default_acl {
            let created = old.map_or(SHARED, |old| old.mode);
            return Self { created, complete: None, old: None };
        }
        let complete = old.map_or(SHARED & !umask, |old| old.mode);
        let old = old.map(|old| (old.group, old.in_another_group(umask)));
        Self { created: PRIVATE, complete: Some(complete), old }
    }

    /// Gives a complete file its mode.
    pub(crate) fn apply(self, file: &File) -> io::Result<()> {
        let Some(mut mode) = self.complete else { return Ok(()) };
        if let Some((group, limited)) = self.old
            && limited != mode
            && file.metadata()?.gid() != group
        {
            mode = limited;
        }
        let Err(error) = attr::set_mode(file, mode) else { return Ok(()) };
        let found = file.metadata()?.mode() & PERMISSIONS;
        if self.can_stay(found, mode, error.kind()) { Ok(()) } else { Err(error) }
    }

    /// Returns whether a complete file can keep the mode `found` because `mode` cannot be set. Some file systems have
    /// the same mode for all files, which can be wider than that of other new files. Where the old file had a narrower
    /// one, this is not the reason.
    fn can_stay(self, found: u32, mode: u32, error: io::ErrorKind) -> bool {
        let is_wider = found & !mode != 0;
        let is_refused =
            matches!(error, io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported);
        if is_wider { self.old.is_none() && found != PRIVATE } else { is_refused || found == mode }
    }
}

/// Whether new files in a directory inherit an ACL, for the directory of the last file.
#[derive(Debug, Default)]
pub(crate) struct DefaultAcl(Mutex<Option<(PathBuf, bool)>>);

impl DefaultAcl {
    /// Returns whether new files in a directory inherit an ACL, or if that is unknown.
    pub(crate) fn is_in(&self, directory: &Path) -> bool {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, known)) = &*lock()
            && path == directory
        {
            return *known;
        }
        let Ok(found) = has_default_acl(directory) else { return true };
        *lock() = Some((directory.to_owned(), found));
        found
    }
}

fn has_default_acl(directory: &Path) -> io::Result<bool> {
    let dir = Dir::open_path_only(directory)?;
    let names = XattrOf::Open(dir.as_fd()).names()?;
    Ok(names.iter().any(|name| name.as_c_str() == c"system.posix_acl_default"))
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    fn old(mode: u32, group: u32) -> Option<Old> {
        Some(Old { mode, group })
    }

    #[test]
    fn incomplete_files_are_private_and_complete_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        let group = file.metadata().unwrap().gid();
        for (old, umask, mode) in [
            (None, 0o022, 0o644),
            (None, 0o077, 0o600),
            (old(0o640, group), 0o022, 0o640),
            (old(0o755, group), 0o077, 0o755),
            (old(0o660, group), 0o022, 0o660),
            (old(0o660, group + 1), 0o022, 0o640),
            (old(0o660, group + 1), 0o002, 0o660),
            (old(0o660, group + 1), 0o077, 0o600),
            (old(0o755, group + 1), 0o077, 0o755),
            (old(0o770, group + 1), 0o022, 0o740),
        ] {
            let modes = Modes::of(false, old, umask);
            assert_eq!(modes.created, 0o600);
            modes.apply(&file).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, mode, "{old:?} {umask:o}");
        }
        attr::set_mode(&file, 0o4755).unwrap();
        assert_eq!(Old::of(&file.metadata().unwrap()), old(0o755, group));
    }

    #[test]
    fn a_file_whose_mode_is_fixed_is_accepted_unless_it_shows_more_than_the_old_one() {
        let (new, replaces) = (Modes::of(false, None, 0), Modes::of(false, old(0o644, 1), 0));
        let (refused, unsupported) = (ErrorKind::PermissionDenied, ErrorKind::Unsupported);
        for (modes, found, mode, error, accepted) in [
            (new, 0o600, 0o644, refused, true),
            (new, 0o600, 0o644, unsupported, true),
            (replaces, 0o600, 0o644, refused, true),
            (new, 0o600, 0o644, ErrorKind::Other, false),
            (new, 0o600, 0o400, refused, false),
            (new, 0o755, 0o644, refused, true),
            (replaces, 0o755, 0o644, refused, false),
            (replaces, 0o644, 0o644, ErrorKind::Other, true),
        ] {
            let stays = modes.can_stay(found, mode, error);
            assert_eq!(stays, accepted, "{modes:?} {found:o} {mode:o} {error}");
        }
    }

    /// Gives a directory a default ACL. Returns whether that is possible.
    fn grants(directory: &Path) -> bool {
        // Version 2: all for the owner, reading for the group, nothing for others.
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, permissions) in [(0x01u16, 7u16), (0x04, 4), (0x20, 0)] {
            acl.extend(tag.to_le_bytes());
            acl.extend(permissions.to_le_bytes());
            acl.extend(u32::MAX.to_le_bytes());
        }
        let open = Dir::open(directory).unwrap();
        let set = XattrOf::Open(open.as_fd()).set(c"system.posix_acl_default", &acl);
        if let Err(error) = &set {
            println!("skipped: a default ACL cannot be set: {error}");
        }
        set.is_ok()
    }

    #[test]
    fn directories_with_and_without_a_default_acl_are_not_confused() {
        let (with, without) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        if !grants(with.path()) {
            return;
        }
        let acl = DefaultAcl::default();
        for (dir, expected) in [(&with, true), (&without, false), (&with, true)] {
            for _ in 0..2 {
                assert_eq!(acl.is_in(dir.path()), expected);
            }
        }
    }

    #[test]
    fn a_default_acl_is_limited_and_not_exceeded() {
        let dir = tempfile::tempdir().unwrap();
        if !grants(dir.path()) {
            return;
        }
        let of = |old| Modes::of(DefaultAcl::default().is_in(dir.path()), old, 0o022);
        assert_eq!(of(None), Modes { created: 0o666, complete: None, old: None });
        assert_eq!(of(old(0o600, 1)), Modes { created: 0o600, complete: None, old: None });
        assert_eq!(of(old(0o755, 1)), Modes { created: 0o755, complete: None, old: None });
        let file = File::create(dir.path().join("file")).unwrap();
        of(None).apply(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
    }
}

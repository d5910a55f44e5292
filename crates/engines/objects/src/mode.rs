//! The permissions of downloaded files.
//!
//! A new file gets the permissions of the file that it replaces, or else those of a file created with the mode 0666.
//! Until it is complete, only its owner can read it. In a directory with a default ACL, the mode at creation limits
//! what the ACL grants, and a later `fchmod` could grant more: such a file is created with its final mode.

use ioloom_sys::attr::{self, XattrOf};
use ioloom_sys::dir::Dir;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Mode of a file that is not complete.
const PRIVATE: u32 = 0o600;
/// Mode of a file that replaces none, without the umask.
const SHARED: u32 = 0o666;
/// The bits of a mode that are taken over from an old file.
const PERMISSIONS: u32 = 0o777;

/// The modes of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Modes {
    /// With which it is created.
    pub(crate) created: u32,
    /// Which it gets when it is complete, if that is another one.
    complete: Option<u32>,
}

impl Modes {
    /// Returns the modes of a file in `directory` that replaces one with the mode `old`.
    pub(crate) fn of(directory: &Path, old: Option<u32>, umask: u32) -> Self {
        if has_default_acl(directory) {
            return Self { created: old.map_or(SHARED, |mode| mode & SHARED), complete: None };
        }
        let complete = old.map_or(SHARED & !umask, |mode| mode & PERMISSIONS);
        Self { created: PRIVATE, complete: Some(complete) }
    }

    /// Gives a complete file its mode.
    pub(crate) fn apply(self, file: &File) -> io::Result<()> {
        let Some(mode) = self.complete else { return Ok(()) };
        let Err(error) = attr::set_mode(file, mode) else { return Ok(()) };
        // Some file systems have the same mode for all files.
        let found = file.metadata()?.mode() & PERMISSIONS;
        if found == mode || found != PRIVATE { Ok(()) } else { Err(error) }
    }
}

/// Returns whether new files in a directory inherit an ACL, or if that is unknown.
fn has_default_acl(directory: &Path) -> bool {
    let names = Dir::open_path_only(directory).and_then(|dir| XattrOf::Open(dir.as_fd()).names());
    names.map_or(true, |names| {
        names.iter().any(|name| name.as_c_str() == c"system.posix_acl_default")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_files_are_private_and_complete_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        for (old, umask, mode) in [
            (None, 0o022, 0o644),
            (None, 0o077, 0o600),
            (Some(0o100_640), 0o022, 0o640),
            (Some(0o104_755), 0o077, 0o755),
        ] {
            let modes = Modes::of(dir.path(), old, umask);
            assert_eq!(modes, Modes { created: 0o600, complete: Some(mode) });
            let file = File::create(dir.path().join("file")).unwrap();
            modes.apply(&file).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn a_default_acl_is_limited_and_not_exceeded() {
        let dir = tempfile::tempdir().unwrap();
        // Version 2: all for the owner, reading for the group, nothing for others.
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, permissions) in [(0x01u16, 7u16), (0x04, 4), (0x20, 0)] {
            acl.extend(tag.to_le_bytes());
            acl.extend(permissions.to_le_bytes());
            acl.extend(u32::MAX.to_le_bytes());
        }
        let open = Dir::open(dir.path()).unwrap();
        if XattrOf::Open(open.as_fd()).set(c"system.posix_acl_default", &acl).is_err() {
            return;
        }
        let of = |old| Modes::of(dir.path(), old, 0o022);
        assert_eq!(of(None), Modes { created: 0o666, complete: None });
        assert_eq!(of(Some(0o100_600)), Modes { created: 0o600, complete: None });
        let file = File::create(dir.path().join("file")).unwrap();
        of(None).apply(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o640);
    }
}

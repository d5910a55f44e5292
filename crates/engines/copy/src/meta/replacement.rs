//! Gives a replacement file the owner, permissions and extended attributes of the old file.

use super::{
    ACL_ACCESS, FileRef, LABEL, MetaError, ParentAttr, Rules, SET_GROUP, SET_USER, is_raw_acl,
};
use crate::error::out_of_space;
use ioloom_failure::Operation;
use ioloom_sys::attr::Attr;
use std::ffi::CStr;
use std::io;

/// Beginning of the names of attributes of security modules.
const SECURITY: &[u8] = b"security.";
/// Attributes that depend on the content of a file. The kernel removes the first from a file that is written.
const OF_CONTENT: [&CStr; 3] = [c"security.capability", c"security.ima", c"security.evm"];

impl Rules {
    /// Gives a replacement file the owner of the old file. Fails if this user may not.
    pub(crate) fn take_over_owner(
        &self,
        old: &Attr,
        on: FileRef<'_>,
        parent_attr: ParentAttr,
    ) -> io::Result<()> {
        if self.is_owner_of_new(old, on, parent_attr) {
            return Ok(());
        }
        if old.user == self.own.0 && self.owns_new(on, parent_attr) {
            on.set_group(old.group)
        } else {
            on.set_owner(old.user, old.group)
        }
    }

    /// Gives a replacement file the attributes of security modules that the old file has, except its label, which the
    /// module may assign, and those of its content. Returns false if the new file lacks one
    /// that this user may not read or set.
    ///
    /// # Errors
    /// Fails if the disk is too full for an attribute.
    pub(crate) fn take_over_security(old: FileRef<'_>, new: FileRef<'_>) -> io::Result<bool> {
        let (from, to) = (old.xattrs(), new.xattrs());
        let is_kept = |name: &CStr| {
            let is_security = name.to_bytes().starts_with(SECURITY);
            is_security && name != LABEL && !OF_CONTENT.contains(&name)
        };
        let names = from.names().unwrap_or_default();
        for name in names.iter().filter(|name| is_kept(name)) {
            let value = match from.get(name) {
                Ok(Some(value)) => value,
                // It was removed.
                Ok(None) => continue,
                Err(_) => return Ok(false),
            };
            match to.set(name, &value) {
                Ok(()) => {}
                Err(e) if out_of_space(&e) => return Err(e),
                // Smack assigns labels that users may not set.
                Err(_) if to.get(name).is_ok_and(|there| there.as_ref() == Some(&value)) => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Gives a replacement file the permissions and extended attributes of the old file, as if that
    /// had been overwritten, except those preserved from the source. The kernel removes
    /// capabilities, and for unprivileged users set-id bits, from files that are written.
    pub(crate) fn take_over_attributes(
        &self,
        old: &Attr,
        old_on: FileRef<'_>,
        on: FileRef<'_>,
        parent_attr: ParentAttr,
    ) -> Vec<MetaError> {
        let mut failed = Vec::new();
        let (from, to) = (old_on.xattrs(), on.xattrs());
        let mut has_acl = false;
        let mut bits = 0o7777;
        let names = match from.names() {
            Ok(names) => names,
            Err(_) if old_on.is_missing() => {
                // Another program removed or renamed it. If it had an ACL, the bits of its group were the
                // mask of that, so the group gets what all others have.
                bits = 0o7707 | (old.mode & 0o007) << 3;
                Vec::new()
            }
            // Without its ACL, the mode of the old file would permit more: the new one stays private.
            Err(e) => return vec![(Operation::ReadAttributes, e)],
        };
        for name in names.into_iter().filter(|name| !is_raw_acl(name)) {
            let acl = name.as_c_str() == ACL_ACCESS;
            if OF_CONTENT.contains(&name.as_c_str()) || (acl && self.preserve.mode) {
                continue;
            }
            has_acl |= acl;
            let copied = from.get(&name).and_then(|value| match value {
                Some(value) => to.set(&name, &value),
                None => Ok(()),
            });
            // The security module may assign labels itself, and only root may set the others.
            let is_optional = name.to_bytes().starts_with(SECURITY);
            failed.extend(
                copied.err().filter(|_| !is_optional).map(|e| (Operation::WriteAttributes, e)),
            );
        }
        if self.preserve.mode {
            return failed;
        }
        if parent_attr.has_default_acl && !has_acl {
            // The new file must not grant what it inherits from its directory.
            failed.extend(to.remove(ACL_ACCESS).err().map(|e| (Operation::ChangeMode, e)));
        }
        // With another owner, the file would run as that one until it gets its own.
        let has_owner = on.attr().is_ok_and(|now| (now.user, now.group) == (old.user, old.group));
        let may_run_as_owner = self.own.0 == 0 && has_owner;
        let mode = if may_run_as_owner { old.mode } else { old.mode & !(SET_USER | SET_GROUP) };
        if failed.is_empty() {
            failed.extend(on.set_mode(mode & bits).err().map(|e| (Operation::ChangeMode, e)));
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CopyOptions;
    use ioloom_sys::dir::Dir;
    use std::os::fd::AsFd;

    #[test]
    fn the_replacement_of_a_file_that_is_gone_gets_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let (dir, new) = (Dir::open(place.path()).unwrap(), tempfile::tempfile().unwrap());
        let on = FileRef::Open(new.as_fd());
        on.set_mode(0o600).unwrap();
        let old = Attr { mode: 0o664, ..on.attr().unwrap() };
        let rules = Rules::new(&CopyOptions::default());
        let old_on = FileRef::Name(&dir, c"gone");
        let failed = rules.take_over_attributes(&old, old_on, on, ParentAttr::default());
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(on.attr().unwrap().mode, 0o644, "the group may have had the rights of an ACL");
    }
}

//! Which extended attributes belong to the permissions of a file, and which are never copied.
//!
//! As in GNU cp, the administrator decides by `/etc/xattr.conf`: each line has a pattern and an action, `skip` or
//! `permissions`. Patterns have `*` and `?`; brackets and backslashes mean themselves. The ACLs of NFSv4 belong to the permissions also without that file.

use ioloom_sys::descriptor::Descriptor;
use ioloom_sys::file::{self, OpenHow};
use std::ffi::CStr;
use std::io;
use std::path::Path;

const PATH: &str = "/etc/xattr.conf";

/// Maximum number of bytes of the file that are read.
const BYTES_MAX: usize = 64 << 10;

const NFS_ACLS: [&[u8]; 4] =
    [b"system.nfs4_acl", b"system.nfs4acl", b"system.nfs4_dacl", b"system.nfs4_sacl"];

/// What happens to an attribute that is not copied as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is not copied.
    Skip,
    /// It is copied with the permissions.
    Permissions,
}

/// The rules of this machine.
#[derive(Debug, Default)]
pub(crate) struct XattrRules {
    /// Patterns with their actions; the first that matches decides.
    lines: Vec<(Vec<u8>, Action)>,
}

impl XattrRules {
    /// Reads the rules. Without a readable file, those for NFSv4 remain.
    pub(crate) fn of_system() -> Self {
        Self::parse(&read().unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Self {
        let line_of = |line: &[u8]| {
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let pattern = words.next()?.to_vec();
            match words.next()? {
                b"skip" => Some((pattern, Action::Skip)),
                b"permissions" => Some((pattern, Action::Permissions)),
                _ => None,
            }
        };
        Self { lines: text.split(|byte| *byte == b'\n').filter_map(line_of).collect() }
    }

    /// Returns what happens to the attribute `name`; `None` if it is copied as an attribute.
    pub(crate) fn action(&self, name: &CStr) -> Option<Action> {
        let name = name.to_bytes();
        let line = self.lines.iter().find(|(pattern, _)| matches(pattern, name));
        let by_default = NFS_ACLS.contains(&name).then_some(Action::Permissions);
        line.map(|(_, action)| *action).or(by_default)
    }
}

fn read() -> io::Result<Vec<u8>> {
    let file = Descriptor::new(file::open(Path::new(PATH), OpenHow::default())?);
    let mut text = vec![0; BYTES_MAX];
    let got = file::read_full_at(&file, &mut text, 0)?;
    file.close()?;
    text.truncate(got);
    Ok(text)
}

/// Returns whether a name matches a pattern with `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen, mut star) = (0, 0, None);
    while seen < name.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, seen));
                at += 1;
            }
            (Some(byte), _) if *byte == b'?' || *byte == name[seen] => {
                at += 1;
                seen += 1;
            }
            // Let the last star match one more byte.
            (_, Some((begin, matched))) => {
                star = Some((begin, matched + 1));
                at = begin + 1;
                seen = matched + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_matches_decides() {
        let text = b"# comment\nsystem.nfs4_acl\tpermissions\n\n  user.Beagle.*  skip # why\nuser.odd other\n\
            user.short\nuser.?.*.end skip\nuser.* permissions\nsecurity.evm skip";
        let rules = XattrRules::parse(text);
        let (skip, permissions) = (Some(Action::Skip), Some(Action::Permissions));
        for (name, action) in [
            (c"system.nfs4_acl", permissions),
            (c"user.Beagle.x", skip),
            (c"user.Beagle", permissions),
            (c"user.odd", permissions),
            (c"user.a.b.end.end", skip),
            (c"user.ab.b.end", permissions),
            (c"security.evm", skip),
            (c"security.evm2", None),
            (c"security.ev", None),
            (c"trusted.x", None),
        ] {
            assert_eq!(rules.action(name), action, "{name:?}");
        }
        let none = XattrRules::default();
        assert_eq!(none.action(c"system.nfs4_dacl"), permissions);
        assert_eq!(none.action(c"user.test"), None);
        let skips = XattrRules::parse(b"system.nfs4_* skip");
        assert_eq!(skips.action(c"system.nfs4_sacl"), skip);
    }
}

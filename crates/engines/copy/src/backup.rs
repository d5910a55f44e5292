//! Keeps files that are overwritten, under a backup name.
//!
//! The backup is a second link to the old file, made just before the new file gets the old name: at no
//! moment is the target absent. Where links are not supported, the old file is renamed.
//!
//! Another copy may replace the old file between the two steps. So the new file and the old one
//! exchange their names, and a file that has no backup yet gets one, too. Where names cannot be exchanged, the
//! new file is renamed over the old one, and such a file is lost.
//!
//! The copy of a pipe or device has its name from the start: there, the old file is renamed before.

use crate::context::CopyContext;
use crate::meta::STICKY;
use crate::new_file::{unless_swept, with_temporary_name};
use crate::options::{Backup, BackupNames};
use crate::route::Route;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, ReadBuffer};
use ioloom_sys::make;
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Length to which GNU cp shortens longer names of backups, in bytes, unless they are simple ones.
const NAME_MAX: usize = 254;

/// Maximum number of attempts to find an unused number.
const NUMBER_TRIES: u32 = 64;

/// A backup that exists, until the new file has its name or the copy fails.
pub(crate) struct Kept<'a> {
    options: &'a Backup,
    dir: &'a Dir,
    name: &'a CStr,
    backup: CString,
    /// The file that has a backup; `None` if that is unknown.
    file: Option<((u32, u32), u64)>,
    /// Whether the old file was renamed rather than linked.
    renamed: bool,
}

impl<'a> Kept<'a> {
    /// Makes a backup of the file `name`.
    pub(crate) fn make(options: &'a Backup, dir: &'a Dir, name: &'a CStr) -> io::Result<Self> {
        let keep_as = |kept: &CStr, replace| keep(dir, name, kept, replace);
        let (backup, renamed) = with_next_name(options, dir, name, keep_as)?;
        let file = attr::of_name(dir, &backup, false).map(|attr| attr.identity()).ok();
        Ok(Self { options, dir, name, backup, file, renamed })
    }

    /// Gives the file `name` the name of its backup, for a new file that has its name from the start.
    pub(crate) fn move_away(options: &'a Backup, dir: &'a Dir, name: &'a CStr) -> io::Result<Self> {
        let identity =
            |name: &CStr| attr::of_name(dir, name, false).map(|attr| attr.identity()).ok();
        let move_to = |kept: &CStr, replace| {
            make::rename(dir, name, dir, kept, replace)?;
            // Renaming one link of a file to another has no effect.
            let stays = identity(name).is_some_and(|file| Some(file) == identity(kept));
            if stays { make::remove(dir, name) } else { Ok(()) }
        };
        let (backup, ()) = with_next_name(options, dir, name, move_to)?;
        Ok(Self { options, dir, name, backup, file: None, renamed: true })
    }

    /// Gives the new file, which is called `new` in `from`, the name of the old one. A file that was put
    /// there after the backup was made gets a backup of its own.
    pub(crate) fn replace_by(&self, from: &Dir, new: &CStr) -> io::Result<()> {
        let rename = |replace| make::rename(from, new, self.dir, self.name, replace);
        if self.renamed {
            match rename(false) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                renamed => return renamed,
            }
        }
        match make::exchange(from, new, self.dir, self.name) {
            // Also if the old name has been removed by now.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return rename(true),
            Err(e) if make::is_exchange_unsupported(&e) => return rename(true),
            exchanged => exchanged?,
        }
        let old = attr::of_name(from, new, false);
        if !old.is_ok_and(|old| Some(old.identity()) == self.file) {
            let move_to = |kept: &CStr, replace| make::rename(from, new, self.dir, kept, replace);
            return match with_next_name(self.options, self.dir, self.name, move_to) {
                // If the new file keeps the name, so does the backup.
                Err(e) => match make::exchange(from, new, self.dir, self.name) {
                    Ok(()) => Err(e),
                    Err(_) => Ok(()),
                },
                Ok(_) => Ok(()),
            };
        }
        match make::remove(from, new) {
            Ok(()) => Ok(()),
            // Otherwise the old file would stay under the hidden name, too.
            Err(e) => match make::exchange(from, new, self.dir, self.name) {
                Ok(()) => Err(e),
                Err(_) => Ok(()),
            },
        }
    }

    /// Returns the name of the backup.
    pub(crate) fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.backup.to_bytes())
    }

    /// Undoes the backup because the new file did not get its name.
    pub(crate) fn undo(self) {
        // Ignore a failure: the old content is under one of the two names.
        let _ = if self.renamed {
            make::rename(self.dir, &self.backup, self.dir, self.name, false)
        } else {
            make::remove(self.dir, &self.backup)
        };
    }
}

impl Backup {
    /// Returns the path that the next backup of a file gets.
    pub fn path_of(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let name = CString::new(name.as_bytes())?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let dir = Dir::open(above.unwrap_or(Path::new(".")))?;
        let number = next_number(self.names, &dir, &name)?;
        let kept = other_name(&name, self, number.as_deref())?;
        Ok(sibling(path, OsStr::from_bytes(kept.to_bytes())))
    }
}

/// Returns the path of another name in the directory of `path`. Unlike `with_file_name`, it keeps repeated slashes and
/// `/./`, as GNU cp does.
pub(crate) fn sibling(path: &Path, name: &OsStr) -> PathBuf {
    let own = path.file_name().map(OsStr::as_bytes);
    match own.and_then(|own| path.as_os_str().as_bytes().strip_suffix(own)) {
        Some(above) => PathBuf::from(OsString::from_vec([above, name.as_bytes()].concat())),
        // It ends with a slash or dots.
        None => path.with_file_name(name),
    }
}

/// Calls `keep` with the name of the next backup, and whether it replaces an earlier one, again if another copy
/// takes that name meanwhile. Returns the name.
fn with_next_name<T>(
    options: &Backup,
    dir: &Dir,
    name: &CStr,
    keep: impl Fn(&CStr, bool) -> io::Result<T>,
) -> io::Result<(CString, T)> {
    let mut tries = 0;
    loop {
        let number = next_number(options.names, dir, name)?;
        let kept = other_name(name, options, number.as_deref())?;
        match keep(&kept, number.is_none()) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < NUMBER_TRIES => {
                tries += 1;
            }
            made => return made.map(|made| (kept, made)),
        }
    }
}

/// Returns the number of the next backup; `None` if it gets the suffix.
fn next_number(names: BackupNames, dir: &Dir, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    match names {
        BackupNames::Simple => Ok(None),
        BackupNames::Numbered => Ok(Some(after(&last_number(dir, name)?))),
        BackupNames::Existing => {
            let last = last_number(dir, name)?;
            Ok((!last.is_empty()).then(|| after(&last)))
        }
    }
}

/// Gives the file `name` the second name `kept`. Returns true if it was renamed instead.
fn keep(dir: &Dir, name: &CStr, kept: &CStr, replace: bool) -> io::Result<bool> {
    let linked = if !may_rename(dir, name)? {
        // A second name could not be removed again.
        return make::rename(dir, name, dir, kept, replace).map(|()| true);
    } else if replace {
        let linked = |hidden: &CStr| make::link(dir, name, dir, hidden);
        unless_swept(|| {
            let (hidden, ()) = with_temporary_name(kept, linked)?;
            let renamed = make::rename(dir, &hidden, dir, kept, true);
            // Renaming one link of a file to another has no effect, so the name may still exist.
            let _ = make::remove(dir, &hidden);
            renamed
        })
    } else {
        make::link(dir, name, dir, kept)
    };
    match linked {
        Err(e)
            if matches!(
                Errno::from_io_error(&e),
                // The last one is that of a file that is a mount point.
                Some(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::XDEV)
            ) =>
        {
            make::rename(dir, name, dir, kept, replace).map(|()| true)
        }
        linked => linked.map(|()| false),
    }
}

/// Returns true unless the directory is sticky and neither it nor the file belongs to this user.
fn may_rename(dir: &Dir, name: &CStr) -> io::Result<bool> {
    let (own, above) = (attr::own_ids().0, attr::of_file(dir)?);
    if own == 0 || above.mode & STICKY == 0 || above.user == own {
        return Ok(true);
    }
    Ok(attr::of_name(dir, name, false)?.user == own)
}

/// Returns the name of a backup. Fails if it is that of the file, as a shortened name that ends with `~` can be: the
/// file would replace itself. Also fails if it ends with a slash, as only names of directories can.
fn other_name(name: &CStr, backup: &Backup, number: Option<&[u8]>) -> io::Result<CString> {
    let kept = with_suffix(name, backup, number);
    if kept.to_bytes().ends_with(b"/") {
        return Err(Errno::NOTDIR.into());
    }
    if kept.as_c_str() == name { Err(Errno::EXIST.into()) } else { Ok(kept) }
}

fn with_suffix(name: &CStr, backup: &Backup, number: Option<&[u8]>) -> CString {
    let mut bytes = name.to_bytes().to_vec();
    let length = bytes.len();
    match number {
        Some(number) => bytes.extend([b".~", number, b"~"].concat()),
        None => bytes.extend_from_slice(backup.suffix.as_bytes()),
    }
    if backup.names != BackupNames::Simple && bytes.len() > NAME_MAX {
        bytes.truncate(length.min(NAME_MAX - 1));
        bytes.push(b'~');
    }
    CString::new(bytes).unwrap_or_else(|_| name.to_owned())
}

/// Returns the digits of the highest number of a backup of `name`; empty if there are none. Names
/// can contain numbers of any length.
fn last_number(dir: &Dir, name: &CStr) -> io::Result<Vec<u8>> {
    let mut last = Vec::new();
    let listed = match dir.open_at(b".") {
        // It can be written but not listed. A number that is used is noticed later.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(last),
        listed => listed?,
    };
    listed.read(&mut ReadBuffer::new(), &mut |entry| {
        if let Some(digits) = number_of(entry.name, name.to_bytes())
            && (digits.len(), digits) > (last.len(), &last[..])
        {
            last = digits.to_vec();
        }
        true
    })?;
    Ok(last)
}

/// Returns the digits of the next number.
fn after(digits: &[u8]) -> Vec<u8> {
    let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
    let (kept, end) = digits.split_at(digits.len() - nines);
    let mut next = kept.to_vec();
    match next.last_mut() {
        Some(last) => *last += 1,
        None => next.push(b'1'),
    }
    next.extend(end.iter().map(|_| b'0'));
    next
}

fn number_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let digits = entry.strip_prefix(name)?.strip_prefix(b".~")?.strip_suffix(b"~")?;
    let is_number = digits.first().is_some_and(|first| matches!(first, b'1'..=b'9'))
        && digits.iter().all(u8::is_ascii_digit);
    is_number.then_some(digits)
}

/// Returns true if the backup of the target would have the name of the source.
pub(crate) fn is_source(context: &CopyContext<'_>, route: &Route<'_>, source: &Attr) -> bool {
    let Some(backup) = &context.options.backup else { return false };
    if backup.names == BackupNames::Numbered {
        return false;
    }
    let kept = with_suffix(route.to_name, backup, None);
    kept.as_c_str() == route.from_name
        && attr::of_name(route.to, &kept, true)
            .is_ok_and(|kept| kept.identity() == source.identity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_copy_put_there_meanwhile_is_kept() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let write = |name: &str| std::fs::write(temp.path().join(name), name).unwrap();
        let text = |name: &str| std::fs::read_to_string(temp.path().join(name)).unwrap();
        let options = Backup { names: BackupNames::Numbered, suffix: "~".into() };
        ["f", "other", "new"].into_iter().for_each(write);
        let kept = Kept::make(&options, &dir, c"f").unwrap();
        std::fs::rename(temp.path().join("other"), temp.path().join("f")).unwrap();
        kept.replace_by(&dir, c"new").unwrap();
        assert_eq!([text("f"), text("f.~1~"), text("f.~2~")], ["new", "f", "other"]);
        write("newer");
        Kept::make(&options, &dir, c"f").unwrap().replace_by(&dir, c"newer").unwrap();
        assert_eq!([text("f"), text("f.~3~")], ["newer", "new"]);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 4, "no other name is left");
    }

    #[test]
    fn long_names_are_shortened_as_by_gnu_cp() {
        let shortened = |names, length: usize, number| {
            let backup = Backup { names, suffix: "~".into() };
            let name = CString::new(vec![b'n'; length]).unwrap();
            with_suffix(&name, &backup, number).to_bytes().len()
        };
        for (length, simple, existing, numbered) in
            [(250, 251, 251, 254), (253, 254, 254, 254), (254, 255, 254, 254), (255, 256, 254, 254)]
        {
            assert_eq!(shortened(BackupNames::Simple, length, None), simple);
            assert_eq!(shortened(BackupNames::Existing, length, None), existing);
            assert_eq!(shortened(BackupNames::Numbered, length, Some(b"1")), numbered);
        }
    }

    #[test]
    fn a_file_whose_backup_would_have_its_name_stays() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let text = "n".repeat(NAME_MAX - 1) + "~";
        let (path, name) = (temp.path().join(&text), CString::new(text).unwrap());
        std::fs::write(&path, "old").unwrap();
        for names in [BackupNames::Existing, BackupNames::Numbered] {
            let options = Backup { names, suffix: "~".into() };
            let moved = Kept::move_away(&options, &dir, &name).map(drop);
            let made = Kept::make(&options, &dir, &name).map(drop);
            for failed in [moved, made, options.path_of(&path).map(drop)] {
                assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            }
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
        }
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_path_of_a_backup_is_spelled_as_that_of_the_file() {
        for (path, expected) in [
            ("a/./x", "a/./x~"),
            ("a//x", "a//x~"),
            ("./x", "./x~"),
            ("/x", "/x~"),
            ("x", "x~"),
            ("a/x/", "a/x~"),
        ] {
            // Paths that differ only in the spelling are equal.
            assert_eq!(sibling(Path::new(path), OsStr::new("x~")).as_os_str(), expected);
        }
    }

    #[test]
    fn numbers_are_those_of_this_name() {
        for (entry, number) in [
            (&b"y.~1~"[..], Some(&b"1"[..])),
            (b"y.~12~", Some(b"12")),
            (b"y.~0~", None),
            (b"y.~01~", None),
            (b"y.~~", None),
            (b"y~", None),
            (b"yy.~3~", None),
            (b"y.~99999999999999999999999~", Some(b"99999999999999999999999")),
        ] {
            assert_eq!(number_of(entry, b"y"), number, "{}", entry.escape_ascii());
        }
        for (last, next) in [
            ("", "1"),
            ("1", "2"),
            ("9", "10"),
            ("199", "200"),
            ("18446744073709551615", "18446744073709551616"),
        ] {
            assert_eq!(after(last.as_bytes()), next.as_bytes(), "{last}");
        }
    }
}

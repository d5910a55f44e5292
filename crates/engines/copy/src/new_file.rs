//! New files, which have a hidden name or no name until they are complete.
//!
//! In a directory that this copy created and that is still hidden, a file is created under its
//! final name: no incomplete file is visible, and no extra system call is needed. Elsewhere, a file
//! is created without a name (`O_TMPFILE`) and linked at the end. If it replaces another file or is
//! synced, or if the file system does not support unnamed files, it is created under a hidden name
//! and renamed. A file that has not been published is removed when dropped, unless it has data of a pipe or device.
//!
//! Files that cannot be replaced without harm are opened and written in place; see `crate::place`.
//!
//! The result of `close` is checked before a file gets its name, because it can report that data
//! was not stored. An unnamed file must be open to be linked, and a hidden one keeps its lock until it
//! has its name, so a duplicate is closed first.
//!
//! Hidden files of resumable copies end with `.part` alone, because the next copy continues them. Other
//! names end with `.temp.part`: `crate::sweep` removes those that a killed copy left. Files are locked while
//! they are in use. Links, nodes and second names cannot be, but they are renamed right after they are made:
//! only old ones are removed, and a copy that was stopped in between makes its name again. On remote file
//! systems and FUSE, names end with `.remote.part` and are never removed: the machine or mount below does not see
//! the locks.

use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::descriptor::{self, Descriptor};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

/// Maximum length of the part of the final name that a hidden name contains, in bytes.
/// The whole fits the shortest limit of names, 143 bytes with eCryptfs.
pub(crate) const NAME_PART_MAX: usize = 100;

/// Ends of hidden names: of what the next copy may continue, and of what only this process uses.
pub(crate) const PART: &str = ".part";
const TEMPORARY: &str = ".temp.part";
/// End of the names of journals.
const JOURNAL: &str = ".journal";
/// End of hidden names whose locks others may not see.
const REMOTE: &str = ".remote.part";

/// Maximum number of attempts to find an unused hidden name.
const NAME_TRIES: u32 = 8;

/// Maximum number of attempts to make a name that another copy removes before it is renamed.
pub(crate) const SWEPT_TRIES: u32 = 3;

/// The state of a new file's final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The directory is still hidden.
    Hidden,
    /// The name is unused. If another program uses it before the copy is complete, that file is
    /// replaced only with `replace`.
    Free {
        /// Whether to replace such a file.
        replace: bool,
        /// Whether the file has a hidden name until then: because it is synced before, where without a journal ext4 and
        /// ext2 would store that an unnamed file has no links, and drop it after a power failure; or because an
        /// unnamed file could not be linked.
        hidden: bool,
    },
    /// The name is unused, in a directory where it cannot be changed later. It is written under its
    /// final name if it cannot be unnamed until then.
    Fixed,
    /// The name is used by a file that will be replaced.
    Occupied,
    /// The file is written under its final name.
    Visible,
}

impl Destination {
    fn replaces(self) -> bool {
        matches!(self, Self::Occupied | Self::Free { replace: true, .. })
    }
}

enum CurrentName<'a> {
    Final(&'a CStr),
    Unnamed,
    Hidden(CString),
    /// Nothing to clean up.
    Published,
}

/// A file that is being written.
pub(crate) struct NewFile<'a> {
    dir: &'a Dir,
    name: &'a CStr,
    destination: Destination,
    current_name: CurrentName<'a>,
    /// Whether it is left although it is incomplete, under the name that it has.
    stays: bool,
    file: Option<Descriptor>,
}

/// Gives the file with this name that of an old file.
pub(crate) type Replace<'r> = &'r dyn Fn(&CStr) -> io::Result<()>;

/// An error of a new file, with the operation that failed.
pub(crate) type NewFileError = (Operation, io::Error);

impl<'a> NewFile<'a> {
    /// Creates a file in `dir` that will be called `name`. The process umask applies to `mode`.
    pub(crate) fn make(
        dir: &'a Dir,
        name: &'a CStr,
        destination: Destination,
        mode: u32,
    ) -> io::Result<Self> {
        let (current_name, file) = match destination {
            Destination::Hidden | Destination::Visible => {
                (CurrentName::Final(name), make::file(dir, name, mode)?)
            }
            Destination::Occupied | Destination::Free { hidden: true, .. } => {
                Self::hidden(dir, name, mode)?
            }
            Destination::Free { .. } | Destination::Fixed => match make::unnamed_file(dir, mode) {
                Ok(file) => (CurrentName::Unnamed, file),
                Err(e) if !make::is_tmpfile_unsupported(&e) => return Err(e),
                Err(_) if destination == Destination::Fixed => {
                    (CurrentName::Final(name), make::file(dir, name, mode)?)
                }
                Err(_) => Self::hidden(dir, name, mode)?,
            },
        };
        Ok(Self::of(dir, name, destination, current_name, file))
    }

    fn of(
        dir: &'a Dir,
        name: &'a CStr,
        destination: Destination,
        current_name: CurrentName<'a>,
        file: OwnedFd,
    ) -> Self {
        let file = Some(Descriptor::new(file));
        Self { dir, name, destination, current_name, stays: false, file }
    }

    /// Takes an existing file that is written in place. An error leaves it as it is by then.
    pub(crate) fn in_place(dir: &'a Dir, name: &'a CStr, file: OwnedFd) -> Self {
        Self::of(dir, name, Destination::Visible, CurrentName::Published, file)
    }

    /// Creates the file under the name `hidden`, which is the same in every copy of the same
    /// source, or opens the file that an earlier copy left there. `mode` already includes the
    /// umask.
    pub(crate) fn resumable(
        dir: &'a Dir,
        name: &'a CStr,
        destination: Destination,
        hidden: CString,
        (mode, umask): (u32, u32),
    ) -> io::Result<Self> {
        let file = match make::file(dir, &hidden, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match go_on(dir, &hidden)? {
                Some(file) => {
                    // The permissions of the source may have changed since the earlier copy.
                    attr::set_mode(&file, mode & !umask)?;
                    file
                }
                None => {
                    make::remove(dir, &hidden)?;
                    make::file(dir, &hidden, mode)?
                }
            },
            made => made?,
        };
        // Without support for locks, the journal alone excludes others.
        if !make::try_lock(&file).unwrap_or(true) {
            return Err(Errno::BUSY.into());
        }
        Ok(Self::of(dir, name, destination, CurrentName::Hidden(hidden), file))
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &Descriptor {
        self.file.as_ref().expect("only publishing closes the file")
    }

    /// Returns whether it is an existing file that is written in place.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self.current_name, CurrentName::Published)
    }

    /// Leaves an incomplete file that has data, unless its directory is hidden: what came from a pipe or device may not
    /// be readable again. Returns whether it is left.
    pub(crate) fn stay_with_data(&mut self) -> bool {
        let has_data = |file: &Descriptor| attr::of_file(file).is_ok_and(|now| now.bytes > 0);
        self.stays = self.destination != Destination::Hidden && has_data(self.file());
        self.stays
    }

    /// Leaves the file under its hidden name for a later copy.
    pub(crate) fn leave(mut self) {
        self.current_name = CurrentName::Published;
    }

    /// Creates the file under a hidden name and locks it.
    fn hidden(dir: &Dir, name: &CStr, mode: u32) -> io::Result<(CurrentName<'a>, OwnedFd)> {
        let mut tries = 0;
        loop {
            let made = |hidden: &CStr| make::file(dir, hidden, mode);
            let (hidden, file) = with_locked_name(dir, name, TEMPORARY, made)?;
            // Without support for locks, no other copy can lock and remove it either.
            let locked = make::try_lock(&file).unwrap_or(true);
            let own = attr::of_file(&file).inspect_err(|_| {
                let _ = make::remove(dir, &hidden);
            })?;
            // Otherwise another copy found it before it was locked, and removes it.
            if (locked && own.links > 0) || tries >= NAME_TRIES {
                return Ok((CurrentName::Hidden(hidden), file));
            }
            tries += 1;
        }
    }

    /// Returns whether the open file has that name.
    fn is_named(&self, name: &CStr) -> bool {
        let identity = |attr: Attr| attr.identity();
        let open = self.file.as_ref().and_then(|file| attr::of_file(file).map(identity).ok());
        open.is_some() && open == attr::of_name(self.dir, name, false).map(identity).ok()
    }

    /// Closes the file and gives it its final name; `replace`: gives a hidden file the name of an old one that has
    /// a backup. Sets `named` when it has that name: an error of the second `close` comes later.
    pub(crate) fn publish(
        mut self,
        replace: Option<Replace<'_>>,
        named: &mut bool,
    ) -> Result<(), NewFileError> {
        let closed = |e| (Operation::Close, e);
        let not_named = |e| (Operation::Publish, e);
        if let CurrentName::Unnamed = &self.current_name {
            descriptor::flush(self.file()).map_err(closed)?;
            self.link().map_err(not_named)?;
            self.current_name = CurrentName::Published;
        }
        if let CurrentName::Hidden(hidden) = &self.current_name {
            descriptor::flush(self.file()).map_err(closed)?;
            let replaces = self.destination.replaces();
            let renamed = match replace {
                Some(replace) => replace(hidden),
                None => make::rename(self.dir, hidden, self.dir, self.name, replaces),
            };
            renamed.map_err(not_named)?;
            self.current_name = CurrentName::Published;
        }
        if matches!(self.current_name, CurrentName::Final(_))
            && self.destination != Destination::Hidden
        {
            // Until the file is closed, it can be recognized and removed.
            descriptor::flush(self.file()).map_err(closed)?;
        }
        *named = true;
        if let Some(file) = self.file.take() {
            file.close().map_err(closed)?;
        }
        self.current_name = CurrentName::Published;
        Ok(())
    }

    /// Links an unnamed file to its final name.
    fn link(&self) -> io::Result<()> {
        let link = |name: &CStr| make::link_unnamed(self.file(), self.dir, name);
        match link(self.name) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.destination.replaces() => {
                // It has no name yet, so the lock is free, or locks are not supported.
                let _ = make::try_lock(self.file());
                let (hidden, ()) = with_temporary_name(self.name, link)?;
                let renamed = make::rename(self.dir, &hidden, self.dir, self.name, true);
                if renamed.is_err() {
                    // Ignore a failure: the name identifies it as a copy.
                    let _ = make::remove(self.dir, &hidden);
                }
                renamed
            }
            linked => linked,
        }
    }
}

/// Opens the file under a hidden name that others can predict. Returns `None` if it cannot be left
/// over from an earlier copy by this user; it must then not be written to.
fn go_on(dir: &Dir, hidden: &CStr) -> io::Result<Option<OwnedFd>> {
    let there = attr::of_name(dir, hidden, false)?;
    if !is_ours(&there) {
        return Ok(None);
    }
    let file = make::open_to_resume(dir, hidden)?;
    let opened = attr::of_file(&file)?;
    Ok((is_ours(&opened) && opened.identity() == there.identity()).then_some(file))
}

/// Returns true if a regular file belongs to this user and has a single name.
pub(crate) fn is_ours(attr: &Attr) -> bool {
    attr.kind == Kind::Regular && attr.links == 1 && attr.user == attr::own_ids().0
}

/// Returns true if others than the owner may write to a file; ACLs cannot give more than the group has.
pub(crate) fn is_shared(attr: &Attr) -> bool {
    attr.mode & 0o022 != 0
}

/// Returns true if only this user and root can create, rename and remove the entries of a directory.
pub(crate) fn is_private(dir: &Attr) -> bool {
    !is_shared(dir) && [0, attr::own_ids().0].contains(&dir.user)
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        let name = match &self.current_name {
            _ if self.stays => return,
            // In a directory that others see, another program can have replaced it meanwhile.
            CurrentName::Final(name)
                if self.destination == Destination::Hidden || self.is_named(name) =>
            {
                name
            }
            CurrentName::Hidden(name) => name.as_c_str(),
            _ => return,
        };
        // Ignore a failure: the name identifies it as an incomplete copy.
        let _ = make::remove(self.dir, name);
    }
}

/// Calls `make` with hidden names that only this process uses, until an unused one is found; returns that name.
pub(crate) fn with_temporary_name<T>(
    name: &CStr,
    make: impl FnMut(&CStr) -> io::Result<T>,
) -> io::Result<(CString, T)> {
    with_unused_name(|number| marked(name, number, TEMPORARY), make)
}

/// Calls `make` with hidden names of this kind until an unused one is found. The caller locks what it makes.
pub(crate) fn with_locked_name<T>(
    dir: &Dir,
    name: &CStr,
    suffix: &str,
    make: impl FnMut(&CStr) -> io::Result<T>,
) -> io::Result<(CString, T)> {
    let is_remote = attr::file_system(dir).is_ok_and(|system| system.remote);
    let suffix = if is_remote { REMOTE } else { suffix };
    with_unused_name(|number| marked(name, number, suffix), make)
}

/// Returns true if a hidden name is that of a remote file system.
pub(crate) fn is_remote_name(hidden: &CStr) -> bool {
    hidden.to_bytes().ends_with(REMOTE.as_bytes())
}

/// Returns another hidden name of the same kind for a directory.
pub(crate) fn other_hidden_name(name: &CStr, hidden: &CStr) -> CString {
    let suffix = if is_remote_name(hidden) { REMOTE } else { PART };
    marked(name, make::random_number(), suffix)
}

/// Calls `replace` again if the name that it made was removed before it was renamed: this process was stopped
/// for so long that another copy took the name for one that a killed copy left.
pub(crate) fn unless_swept<T>(mut replace: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 1;
    loop {
        match replace() {
            Err(e) if e.kind() == io::ErrorKind::NotFound && tries < SWEPT_TRIES => tries += 1,
            result => return result,
        }
    }
}

fn with_unused_name<T>(
    name_of: impl Fn(u64) -> CString,
    mut make: impl FnMut(&CStr) -> io::Result<T>,
) -> io::Result<(CString, T)> {
    let mut tries = 0;
    loop {
        let hidden = name_of(make::random_number());
        match make(&hidden) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < NAME_TRIES => tries += 1,
            Ok(made) => return Ok((hidden, made)),
            Err(e) => return Err(e),
        }
    }
}

/// Returns `.NAME.ioloom-NUMBER.part`.
pub(crate) fn hidden_name(name: &CStr, number: u64) -> CString {
    marked(name, number, PART)
}

/// Returns the hidden name of an incomplete large file of the copy with this number. Names that differ only after
/// the part that a hidden name contains get different numbers: two files must never share one.
pub(crate) fn part_name(name: &CStr, number: u64) -> CString {
    let bytes = name.to_bytes();
    if bytes.len() <= NAME_PART_MAX {
        return hidden_name(name, number);
    }
    let mut own = [0; 8];
    own.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
    hidden_name(name, number ^ u64::from_be_bytes(own))
}

fn marked(name: &CStr, number: u64, suffix: &str) -> CString {
    let name = name.to_bytes();
    let mut hidden = vec![b'.'];
    let mut end = name.len().min(NAME_PART_MAX);
    // Some file systems refuse a part of a character.
    let is_inside = |at: usize| name.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while end > NAME_PART_MAX - 4 && is_inside(end) {
        end -= 1;
    }
    hidden.extend_from_slice(&name[..end]);
    hidden.extend_from_slice(format!(".ioloom-{number:016x}{suffix}").as_bytes());
    CString::new(hidden).expect("a file name contains no NUL bytes")
}

/// Returns the number in a hidden name.
pub(crate) fn number_of_hidden(name: &[u8]) -> Option<u64> {
    number_in(name, PART)
}

/// Returns the number in the hidden name of a directory, which can be on a remote file system.
pub(crate) fn number_of_hidden_dir(name: &[u8]) -> Option<u64> {
    number_of_hidden(name).or_else(|| number_in(name, REMOTE))
}

/// Returns true if a name is that of a file that only the process that created it uses.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    number_in(name, TEMPORARY).is_some()
}

/// Returns the number in the name of a journal.
pub(crate) fn number_of_journal(name: &[u8]) -> Option<u64> {
    number_in(name, JOURNAL)
}

fn number_in(name: &[u8], suffix: &str) -> Option<u64> {
    let rest = name.strip_prefix(b".")?.strip_suffix(suffix.as_bytes())?;
    let at = rest.len().checked_sub(16)?;
    let digits = std::str::from_utf8(&rest[at..]).ok()?;
    let is_hex = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    let number = u64::from_str_radix(digits, 16).ok()?;
    (is_hex && rest[..at].ends_with(b".ioloom-")).then_some(number)
}

/// Returns the name of the journal that belongs to a hidden name.
pub(crate) fn journal_name(hidden: &CStr) -> CString {
    let mut name = hidden.to_bytes().to_vec();
    name.truncate(name.len() - PART.len());
    name.extend_from_slice(JOURNAL.as_bytes());
    CString::new(name).expect("a file name contains no NUL bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn only_our_own_remains_are_reused_and_get_the_current_permissions() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let hidden = || c".part".to_owned();
        let begin = |mode| {
            NewFile::resumable(&dir, c"f", Destination::Occupied, hidden(), (mode, 0)).unwrap()
        };
        let part = temp.path().join(".part");
        let left = fs::File::from(begin(0o644).file().as_fd().try_clone_to_owned().unwrap());
        assert!(!part.exists(), "a dropped file must be removed");
        drop(left);
        let first = begin(0o644);
        fs::File::from(first.file().as_fd().try_clone_to_owned().unwrap())
            .write_all_at(b"piece", 0)
            .unwrap();
        first.leave();
        // The source is now readable only by its owner.
        begin(0o600).leave();
        let found = fs::metadata(&part).unwrap();
        assert_eq!((found.permissions().mode() & 0o777, found.size()), (0o600, 5));
        // Never write through another user's link under that name.
        let other = temp.path().join("other");
        fs::write(&other, "theirs").unwrap();
        type Plant = fn(&Path, &Path) -> io::Result<()>;
        let plants: [Plant; 2] = [|a, b| fs::hard_link(a, b), |a, b| symlink(a, b)];
        for plant in plants {
            fs::remove_file(&part).unwrap();
            plant(&other, &part).unwrap();
            let mine = begin(0o600);
            fs::File::from(mine.file().as_fd().try_clone_to_owned().unwrap())
                .write_all_at(b"mine", 0)
                .unwrap();
            mine.leave();
            assert_eq!(fs::read(&other).unwrap(), b"theirs");
            assert_eq!(fs::read(&part).unwrap(), b"mine");
        }
    }

    #[test]
    fn large_files_never_share_a_hidden_name() {
        let long = |end: &str| CString::new("x".repeat(110) + end).unwrap();
        let names = [long("1"), long("2"), c"short".to_owned()].map(|name| part_name(&name, 7));
        assert!(names[0] != names[1] && names[2] == hidden_name(c"short", 7), "{names:?}");
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let begin = |hidden: &CStr| {
            NewFile::resumable(&dir, c"f", Destination::Occupied, hidden.to_owned(), (0o600, 0))
        };
        let first = begin(&names[0]).unwrap();
        let second = begin(&names[0]).err().and_then(|e| Errno::from_io_error(&e));
        assert_eq!(second, Some(Errno::BUSY), "the file that another thread is writing");
        drop(first);
        assert!(begin(&names[0]).is_ok());
    }
}

//! New files: under a name that nobody looks at, or none, until they are whole.
//!
//! In a directory that this copy made and has not shown yet, a file is made under its own name: the
//! directory itself has no final name, so nothing half-made can be seen, and a file costs no call
//! more than without any care. Elsewhere a file is made without a name and gets one at the end, or,
//! where another file must be replaced or the file system cannot, under a hidden name that is
//! renamed. Whatever is not published is removed when it is dropped.

use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

/// Longest part of a final name that a hidden name repeats, bytes.
const NAME_PART_MAX: usize = 180;

/// Tries for a hidden name that is free.
const NAME_TRIES: u32 = 8;

/// Where a new file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Nobody sees the directory yet.
    Hidden,
    /// The name is free.
    Free,
    /// Something is there and is replaced.
    Taken,
}

enum Under<'a> {
    /// Its final name.
    Final(&'a CStr),
    /// None yet.
    Nothing,
    /// A hidden one.
    Hidden(CString),
    /// Published: nothing to clean up.
    Done,
}

/// A file that is being made.
pub(crate) struct NewFile<'a> {
    dir: &'a Dir,
    name: &'a CStr,
    spot: Spot,
    under: Under<'a>,
    pub(crate) file: OwnedFd,
}

impl<'a> NewFile<'a> {
    /// Makes a file in `dir` that is to be called `name`. The process's umask applies to `mode`.
    pub(crate) fn make(dir: &'a Dir, name: &'a CStr, spot: Spot, mode: u32) -> io::Result<Self> {
        let (under, file) = match spot {
            Spot::Hidden => (Under::Final(name), make::file(dir, name, mode)?),
            Spot::Free => match make::unnamed_file(dir, mode) {
                Ok(file) => (Under::Nothing, file),
                Err(e) if make::is_tmpfile_unsupported(&e) => Self::hidden(dir, name, mode)?,
                Err(e) => return Err(e),
            },
            Spot::Taken => Self::hidden(dir, name, mode)?,
        };
        Ok(Self { dir, name, spot, under, file })
    }

    /// Makes it under the name `hidden`, which is the same for each copy of the same source, or goes
    /// on with what an earlier copy left there. `mode` comes with the umask.
    pub(crate) fn resumable(
        dir: &'a Dir,
        name: &'a CStr,
        spot: Spot,
        hidden: CString,
        (mode, umask): (u32, u32),
    ) -> io::Result<Self> {
        let file = match make::file(dir, &hidden, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match go_on(dir, &hidden)? {
                Some(file) => {
                    // The source may have had other permissions when this was begun.
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
        Ok(Self { dir, name, spot, under: Under::Hidden(hidden), file })
    }

    /// Leaves the file under its hidden name for a later copy.
    pub(crate) fn leave(mut self) {
        self.under = Under::Done;
    }

    fn hidden(dir: &Dir, name: &CStr, mode: u32) -> io::Result<(Under<'a>, OwnedFd)> {
        let (hidden, file) = with_hidden_name(name, |hidden| make::file(dir, hidden, mode))?;
        Ok((Under::Hidden(hidden), file))
    }

    /// Gives the file its final name.
    pub(crate) fn publish(mut self) -> io::Result<()> {
        let replace = self.spot == Spot::Taken;
        match &self.under {
            Under::Final(_) | Under::Done => {}
            Under::Nothing => make::link_unnamed(&self.file, self.dir, self.name)?,
            Under::Hidden(hidden) => {
                make::rename(self.dir, hidden, self.dir, self.name, replace)?;
            }
        }
        self.under = Under::Done;
        Ok(())
    }
}

/// Opens what lies under a name that others can know. `None`: it is not what an earlier copy of this
/// user left, so nothing is written into it.
fn go_on(dir: &Dir, hidden: &CStr) -> io::Result<Option<OwnedFd>> {
    let there = attr::of_name(dir, hidden, false)?;
    if !is_ours(&there) {
        return Ok(None);
    }
    let file = make::open_to_resume(dir, hidden)?;
    let opened = attr::of_file(&file)?;
    Ok((is_ours(&opened) && opened.identity() == there.identity()).then_some(file))
}

/// Whether a file is one of this user with a single name.
pub(crate) fn is_ours(attr: &Attr) -> bool {
    attr.kind == Kind::Regular && attr.links == 1 && attr.user == attr::own_ids().0
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        let name = match &self.under {
            Under::Final(name) => name,
            Under::Hidden(name) => name.as_c_str(),
            Under::Nothing | Under::Done => return,
        };
        // What cannot be removed stays under a name that tells what it is.
        let _ = make::remove(self.dir, name);
    }
}

/// Makes something under a hidden name of its own; returns the name.
pub(crate) fn with_hidden_name<T>(
    name: &CStr,
    mut make: impl FnMut(&CStr) -> io::Result<T>,
) -> io::Result<(CString, T)> {
    let mut tries = 0;
    loop {
        let hidden = hidden_name(name, make::random_number());
        match make(&hidden) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < NAME_TRIES => tries += 1,
            Ok(made) => return Ok((hidden, made)),
            Err(e) => return Err(e),
        }
    }
}

/// `.NAME.ioloom-NUMBER.part`.
pub(crate) fn hidden_name(name: &CStr, number: u64) -> CString {
    let name = name.to_bytes();
    let mut hidden = vec![b'.'];
    hidden.extend_from_slice(&name[..name.len().min(NAME_PART_MAX)]);
    hidden.extend_from_slice(format!(".ioloom-{number:016x}.part").as_bytes());
    CString::new(hidden).expect("a part of a name without zero bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    #[test]
    fn what_is_gone_on_with_is_ours_and_has_the_permissions_of_now() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let hidden = || c".part".to_owned();
        let begin = |mode| NewFile::resumable(&dir, c"f", Spot::Free, hidden(), (mode, 0)).unwrap();
        let part = temp.path().join(".part");
        let left = fs::File::from(begin(0o644).file.try_clone().unwrap());
        assert!(!part.exists(), "nothing is left unless that is asked");
        drop(left);
        let first = begin(0o644);
        fs::File::from(first.file.try_clone().unwrap()).write_all_at(b"piece", 0).unwrap();
        first.leave();
        // The source is nobody else's any more.
        begin(0o600).leave();
        let found = fs::metadata(&part).unwrap();
        assert_eq!((found.permissions().mode() & 0o777, found.size()), (0o600, 5));
        // A name that somebody else made lead elsewhere: nothing is written there.
        let other = temp.path().join("other");
        fs::write(&other, "theirs").unwrap();
        type Plant = fn(&Path, &Path) -> io::Result<()>;
        let plants: [Plant; 2] = [|a, b| fs::hard_link(a, b), |a, b| symlink(a, b)];
        for plant in plants {
            fs::remove_file(&part).unwrap();
            plant(&other, &part).unwrap();
            let mine = begin(0o600);
            fs::File::from(mine.file.try_clone().unwrap()).write_all_at(b"mine", 0).unwrap();
            mine.leave();
            assert_eq!(fs::read(&other).unwrap(), b"theirs");
            assert_eq!(fs::read(&part).unwrap(), b"mine");
        }
    }
}

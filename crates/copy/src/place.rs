//! New files: under a name that nobody looks at, or none, until they are whole.
//!
//! In a directory that this copy made and has not shown yet, a file is made under its own name: the
//! directory itself has no final name, so nothing half-made can be seen, and a file costs no call
//! more than without any care. Elsewhere a file is made without a name and gets one at the end, or,
//! where another file must be replaced or the file system cannot, under a hidden name that is
//! renamed. Whatever is not published is removed when it is dropped.

use ioloom_sys::dir::Dir;
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
                Err(e) if make::cannot_be_unnamed(&e) => Self::hidden(dir, name, mode)?,
                Err(e) => return Err(e),
            },
            Spot::Taken => Self::hidden(dir, name, mode)?,
        };
        Ok(Self { dir, name, spot, under, file })
    }

    /// Makes it under a hidden name that is the same for each copy of the same source, or opens what
    /// an earlier copy left there.
    pub(crate) fn resumable(
        dir: &'a Dir,
        name: &'a CStr,
        spot: Spot,
        number: u64,
        mode: u32,
    ) -> io::Result<Self> {
        let hidden = hidden_name(name, number);
        let file = match make::file(dir, &hidden, mode) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                make::open_to_go_on(dir, &hidden)?
            }
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
            Under::Nothing => make::name_file(&self.file, self.dir, self.name)?,
            Under::Hidden(hidden) => {
                make::rename(self.dir, hidden, self.dir, self.name, replace)?;
            }
        }
        self.under = Under::Done;
        Ok(())
    }
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

//! A file whose attributes are read or set: open, or a name in an open directory.

use ioloom_sys::attr::{self, Attr, XattrOf};
use ioloom_sys::dir::Dir;
use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

/// A file, by descriptor or name.
#[derive(Clone, Copy)]
pub(crate) enum FileRef<'a> {
    Open(BorrowedFd<'a>),
    Name(&'a Dir, &'a CStr),
}

impl<'a> FileRef<'a> {
    pub(crate) fn xattrs(self) -> XattrOf<'a> {
        match self {
            Self::Open(file) => XattrOf::Open(file),
            Self::Name(dir, name) => XattrOf::Name(dir, name),
        }
    }

    pub(crate) fn set_owner(self, user: u32, group: u32) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_owner(file, user, group),
            Self::Name(dir, name) => attr::set_owner_at(dir, name, user, group),
        }
    }

    pub(crate) fn set_group(self, group: u32) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_group(file, group),
            Self::Name(dir, name) => attr::set_group_at(dir, name, group),
        }
    }

    pub(crate) fn set_mode(self, mode: u32) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_mode(file, mode),
            Self::Name(dir, name) => attr::set_mode_at(dir, name, mode),
        }
    }

    pub(crate) fn set_times(self, of: &Attr) -> io::Result<()> {
        match self {
            Self::Open(file) => attr::set_times(file, of.accessed, of.modified),
            Self::Name(dir, name) => attr::set_times_at(dir, name, of.accessed, of.modified),
        }
    }

    pub(crate) fn attr(self) -> io::Result<Attr> {
        match self {
            Self::Open(file) => attr::of_file(file),
            Self::Name(dir, name) => attr::of_name(dir, name, false),
        }
    }

    pub(crate) fn is_missing(self) -> bool {
        self.attr().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }
}

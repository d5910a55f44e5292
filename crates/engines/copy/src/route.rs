//! One entry of a copy: both directories, both names, and the source once it is open.

use crate::data::TransferError;
use crate::error::{CopyError, Reason};
use crate::meta::ParentAttr;
use ioloom_failure::Operation;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::{Dir, Kind};
use ioloom_sys::make;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The source and target of one entry.
pub(crate) struct Route<'a> {
    pub(crate) from: &'a Dir,
    pub(crate) from_name: &'a CStr,
    /// Whether to follow a symbolic link at the source.
    pub(crate) follow: bool,
    pub(crate) to: &'a Dir,
    pub(crate) to_name: &'a CStr,
    /// Whether the target directory still has a hidden name.
    pub(crate) hidden: bool,
    pub(crate) parent_attr: ParentAttr,
    /// Both paths, for messages.
    pub(crate) paths: &'a dyn Fn() -> (PathBuf, PathBuf),
}

impl Route<'_> {
    pub(crate) fn failed_from(&self, operation: Operation, error: io::Error) -> CopyError {
        CopyError::io(operation, (self.paths)().0, error)
    }

    pub(crate) fn failed_to(&self, operation: Operation, error: io::Error) -> CopyError {
        CopyError::io(operation, (self.paths)().1, error)
    }

    pub(crate) fn changed(&self, how: &'static str) -> CopyError {
        let (path, _) = (self.paths)();
        CopyError { operation: Operation::Copy, path, reason: Reason::Changed(how) }
    }

    pub(crate) fn transfer_error(&self, error: TransferError) -> CopyError {
        match error {
            TransferError::Read(e) => self.failed_from(Operation::Read, e),
            TransferError::Write(e) => self.failed_to(Operation::Write, e),
            TransferError::SourceEnded => self.changed("shrank"),
            TransferError::Cancelled => {
                let (path, _) = (self.paths)();
                CopyError { operation: Operation::Copy, path, reason: Reason::Cancelled }
            }
            TransferError::Unsupported(e) => self.failed_to(Operation::CopyTo, e),
        }
    }
}

/// The target as it was before the copy.
pub(crate) enum TargetState {
    Absent,
    Present(Attr),
}

/// An open source, with its attributes at the time of opening.
pub(crate) struct Source {
    pub(crate) file: OwnedFd,
    pub(crate) attr: Attr,
}

impl Source {
    pub(crate) fn open(route: &Route<'_>) -> Result<Self, CopyError> {
        let file = make::open_to_read(route.from, route.from_name, route.follow)
            .map_err(|e| route.failed_from(Operation::Open, e))?;
        let attr = attr::of_file(&file).map_err(|e| route.failed_from(Operation::Stat, e))?;
        if attr.kind != Kind::Regular {
            return Err(route.changed("was replaced"));
        }
        Ok(Self { file, attr })
    }
}

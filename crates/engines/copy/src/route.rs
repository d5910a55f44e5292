//! One entry of a copy: both directories, both names, and the source once it is open.

use crate::data::TransferError;
use crate::error::{CopyError, Reason};
use crate::meta::ParentAttr;
use crate::mode::{Mode, Refused};
use crate::options::{CopyOptions, Make};
use crate::plan::NOT_IN_KERNEL;
use ioloom_failure::{Operation, quoted};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::descriptor::Descriptor;
use ioloom_sys::dir::{Dir, Kind};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
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
    /// Whether the source is one that the user named.
    pub(crate) named: bool,
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

    /// Returns the error of a new file that could not be created. As in GNU cp, a directory that cannot
    /// be changed is found when the old file is removed or gets the name of its backup.
    pub(crate) fn not_made(
        &self,
        options: &CopyOptions,
        target: &TargetState,
        (operation, error): (Operation, io::Error),
    ) -> CopyError {
        let errno = Errno::from_io_error(&error);
        let is_denied = match errno {
            Some(Errno::ACCESS | Errno::ROFS) => true,
            // The file itself can be the reason why it cannot be linked.
            Some(Errno::PERM) => options.make == Make::Copy,
            _ => false,
        };
        let has_data = options.make == Make::Copy && !options.attributes_only;
        let is_removed = options.remove_destination || has_data;
        match target {
            TargetState::Fresh | TargetState::InPlace(_) if is_denied => match options.backup {
                Some(_) => self.failed_to(Operation::Backup, error),
                None if is_removed => self.failed_to(Operation::Remove, error),
                None => self.failed_to(operation, error),
            },
            _ => self.failed_to(operation, error),
        }
    }

    /// Returns the error of a complete file that did not get its name. GNU cp fails to remove the old
    /// one.
    pub(crate) fn not_published(
        &self,
        target: &TargetState,
        operation: Operation,
        error: io::Error,
    ) -> CopyError {
        let is_kept =
            matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::ACCESS | Errno::BUSY));
        let is_removed = matches!(target, TargetState::Fresh | TargetState::InPlace(_));
        match operation {
            Operation::Publish if is_kept && is_removed => self.failed_to(Operation::Remove, error),
            _ => self.failed_to(operation, error),
        }
    }

    /// The source is not the file that the walk found.
    pub(crate) fn replaced(&self) -> CopyError {
        let (path, _) = (self.paths)();
        let text =
            format!("skipping file {}, as it was replaced while being copied", quoted(&path));
        CopyError::whole(&path, text)
    }

    pub(crate) fn changed(&self, how: &'static str) -> CopyError {
        let (path, _) = (self.paths)();
        CopyError { operation: Operation::Copy, path, other: None, reason: Reason::Changed(how) }
    }

    /// The required method cannot be used.
    pub(crate) fn refused(&self, mode: Mode, why: &'static str) -> CopyError {
        let (path, _) = (self.paths)();
        let reason = Reason::Refused(Refused { mode, why });
        CopyError { operation: Operation::Copy, path, other: None, reason }
    }

    pub(crate) fn cancelled(&self) -> CopyError {
        let (path, _) = (self.paths)();
        let reason = Reason::Cancelled;
        CopyError { operation: Operation::Copy, path, other: None, reason }
    }

    /// Returns the error of a transfer by this method.
    pub(crate) fn moving_error(&self, mode: Mode, error: TransferError) -> CopyError {
        match error {
            TransferError::Unsupported(_) if mode == Mode::Range => {
                self.refused(mode, NOT_IN_KERNEL)
            }
            error => self.transfer_error(error),
        }
    }

    pub(crate) fn transfer_error(&self, error: TransferError) -> CopyError {
        match error {
            TransferError::Read(e) => self.failed_from(Operation::Read, e),
            TransferError::Write(e) => self.failed_to(Operation::Write, e),
            TransferError::SourceEnded => self.changed("shrank"),
            TransferError::Cancelled => self.cancelled(),
            TransferError::Unsupported(e) => self.failed_to(Operation::CopyTo, e),
        }
    }
}

/// What is at the target, and what happens to it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TargetState {
    /// Nothing.
    Absent,
    /// A regular file, replaced atomically by a new one that takes over its attributes.
    Replace(Attr),
    /// A file that is removed: a new one gets its name and nothing else from it.
    Fresh,
    /// A file that is written in place.
    InPlace(Attr),
    /// A symbolic link to a file that does not exist, which is created.
    Dangling,
}

/// An open source, with its attributes at the time of opening.
pub(crate) struct Source {
    pub(crate) file: Descriptor,
    pub(crate) attr: Attr,
}

impl Source {
    /// Opens a source of the type `kind`.
    pub(crate) fn open(route: &Route<'_>, kind: Kind) -> Result<Self, CopyError> {
        let file = ioloom_sys::open_at::open_to_read(route.from, route.from_name, route.follow)
            .map_err(|error| {
                // In a directory that cannot be entered, GNU cp fails to stat its files.
                let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
                let found = || attr::of_name(route.from, route.from_name, route.follow);
                let operation = match is_denied && found().is_err() {
                    true => Operation::Stat,
                    false => Operation::Open,
                };
                route.failed_from(operation, error)
            })?;
        let attr = attr::of_file(&file).map_err(|e| route.failed_from(Operation::Stat, e))?;
        if attr.kind != kind {
            return Err(route.replaced());
        }
        Ok(Self { file: Descriptor::new(file), attr })
    }

    /// Returns true if the content has no size and is read to its end: a pipe, device or terminal.
    pub(crate) fn is_stream(&self) -> bool {
        self.attr.kind != Kind::Regular
    }
}

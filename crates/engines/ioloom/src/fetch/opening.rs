//! Opening a file of the input without ever hanging on it.
//!
//! A path that was regular when it was listed may be a pipe or a device when it is opened. Opening
//! such a thing never waits, because everything is opened with `O_NONBLOCK`. That it is no file is
//! noticed where it costs a real file nothing: when nothing comes out of it, when a read fails or
//! fills its first buffer, and in a ring when a read takes long.

use super::interface::{Cx, Started};
use super::lease::lease_waiting;
use super::piece::{Begun, PieceProgress, first_buffer};
use crate::arena::Lease;
use crate::error::{FileError, Operation};
use crate::source::Item;
use ioloom_failure::is_out_of_descriptors;
use ioloom_model::CallKind;
use ioloom_sys::file::{self, Kind, OpenHow};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Attempts to open while the process has no descriptor left, and the longest pause between them.
/// Others close theirs in the meantime; about one second in all.
const ATTEMPTS: u32 = 60;
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// An open file, and its size if opening had to ask for it.
pub(crate) struct Opened {
    pub(crate) file: OwnedFd,
    pub(crate) size: Option<u64>,
}

/// Why a file is not open.
pub(crate) enum NotOpen {
    /// For good.
    Failed(FileError),
    /// No descriptor is left, and this thread has files open itself with which it can be done.
    Later,
}

impl NotOpen {
    /// What has become of the start of `item`.
    #[cold]
    pub(crate) fn started<S>(self, item: Item<'_, S>) -> Started<'_, S> {
        match self {
            Self::Failed(error) => Started::Failed(error),
            Self::Later => Started::Later(item),
        }
    }
}

impl From<FileError> for NotOpen {
    fn from(error: FileError) -> Self {
        Self::Failed(error)
    }
}

/// Opens a file and gives it its first buffer: how every method begins that opens by a system call
/// and reads.
#[inline]
pub(crate) fn begin<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    lease: Option<Lease>,
    direct: bool,
) -> Result<Begun, NotOpen> {
    let Opened { file, size } = open(cx, item, direct)?;
    let lease = first_lease(cx, item, lease, size)?;
    Ok(Begun { file, lease, progress: PieceProgress { size, ..PieceProgress::default() } })
}

/// The first buffer of a file: the one it came with, or one for its size.
#[inline]
pub(crate) fn first_lease<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    lease: Option<Lease>,
    size: Option<u64>,
) -> Result<Lease, FileError> {
    match lease {
        Some(lease) => Ok(lease),
        None => lease_waiting(cx, item, first_buffer(cx, size), 0),
    }
}

/// Opens a file of the input. Without a descriptor left an idle thread waits until others close
/// some.
#[inline]
pub(crate) fn open<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    direct: bool,
) -> Result<Opened, NotOpen> {
    let size = if item.known_regular && !direct { None } else { ask_first(cx, item, direct)? };
    let how = OpenHow { direct, nofollow: item.known_regular };
    let opened = file::open(item.path.as_path(), how);
    cx.meter.lap(CallKind::Open, item.index);
    match opened {
        Ok(file) => Ok(Opened { file, size }),
        Err(error) => open_again(cx, item, how, error).map(|file| Opened { file, size }),
    }
}

/// After a first attempt that failed.
#[cold]
fn open_again<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    how: OpenHow,
    mut error: io::Error,
) -> Result<OwnedFd, NotOpen> {
    let path = item.path.as_path();
    let mut pause = Duration::from_millis(1);
    for _ in 0..ATTEMPTS {
        if !is_out_of_descriptors(&error) || cx.shared.stopping() {
            break;
        }
        if !cx.idle {
            return Err(NotOpen::Later);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
        let opened = file::open(path, how);
        cx.meter.lap(CallKind::Open, item.index);
        match opened {
            Ok(file) => return Ok(file),
            Err(again) => error = again,
        }
    }
    Err(FileError::io(item.index, path, Operation::Open, error).into())
}

/// What must be known before a file is opened. What no walk has seen to be regular is asked first
/// and opened only if it is; its size is a gift then. With direct I/O the file system must say what
/// alignment it wants.
pub(crate) fn ask_first<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    direct: bool,
) -> Result<Option<u64>, FileError> {
    let mut size = None;
    if !item.known_regular {
        let path = item.path.as_path();
        let facts = file::stat(path);
        cx.meter.lap(CallKind::Stat, item.index);
        let facts = facts.map_err(|e| FileError::io(item.index, path, Operation::Stat, e))?;
        if facts.kind != Kind::Regular {
            return Err(not_regular(item, facts.kind));
        }
        size = Some(facts.size);
    }
    if direct {
        check_direct(cx, item)?;
    }
    Ok(size)
}

/// The size of an open file. One that is no regular file, because its path became something else
/// after it was listed, is refused.
pub(crate) fn size_of<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    file: &OwnedFd,
) -> Result<u64, FileError> {
    let asked = file::size_and_kind(file);
    cx.meter.lap(CallKind::Stat, item.index);
    match asked {
        Ok((size, Kind::Regular)) => Ok(size),
        Ok((_, kind)) => Err(not_regular(item, kind)),
        Err(e) => Err(FileError::io(item.index, item.path.as_path(), Operation::Stat, e)),
    }
}

/// The error of an operation on an open file. The reason of what is no regular file is just that.
pub(crate) fn failed_on<S>(
    item: &Item<'_, S>,
    file: &OwnedFd,
    operation: Operation,
    error: io::Error,
) -> FileError {
    match file::size_and_kind(file) {
        Ok((_, kind)) if kind != Kind::Regular => not_regular(item, kind),
        _ => FileError::io(item.index, item.path.as_path(), operation, error),
    }
}

/// The error for a path that is not a regular file.
fn not_regular<S>(item: &Item<'_, S>, kind: Kind) -> FileError {
    let reason = format!("it is {}, not a regular file", kind.word());
    FileError::rejected(item.index, item.path.as_path(), Operation::Open, reason)
}

/// Refuses direct I/O where the file system does not offer it; the answer belongs to one file and
/// is not remembered for others.
fn check_direct<S>(cx: &mut Cx<'_, '_>, item: &Item<'_, S>) -> Result<(), FileError> {
    let path = item.path.as_path();
    let alignment = file::direct_alignment(path);
    cx.meter.lap(CallKind::Stat, item.index);
    let alignment = alignment.map_err(|e| FileError::io(item.index, path, Operation::Stat, e))?;
    match alignment {
        Some(a) if (a.offset as usize) <= ioloom_sys::buffer::ALIGN => Ok(()),
        Some(a) => {
            let reason = format!(
                "{}: direct reads of {} want an alignment of {} bytes, more than buffers have",
                cx.shared.plan,
                path.display(),
                a.offset
            );
            cx.shared.fail(crate::Error::Refused(reason.clone()));
            Err(FileError::rejected(item.index, path, Operation::Open, reason))
        }
        None => {
            let reason = format!(
                "{}: the file system of {} does not offer direct I/O; use a buffered method",
                cx.shared.plan,
                path.display()
            );
            cx.shared.fail(crate::Error::Refused(reason.clone()));
            Err(FileError::rejected(item.index, path, Operation::Open, reason))
        }
    }
}

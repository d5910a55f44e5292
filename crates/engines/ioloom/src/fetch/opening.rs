//! Opens files of the input without ever blocking on one that is not a regular file.
//!
//! A path that was a regular file when it was listed may be a pipe or a device when it is opened.
//! Opening one never blocks, because every open uses `O_NONBLOCK`. The type is checked only where
//! it costs regular files nothing: when a read returns nothing, fails or fills the first buffer,
//! and when a read in a ring takes long.
//!
//! A path of unknown type costs a `stat` before its open, because opening a device or a pipe has
//! side effects. Each looks the path up. Where a lookup waits (for a server, or for a process under
//! FUSE) it is done once: `O_PATH`, `stat` of the descriptor, and an open through /proc/self/fd,
//! which takes about 4 µs more than two lookups in memory.

use super::interface::{Cx, Started};
use super::lease::lease_waiting;
use super::neighbours::Neighbours;
use super::piece::{Begun, PieceProgress, first_buffer};
use crate::arena::Lease;
use crate::error::{FileError, Operation};
use crate::source::Item;
use ioloom_failure::{is_out_of_descriptors, quoted};
use ioloom_model::CallKind;
use ioloom_sys::file::{self, Kind, OpenHow};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Attempts to open while the process has no descriptor left, and the longest pause between them:
/// about one second in total, in which other threads may close files.
const ATTEMPTS: u32 = 60;
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// An open file, and its size if opening it required a `stat`.
pub(crate) struct Opened {
    pub(crate) file: OwnedFd,
    pub(crate) size: Option<u64>,
}

/// Why a file is not open.
pub(crate) enum NotOpen {
    /// It failed.
    Failed(FileError),
    /// There is no descriptor, and this thread has open files of its own that it can finish first.
    Later,
}

impl NotOpen {
    /// Returns the outcome of starting `item`.
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

/// Opens a file and gives it its first buffer, for all methods that open with a system call and
/// then read.
#[inline]
pub(crate) fn begin<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    lease: Option<Lease>,
    direct: bool,
) -> Result<Begun, NotOpen> {
    let opened = open(cx, item, direct)?;
    begun(cx, item, lease, opened)
}

/// Begins as [`begin`] does; a file that a walk found to be regular is opened among its neighbours.
#[inline]
pub(crate) fn begin_among<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    lease: Option<Lease>,
    neighbours: &mut Neighbours,
) -> Result<Begun, NotOpen> {
    if !item.known_regular {
        return begin(cx, item, lease, false);
    }
    let opened = open_by(cx, item, false, |path, how| {
        neighbours.enter(path);
        neighbours.open(path, how)
    })?;
    begun(cx, item, lease, opened)
}

#[inline]
fn begun<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    lease: Option<Lease>,
    opened: Opened,
) -> Result<Begun, NotOpen> {
    let Opened { file, size } = opened;
    let lease = first_lease(cx, item, lease, size)?;
    Ok(Begun { file, lease, progress: PieceProgress { size, ..PieceProgress::default() } })
}

/// Returns the first buffer of a file: `lease`, or one for its size.
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

/// Opens a file of the input. If there is no descriptor, an idle thread waits until others close
/// some.
#[inline]
pub(crate) fn open<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    direct: bool,
) -> Result<Opened, NotOpen> {
    open_by(cx, item, direct, file::open)
}

/// Opens a file with `first`, or with further attempts by its path.
#[inline]
fn open_by<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    direct: bool,
    first: impl FnOnce(&Path, OpenHow) -> io::Result<OwnedFd>,
) -> Result<Opened, NotOpen> {
    let path = item.path.as_path();
    cx.shared.polite.reads(path);
    if !item.known_regular
        && !direct
        && cx.shared.lookups.wait()
        && let Some(opened) = open_found(cx, item)?
    {
        return Ok(opened);
    }
    let size = if item.known_regular && !direct { None } else { ask_first(cx, item, direct)? };
    let how = OpenHow { direct, nofollow: item.known_regular };
    let opened = first(path, how);
    cx.meter.lap(CallKind::Open, item.index);
    match opened {
        Ok(file) => Ok(Opened { file, size }),
        Err(error) => open_again(cx, item, how, error).map(|file| Opened { file, size }),
    }
}

/// Opens a path of unknown type with one lookup. Returns `None` if that is not possible here, for
/// want of a second descriptor or of /proc.
fn open_found<S>(cx: &mut Cx<'_, '_>, item: &Item<'_, S>) -> Result<Option<Opened>, NotOpen> {
    let path = item.path.as_path();
    let found = file::find(path);
    cx.meter.lap(CallKind::Stat, item.index);
    cx.shared.lookups.took(cx.meter.last_lap_ns());
    let found = match found {
        Ok(found) => found,
        Err(error) if is_out_of_descriptors(&error) => return Ok(None),
        Err(error) => {
            return Err(FileError::io(item.index, path, Operation::Stat, error).into());
        }
    };
    if found.stat.kind != Kind::Regular {
        return Err(not_regular(item, found.stat.kind).into());
    }
    let opened = found.open();
    cx.meter.lap(CallKind::Open, item.index);
    match opened {
        Ok(file) => Ok(Some(Opened { file, size: Some(found.stat.size) })),
        Err(error) if is_out_of_descriptors(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            cx.shared.lookups.cannot_reopen();
            Ok(None)
        }
        Err(error) => Err(FileError::io(item.index, path, Operation::Open, error).into()),
    }
}

/// Retries after the first attempt failed.
#[cold]
fn open_again<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    how: OpenHow,
    mut error: io::Error,
) -> Result<OwnedFd, NotOpen> {
    let path = item.path.as_path();
    if cx.idle && is_out_of_descriptors(&error) {
        // Otherwise the caller puts the file off, and counts that.
        cx.shared.refused.fetch_add(1, Ordering::Relaxed);
    }
    let mut pause = Duration::from_millis(1);
    // A second for every file would add up to hours if the descriptors never come back.
    let attempts = if cx.shared.gave_up.load(Ordering::Relaxed) { 1 } else { ATTEMPTS };
    for _ in 0..attempts {
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
            Ok(file) => {
                cx.shared.gave_up.store(false, Ordering::Relaxed);
                return Ok(file);
            }
            Err(again) => error = again,
        }
    }
    if is_out_of_descriptors(&error) {
        cx.shared.gave_up.store(true, Ordering::Relaxed);
    }
    Err(FileError::io(item.index, path, Operation::Open, error).into())
}

/// Checks a file before it is opened. A path that no walk found to be regular is queried with
/// `stat` and opened only if it is regular; its size is then known. With direct I/O the file system
/// must report the alignment that it requires.
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
        cx.shared.lookups.took(cx.meter.last_lap_ns());
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

/// Returns the size of an open file. Rejects a file that is not regular because its path was
/// replaced after it was listed.
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

/// Returns the error of an operation on an open file. If it is not a regular file, that is the
/// cause.
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

/// Returns the error for a path that is not a regular file.
fn not_regular<S>(item: &Item<'_, S>, kind: Kind) -> FileError {
    let reason = format!("it is {}, not a regular file", kind.word());
    FileError::rejected(item.index, item.path.as_path(), Operation::Open, reason)
}

/// Rejects direct I/O where the file system does not support it. The result holds for one file only
/// and is not cached.
fn check_direct<S>(cx: &mut Cx<'_, '_>, item: &Item<'_, S>) -> Result<(), FileError> {
    let path = item.path.as_path();
    let alignment = file::direct_alignment(path);
    cx.meter.lap(CallKind::Stat, item.index);
    let alignment = alignment.map_err(|e| FileError::io(item.index, path, Operation::Stat, e))?;
    match alignment {
        Some(a) if (a.offset as usize) <= ioloom_sys::buffer::ALIGN => Ok(()),
        Some(a) => {
            let reason = format!(
                "{}: direct reads of {} require an alignment of {} bytes, more than buffers have",
                cx.shared.plan,
                quoted(path),
                a.offset
            );
            cx.shared.fail(crate::Error::Refused(reason.clone()));
            Err(FileError::rejected(item.index, path, Operation::Open, reason))
        }
        None => {
            let reason = format!(
                "{}: the file system of {} does not report direct I/O alignment (no DIOALIGN); use a \
                 buffered method",
                cx.shared.plan,
                quoted(path)
            );
            cx.shared.fail(crate::Error::Refused(reason.clone()));
            Err(FileError::rejected(item.index, path, Operation::Open, reason))
        }
    }
}

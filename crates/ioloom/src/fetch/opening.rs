//! Opening a file of the input without ever hanging on it.

use super::Cx;
use crate::error::{FileError, Operation};
use crate::source::Item;
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

/// Opens a file of the input. What no walk has seen to be regular is asked first and opened only if
/// it is. With direct I/O the file system must say what alignment it wants.
pub(crate) fn open<S>(
    cx: &mut Cx<'_, '_>,
    item: &Item<'_, S>,
    direct: bool,
) -> Result<Opened, FileError> {
    let path = item.path.as_path();
    let mut size = None;
    if !item.known_regular {
        let facts = file::ask(path);
        cx.meter.lap(CallKind::Stat, item.index);
        let facts = facts.map_err(|e| FileError::io(item.index, path, Operation::Stat, &e))?;
        if facts.kind != Kind::Regular {
            return Err(not_regular(item, facts.kind));
        }
        size = Some(facts.size);
    }
    if direct {
        check_direct(cx, item)?;
    }
    let how = OpenHow { direct, nofollow: item.known_regular };
    let mut pause = Duration::from_millis(1);
    let mut attempt = 0;
    let opened = loop {
        let opened = file::open(path, how);
        cx.meter.lap(CallKind::Open, item.index);
        match opened {
            Err(e) if no_descriptor(&e) && attempt < ATTEMPTS && !cx.shared.stopping() => {
                attempt += 1;
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            other => break other,
        }
    };
    match opened {
        Ok(file) => Ok(Opened { file, size }),
        Err(error) => Err(FileError::io(item.index, path, Operation::Open, &error)),
    }
}

/// The error for a path that is not a regular file.
pub(crate) fn not_regular<S>(item: &Item<'_, S>, kind: Kind) -> FileError {
    let reason = format!("it is {}, not a regular file", kind.word());
    FileError::other(item.index, item.path.as_path(), Operation::Open, reason)
}

/// Refuses direct I/O where the file system does not offer it; the answer belongs to one file and
/// is not remembered for others.
pub(crate) fn check_direct<S>(cx: &mut Cx<'_, '_>, item: &Item<'_, S>) -> Result<(), FileError> {
    let path = item.path.as_path();
    let alignment = file::direct_alignment(path);
    cx.meter.lap(CallKind::Stat, item.index);
    let alignment = alignment.map_err(|e| FileError::io(item.index, path, Operation::Stat, &e))?;
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
            Err(FileError::other(item.index, path, Operation::Open, reason))
        }
        None => {
            let reason = format!(
                "{}: the file system of {} does not offer direct I/O; use a buffered method",
                cx.shared.plan,
                path.display()
            );
            cx.shared.fail(crate::Error::Refused(reason.clone()));
            Err(FileError::other(item.index, path, Operation::Open, reason))
        }
    }
}

/// Whether an open failed because no descriptor is left.
pub(super) fn no_descriptor(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

//! Locks on files, so only one server at a time uses a store or writes a stock file.
//!
//! A lock belongs to an open file (`flock`) and ends with its last descriptor, even if the process
//! is killed. The file may be replaced by a rename while another process opens it, so a lock counts
//! only if the path still refers to the locked file. Taking a free lock costs four system calls.

use ioloom_sys::file::{self, OpenHow, WriteMode};
use ioloom_sys::make::{try_lock, try_lock_shared};
use ioloom_sys::proc;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How long to wait for a process that is exiting, or that cannot be identified.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long to wait for any other process.
const HELD_MAX: Duration = Duration::from_millis(100);
/// Interval between attempts.
const INTERVAL: Duration = Duration::from_millis(5);

/// Who may hold a lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// No other process.
    Alone,
    /// Others that also share it.
    Shared,
}

/// Result of an attempt to take a lock.
pub(crate) enum Taken {
    /// The locked file.
    Ours(OwnedFd),
    /// Held by another process, if known.
    Held(Option<u32>),
}

/// Tries to lock an open file.
pub(crate) fn try_take(file: &OwnedFd, sharing: Sharing) -> io::Result<bool> {
    match sharing {
        Sharing::Alone => try_lock(file),
        Sharing::Shared => try_lock_shared(file),
    }
}

/// Locks the file at `path`, which `open` opens. Waits briefly for a holder that is exiting: the
/// locks of a killed process outlive the kill for a moment.
pub(crate) fn take(
    path: &Path,
    sharing: Sharing,
    open: impl Fn() -> io::Result<OwnedFd>,
) -> io::Result<Taken> {
    let mut waited = Duration::ZERO;
    loop {
        let opened = open()?;
        let facts = file::identity(&opened)?;
        if facts.kind != file::Kind::Regular {
            return Err(io::Error::other(format!(
                "it is {}, not a regular file",
                facts.kind.word()
            )));
        }
        if try_take(&opened, sharing)? {
            let named = file::stat(path);
            if named.is_ok_and(|n| (n.inode, n.device) == (facts.inode, facts.device)) {
                return Ok(Taken::Ours(opened));
            }
        }
        let holder = proc::lock_holder(facts.device, facts.inode);
        let most =
            if holder.is_some_and(|pid| !proc::is_ending(pid)) { HELD_MAX } else { ENDING_MAX };
        if waited >= most {
            return Ok(Taken::Held(holder));
        }
        drop(opened);
        std::thread::sleep(INTERVAL);
        waited += INTERVAL;
    }
}

/// Opens an existing file to lock and read it: for writing if possible, because some network file
/// systems lock only such files exclusively.
pub(crate) fn open_to_lock(path: &Path) -> io::Result<OwnedFd> {
    match file::open_to_write(path, WriteMode::Buffered) {
        Err(error) if is_unwritable(&error) => file::open(path, OpenHow::default()),
        opened => opened,
    }
}

/// Returns whether a file cannot be opened for writing, but perhaps for reading.
pub(crate) fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Returns the file at `path` if it is among those that the previous program of this process
/// locked, and removes it from them.
pub(crate) fn take_handed(path: &Path, handed: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    let named = file::stat(path).ok()?;
    let is_it = |locked: &OwnedFd| {
        file::identity(locked)
            .is_ok_and(|facts| (facts.inode, facts.device) == (named.inode, named.device))
    };
    let at = handed.iter().position(is_it)?;
    Some(handed.swap_remove(at))
}

/// Describes the process that holds a lock.
pub(crate) fn holder_text(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!("locked by another server (process {pid})"),
        None => "locked by another server".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_sys::make::open_or_private_file;

    #[test]
    fn a_lock_is_exclusive_or_shared_and_follows_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let take = |sharing| take(&path, sharing, || open_or_private_file(&path)).unwrap();
        let Taken::Ours(first) = take(Sharing::Alone) else { panic!("the lock is free") };
        for sharing in [Sharing::Alone, Sharing::Shared] {
            let Taken::Held(holder) = take(sharing) else { panic!("the lock is held") };
            assert_eq!(holder, Some(std::process::id()));
        }
        // A replaced file is another file.
        std::fs::write(dir.path().join("new"), "").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        let Taken::Ours(second) = take(Sharing::Shared) else { panic!("the lock is free") };
        assert!(matches!(take(Sharing::Shared), Taken::Ours(_)));
        drop((first, second));
        // A child that another test starts has the descriptors until it runs its program.
        let is_released = (0..6000).any(|_| {
            let is_ours = matches!(take(Sharing::Alone), Taken::Ours(_));
            if !is_ours {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            is_ours
        });
        assert!(is_released);
        let text = std::fs::symlink_metadata(&path).unwrap();
        assert!(text.is_file());
        let refused = super::take(dir.path(), Sharing::Alone, || {
            file::open(dir.path(), file::OpenHow::default())
        });
        assert!(refused.is_err(), "a directory");
    }
}

//! Reads and writes pipes, terminals and other files without offsets.
//!
//! The files are opened with `O_NONBLOCK`, so that a wait can be bounded: [`wait`] returns after at
//! most the given time, and the caller checks in between whether it was cancelled. One call to
//! `poll` per transfer that would block.

use crate::fault::call;
use crate::file::retry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Data, or the end of the file.
    Read,
    /// Room for data, or an error.
    Write,
}

/// Waits until the file is ready; returns false after `most`, or if a signal interrupted the wait.
pub fn wait(file: impl AsFd, ready: Ready, most: Duration) -> io::Result<bool> {
    let flags = match ready {
        Ready::Read => PollFlags::IN,
        Ready::Write => PollFlags::OUT,
    };
    let time = Timespec {
        tv_sec: most.as_secs().min(3600) as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    let mut files = [PollFd::new(&file, flags)];
    match call("poll", || Ok(poll(&mut files, Some(&time))?)) {
        Ok(count) => Ok(count > 0),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(e),
    }
}

/// Room of a pipe or socket that is ready, bytes: `PIPE_BUF`.
const PIPE_ROOM: usize = 4096;
/// Room of a terminal that is ready, bytes: the kernel allocates its buffers in this size.
const TERMINAL_ROOM: usize = 256;

/// Returns how many bytes can be written without blocking when [`wait`] has found that the file is ready,
/// unless another process writes at the same time. `usize::MAX` for files that are always ready.
pub fn room(file: impl AsFd) -> usize {
    let stat = call("fstat", || Ok(fstat(&file)?));
    match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::CharacterDevice) if file.as_fd().is_terminal() => TERMINAL_ROOM,
        Ok(FileType::Fifo | FileType::Socket) | Err(_) => PIPE_ROOM,
        Ok(_) => usize::MAX,
    }
}

/// Opens a terminal or pipe to write to it without waiting: a write that would block fails; see
/// [`would_block`].
///
/// # Errors
/// Fails as `open` does; for a pipe also if it has no reader.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = retry("open", || rustix::fs::open(path, flags, Mode::empty()));
    opened.map(File::from)
}

/// Makes transfers on an open file fail that would block; see [`would_block`]. Other processes that
/// inherited the file are affected, too; the other end of a pipe is not.
pub fn never_block(file: impl AsFd) -> io::Result<()> {
    let flags = retry("fcntl", || fcntl_getfl(&file))? | OFlags::NONBLOCK;
    retry("fcntl", || fcntl_setfl(&file, flags))
}

/// Reads once at the current position; zero is the end of the file.
pub fn read(file: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    retry("read", || rustix::io::read(&file, &mut *into))
}

/// Sets the current position to the start of the file. Fails with `ESPIPE` for files without offsets.
pub fn rewind(file: impl AsFd) -> io::Result<()> {
    retry("lseek", || rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))).map(|_| ())
}

/// Writes once at the current position.
pub fn write(file: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    retry("write", || rustix::io::write(&file, bytes))
}

/// Reports whether a transfer would have blocked.
pub fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pipe_is_not_ready_and_a_filled_one_is() {
        let (read_end, write_end) = rustix::pipe::pipe().unwrap();
        let soon = Duration::from_millis(1);
        assert!(!wait(&read_end, Ready::Read, soon).unwrap());
        assert!(wait(&write_end, Ready::Write, soon).unwrap());
        assert_eq!(write(&write_end, b"abc").unwrap(), 3);
        assert!(wait(&read_end, Ready::Read, soon).unwrap());
        let mut into = [0; 8];
        assert_eq!(read(&read_end, &mut into).unwrap(), 3);
        drop(write_end);
        assert!(wait(&read_end, Ready::Read, soon).unwrap(), "the end of the file is ready");
        assert_eq!(read(&read_end, &mut into).unwrap(), 0);
    }

    #[test]
    fn a_full_pipe_does_not_hold_up_a_write() {
        let (_read_end, write_end) = rustix::pipe::pipe().unwrap();
        never_block(&write_end).unwrap();
        assert!(write(&write_end, &vec![0; 1 << 21]).unwrap() < 1 << 21);
        assert!(would_block(&write(&write_end, &[0; 1 << 16]).unwrap_err()));
        let (_read_end, write_end) = rustix::pipe::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&write_end));
        let mut file = open_to_write(Path::new(&path)).unwrap();
        assert!(would_block(&std::io::Write::write_all(&mut file, &[0; 1 << 20]).unwrap_err()));
    }

    #[test]
    fn a_pipe_that_is_ready_has_room_for_what_is_promised() {
        let (_read_end, write_end) = rustix::pipe::pipe().unwrap();
        let bytes = vec![0; room(&write_end)];
        let mut written = 0;
        // A write of more would block, and end only with the test.
        while wait(&write_end, Ready::Write, Duration::ZERO).unwrap() {
            written += write(&write_end, &bytes).unwrap();
        }
        assert!(written >= bytes.len());
        assert_eq!(room(tempfile::tempfile().unwrap()), usize::MAX);
    }
}

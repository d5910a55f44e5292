//! Reads and writes pipes, terminals and other files without offsets.
//!
//! The files are opened with `O_NONBLOCK`, so that a wait can be bounded: [`wait`] returns after at
//! most the given time, and the caller checks in between whether it was cancelled. One call to
//! `poll` per transfer that would block.

use crate::fault::call;
use crate::file::retry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
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

/// Reads once at the current position; zero is the end of the file.
pub fn read(file: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    retry("read", || rustix::io::read(&file, &mut *into))
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
}

//! Pipes: whether anything still reads what is written. Terminals: whether they still exist.

use crate::fault::call;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

/// Reports whether the other end of a pipe or socket was closed, or a terminal was, without reading or writing.
/// False for other files, and if the call fails: the next transfer then reports the error.
pub fn reader_gone(out: impl AsFd) -> bool {
    let mut watched = [PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = call("poll", || poll(&mut watched, Some(&now)).map_err(Into::into));
    ready.is_ok() && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::reader_gone;
    use std::io::pipe;

    #[test]
    fn a_closed_reader_is_noticed() {
        let (reader, writer) = pipe().unwrap();
        assert!(!reader_gone(&writer));
        drop(reader);
        assert!(reader_gone(&writer));
        assert!(!reader_gone(tempfile::tempfile().unwrap()));
    }
}

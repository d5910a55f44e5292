//! Opens files by their name in an open directory.

use crate::dir::Dir;
use crate::file::retry;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

/// Opens the file `name` for reading if it is regular; never blocks on pipes or devices.
#[inline]
pub fn open_to_read(dir: &Dir, name: &CStr, follow: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, !follow);
    open_and_wait(dir, name, flags)
}

/// Opens a file. If another program has a lease on it, waits until that is given up.
#[inline]
pub(crate) fn open_and_wait(dir: &Dir, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let open = |flags| retry("openat", || rustix::fs::openat(dir, name, flags, Mode::empty()));
    match open(flags) {
        // Only regular files have leases, so it does not wait for a pipe.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => open(flags - OFlags::NONBLOCK),
        opened => opened,
    }
}

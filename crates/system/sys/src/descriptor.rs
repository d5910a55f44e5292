//! Descriptors whose close can fail visibly.
//!
//! `close` is the last call that can report a failed write: file systems over a network or in user
//! space write back, and check the quota, at that moment. The drop of an `OwnedFd` ignores the
//! result and cannot be failed by a test. A [`Descriptor`] is closed with [`Descriptor::close`]
//! where the result matters; its drop ignores the result, but passes the fault seam as well.
//!
//! A file that must stay open can be checked with [`flush`], which closes a duplicate: the kernel
//! flushes at the close of every descriptor, not only of the last one. It costs two calls.

use crate::fault::call;
use crate::file::retry;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// An open file that is closed through the fault seam.
#[derive(Debug)]
pub struct Descriptor(ManuallyDrop<OwnedFd>);

impl Descriptor {
    /// Takes ownership of an open file.
    #[inline]
    pub fn new(file: OwnedFd) -> Self {
        Self(ManuallyDrop::new(file))
    }

    /// Closes the file and returns the result. The descriptor is closed even if the call fails.
    #[inline]
    pub fn close(mut self) -> io::Result<()> {
        let file = self.take();
        std::mem::forget(self);
        close(file)
    }

    /// Takes the file out. Only for [`Self::close`] and the drop, after which `self` is not used.
    #[inline]
    fn take(&mut self) -> OwnedFd {
        // SAFETY: both callers end the life of `self` without touching the field again: `close`
        // forgets it, and a value is dropped once.
        unsafe { ManuallyDrop::take(&mut self.0) }
    }
}

impl Drop for Descriptor {
    #[inline]
    fn drop(&mut self) {
        // Nothing that matters was written through it; see the module.
        let _ = close(self.take());
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(file: OwnedFd) -> Self {
        Self::new(file)
    }
}

impl AsFd for Descriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Closes a file and returns the result. The descriptor is closed even if the call fails.
#[inline]
pub fn close(file: OwnedFd) -> io::Result<()> {
    let closed = call("close", move || {
        // SAFETY: the descriptor is owned and given up here, so nothing uses it afterwards.
        match unsafe { libc::close(file.into_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    match closed {
        // On Linux an interrupted close has closed the descriptor.
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result,
    }
}

/// Reports errors of earlier writes like a close, but leaves the file open.
pub fn flush(file: impl AsFd) -> io::Result<()> {
    close(retry("dup", || rustix::io::fcntl_dupfd_cloexec(&file, 0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_closed_once() {
        let open = || Descriptor::new(std::fs::File::open("/dev/null").unwrap().into());
        let file = open();
        let number = file.as_raw_fd();
        flush(&file).unwrap();
        let path = format!("/proc/self/fd/{number}");
        assert!(std::fs::read_link(&path).is_ok(), "a flushed file must stay open");
        file.close().unwrap();
        drop(open());
    }
}

//! A write followed by a sync, linked in io_uring: two requests in one call.
//!
//! The kernel starts the sync when the write is complete; a failed or short write cancels it. The
//! caller waits for both. The bytes are still copied into a buffer of the ring because after an
//! error in between the kernel may still read them.
//!
//! Any thread can write, one at a time (`&mut`). Unlike [`crate::ring`], this ring is not tied to a
//! thread, so it cannot use the flags that make a single-threaded ring cheaper.

use crate::buffer::Buffer;
use crate::fault;
use crate::ring::{REFUSED_PAUSE, post_completions};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Number of requests per call.
const REQUESTS: u32 = 2;
const WRITE: u64 = 0;
const SYNC: u64 = 1;

/// Writes to one file through a ring.
pub struct LinkedWriter {
    ring: IoUring,
    file: OwnedFd,
    /// Freed only if nothing is in flight.
    buffer: ManuallyDrop<Buffer>,
    in_flight: usize,
    /// Whether entering the kernel failed, which leaves the state of requests in flight unknown.
    is_broken: bool,
}

/// Results of the two requests in a call.
#[derive(Default)]
struct Ends {
    write: Option<i32>,
    sync: Option<i32>,
}

impl LinkedWriter {
    /// Creates a ring that writes to this file.
    pub fn new(file: OwnedFd) -> io::Result<Self> {
        let buffer = ManuallyDrop::new(Buffer::new(crate::buffer::ALIGN));
        Ok(Self { ring: ring()?, file, buffer, in_flight: 0, is_broken: false })
    }

    /// Checks whether the system permits creating a ring.
    pub fn probe() -> io::Result<()> {
        ring().map(drop)
    }

    /// Returns the file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes all of `bytes` at `offset`; with `sync` it returns once the data and the metadata
    /// required to read it are on the device.
    pub fn write(&mut self, bytes: &[u8], offset: u64, sync: bool) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other("the ring failed earlier"));
        }
        if self.buffer.capacity() < bytes.len() {
            // A ring that has not failed has nothing in flight between calls.
            *self.buffer = Buffer::new(bytes.len());
        }
        self.buffer.whole_mut()[..bytes.len()].copy_from_slice(bytes);
        let mut done = 0;
        while done < bytes.len() {
            let ends = self.once(done..bytes.len(), offset + done as u64, sync)?;
            done += match fault::completion("uring_write", result(ends.write)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Err(e) => return Err(e),
            };
            if done == bytes.len() && sync {
                fault::completion("uring_fsync", result(ends.sync))?;
            }
        }
        Ok(())
    }

    /// Submits both requests once and waits for both.
    fn once(&mut self, range: std::ops::Range<usize>, offset: u64, sync: bool) -> io::Result<Ends> {
        let fd = types::Fd(self.file.as_raw_fd());
        let from = &self.buffer.bytes(range.end)[range.start..];
        let len = from.len().min(1 << 30) as u32;
        let mut write = opcode::Write::new(fd, from.as_ptr(), len).offset(offset).build();
        if sync {
            write = write.flags(squeue::Flags::IO_LINK);
        }
        self.push(&write.user_data(WRITE));
        if sync {
            let data = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
            self.push(&data.user_data(SYNC));
        }
        let mut ends = Ends::default();
        while self.in_flight > 0 {
            let want = self.in_flight;
            match fault::call("io_uring_enter", || self.ring.submit_and_wait(want)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::BUSY | Errno::AGAIN)) => {
                    post_completions(&self.ring);
                    if self.ring.completion().is_empty() {
                        std::thread::sleep(REFUSED_PAUSE);
                    }
                }
                Err(e) => {
                    self.is_broken = true;
                    return Err(e);
                }
                Ok(_) => {}
            }
            self.reap(&mut ends);
        }
        Ok(ends)
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the write points into the buffer, which is neither freed nor replaced while a
        // request is in flight: `once` returns when all requests have completed, or marks the ring
        // as broken, and a broken ring never touches or frees its buffer again.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring must have room for both requests of a call");
        self.in_flight += 1;
    }

    fn reap(&mut self, ends: &mut Ends) {
        let mut completion = self.ring.completion();
        completion.sync();
        for entry in completion {
            self.in_flight -= 1;
            match entry.user_data() {
                WRITE => ends.write = Some(entry.result()),
                _ => ends.sync = Some(entry.result()),
            }
        }
    }
}

/// Creates a ring on a temporary thread: when the kernel cleans up a ring, it interrupts system
/// calls of the thread that created it.
fn ring() -> io::Result<IoUring> {
    let make = || fault::call("io_uring_setup", || IoUring::new(REQUESTS));
    std::thread::spawn(make).join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}

fn result(end: Option<i32>) -> io::Result<usize> {
    match end {
        Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        Some(count) => Ok(count as usize),
        None => Err(io::Error::other("the ring lost a request")),
    }
}

impl Drop for LinkedWriter {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: no request in flight points into it, and it is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{WriteMode, open_to_write};

    #[test]
    fn bytes_are_written_and_synced_from_any_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [1u8; 10]).unwrap();
        let file = open_to_write(&path, WriteMode::Buffered).unwrap();
        let mut writer = match LinkedWriter::new(file) {
            Ok(writer) => writer,
            Err(e) => return println!("skipped: io_uring is not available: {e}"),
        };
        writer.write(&[2; 5], 5, true).unwrap();
        let large = vec![3; 100_000];
        let thread = std::thread::spawn(move || {
            writer.write(&large, 10, false).unwrap();
            writer.write(&[4; 3], 100_010, true).unwrap();
            writer
        });
        let writer = thread.join().unwrap();
        assert_eq!(crate::file::size(writer.file()).unwrap(), 100_013);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[..11], [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3]);
        assert_eq!(bytes[100_008..], [3, 3, 4, 4, 4]);
    }

    #[test]
    fn a_failed_write_cancels_the_sync() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let read_only = crate::file::open(&path, crate::file::OpenHow::default()).unwrap();
        let Ok(mut writer) = LinkedWriter::new(read_only) else {
            return println!("skipped: io_uring is not available");
        };
        let error = writer.write(b"y", 0, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        // Both requests completed, so the ring can still be used.
        assert!(writer.write(b"y", 0, false).is_err() && !writer.is_broken);
    }
}

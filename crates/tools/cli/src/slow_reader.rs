//! Standard output and standard error whose readers may be slow or stalled.
//!
//! No signal with a handler ends a write that waits for its reader. So a write waits with a time limit
//! until the stream is ready, and writes only what fits. After an interrupt the reader has [`GRACE`] to
//! take the rest; then the stream is given up, and later writes fail at once. Cost: one `fstat` per call,
//! one `poll` per write, and writes of at most 4 KiB to a pipe.

use crate::{bar_target, interrupt};
use ioloom_sys::stream::{self, Ready, room};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks whether an interrupt has arrived.
const LOOK: Duration = Duration::from_millis(40);
/// Time that a reader has after an interrupt.
const GRACE: Duration = Duration::from_secs(1);

/// Whether standard output was given up. What followed would continue a line that was cut.
static OUTPUT_GIVEN_UP: AtomicBool = AtomicBool::new(false);
/// The same for standard error.
static ERROR_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Writes to standard output; other threads wait. It is not buffered.
///
/// # Errors
/// Fails as `write` does, and if the stream is given up; see [`is_given_up`].
pub(crate) fn stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    clear_bar();
    let stdout = io::stdout().lock();
    unless_given_up(&OUTPUT_GIVEN_UP, stdout.as_fd(), write)
}

/// Like [`stdout`], to standard error.
pub(crate) fn stderr(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let stderr = io::stderr().lock();
    unless_given_up(&ERROR_GIVEN_UP, stderr.as_fd(), |out| {
        bar_target::clear_left(out)?;
        write(out)
    })
}

/// Clears the rest of a bar before text goes to standard output, if that is a terminal as well.
pub(crate) fn clear_bar() {
    if bar_target::is_left() && io::stdout().is_terminal() {
        // If it fails, so does what follows.
        let _ = stderr(|_| Ok(()));
    }
}

/// Reports whether an error means that the reader took too long after an interrupt.
pub(crate) fn is_given_up(error: &io::Error) -> bool {
    error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none()
}

fn unless_given_up(
    given_up: &AtomicBool,
    file: BorrowedFd<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if given_up.load(Ordering::Relaxed) {
        return Err(ErrorKind::TimedOut.into());
    }
    let written = write(&mut Patient::new(file, &interrupt::is_raised, GRACE));
    if written.as_ref().is_err_and(is_given_up) {
        given_up.store(true, Ordering::Relaxed);
    }
    written
}

/// Writes to a stream, and gives up some time after an interrupt.
struct Patient<'a> {
    file: BorrowedFd<'a>,
    /// Most bytes of one write.
    room: usize,
    interrupted: &'a dyn Fn() -> bool,
    grace: Duration,
    /// When the interrupt was noticed.
    noticed: Option<Instant>,
}

impl<'a> Patient<'a> {
    fn new(file: BorrowedFd<'a>, interrupted: &'a dyn Fn() -> bool, grace: Duration) -> Self {
        Self { file, room: room(file), interrupted, grace, noticed: None }
    }

    /// Returns whether the reader has had its time. A file that is always ready has no reader.
    fn is_over(&mut self) -> bool {
        if self.room == usize::MAX || !(self.interrupted)() {
            return false;
        }
        self.noticed.get_or_insert_with(Instant::now).elapsed() >= self.grace
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !self.is_over() {
            if !stream::wait(self.file, Ready::Write, LOOK)? {
                continue;
            }
            match stream::write(self.file, &bytes[..bytes.len().min(self.room)]) {
                // Another process may have made it non-blocking, and have been faster.
                Err(error) if stream::would_block(&error) => {}
                written => return written,
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};
    use std::sync::Arc;

    #[test]
    fn a_stalled_reader_is_given_up_only_after_an_interrupt() {
        let (mut reader, writer) = pipe().unwrap();
        let (raised, soon) = (AtomicBool::new(false), Duration::from_millis(1));
        let interrupted = || raised.load(Ordering::Relaxed);
        let mut out = Patient::new(writer.as_fd(), &interrupted, soon);
        let bytes = vec![1; 1 << 20];
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut all = vec![0; bytes.len()];
                reader.read_exact(&mut all).unwrap();
                raised.store(true, Ordering::Relaxed);
                all
            });
            out.write_all(&bytes).unwrap();
            assert!(reading.join().unwrap() == bytes);
        });
        let error = out.write_all(&bytes).unwrap_err();
        assert!(is_given_up(&error), "{error}");
        assert!(!is_given_up(&io::Error::from_raw_os_error(110)), "a file server did not answer");
        // Unlike the program, the test harness does not ignore SIGPIPE.
        signal_hook::flag::register(signal_hook::consts::SIGPIPE, Arc::default()).unwrap();
        drop(reader);
        raised.store(false, Ordering::Relaxed);
        let mut out = Patient::new(writer.as_fd(), &interrupted, soon);
        assert_eq!(out.write_all(&bytes).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_file_is_written_whole_after_an_interrupt() {
        let file = tempfile::tempfile().unwrap();
        let mut out = Patient::new(file.as_fd(), &|| true, Duration::ZERO);
        out.write_all(&[1; 10_000]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10_000);
    }
}

//! Collects the output of a program: in memory while it is short, in a file without a name beyond that.
//!
//! A thread reads until the output ends. Programs that the command left in the background can hold
//! the pipe open for ever, so once the command has ended, the thread waits only [`LINGER`] for the end
//! of the output. A command that another thread is starting has a copy of the pipe, too, until its program runs:
//! if the output is still open after that time, the thread waits until all such commands have started, and
//! [`LINGER`] from then. Cost: a thread for each running command.

use ioloom_failure::{quoted, reason};
use ioloom_sys::stream::{self, Ready};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Most bytes of one program's output in memory.
const MEMORY_BYTES: usize = 1 << 20;

/// Most bytes that are still read after the end of the program: what a pipe can hold.
const LEFT_BYTES: usize = 1 << 20;

/// How long the output may stay open after the end of the program, as `cmd > >(tee log)` leaves it.
const LINGER: Duration = Duration::from_millis(100);

/// Time between two looks whether the program has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The output of a program that has ended.
#[derive(Debug, Default)]
pub(super) struct Spool {
    first: Vec<u8>,
    /// What follows.
    rest: Option<File>,
    /// Why output that follows was not kept.
    error: Option<io::Error>,
    /// Whether a program in the background could still write. What it writes later is lost.
    pub(super) is_open: bool,
}

/// A thread that reads the output of a program.
#[derive(Debug)]
pub(super) struct Collector {
    thread: JoinHandle<io::Result<Spool>>,
    /// Passes the output to the thread.
    output: Sender<ChildStdout>,
    ended: Arc<AtomicBool>,
}

impl Collector {
    /// Starts a thread, which waits for an output. `last_start` waits until the commands that are being started
    /// have started, and returns when the last one did.
    pub(super) fn start(
        last_start: impl FnOnce() -> Option<Instant> + Send + 'static,
    ) -> io::Result<Self> {
        let (output, outputs) = channel::<ChildStdout>();
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let mut last_start = Some(last_start);
        let read = move || {
            let Ok(mut stdout) = outputs.recv() else { return Ok(Spool::default()) };
            let (mut all, mut buffer, mut left) = (Spool::default(), vec![0; 64 << 10], LEFT_BYTES);
            let mut until: Option<Instant> = None;
            loop {
                // Read before the wait: what came before the end is ready after it.
                let over = is_over.load(Ordering::Acquire);
                if over && until.is_none() {
                    until = Some(Instant::now() + LINGER);
                }
                let rest = |until: Instant| until.saturating_duration_since(Instant::now());
                let most = until.map_or(LOOK, rest);
                if !stream::wait(&stdout, Ready::Read, most)? {
                    if over && most.is_zero() {
                        let Some(last_start) = last_start.take() else {
                            return Ok(Spool { is_open: true, ..all });
                        };
                        until = last_start().map(|at| at + LINGER).or(until);
                    }
                    continue;
                }
                match stdout.read(&mut buffer) {
                    Ok(0) => return Ok(all),
                    // A program in the background can write for ever.
                    Ok(n) if over && n > left => return Ok(Spool { is_open: true, ..all }),
                    Ok(n) => {
                        all.add(&buffer[..n]);
                        left -= if over { n } else { 0 };
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        };
        Builder::new().spawn(read).map(|thread| Self { thread, output, ended })
    }

    /// Reads this output.
    pub(super) fn collect(&self, stdout: ChildStdout) {
        // The thread ends only after an output.
        let _ = self.output.send(stdout);
    }

    /// Ends the thread soon.
    pub(super) fn abandon(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns the output. The program has ended, or was not started.
    pub(super) fn finish(self) -> io::Result<Spool> {
        self.abandon();
        let Self { thread, output, .. } = self;
        drop(output);
        let panicked = |_| io::Error::other("the thread that reads it panicked");
        thread.join().map_err(panicked)?
    }
}

impl Spool {
    /// Keeps bytes. After an error the others are dropped, so that the program can go on.
    fn add(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.try_add(bytes).err();
        }
    }

    /// Returns why output is missing, if it is.
    pub(super) fn lost(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let dir = std::env::temp_dir();
        Some(format!(
            "cannot keep its output in {}: {}; only its beginning is printed; set TMPDIR to another \
             directory",
            quoted(&dir),
            reason(error)
        ))
    }

    fn try_add(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.rest.is_none() && self.first.len() + bytes.len() <= MEMORY_BYTES {
            self.first.extend_from_slice(bytes);
            return Ok(());
        }
        if self.rest.is_none() {
            self.rest = Some(tempfile::tempfile()?);
        }
        self.rest.as_mut().map_or(Ok(()), |rest| rest.write_all(bytes))
    }

    pub(super) fn write_to(mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.first)?;
        let Some(rest) = &mut self.rest else { return Ok(()) };
        rest.rewind()?;
        io::copy(rest, out).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_command_that_is_being_started_is_not_one_in_the_background() {
        let (output, copy) = io::pipe().unwrap();
        let starts = move || {
            std::thread::sleep(LINGER);
            drop(copy);
            Some(Instant::now())
        };
        let collector = Collector::start(starts).unwrap();
        collector.collect(OwnedFd::from(output).into());
        assert!(!collector.finish().unwrap().is_open);
    }

    #[test]
    fn output_that_stays_open_is_given_up() {
        for last in [None, Some(Instant::now())] {
            let (output, held) = io::pipe().unwrap();
            let collector = Collector::start(move || last).unwrap();
            collector.collect(OwnedFd::from(output).into());
            assert!(collector.finish().unwrap().is_open);
            drop(held);
        }
    }
}

//! How far a job has come, on a terminal: a line on standard error, drawn by a thread that sleeps.
//!
//! The job writes its counters now and then; this thread reads them ten times a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// A line that tells how far a job has come; nothing where nobody looks.
pub(crate) struct StatusLine(Option<(ProgressBar, Sender<()>, JoinHandle<()>)>);

impl StatusLine {
    /// `line` makes the words from the time since the start; the thread is called `name`.
    pub(crate) fn start(name: &str, line: impl Fn(Duration) -> String + Send + 'static) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        let (end, ended) = mpsc::channel();
        let drawn = bar.clone();
        let started = Instant::now();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                drawn.set_message(line(started.elapsed()));
                drawn.tick();
            }
        });
        Self(thread.ok().map(|thread| (bar, end, thread)))
    }

    /// Prints while the line is out of the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some((bar, ..)) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {}
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some((bar, end, thread)) = self.0.take() {
            let _ = end.send(());
            let _ = thread.join();
            bar.finish_and_clear();
        }
    }
}

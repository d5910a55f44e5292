//! A progress line on standard error, drawn by a background thread.
//!
//! The thread reads counters updated by the job ten times per second.

use crate::bar_target;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two updates.
const EVERY: Duration = Duration::from_millis(100);

/// A progress line; hidden unless standard error is a terminal.
pub(crate) struct StatusLine(Option<(ProgressBar, Sender<()>, JoinHandle<()>)>);

impl StatusLine {
    /// Starts the thread `name`; `line` formats the text from the elapsed time.
    pub(crate) fn start(name: &str, line: impl Fn(Duration) -> String + Send + 'static) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, bar_target::stderr());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        let (end, ended) = mpsc::channel();
        let line_bar = bar.clone();
        let started = Instant::now();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                line_bar.set_message(line(started.elapsed()));
                line_bar.tick();
            }
        });
        Self(thread.ok().map(|thread| (bar, end, thread)))
    }

    /// Hides the line while printing.
    pub(crate) fn hide_during<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some((bar, ..)) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes the line.
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

//! How far a scan has come, on a terminal: a line on standard error, drawn by a thread that sleeps.
//!
//! The scan writes two counters once per directory; this thread reads them ten times a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ioloom_du::scan::Progress;
use ioloom_model::units::{format_count, format_size};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// A line that tells how far a scan has come; nothing where nobody looks.
pub(super) struct Told(Option<(ProgressBar, Sender<()>, JoinHandle<()>)>);

impl Told {
    pub(super) fn start(progress: Arc<Progress>) -> Self {
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
        let thread = std::thread::Builder::new().name("du-progress".to_owned()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                let entries = progress.entries.load(Ordering::Relaxed);
                let bytes = progress.disk_bytes.load(Ordering::Relaxed);
                drawn.set_message(line(entries, bytes, started.elapsed()));
                drawn.tick();
            }
        });
        Self(thread.ok().map(|thread| (bar, end, thread)))
    }

    /// Prints while the line is out of the way.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some((bar, ..)) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the line away.
    pub(super) fn finish(self) {}
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some((bar, end, thread)) = self.0.take() {
            let _ = end.send(());
            let _ = thread.join();
            bar.finish_and_clear();
        }
    }
}

fn line(entries: u64, bytes: u64, elapsed: Duration) -> String {
    let per_s = entries as f64 / elapsed.as_secs_f64().max(0.001);
    let (entries, size) = (format_count(entries), format_size(bytes));
    format!("{entries} entries, {size}, {} per s", format_count(per_s as u64))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_says_how_much_and_how_fast() {
        let text = super::line(20_000, 3 << 30, std::time::Duration::from_secs(2));
        assert_eq!(text, "20 000 entries, 3.00 GiB, 10 000 per s");
    }
}

//! Log lines on their way to a stream, written by a thread, so a stalled reader stops nothing else.
//!
//! The queue is bounded. Lines that do not fit are dropped and counted; once the reader continues, a
//! line with their number follows the lines before them.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum size of the waiting lines in bytes. As many can be with the thread.
const BYTES_MAX: usize = 256 << 10;

#[derive(Default)]
struct Pending {
    lines: Vec<String>,
    bytes: usize,
    /// Number of lines dropped after the last one in `lines`.
    dropped: u64,
    /// Whether the thread is writing earlier lines.
    is_writing: bool,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

/// A queue of lines.
pub(super) struct LogQueue(Arc<Shared>);

impl LogQueue {
    /// Starts a thread that calls `write` for every line. `dropped` words the line about this number
    /// of dropped lines.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(super) fn start(
        write: impl Fn(&str) + Send + 'static,
        dropped: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let work = move || theirs.work(&write, &dropped);
        std::thread::Builder::new().name("log".to_owned()).spawn(work)?;
        Ok(Self(shared))
    }

    /// Adds a line, or drops it if the queue is full. Never waits for the reader.
    pub(super) fn push(&self, line: String) {
        let mut pending = self.0.lock();
        let fits = pending.lines.is_empty() || pending.bytes + line.len() <= BYTES_MAX;
        // After a dropped line, a shorter one would be out of order.
        if fits && pending.dropped == 0 {
            pending.bytes += line.len();
            pending.lines.push(line);
        } else {
            pending.dropped += 1;
        }
        drop(pending);
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written; returns false if that takes longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let is_busy = |pending: &mut Pending| pending.is_writing || !pending.is_empty();
        let waited = self.0.changed.wait_timeout_while(self.0.lock(), limit, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes lines until the process ends.
    fn work(&self, write: &dyn Fn(&str), dropped: &dyn Fn(u64) -> String) {
        loop {
            let is_idle = |pending: &mut Pending| pending.is_empty();
            let waited = self.changed.wait_while(self.lock(), is_idle);
            let mut pending = waited.unwrap_or_else(PoisonError::into_inner);
            let taken = std::mem::take(&mut *pending);
            pending.is_writing = true;
            drop(pending);
            for line in &taken.lines {
                write(line);
            }
            if taken.dropped > 0 {
                write(&dropped(taken.dropped));
            }
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_stalled_reader_costs_lines_but_no_time() {
        let (reader, lines) = channel();
        let stalled = Arc::new(Mutex::new(()));
        let is_stalled = Arc::clone(&stalled);
        let guard = stalled.lock().unwrap();
        let write = move |line: &str| {
            drop(is_stalled.lock().unwrap());
            reader.send(line.to_owned()).unwrap();
        };
        let queue = LogQueue::start(write, |count| count.to_string()).unwrap();
        let long = "x".repeat(BYTES_MAX / 4);
        for _ in 0..20 {
            queue.push(long.clone());
        }
        assert!(!queue.flush(Duration::from_millis(1)));
        drop(guard);
        assert!(queue.flush(Duration::from_secs(20)));
        queue.push("last".to_owned());
        assert!(queue.flush(Duration::from_secs(20)));
        let mut lines: Vec<String> = lines.try_iter().collect();
        assert_eq!(lines.pop().unwrap(), "last");
        // The thread took lines once before it was stalled, and four fit into the queue.
        let dropped: usize = lines.iter().filter_map(|line| line.parse::<usize>().ok()).sum();
        let written = lines.iter().filter(|line| **line == long).count();
        assert!(written <= 8, "{written}");
        assert_eq!(written + dropped, 20);
    }
}

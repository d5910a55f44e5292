//! Lines in input order that wait for those of earlier files.
//!
//! One slow file holds back the lines of all files after it. While more than [`FULL`] bytes wait, no
//! further file is taken from the input. The files that were taken go on, among them always the one whose
//! line is next, so the wait ends: when all of them are done, no line is left that could wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of lines from which no further file is taken.
const FULL: usize = 16 << 20;
/// Bytes below which files are taken again.
const ROOM: usize = FULL / 2;
/// Bytes that a line takes besides its text.
const LINE: usize = 64;

/// Where the thread that takes files waits for room.
#[derive(Debug, Default)]
pub(super) struct Room {
    is_full: Mutex<bool>,
    changed: Condvar,
}

impl Room {
    /// Waits until there is room.
    pub(super) fn wait(&self) {
        let mut full = self.lock();
        while *full {
            full = self.changed.wait(full).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set_full(&self, is_full: bool) {
        *self.lock() = is_full;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_full.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines that wait for those before them.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// Position of the next line.
    next: usize,
    lines: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
    is_full: bool,
    room: Arc<Room>,
}

impl Early {
    /// Returns where to wait before a file is taken.
    pub(super) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Takes the line of file `index`. Appends it to `out`, with those that waited for it, if it is next.
    pub(super) fn add(&mut self, index: usize, line: &[u8], out: &mut Vec<u8>) {
        if index == self.next {
            out.extend_from_slice(line);
            self.next += 1;
            while let Some(line) = self.lines.remove(&self.next) {
                out.extend_from_slice(&line);
                self.bytes -= LINE + line.len();
                self.next += 1;
            }
        } else {
            self.bytes += LINE + line.len();
            self.lines.insert(index, line.to_vec());
        }
        let is_full = if self.is_full { self.bytes >= ROOM } else { self.bytes >= FULL };
        if is_full != self.is_full {
            self.is_full = is_full;
            self.room.set_full(is_full);
        }
    }

    /// Appends all lines to `out`: nothing before them will come.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.bytes = 0;
        std::mem::take(&mut self.lines).values().for_each(|line| out.extend_from_slice(line));
    }
}

impl Drop for Early {
    /// Ends a wait that has outlived the run.
    fn drop(&mut self) {
        self.room.set_full(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_in_the_order_of_their_files() {
        let (mut early, mut out) = (Early::default(), Vec::new());
        for (index, line) in [(2, "c"), (0, "a"), (1, "b"), (5, "f"), (4, "e")] {
            early.add(index, line.as_bytes(), &mut out);
        }
        assert_eq!(out, b"abc");
        early.finish(&mut out);
        assert_eq!(out, b"abcef");
    }

    #[test]
    fn no_file_is_taken_while_too_many_bytes_wait() {
        let (mut early, mut out) = (Early::default(), Vec::new());
        let room = early.room();
        let line = vec![b'x'; FULL / 8];
        (2..9).for_each(|index| early.add(index, &line, &mut out));
        assert!(!*room.lock());
        early.add(9, &line, &mut out);
        assert!(*room.lock() && out.is_empty());
        let waiting = std::thread::spawn({
            let room = early.room();
            move || room.wait()
        });
        early.add(0, b"", &mut out);
        assert!(*room.lock());
        early.add(1, b"", &mut out);
        waiting.join().unwrap();
        assert_eq!((out.len(), early.bytes), (FULL, 0));
    }

    #[test]
    fn the_end_of_the_run_ends_the_wait() {
        let (mut early, mut out) = (Early::default(), Vec::new());
        early.add(1, &vec![b'x'; FULL], &mut out);
        let room = early.room();
        assert!(*room.lock());
        drop(early);
        room.wait();
    }
}

//! The keys of the browser, and the terminal that they come from.
//!
//! When a terminal is closed, crossterm reads it in an endless loop. So it is called only after `poll` has
//! found that the terminal still exists, and never waits itself.

use ioloom_sys::pipe::reader_gone;
use ioloom_sys::stream::{Ready, wait};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The keys, on one line of 80 columns.
pub(super) const KEYS: &str =
    "↑↓ move  →← go  snc sort  a unit  / find  space mark  d remove  ? help  q quit";
/// The help that `?` shows.
pub(super) const HELP: [&str; 15] = [
    "up, k / down, j       select the previous or next entry",
    "page up / page down   ten entries up or down",
    "home, g / end, G      select the first or last entry",
    "right, enter, l       enter a directory",
    "left, backspace, h    back to the parent directory",
    "s / n / c             sort by size, name or number of entries",
    "a                     disk usage, apparent size or number of entries",
    "/                     find a name; / and enter find the next one",
    "space                 mark an entry",
    "d                     remove the marked or the selected entries; ctrl-c stops",
    "ctrl-l                redraw the screen",
    "q, ctrl-c, esc        quit; esc asks before",
    "",
    "! not read   ? partly removed   H hard links elsewhere   @ symbolic link",
    "Press any key to close this help.",
];
/// Time between two looks for a signal and for a new size of the terminal.
const LOOK: Duration = Duration::from_millis(200);
/// Time to wait for the rest of a key.
const REST: Duration = Duration::from_millis(20);

/// The terminal that crossterm reads.
#[derive(Debug)]
pub(super) struct Keyboard(File);

impl Keyboard {
    /// Opens the terminal: standard input, or `/dev/tty` if standard input is another file.
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Ok(Self(File::from(stdin.as_fd().try_clone_to_owned()?)));
        }
        File::open("/dev/tty").map(Self)
    }

    /// Reports whether the terminal was closed.
    pub(super) fn is_closed(&self) -> bool {
        reader_gone(&self.0)
    }

    /// Waits for an event. Returns `None` if the flag was raised or the terminal was closed.
    pub(super) fn wait_for_event(&self, stop: &AtomicBool) -> io::Result<Option<Event>> {
        // crossterm may have read several keys at once.
        let mut most = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let is_ready = wait(&self.0, Ready::Read, most)?;
            if self.is_closed() {
                return Ok(None);
            }
            if event::poll(Duration::ZERO)? {
                return event::read().map(Some);
            }
            if is_ready {
                std::thread::sleep(REST);
            }
            most = LOOK;
        }
        Ok(None)
    }

    /// Drops the events that have arrived. Returns true if one is Ctrl-C, or if the terminal was closed.
    pub(super) fn is_interrupted(&self) -> bool {
        while !self.is_closed() {
            match event::poll(Duration::ZERO).and_then(|found| found.then(event::read).transpose())
            {
                Ok(Some(Event::Key(key))) if is_interrupt(&key) => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }
}

/// Returns whether a key is Ctrl-C.
pub(super) fn is_interrupt(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_closed_terminal_ends_the_wait() {
        // The writer of a pipe that closes it has the effect of a terminal that is closed.
        let (reader, writer) = io::pipe().unwrap();
        let keyboard = Keyboard(File::from(OwnedFd::from(reader)));
        assert!(!keyboard.is_closed());
        drop(writer);
        assert!(keyboard.is_closed() && keyboard.is_interrupted());
        assert!(keyboard.wait_for_event(&AtomicBool::new(false)).unwrap().is_none());
    }
}

//! The keys of the browser, and the terminal that they come from.
//!
//! crossterm blocks until it has a whole event, as after the first byte of a key whose other bytes are missing,
//! and reads a closed terminal in an endless loop. So a thread calls it, which ends with the process.
//! Keys that are typed until then are lost, so the process must end soon after the browser.

use ioloom_sys::pipe::reader_gone;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::Duration;

/// The keys, on one line of 80 columns.
pub(super) const KEYS: &str =
    "↑↓ move  →← go  snc sort  a unit  / find  space mark  d remove  ? help  q quit";
/// The keys on a narrower terminal.
pub(super) const FEW_KEYS: &str = "↑↓→← go  d remove  ? help  q quit";
/// The help that `?` shows.
pub(super) const HELP: [&str; 16] = [
    "Up and down scroll; any other key closes this help.",
    "",
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
    "! not read   ? partly removed   H hard links elsewhere   @ symbolic link",
    "< excluded by pattern   > other file system   ^ kernel file system, firmlink",
];
/// Time between two looks for a signal and for the end of the terminal.
const LOOK: Duration = Duration::from_millis(200);
/// Names that a removal processes between two looks at the keyboard.
const NAMES: u32 = 64;

/// Returns the help. On a narrow terminal, each key and each text has its own line.
pub(super) fn help_lines(width: u16) -> Vec<String> {
    if width >= 80 {
        return Vec::from(HELP.map(str::to_owned));
    }
    let pieces = |line: &&str| {
        let pieces = line.split("   ").map(str::trim).filter(|piece| !piece.is_empty());
        let indented = |(at, piece): (usize, &str)| match at {
            0 => piece.to_owned(),
            _ => format!("  {piece}"),
        };
        pieces.enumerate().map(indented).collect::<Vec<String>>()
    };
    HELP.iter().flat_map(pieces).collect()
}

/// The terminal that crossterm reads, and its events.
#[derive(Debug)]
pub(super) struct Keyboard {
    terminal: File,
    events: Receiver<io::Result<Event>>,
}

impl Keyboard {
    /// Opens the terminal: standard input, or `/dev/tty` if standard input is another file. Starts the thread that
    /// reads it.
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let terminal = if stdin.is_terminal() {
            File::from(stdin.as_fd().try_clone_to_owned()?)
        } else {
            File::open("/dev/tty")?
        };
        let (sender, events) = channel();
        Builder::new().name("du-keys".to_owned()).spawn(move || read_events(&sender))?;
        Ok(Self { terminal, events })
    }

    /// Reports whether the terminal was closed.
    pub(super) fn is_closed(&self) -> bool {
        reader_gone(&self.terminal)
    }

    /// Waits for an event. Returns `None` if the flag was raised or the terminal was closed.
    pub(super) fn wait_for_event(&self, stop: &AtomicBool) -> io::Result<Option<Event>> {
        while !stop.load(Ordering::Relaxed) && !self.is_closed() {
            match self.events.recv_timeout(LOOK) {
                Ok(event) => return event.map(Some),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(None)
    }

    /// Drops the events that have arrived. Returns true if one is Ctrl-C, or if no more can arrive.
    pub(super) fn is_interrupted(&self) -> bool {
        while !self.is_closed() {
            match self.events.try_recv() {
                Ok(Ok(Event::Key(key))) if is_interrupt(&key) => return true,
                Ok(Ok(_)) => {}
                Err(TryRecvError::Empty) => return false,
                Ok(Err(_)) | Err(TryRecvError::Disconnected) => return true,
            }
        }
        true
    }
}

/// Reads events until one cannot be read.
fn read_events(sender: &Sender<io::Result<Event>>) {
    loop {
        let event = event::read();
        let is_last = event.is_err();
        if sender.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Returns the test of whether a removal must stop: after a signal, or if Ctrl-C was pressed. Looks at the
/// keyboard once per [`NAMES`] calls.
pub(super) fn stop_test(flag: Arc<AtomicBool>, keyboard: Rc<Keyboard>) -> Box<dyn FnMut() -> bool> {
    let mut names = 0_u32;
    Box::new(move || {
        names = names.wrapping_add(1);
        flag.load(Ordering::Relaxed) || names.is_multiple_of(NAMES) && keyboard.is_interrupted()
    })
}

/// Returns whether a key is Ctrl-C.
pub(super) fn is_interrupt(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    /// Returns the reader of a pipe as the terminal, and the sender of its events. A writer of the pipe that closes
    /// it has the effect of a terminal that is closed.
    fn keyboard() -> (Keyboard, io::PipeWriter, Sender<io::Result<Event>>) {
        let (reader, writer) = io::pipe().unwrap();
        let (sender, events) = channel();
        (Keyboard { terminal: File::from(OwnedFd::from(reader)), events }, writer, sender)
    }

    #[test]
    fn a_closed_terminal_ends_the_wait_although_its_reader_is_blocked() {
        let (keyboard, writer, _sender) = keyboard();
        assert!(!keyboard.is_closed() && !keyboard.is_interrupted());
        drop(writer);
        assert!(keyboard.is_closed() && keyboard.is_interrupted());
        assert!(keyboard.wait_for_event(&AtomicBool::new(false)).unwrap().is_none());
    }

    #[test]
    fn ctrl_c_is_found_among_other_keys() {
        let (keyboard, _writer, sender) = keyboard();
        let press = |code: char, modifiers: KeyModifiers| {
            sender.send(Ok(Event::Key(KeyEvent::new(KeyCode::Char(code), modifiers)))).unwrap();
        };
        press('c', KeyModifiers::NONE);
        assert!(!keyboard.is_interrupted());
        press('x', KeyModifiers::CONTROL);
        press('c', KeyModifiers::CONTROL);
        press('d', KeyModifiers::NONE);
        assert!(keyboard.is_interrupted());
        let event = keyboard.wait_for_event(&AtomicBool::new(false)).unwrap();
        assert!(matches!(event, Some(Event::Key(key)) if key.code == KeyCode::Char('d')));
        assert!(keyboard.wait_for_event(&AtomicBool::new(true)).unwrap().is_none());
        // Without its reader, Ctrl-C could not stop a removal.
        drop(sender);
        assert!(keyboard.is_interrupted());
        assert!(keyboard.wait_for_event(&AtomicBool::new(false)).is_err());
    }
}

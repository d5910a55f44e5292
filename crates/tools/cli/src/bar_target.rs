//! Where progress bars are drawn: a terminal that never holds up the program.
//!
//! A terminal that is stopped (Ctrl-S) blocks every write to it. Bars are therefore written to a second,
//! non-blocking opening of standard error, and what does not fit is not drawn. The shared opening stays
//! as it is: its flags belong to the shell as well. Cost: one descriptor.

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};
use ioloom_sys::stream;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often a bar is drawn at most, per second.
const DRAWN_PER_S: u8 = 20;

/// Clears the line of the cursor.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Whether a bar that the terminal did not let be cleared, or a part of it, may be on the line.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Reports whether a bar may be on the line that is to be cleared.
pub(crate) fn is_left() -> bool {
    LEFT.load(Ordering::Relaxed)
}

/// Clears the line if a bar may be on it. Called before text is written to the terminal.
///
/// # Errors
/// Fails as `out` does.
pub(crate) fn clear_left(out: &mut dyn Write) -> io::Result<()> {
    clear(&LEFT, out)
}

fn clear(left: &AtomicBool, out: &mut dyn Write) -> io::Result<()> {
    if left.swap(false, Ordering::Relaxed) { out.write_all(CLEAR_LINE.as_bytes()) } else { Ok(()) }
}

/// Returns standard error, if it is a terminal, for a bar.
pub(crate) fn stderr() -> ProgressDrawTarget {
    let target = ProgressDrawTarget::stderr();
    if target.is_hidden() {
        return target;
    }
    // Fails if the terminal belongs to another user.
    match Screen::open("/proc/self/fd/2") {
        Ok(screen) => ProgressDrawTarget::term_like_with_hz(Box::new(screen), DRAWN_PER_S),
        Err(_) => target,
    }
}

/// A terminal that is written to without waiting.
#[derive(Debug)]
struct Screen {
    file: File,
    /// What the next flush writes.
    text: Mutex<String>,
    /// Whether a part of an earlier text may be on the line.
    is_cut: &'static AtomicBool,
}

impl Screen {
    fn open(path: &str) -> io::Result<Self> {
        let file = stream::open_to_write(Path::new(path))?;
        if !file.is_terminal() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { file, text: Mutex::default(), is_cut: &LEFT })
    }

    fn add(&self, text: &str) -> io::Result<()> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    /// Moves the cursor; the letter is the direction.
    fn go(&self, count: usize, direction: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.add(&format!("\x1b[{count}{direction}")) }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        Term::stderr().size().1
    }

    fn height(&self) -> u16 {
        Term::stderr().size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.add(s)?;
        self.add("\n")
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.add(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add(CLEAR_LINE)
    }

    fn flush(&self) -> io::Result<()> {
        let mut text =
            std::mem::take(&mut *self.text.lock().unwrap_or_else(PoisonError::into_inner));
        if text.is_empty() {
            return Ok(());
        }
        if self.is_cut.load(Ordering::Relaxed) {
            text.insert_str(0, CLEAR_LINE);
        }
        // What a stopped or slow terminal does not take is drawn with a later state of the bar.
        let written = (&self.file).write_all(text.as_bytes());
        let is_cut = written.as_ref().is_err_and(stream::would_block);
        self.is_cut.store(is_cut, Ordering::Relaxed);
        if is_cut { Ok(()) } else { written }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_clear_that_a_stopped_terminal_does_not_take_comes_before_the_next_text() {
        static CUT: AtomicBool = AtomicBool::new(false);
        let (mut reader, writer) = pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let file = stream::open_to_write(Path::new(&path)).unwrap();
        let screen = Screen { file, text: Mutex::default(), is_cut: &CUT };
        let next = || {
            let mut out = Vec::new();
            clear(&CUT, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        screen.write_str("bar").unwrap();
        screen.flush().unwrap();
        assert_eq!(next(), "");
        let mut taken = 3;
        for size in [512, 1] {
            while let Ok(more) = (&screen.file).write(&[0; 512][..size]) {
                taken += more;
            }
        }
        screen.clear_line().unwrap();
        screen.flush().unwrap();
        assert_eq!((next().as_str(), next().as_str()), (CLEAR_LINE, ""));
        // It goes on before the text: the bar is drawn or cleared itself.
        screen.clear_line().unwrap();
        screen.flush().unwrap();
        reader.read_exact(&mut vec![0; taken]).unwrap();
        screen.write_str("bar").unwrap();
        screen.flush().unwrap();
        assert_eq!(next(), "");
    }
}

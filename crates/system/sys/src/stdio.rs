//! Which standard streams were closed, and whether SIGPIPE was ignored, when the program started.
//!
//! Before `main`, the runtime of Rust opens `/dev/null` in place of closed standard streams, so that no
//! other file gets their numbers. Output is then lost without an error. Afterwards that is
//! indistinguishable from a `/dev/null` that the caller passed for reading and writing, as Python's
//! `subprocess.DEVNULL` does. The runtime also ignores SIGPIPE, whatever the caller has set. So both are
//! examined by a function in `.init_array`, which the loader calls before the runtime starts.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard input, output and error were closed.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Whether SIGPIPE was ignored.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Reports whether SIGPIPE was ignored when the program started. A write to a closed pipe is then meant to fail, not
/// to end the program.
pub fn pipe_signal_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
    /// Standard error.
    Error = 2,
}

impl Stream {
    /// Reports whether the stream was closed when the program started.
    pub fn was_closed(self) -> bool {
        CLOSED[self as usize].load(Ordering::Relaxed)
    }

    /// Fails with `EBADF` if the stream was closed when the program started.
    pub fn required(self) -> io::Result<()> {
        if self.was_closed() { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
    }
}

/// Examines the streams and the signal. Not a call through the fault seam: no test can be set up before it.
extern "C" fn examine() {
    for (stream, closed) in CLOSED.iter().enumerate() {
        // SAFETY: F_GETFD reads a flag of a descriptor, and fails if the descriptor is closed.
        let flags = unsafe { libc::fcntl(stream as libc::c_int, libc::F_GETFD) };
        closed.store(flags == -1, Ordering::Relaxed);
    }
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call changes no action and writes the current one to `action`, which has its type.
    let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) };
    if read == 0 {
        // SAFETY: the call has succeeded, so it has written the whole structure.
        let action = unsafe { action.assume_init() };
        PIPE_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

// SAFETY: the section is an array of pointers to functions of this type. This one needs nothing that
// the runtime sets up: it makes system calls and stores to static memory.
#[unsafe(link_section = ".init_array")]
#[used]
static EXAMINE: extern "C" fn() = examine;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const CHILD: &str = "IOLOOM_TEST_CLOSED";

    /// Runs in a child, which reports what it finds through its exit code.
    #[test]
    fn streams_that_were_closed_are_known() {
        if let Ok(expected) = std::env::var(CHILD) {
            let pipe = if pipe_signal_was_ignored() { "i" } else { "" };
            let found: String = [Stream::Input, Stream::Output, Stream::Error]
                .map(|stream| if stream.was_closed() { 'c' } else { 'o' })
                .iter()
                .collect();
            std::process::exit(if found + pipe == expected { 0 } else { 9 });
        }
        let program = std::env::current_exe().unwrap();
        for (before, redirections, expected) in [
            ("", "", "ooo"),
            ("", ">&-", "oco"),
            ("", "<&- 2>&-", "coc"),
            ("", "<&- >&- 2>&-", "ccc"),
            // What the runtime itself would open.
            ("", "0<>/dev/null 1<>/dev/null", "ooo"),
            ("trap '' PIPE; ", "", "oooi"),
        ] {
            let script = format!(
                "{before}\"$1\" streams_that_were_closed --nocapture {redirections}; exit $?"
            );
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, "sh"]).arg(&program).env(CHILD, expected);
            let code = shell.status().unwrap().code();
            assert_eq!(code, Some(0), "{redirections}");
        }
    }
}

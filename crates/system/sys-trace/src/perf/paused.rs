//! A child process that waits before executing its program, so that a trace can be set up first.
//!
//! ```text
//! helper thread: spawn ── fork ──→ child: write own number, read the gate … ── exec
//!        (blocked until exec)            ↑                    ↑
//! caller:                          pid() known           release()
//! ```

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A child process that has not executed its program yet.
#[derive(Debug)]
pub struct PausedChild {
    pid: u32,
    gate: io::PipeWriter,
    spawning: JoinHandle<io::Result<Child>>,
}

impl PausedChild {
    /// Forks for `command` and stops just before its program is executed.
    ///
    /// # Errors
    ///
    /// Fails if the pipes, the thread or the process cannot be created.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let (mut number, number_out) = io::pipe()?;
        let (gate_in, gate) = io::pipe()?;
        let gate_number = gate.as_raw_fd();
        let wait = move || {
            // If the child kept its own copy open, it would not notice the exit of this process.
            // SAFETY: it is the child's copy of a descriptor that only this process uses.
            unsafe { libc::close(gate_number) };
            let pid = std::process::id().to_ne_bytes();
            (&number_out).write_all(&pid)?;
            (&gate_in).read_exact(&mut [0])
        };
        // SAFETY: between fork and exec the closure only calls close, getpid, write and
        // read.
        unsafe { command.pre_exec(wait) };
        // The helper drops the command, and with it this process's ends of the pipes.
        let spawning = std::thread::Builder::new()
            .name("ioloom-spawn".to_owned())
            .spawn(move || ioloom_sys::fault::call("spawn", || command.spawn()))?;
        let mut pid = [0; 4];
        match number.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), gate, spawning }),
            Err(e) => match spawning.join() {
                Ok(Err(spawn)) => Err(spawn),
                _ => Err(e),
            },
        }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Executes the program.
    ///
    /// # Errors
    ///
    /// Returns the exec error, such as ENOENT.
    pub fn release(mut self) -> io::Result<Child> {
        self.gate.write_all(&[1])?;
        drop(self.gate);
        self.spawning.join().unwrap_or_else(|_| Err(io::Error::other("the helper thread exited")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_paused_child_starts_when_released() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$"]).stdout(Stdio::piped());
        let held = PausedChild::start(command).unwrap();
        let pid = held.pid();
        assert_ne!(pid, std::process::id());
        let output = held.release().unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), pid.to_string());
    }

    #[test]
    fn a_missing_program_is_reported() {
        let held = PausedChild::start(Command::new("/no/such/sleep")).unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

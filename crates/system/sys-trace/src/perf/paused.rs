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

/// Exit code of a child that is never released.
const NOT_RELEASED: i32 = 127;

/// A child process that has not executed its program yet. If dropped, it is killed.
#[derive(Debug)]
pub struct PausedChild {
    pid: u32,
    gate: io::PipeWriter,
    /// `None` once released.
    spawning: Option<JoinHandle<io::Result<Child>>>,
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
        let wait = move || -> io::Result<()> {
            // If the child kept its own copy open, it would not notice the exit of this process.
            // SAFETY: it is the child's copy of a descriptor that only this process uses.
            unsafe { libc::close(gate_number) };
            let pid = std::process::id().to_ne_bytes();
            let passed =
                (&number_out).write_all(&pid).and_then(|()| (&gate_in).read_exact(&mut [0]));
            if passed.is_err() {
                // The parent is exiting. The standard library would abort if it cannot report an error to it.
                // SAFETY: the process ends without running anything else.
                unsafe { libc::_exit(NOT_RELEASED) };
            }
            Ok(())
        };
        // SAFETY: between fork and exec the closure only calls close, getpid, write, read
        // and _exit.
        unsafe { command.pre_exec(wait) };
        // The helper drops the command, and with it this process's ends of the pipes.
        let spawning = std::thread::Builder::new()
            .name("ioloom-spawn".to_owned())
            .spawn(move || ioloom_sys::fault::call("spawn", || command.spawn()))?;
        let mut pid = [0; 4];
        match number.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), gate, spawning: Some(spawning) }),
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
        let spawned = self.spawning.take().and_then(|spawning| spawning.join().ok());
        spawned.unwrap_or_else(|| Err(io::Error::other("the helper thread exited")))
    }
}

impl Drop for PausedChild {
    fn drop(&mut self) {
        let Some(spawning) = self.spawning.take() else { return };
        // SAFETY: kill accesses no memory, and the number is not in use again before the child is waited for.
        unsafe { libc::kill(self.pid as libc::pid_t, libc::SIGKILL) };
        if let Ok(Ok(mut child)) = spawning.join() {
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Stdio;

    /// Set for a process that exits while its child is paused.
    const EXITS: &str = "IOLOOM_TEST_EXITS_WHILE_PAUSED";

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

    #[test]
    fn a_dropped_child_is_removed() {
        let held = PausedChild::start(Command::new("true")).unwrap();
        let process = format!("/proc/{}", held.pid());
        assert!(Path::new(&process).exists());
        drop(held);
        assert!(!Path::new(&process).exists());
    }

    #[test]
    fn a_child_of_an_exiting_process_prints_nothing() {
        if std::env::var_os(EXITS).is_some() {
            let _held = PausedChild::start(Command::new("true")).unwrap();
            std::process::exit(0);
        }
        let name = "perf::paused::tests::a_child_of_an_exiting_process_prints_nothing";
        for _ in 0..50 {
            let mut program = Command::new(std::env::current_exe().unwrap());
            let output = program.args(["--exact", name, "--nocapture"]).env(EXITS, "1").output();
            let output = output.unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
    }
}

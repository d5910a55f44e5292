//! Other programs that keep processors busy during an experiment.

use anyhow::{Context, Result};
use std::process::{Child, Command, Stdio};

/// Programs that compute until they are dropped.
#[derive(Debug, Default)]
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts `count` programs, each of which keeps one processor busy.
    ///
    /// # Errors
    /// A program cannot be started.
    pub fn start(count: u32) -> Result<Self> {
        let mut neighbours = Self::default();
        for _ in 0..count {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            neighbours.0.push(command.spawn().context("cannot start a busy program")?);
        }
        Ok(neighbours)
    }

    /// Returns the processor time that they have used, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.0.iter().filter_map(|child| ran_ns(child.id())).sum()
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Errors mean that it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The first number in schedstat is the time on a processor in nanoseconds.
fn ran_ns(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_neighbour_runs_until_it_is_dropped() {
        let neighbours = Neighbours::start(1).expect("starts a shell");
        let process = neighbours.0[0].id();
        let start = Instant::now();
        while neighbours.cpu_ns() == 0 && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(neighbours.cpu_ns() > 0);
        drop(neighbours);
        assert_eq!(ran_ns(process), None);
    }
}

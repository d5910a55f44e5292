//! Other programs that disturb a run: one that reads, and one that computes.

use super::command::grouped;
use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Pause between two reads, and the file.
const THINK: Duration = Duration::from_millis(30);
const BYTES: u64 = 256 << 20;

/// A running neighbour; ends when it is dropped.
pub(super) struct Neighbour {
    child: Child,
    reads: bool,
}

impl Neighbour {
    /// Starts one that reads a file made by [`make_file`].
    pub(super) fn reading(groups: &[PathBuf], file: &Path) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("find this program")?;
        let mut command = grouped(groups, "KILL", &[]);
        command.arg(own).args(["regret", "neighbour"]).arg(file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self { child: command.spawn().context("start the neighbour")?, reads: true })
    }

    /// Starts one that computes.
    pub(super) fn computing() -> anyhow::Result<Self> {
        let mut command = grouped(&[], "KILL", &["yes"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self { child: command.spawn().context("start the neighbour")?, reads: false })
    }

    /// Ends it. Returns what it measured, and the reason if it disturbed nothing.
    pub(super) fn end(mut self) -> anyhow::Result<(Value, Option<String>)> {
        if !self.reads {
            let ended = self.child.try_wait().context("look at the neighbour")?;
            return Ok((Value::Null, ended.map(|status| format!("the neighbour ended: {status}"))));
        }
        // It ends with its input.
        drop(self.child.stdin.take());
        let mut text = Vec::new();
        let output = self.child.stdout.as_mut().context("the neighbour's output")?;
        output.read_to_end(&mut text).context("read the neighbour's output")?;
        let status = self.child.wait().context("wait for the neighbour")?;
        let seen: Value = serde_json::from_slice(&text).unwrap_or(Value::Null);
        let failure = failure(status.success(), &seen);
        Ok((seen, failure))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failure(succeeded: bool, seen: &Value) -> Option<String> {
    match seen["reads"].as_u64() {
        _ if !succeeded => Some("the neighbour failed".to_owned()),
        None | Some(0) => Some("the neighbour read nothing".to_owned()),
        Some(_) => None,
    }
}

/// Creates the file that the neighbour reads.
pub(super) fn make_file(path: &Path) -> anyhow::Result<()> {
    if fs::metadata(path).is_ok_and(|file| file.len() == BYTES) {
        return Ok(());
    }
    let mut file = fs::File::create(path).context("create the file of the neighbour")?;
    for _ in 0..BYTES >> 20 {
        file.write_all(&[1; 1 << 20])?;
    }
    file.sync_all()?;
    Ok(())
}

/// Memory aligned for direct reads.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Reads 4 KiB at random places past the page cache, with pauses, until the input ends, and prints
/// the latencies.
pub(super) fn read_until_input_ends(path: &Path) -> anyhow::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).context("open for direct reads")?;
    let file = fs::File::from(file);
    let (send, input) = channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(send);
    });
    let (mut page, mut state, mut latencies) = (Box::new(Page([0; 4096])), 1u64, Vec::new());
    while input.recv_timeout(THINK) == Err(RecvTimeoutError::Timeout) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) % (BYTES / 4096) * 4096;
        let start = Instant::now();
        file.read_exact_at(&mut page.0, at).context("read")?;
        latencies.push(start.elapsed().as_nanos() as u64);
    }
    latencies.sort_unstable();
    let at = |share: f64| {
        latencies
            .get(((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1)))
    };
    println!(
        "{}",
        json!({"reads": latencies.len(), "p50_ns": at(0.5), "p90_ns": at(0.9), "max_ns": latencies.last()})
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_disturbs_nothing_is_a_failure() {
        assert_eq!(failure(true, &json!({"reads": 3})), None);
        assert_eq!(failure(false, &json!({"reads": 3})).unwrap(), "the neighbour failed");
        assert_eq!(failure(true, &json!({"reads": 0})).unwrap(), "the neighbour read nothing");
        assert_eq!(failure(true, &Value::Null).unwrap(), "the neighbour read nothing");
    }
}

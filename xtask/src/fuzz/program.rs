//! Runs a program on a case, as root or as a plain user, under a time limit.

use super::tree::PLAIN;
use anyhow::Context;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program that runs longer is killed; it is then waiting for a pipe.
const LIMIT: Duration = Duration::from_secs(20);

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// Exit code, 128 + signal, or `None` if it was killed at the limit.
    pub(super) code: Option<i32>,
    pub(super) out: Vec<u8>,
    pub(super) err: String,
}

/// Runs a program in `dir` with these options and operands. Output goes through files outside.
pub(super) fn run(
    program: &[String],
    operands: &[&OsStr],
    dir: &Path,
    root: bool,
    variables: &[(&str, &str)],
) -> anyhow::Result<Ended> {
    let pid = std::process::id();
    let file = |name: &str| std::env::temp_dir().join(format!("ioloom-fuzz-{pid}.{name}"));
    let (out_path, err_path) = (file("stdout"), file("stderr"));
    let (out, err) = (File::create(&out_path), File::create(&err_path));
    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .args(operands)
        .current_dir(dir)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(out.context("create a file for output")?)
        .stderr(err.context("create a file for messages")?)
        .process_group(0);
    if !root && rustix::process::getuid().is_root() {
        command.uid(PLAIN).gid(PLAIN);
    }
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {}", program[0]))?;
    let mut pause = Duration::from_micros(200);
    let code = loop {
        if let Some(status) = child.try_wait().context("wait for a program")? {
            break Some(status.code().unwrap_or(128 + status.signal().unwrap_or(0)));
        }
        if start.elapsed() > LIMIT {
            child.kill().context("kill a program")?;
            child.wait().context("wait for a killed program")?;
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let read = |path: &Path| std::fs::read(path).context("read output");
    let err = String::from_utf8_lossy(&read(&err_path)?).into_owned();
    let out = read(&out_path)?;
    for path in [out_path, err_path] {
        std::fs::remove_file(path).context("remove output")?;
    }
    Ok(Ended { code, out, err })
}

//! Facts about the machine that affect the result.

use crate::device::Medium;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};

/// Facts about the machine and the medium of the files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Name and release.
    pub kernel: String,
    /// As reported by uname.
    pub architecture: String,
    /// As reported by the kernel.
    pub cpu_model: String,
    /// Number of CPUs that this program may use.
    pub cores: u32,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// The medium of the files.
    pub medium: Medium,
    /// The text of /proc/loadavg.
    pub load_at_start: String,
}

impl Facts {
    /// Reads the facts about this machine and the medium of `dir`. Unknown facts are empty.
    pub fn of(dir: &Path) -> Self {
        let uname = rustix::system::uname();
        let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            kernel: format!("{} {}", word(uname.sysname()), word(uname.release())),
            architecture: word(uname.machine()),
            cpu_model: field(&text("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_bytes: field(&text("/proc/meminfo"), "MemTotal")
                .and_then(|kib| kib.strip_suffix(" kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            medium: Medium::of(dir),
            load_at_start: text("/proc/loadavg").trim().to_owned(),
        }
    }

    /// Returns the lines of a README about the machine.
    pub fn lines(&self) -> String {
        format!(
            "- kernel: {} {}\n- processor: {}, {} cores usable\n- memory: {} MiB\n\
             - load before the start: {}\n",
            self.kernel,
            self.architecture,
            self.cpu_model,
            self.cores,
            self.memory_bytes >> 20,
            self.load_at_start,
        )
    }
}

/// Returns the first line of the program's `--version`.
///
/// # Errors
/// The program cannot be started.
pub fn version(program: impl AsRef<Path>) -> std::io::Result<String> {
    let mut command = Command::new(program.as_ref());
    let output = command.arg("--version").stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or("unknown").to_owned())
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Returns the commit of the working directory and whether there are uncommitted changes.
pub fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "HEAD"]), git(&["status", "--porcelain", "-uno"])) {
        (Some(head), Some(changes)) if changes.is_empty() => head,
        (Some(head), _) => format!("{head} with uncommitted changes"),
        (None, _) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 7\nmodel name\t: A: fast one\nMemTotal:  24 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: fast one"));
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24 kB"));
        assert_eq!(field(text, "Mem"), None);
    }
}

//! Commands, and the control groups that they run in.

use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a command that must succeed.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Output> {
    let shown = format!("{:?}", command.get_program());
    let output = command.output().with_context(|| format!("start {shown}"))?;
    ensure!(
        output.status.success(),
        "{shown} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}

/// Returns a command that runs `words` in control groups, and gets `signal` when this program ends.
pub(super) fn grouped(groups: &[PathBuf], signal: &str, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let mut script = String::new();
    for group in groups {
        script += &format!("echo $$ > {}/cgroup.procs && ", group.display());
    }
    command.args(["-c", &(script + "exec \"$@\""), "sh", "setpriv", "--pdeathsig", signal]);
    command.args(words);
    command
}

/// Removes the control groups that killed commands left. Their names are `prefix` and the number of the
/// process that created them.
pub(crate) fn remove_old_groups(parent: &Path, prefix: &str) {
    for group in fs::read_dir(parent).into_iter().flatten().flatten() {
        if owner(&group.file_name().to_string_lossy(), prefix)
            .is_some_and(|process| !Path::new("/proc").join(process).exists())
        {
            // Fails while a process is in the group.
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// Returns the number of the process that created a group.
fn owner<'a>(group: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = group.strip_prefix(prefix)?;
    let process = rest.split('-').next()?;
    let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_ended_processes_are_removed() {
        assert_eq!(owner("ioloom-regret-12", "ioloom-regret-"), Some("12"));
        assert_eq!(owner("ioloom-cells-12-free", "ioloom-cells-"), Some("12"));
        assert_eq!(owner("ioloom-cells-12-free", "ioloom-regret-"), None);
        assert_eq!(owner("ioloom-regret-x", "ioloom-regret-"), None);
        let dir = std::env::temp_dir().join(format!("ioloom-groups-{}", std::process::id()));
        let (live, old) = (format!("g-{}", std::process::id()), "g-4294967295");
        for group in [live.as_str(), old] {
            fs::create_dir_all(dir.join(group)).unwrap();
        }
        remove_old_groups(&dir, "g-");
        assert!(dir.join(live).exists() && !dir.join(old).exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}

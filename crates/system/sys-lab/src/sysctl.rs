//! Kernel memory management settings, changed temporarily and then restored.
//!
//! Such a setting affects the whole machine, so it must be restored even if this process is killed.
//! A child process does that: a shell reads its standard input, a pipe from this process, until the
//! end of file, and then writes the old values. The pipe is closed when [`ChangedSettings`] is
//! dropped and also when this process dies. The shell has its own process group, so Ctrl-C does not
//! reach it, and it ignores the signals that stop a study or a whole service. If it is killed, this
//! process writes the old values. A reboot resets all settings anyway.
//!
//! In a pair such as `dirty_ratio` and `dirty_bytes`, the kernel sets one to 0 when the other is
//! written. Only the effective one is restored.

use ioloom_failure::{quoted, reason};
use ioloom_sys::fault::call;
use ioloom_sys::proc::read_text;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Directory of the settings.
const HOME: &str = "/proc/sys/vm";

/// Settings that are allowed to change, each with the one that is 0 while it is effective.
pub const KNOWN: [(&str, Option<&str>); 6] = [
    ("dirty_bytes", Some("dirty_ratio")),
    ("dirty_background_bytes", Some("dirty_background_ratio")),
    ("dirty_ratio", Some("dirty_bytes")),
    ("dirty_background_ratio", Some("dirty_background_bytes")),
    ("dirty_writeback_centisecs", None),
    ("dirty_expire_centisecs", None),
];

/// Shell script: waits for the end of its input, then writes each value to its file.
const WAY_BACK: &str = "trap '' HUP INT TERM; cat >/dev/null; \
                        while [ $# -gt 1 ]; do \
                        printf '%s\\n' \"$2\" > \"$1\" || failed=1; shift 2; done; \
                        [ -z \"$failed\" ]";

/// Changed settings. Dropping the value restores them and waits for completion.
#[derive(Debug)]
pub struct ChangedSettings {
    way_back: Child,
    /// Old values by file.
    old: Vec<(PathBuf, u64)>,
    /// Locked while settings are changed, so that no other run mistakes our values for the old
    /// ones. The shell inherits the lock, so it is held until the settings are restored, also if this
    /// process is killed.
    _lock: File,
}

impl ChangedSettings {
    /// Changes settings below `/proc/sys/vm`. The error is a sentence; after an error nothing is
    /// changed.
    pub fn set(values: &BTreeMap<String, u64>) -> Result<Self, String> {
        Self::set_in(Path::new(HOME), values)
    }

    fn set_in(home: &Path, values: &BTreeMap<String, u64>) -> Result<Self, String> {
        // Before the old values are read: until the lock is free they are those of another run.
        let lock = lock(&home.join(KNOWN[0].0))?;
        let mut old = Vec::new();
        for name in values.keys() {
            let Some((_, other)) = KNOWN.iter().find(|(known, _)| known == name) else {
                return Err(format!("changing setting '{name}' is not allowed"));
            };
            old.push(in_force(home, name, *other)?);
        }
        let way_back =
            way_back(&old, &lock).map_err(|e| format!("cannot run '/bin/sh': {}", reason(&e)))?;
        let changed = Self { way_back, old, _lock: lock };
        for (name, value) in values {
            let path = home.join(name);
            call("write-setting", || std::fs::write(&path, format!("{value}\n"))).map_err(|e| {
                format!(
                    "cannot set {} to {value}: {}; remedy: run as root",
                    quoted(&path),
                    reason(&e)
                )
            })?;
        }
        Ok(changed)
    }

    /// Restores all settings.
    ///
    /// # Errors
    /// Returns a sentence with the shell commands that restore them.
    pub fn restore(mut self) -> Result<(), String> {
        self.back()
    }

    fn back(&mut self) -> Result<(), String> {
        drop(self.way_back.stdin.take());
        if self.way_back.wait().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        // All of them, also after a failure.
        let failed: Vec<String> = self.old.iter().filter_map(write_back).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let by_hand =
            self.old.iter().map(|(path, value)| format!("echo {value} > {}", path.display()));
        let by_hand = by_hand.collect::<Vec<_>>().join("; ");
        Err(format!("{}; run as root: {by_hand}", failed.join(", ")))
    }
}

impl Drop for ChangedSettings {
    fn drop(&mut self) {
        if self.way_back.stdin.is_some() {
            let _ = self.back();
        }
    }
}

/// Restores one setting. Returns why that is impossible.
fn write_back((path, value): &(PathBuf, u64)) -> Option<String> {
    let error = std::fs::write(path, format!("{value}\n")).err()?;
    Some(format!("cannot restore {} to {value}: {}", quoted(path), reason(&error)))
}

/// Returns the file and value that restore the currently effective setting.
fn in_force(home: &Path, name: &str, other: Option<&str>) -> Result<(PathBuf, u64), String> {
    let number = |name: &str| {
        let path = home.join(name);
        let text = read_text(&path)
            .map_err(|e| format!("cannot read {}: {}", quoted(&path), reason(&e)))?;
        let number = text.trim().parse::<u64>();
        number
            .map(|n| (path.clone(), n))
            .map_err(|_| format!("{} does not contain a number", quoted(&path)))
    };
    let own = number(name)?;
    match other {
        Some(other) if own.1 == 0 => number(other),
        _ => Ok(own),
    }
}

fn lock(path: &Path) -> Result<File, String> {
    let file =
        File::open(path).map_err(|e| format!("cannot open {}: {}", quoted(path), reason(&e)))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err("another study has changed kernel settings; remedy: wait until it finishes"
                .to_owned())
        }
        Err(TryLockError::Error(e)) => Err(format!("cannot lock {}: {}", quoted(path), reason(&e))),
    }
}

fn way_back(old: &[(PathBuf, u64)], lock: &File) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", WAY_BACK, "way-back"]);
    for (path, value) in old {
        command.arg(path).arg(value.to_string());
    }
    // The shell writes nothing to its standard output, which only holds the lock.
    let held = Stdio::from(lock.try_clone()?);
    command.stdin(Stdio::piped()).stdout(held).stderr(Stdio::null()).process_group(0);
    call("spawn", || command.spawn())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a directory with settings, one of which was changed from 3000 to 7.
    fn changed() -> (tempfile::TempDir, ChangedSettings) {
        let home = home(&USUAL);
        let values = wanted(&[("dirty_expire_centisecs", 7)]);
        let changed = ChangedSettings::set_in(home.path(), &values).unwrap();
        (home, changed)
    }

    fn home(values: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, value) in values {
            std::fs::write(dir.path().join(name), value).unwrap();
        }
        dir
    }

    fn now(home: &tempfile::TempDir, name: &str) -> String {
        std::fs::read_to_string(home.path().join(name)).unwrap().trim().to_owned()
    }

    /// Changes settings that were restored before. A child process that another test is starting can
    /// hold the lock until it executes its program.
    fn set_again(home: &tempfile::TempDir, values: &BTreeMap<String, u64>) -> ChangedSettings {
        let mut refused = String::new();
        for _ in 0..6000 {
            match ChangedSettings::set_in(home.path(), values) {
                Ok(changed) => return changed,
                Err(error) => refused = error,
            }
            assert!(refused.contains("another study"), "{refused}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{refused}");
    }

    fn wanted(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    const USUAL: [(&str, &str); 3] =
        [("dirty_bytes", "0\n"), ("dirty_ratio", "20\n"), ("dirty_expire_centisecs", "3000\n")];

    #[test]
    fn settings_are_changed_and_restored() {
        let home = home(&USUAL);
        let values = wanted(&[("dirty_bytes", 1 << 20), ("dirty_expire_centisecs", 100)]);
        let changed = ChangedSettings::set_in(home.path(), &values).unwrap();
        assert_eq!(now(&home, "dirty_bytes"), "1048576");
        assert_eq!(now(&home, "dirty_expire_centisecs"), "100");
        // Like the kernel.
        std::fs::write(home.path().join("dirty_ratio"), "0\n").unwrap();
        let other = ChangedSettings::set_in(home.path(), &values).unwrap_err();
        assert!(other.contains("another study"), "{other}");
        changed.restore().unwrap();
        assert_eq!(now(&home, "dirty_ratio"), "20");
        assert_eq!(now(&home, "dirty_expire_centisecs"), "3000");
        drop(set_again(&home, &wanted(&[("dirty_expire_centisecs", 7)])));
        assert_eq!(now(&home, "dirty_expire_centisecs"), "3000");
    }

    #[test]
    fn refused_settings_change_nothing() {
        let home = home(&USUAL);
        for (name, part) in
            [("drop_caches", "is not allowed"), ("dirty_background_bytes", "cannot read ")]
        {
            let values = wanted(&[("dirty_bytes", 9), (name, 1)]);
            let error = ChangedSettings::set_in(home.path(), &values).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert_eq!(now(&home, "dirty_bytes"), "0");
        }
    }

    /// A shell that has not restored the values yet, as after a kill, keeps others from taking them for
    /// the old ones.
    #[test]
    fn the_lock_is_held_until_the_values_are_restored() {
        let home = home(&USUAL);
        let values = wanted(&[("dirty_expire_centisecs", 7)]);
        let locked = lock(&home.path().join(KNOWN[0].0)).unwrap();
        let old = vec![(home.path().join("dirty_expire_centisecs"), 3000)];
        let mut shell = way_back(&old, &locked).unwrap();
        drop(locked);
        std::fs::write(home.path().join("dirty_expire_centisecs"), "100").unwrap();
        let refused = ChangedSettings::set_in(home.path(), &values).unwrap_err();
        assert!(refused.contains("another study"), "{refused}");
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
        set_again(&home, &values).restore().unwrap();
        assert_eq!(now(&home, "dirty_expire_centisecs"), "3000");
    }

    /// The pipe is closed when the process exits; this test closes only the pipe.
    #[test]
    fn the_shell_restores_settings_by_itself() {
        let (home, mut changed) = changed();
        drop(changed.way_back.stdin.take());
        assert!(changed.way_back.wait().unwrap().success());
        assert_eq!(now(&home, "dirty_expire_centisecs"), "3000");
    }

    /// A signal to all processes, as at the end of a service, must not keep it from restoring them.
    #[test]
    fn the_shell_ignores_signals_that_stop_a_study() {
        let (home, mut changed) = changed();
        let status = format!("/proc/{}/status", changed.way_back.id());
        let ignored = || {
            let text = std::fs::read_to_string(&status).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        let signals = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
        let bits: u64 = signals.iter().map(|signal| 1_u64 << (signal - 1)).sum();
        // It sets them up after it has been started.
        let set_up = (0..6000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            ignored() & bits == bits
        });
        assert!(set_up, "{:x}", ignored());
        drop(changed.way_back.stdin.take());
        assert!(changed.way_back.wait().unwrap().success());
        assert_eq!(now(&home, "dirty_expire_centisecs"), "3000");
    }

    #[test]
    fn the_settings_are_restored_without_the_shell() {
        let (home, mut changed) = changed();
        changed.way_back.kill().unwrap();
        changed.restore().unwrap();
        assert_eq!(now(&home, "dirty_expire_centisecs"), "3000");
    }

    #[test]
    fn a_failed_restore_names_the_commands() {
        let home = home(&USUAL);
        let values = wanted(&[("dirty_expire_centisecs", 7)]);
        let changed = ChangedSettings::set_in(home.path(), &values).unwrap();
        std::fs::remove_file(home.path().join("dirty_expire_centisecs")).unwrap();
        std::fs::create_dir(home.path().join("dirty_expire_centisecs")).unwrap();
        let error = changed.restore().unwrap_err();
        assert!(error.contains("centisecs' to 3000: Is a directory"), "{error}");
        assert!(error.contains("run as root: echo 3000 > "), "{error}");
    }
}

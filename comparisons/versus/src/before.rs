//! Preparation of every run, the same for each arm.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Writes to each page of newly allocated memory and releases it.
///
/// In a virtual machine, the first touch of a page that the host has not provided yet costs an exit
/// to the host, about as much as reading the data. Which runs get such pages is random.
pub fn touch_memory(bytes: usize) {
    let mut memory = vec![0u8; bytes];
    for page in memory.chunks_mut(rustix::param::page_size()) {
        page[0] = 1;
    }
    std::hint::black_box(&mut memory);
}

/// Loads the programs of a command into memory: starts the first word with `--version`, which also
/// loads its libraries, and reads the other programs that the words name, as in `sh -c 'find . |
/// xargs sha256sum'`, without their libraries.
pub fn load_programs(command: &[impl AsRef<OsStr>]) {
    let Some((program, words)) = command.split_first() else { return };
    start_once(program.as_ref());
    for program in named(words, &std::env::var_os("PATH").unwrap_or_default()) {
        // If a program cannot be read, the run still starts under its condition.
        let _ = std::fs::read(program);
    }
}

/// Returns the executable files in the directories of `path` that the words name. Words with a
/// slash are left out: they may be files that the run must read from the device.
fn named(words: &[impl AsRef<OsStr>], path: &OsStr) -> Vec<PathBuf> {
    let separates = |c: char| c.is_whitespace() || "|&;()<>{}`'\"$=".contains(c);
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let names = words.iter().filter_map(|word| word.as_ref().to_str());
    let names = names.flat_map(|word| word.split(separates));
    let names = names.filter(|name| !name.is_empty() && !name.contains('/'));
    let found = |name: &str| std::env::split_paths(path).map(|dir| dir.join(name)).find(is_program);
    names.filter_map(found).collect()
}

/// Starts a program. One without `--version` fails immediately but has been loaded.
fn start_once(program: &OsStr) {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // If a program cannot be started, its run fails with the reason.
    let _ = command.status();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn the_programs_of_a_script_are_found_and_other_files_are_not() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (name, mode) in [("find", 0o755), ("xargs", 0o755), ("sha256sum", 0o755), ("f", 0o644)]
        {
            let path = dir.path().join(name);
            fs::write(&path, "").expect("writes");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changes the mode");
        }
        let script = "find f -print0|xargs -0 '/usr/bin/sha256sum'; x=$(sha256sum)";
        let found = named(&["-c", script, "f", "/bin/sh"], dir.path().as_os_str());
        let wanted = ["find", "xargs", "sha256sum"].map(|name| dir.path().join(name));
        assert_eq!(found, wanted);
    }
}

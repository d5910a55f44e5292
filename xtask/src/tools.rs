//! The programs that this crate may start, with their packages.
//!
//! A program that is not on this list cannot be started ([`program`] refuses it), so a fresh
//! machine with the packages below has everything that `cargo xtask ci` needs. The list also
//! includes programs started by tests.

use std::path::{Path, PathBuf};

/// A program from a system package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packaged {
    /// Name of the program.
    pub(crate) program: &'static str,
    /// Debian package.
    pub(crate) package: &'static str,
    /// The checks that are skipped without it.
    pub(crate) needed_for: &'static str,
}

/// Programs from packages. `npm` is separate from `nodejs`: some distributions ship both in one.
pub(crate) const PACKAGED: [Packaged; 19] = [
    Packaged { program: "nats-server", package: "nats-server", needed_for: "tests of queues" },
    Packaged { program: "git", package: "git", needed_for: "the commit in the version of results" },
    Packaged {
        program: "valgrind",
        package: "valgrind",
        needed_for: "gate: counting the instructions of the hot path",
    },
    Packaged {
        program: "node",
        package: "nodejs",
        needed_for: "ui: type check and tests of the viewer",
    },
    Packaged {
        program: "python3",
        package: "python3",
        needed_for: "findings, verdicts: checks of kept results without our code",
    },
    Packaged { program: "npm", package: "npm", needed_for: "ui: dependencies of the viewer" },
    Packaged {
        program: "chromium",
        package: "chromium",
        needed_for: "opening the report in a real browser",
    },
    Packaged {
        program: "xxhsum",
        package: "xxhash",
        needed_for: "tests that compare `each --per-file` with an independent program",
    },
    Packaged {
        program: "sar",
        package: "sysstat",
        needed_for: "tests that compare the counters with an independent program",
    },
    Packaged {
        program: "strace",
        package: "strace",
        needed_for: "tests in which calls of a store fail",
    },
    Packaged {
        program: "chattr",
        package: "e2fsprogs",
        needed_for: "copies into append-only directories",
    },
    Packaged {
        program: "mkfs.ext4",
        package: "e2fsprogs",
        needed_for: "cold names and inodes, on a private file system image",
    },
    Packaged {
        program: "mkfs.xfs",
        package: "xfsprogs",
        needed_for: "tests that compare `du` with GNU du on XFS",
    },
    Packaged {
        program: "mkfs.btrfs",
        package: "btrfs-progs",
        needed_for: "tests that compare `du` with GNU du on btrfs",
    },
    Packaged { program: "setfacl", package: "acl", needed_for: "tests that copy access lists" },
    Packaged { program: "getfacl", package: "acl", needed_for: "tests that copy access lists" },
    Packaged { program: "man", package: "man-db", needed_for: "tests that render the man pages" },
    Packaged {
        program: "openssl",
        package: "openssl",
        needed_for: "tests of encrypted connections to a PostgreSQL database",
    },
    Packaged {
        program: "pg_ctlcluster",
        package: "postgresql",
        needed_for: "tests of `serve` with its orders in a PostgreSQL database",
    },
];

/// Programs that need no package: the toolchain that built this crate with its linker, `tar`, the
/// programs of Debian that install and build packages, and those of systemd. The last two groups may
/// be absent.
pub(crate) const GIVEN: [&str; 8] = [
    "apt-get",
    "cargo",
    "cc",
    "dpkg-deb",
    "rustc",
    "systemd-analyze",
    "systemd-socket-activate",
    "tar",
];

/// Programs that are part of every Debian system, for use by the crates and their tests.
#[cfg(test)]
const ESSENTIAL: [&str; 48] = [
    "bash", "cat", "chmod", "chown", "cmp", "cp", "dd", "diff", "du", "env", "false", "find",
    "grep", "head", "kill", "ln", "losetup", "ls", "md5sum", "mkdir", "mkfifo", "mknod", "mount",
    "mv", "printf", "prlimit", "rm", "script", "sed", "seq", "setpriv", "sh", "sleep", "sort",
    "stat", "sync", "tail", "tar", "taskset", "tee", "timeout", "touch", "true", "truncate",
    "umount", "unshare", "xargs", "yes",
];

/// Returns the name of a program that may be started.
///
/// # Panics
/// It is not on any list, which is a bug in this crate.
pub(crate) fn program(name: &'static str) -> &'static str {
    assert!(
        GIVEN.contains(&name) || PACKAGED.iter().any(|p| p.program == name),
        "'{name}' is not on the list of xtask/src/tools.rs; add it with its package"
    );
    name
}

/// Returns the path of a program, if it is installed.
pub(crate) fn find(name: &'static str) -> Option<PathBuf> {
    let name = program(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    // File system programs are in the administrator's directories, which are often not in a normal
    // user's PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns the packaged programs that are not installed.
pub(crate) fn missing() -> Vec<Packaged> {
    PACKAGED.into_iter().filter(|p| find(p.program).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_programs_may_start() {
        assert_eq!(program("valgrind"), "valgrind");
        assert!(std::panic::catch_unwind(|| program("wget")).is_err());
    }

    #[test]
    fn cargo_is_found() {
        assert!(find("cargo").is_some());
    }

    /// The list is effective only if nothing else starts a program. `gnu`, `fuzz` and `regret` are not part of
    /// `ci`: they start what the user names, and mount file systems in namespaces of their own.
    #[test]
    fn nothing_starts_a_program_past_the_list() {
        let repo = crate::repo::Repo::find().unwrap();
        let start = concat!("Command", "::new(");
        for file in repo.files().unwrap() {
            let by_hand =
                ["xtask/src/gnu", "xtask/src/fuzz", "xtask/src/regret", "xtask/src/cells"]
                    .iter()
                    .any(|d| file.starts_with(d));
            if file.starts_with("xtask/src")
                && !by_hand
                && file.extension().is_some_and(|e| e == "rs")
            {
                let text = repo.read(&file).unwrap();
                let found = text.matches(start).count();
                let allowed = match file.file_name().and_then(|name| name.to_str()) {
                    Some("guard.rs") => 4,
                    // The release build.
                    Some("evidence.rs") => 1,
                    _ => 0,
                };
                assert_eq!(found, allowed, "{}", file.display());
            }
        }
    }

    /// Every program that the crates start by name must be listed, or it could be missing on a
    /// fresh machine.
    #[test]
    fn what_the_crates_start_is_listed() {
        let repo = crate::repo::Repo::find().unwrap();
        let start = concat!("Command", "::new(\"");
        for file in repo.files().unwrap() {
            if !file.starts_with("crates") || file.extension().is_none_or(|e| e != "rs") {
                continue;
            }
            let text = repo.read(&file).unwrap();
            // The command-line builder has a type of the same name, and its manual tests use it.
            let text = text.replace(&format!("clap::{start}"), "");
            for rest in text.split(start).skip(1) {
                let path = rest.split('"').next().unwrap_or_default();
                let name = path.rsplit('/').next().unwrap_or(path);
                let listed = ESSENTIAL.contains(&name)
                    || GIVEN.contains(&name)
                    || PACKAGED.iter().any(|p| p.program == name);
                assert!(listed, "{}: '{name}' is not in xtask/src/tools.rs", file.display());
            }
        }
    }
}

//! Test directories with various trees, and runs of `ioloom du` and GNU du in them.

use ioloom_testbed::ODD_NAMES;
pub(crate) use ioloom_testbed::{ProcessOutput, Workspace};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ioloom");

/// A test directory.
pub(crate) fn fresh() -> Workspace {
    Workspace::new(PROGRAM)
}

/// Creates a directory on the in-memory file system, if there is one.
pub(crate) fn in_memory() -> Option<Workspace> {
    Workspace::in_memory(PROGRAM)
}

/// Removes environment variables that change the units of du.
fn in_bytes(mut command: Command) -> Command {
    for name in ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE", "POSIXLY_CORRECT"] {
        command.env_remove(name);
    }
    command
}

/// Operations on a test directory.
pub(crate) trait Du {
    /// Returns a command for `ioloom du` in this directory.
    fn our_command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command;

    /// Returns a command for GNU du in this directory.
    fn gnu<S: AsRef<OsStr>>(&self, args: &[S]) -> ProcessOutput;

    /// Creates a tree with unusual names, a hole, and links that form loops.
    fn odd_dirs(&self, root: &str);

    /// Creates files with links in several directories and with several links in one.
    fn hard_links(&self, root: &str);

    /// Runs `ioloom du` in this directory.
    fn du<S: AsRef<OsStr>>(&self, args: &[S]) -> ProcessOutput {
        self.our_command(args).output().unwrap().into()
    }

    /// Asserts that both programs print the same lines, in any order, with the same exit code.
    fn same(&self, args: &[&str]) {
        let (ours, gnus) = (self.du(args), self.gnu(args));
        let end = if args.iter().any(|a| a.contains('0')) { 0 } else { b'\n' };
        let lines = |ran: &ProcessOutput| {
            let lines =
                ran.out.split(|b| *b == end).map(|l| String::from_utf8_lossy(l).into_owned());
            let mut lines: Vec<String> = lines.collect();
            lines.sort();
            lines
        };
        let words = || format!("{args:?}\n{}\n{}", ours.err, gnus.err);
        assert_eq!(lines(&ours), lines(&gnus), "{}", words());
        assert_eq!(ours.code, gnus.code, "{}", words());
    }
}

impl Du for Workspace {
    fn our_command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = in_bytes(self.ours(&["du"]));
        command.args(args);
        command
    }

    fn gnu<S: AsRef<OsStr>>(&self, args: &[S]) -> ProcessOutput {
        in_bytes(self.command("du")).args(args).output().unwrap().into()
    }

    fn odd_dirs(&self, root: &str) {
        self.odd_tree(root);
        let root = Path::new(root);
        for (i, name) in ODD_NAMES.iter().enumerate() {
            let dir = root.join("dirs").join(OsStr::from_bytes(name));
            self.write(dir.join("inside"), vec![7; i * 5000]);
        }
        fs::File::create(self.at(root).join("deep/hole")).unwrap().set_len(50 << 20).unwrap();
        for (to, link) in [("deep", "again"), ("self", "self")] {
            symlink(to, self.at(root).join(link)).unwrap();
        }
    }

    fn hard_links(&self, root: &str) {
        let root = Path::new(root);
        self.write(root.join("z/first"), vec![1; 100_000]);
        self.write(root.join("own/one"), vec![1; 9000]);
        for dir in ["a", "deep/er", "z"] {
            fs::create_dir_all(self.at(root).join(dir)).unwrap();
            let link = self.at(root).join(dir).join("link");
            fs::hard_link(self.at(root).join("z/first"), link).unwrap();
        }
        fs::hard_link(self.at(root).join("own/one"), self.at(root).join("own/two")).unwrap();
    }
}

/// Returns whether GNU du is installed, in a version whose apparent sizes include directories.
pub(crate) fn gnu_is_there() -> bool {
    let version = Command::new("du").arg("--version").output();
    let gnu = version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("GNU coreutils"));
    let counts = || {
        let empty = tempfile::tempdir().unwrap();
        let out = Command::new("du").arg("-sb").arg(empty.path()).output().unwrap();
        !out.stdout.starts_with(b"0\t")
            || std::os::unix::fs::MetadataExt::size(&fs::metadata(empty.path()).unwrap()) == 0
    };
    if !gnu {
        println!("skipped: no GNU du here");
        return false;
    }
    let counts = counts();
    if !counts {
        println!("skipped: this du does not count directories in apparent sizes");
    }
    counts
}

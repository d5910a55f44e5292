//! Temporary directory of a test, with files of every kind, and a program that runs in it.

use crate::process::{NOBODY, copy_program, is_root, open_to_all};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// File names that are odd in every way that a file system allows.
pub const ODD_NAMES: [&[u8]; 9] = [
    b"plain",
    b"a space",
    b" lead and trail ",
    b"line\nend",
    b"back\\slash",
    b"\xff\xfe not utf8",
    b"$(touch pwned)",
    b"quote'\"`",
    b"-dash",
];

/// Temporary directory of a test. Removed on drop.
#[derive(Debug)]
pub struct Workspace {
    temp: TempDir,
    program: PathBuf,
    nobody: bool,
}

impl Workspace {
    /// Creates a workspace for testing `program`.
    pub fn new(program: &str) -> Self {
        Self::with_dir(tempfile::tempdir().expect("a temporary directory"), program)
    }

    /// Creates a workspace on the memory file system, if there is one.
    pub fn in_memory(program: &str) -> Option<Self> {
        tempfile::tempdir_in("/dev/shm").ok().map(|temp| Self::with_dir(temp, program))
    }

    /// Creates a workspace in memory, or on a disk if there is little room: for tests that need
    /// neither a real disk nor a memory file system.
    pub fn in_memory_or_on_disk(program: &str) -> Self {
        Self::with_dir(crate::memory::in_memory(), program)
    }

    fn with_dir(temp: TempDir, program: &str) -> Self {
        Self { temp, program: program.into(), nobody: false }
    }

    /// Makes programs of this workspace run as a user who is subject to permissions.
    pub fn for_nobody(mut self) -> Self {
        if is_root() {
            let copy = self.at("the-program");
            copy_program(&self.program, &copy);
            open_to_all(&[self.path(), &copy]);
            (self.program, self.nobody) = (copy, true);
        }
        self
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        self.temp.path()
    }

    /// Returns a path inside the directory.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file, creating parent directories.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("the path is inside the workspace"))
            .expect("directories");
        fs::write(path, bytes).expect("a file");
    }

    /// Creates a named pipe.
    pub fn fifo(&self, name: impl AsRef<Path>) {
        let made = Command::new("mkfifo").arg(self.at(name)).status().expect("mkfifo starts");
        assert!(made.success());
    }

    /// Prepares any program to run in this directory, without input and colours, in the C locale.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        if self.nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Prepares the tested program with arguments.
    pub fn ours<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        command
    }

    /// Creates files of every size class, odd names, and special files.
    pub fn odd_tree(&self, root: &str) {
        let root = Path::new(root);
        for (i, name) in ODD_NAMES.iter().enumerate() {
            let bytes: Vec<u8> = (0..i * 1777).map(|b| (b * 7 + i) as u8).collect();
            self.write(root.join(OsStr::from_bytes(name)), bytes);
        }
        let big: Vec<u8> = (0..(3 << 20) + 5u32).map(|b| (b ^ (b >> 8)) as u8).collect();
        self.write(root.join("deep/er/est/big"), big);
        self.write(root.join("deep/page"), [7; 4096]);
        self.write(root.join("deep/empty"), "");
        self.write(root.join("deep.sibling"), "sorts between");
        for (to, link) in [("plain", "link"), ("..", "deep/up")] {
            symlink(to, self.at(root).join(link)).expect("a symbolic link");
        }
        drop(UnixListener::bind(self.at(root).join("sock")).expect("a socket"));
        self.fifo(root.join("pipe"));
    }
}

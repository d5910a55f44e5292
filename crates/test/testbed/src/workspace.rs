//! A directory of a test, with files of every kind, and a program that runs in it.

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

/// Names that are odd in every way that a file system allows.
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

/// A directory of a test that goes with it.
#[derive(Debug)]
pub struct Workspace {
    temp: TempDir,
    program: PathBuf,
    nobody: bool,
}

impl Workspace {
    /// A directory in which `program` is looked at.
    pub fn new(program: &str) -> Self {
        Self::at_home(tempfile::tempdir().expect("a temporary directory"), program)
    }

    /// On the memory file system, where there is one.
    pub fn in_memory(program: &str) -> Option<Self> {
        tempfile::tempdir_in("/dev/shm").ok().map(|temp| Self::at_home(temp, program))
    }

    fn at_home(temp: TempDir, program: &str) -> Self {
        Self { temp, program: program.into(), nobody: false }
    }

    /// Programs of this place run as a user for whom permissions count.
    pub fn for_nobody(mut self) -> Self {
        if is_root() {
            let copy = self.at("the-program");
            copy_program(&self.program, &copy);
            open_to_all(&[self.path(), &copy]);
            (self.program, self.nobody) = (copy, true);
        }
        self
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.temp.path()
    }

    /// A path in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file, and the directories above it.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("it lies in this place")).expect("directories");
        fs::write(path, bytes).expect("a file");
    }

    /// Makes a named pipe.
    pub fn fifo(&self, name: impl AsRef<Path>) {
        let made = Command::new("mkfifo").arg(self.at(name)).status().expect("mkfifo starts");
        assert!(made.success());
    }

    /// Any program in this directory, without input and colours, in a plain language.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        if self.nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// The program of this place with some arguments.
    pub fn ours<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        command
    }

    /// Files of every size class, odd names, and what is no regular file.
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

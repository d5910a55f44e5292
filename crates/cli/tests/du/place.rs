//! A directory with trees of every kind, our program and GNU du.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ioloom");

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(o: Output) -> Self {
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        Self { code: o.status.code(), out: o.stdout, err }
    }
}

impl Ran {
    /// Ended with this code, and without a crash.
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.text(), self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// A directory of a test.
pub(crate) struct Place {
    temp: tempfile::TempDir,
    program: PathBuf,
    uid: Option<u32>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { temp: tempfile::tempdir().unwrap(), program: PROGRAM.into(), uid: None }
    }

    /// On the memory file system, where there is one.
    pub(crate) fn in_memory() -> Option<Self> {
        let temp = tempfile::tempdir_in("/dev/shm").ok()?;
        Some(Self { temp, program: PROGRAM.into(), uid: None })
    }

    /// Programs of this place run as a user for whom permissions count.
    pub(crate) fn for_nobody(mut self) -> Self {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            self.program = self.at("ioloom");
            fs::copy(PROGRAM, &self.program).unwrap();
            for path in [self.path().to_owned(), self.program.clone()] {
                fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
            }
            self.uid = Some(65_534);
        }
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("COLUMNS", "80").env("LC_ALL", "C.UTF-8");
        for name in ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE", "POSIXLY_CORRECT"] {
            command.env_remove(name);
        }
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// `ioloom du` in this directory, before it is started.
    pub(crate) fn our_command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command(&self.program);
        command.arg("du").args(args);
        command
    }

    /// `ioloom du` in this directory.
    pub(crate) fn du<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        self.our_command(args).output().unwrap().into()
    }

    /// GNU du in this directory.
    pub(crate) fn gnu<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        self.command(Path::new("du")).args(args).output().unwrap().into()
    }

    /// The same flags give the same lines, in any order, and the same exit code.
    pub(crate) fn same(&self, args: &[&str]) {
        let (ours, gnus) = (self.du(args), self.gnu(args));
        let end = if args.iter().any(|a| a.contains('0')) { 0 } else { b'\n' };
        let lines = |ran: &Ran| {
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

    /// A tree with names, links, holes and loops of every kind.
    pub(crate) fn odd_tree(&self, root: &str) {
        let names: [&[u8]; 6] =
            [b"plain", b"a space", b"line\nend", b"\xff\xfe not utf8", b"-dash", b"quote'\"`"];
        let root = Path::new(root);
        for (i, name) in names.iter().enumerate() {
            self.write(root.join(OsStr::from_bytes(name)), vec![7; i * 1777]);
            let dir = root.join("dirs").join(OsStr::from_bytes(name));
            self.write(dir.join("inside"), vec![7; i * 5000]);
        }
        self.write(root.join("deep/er/est/big"), vec![1; 3_000_005]);
        fs::File::create(self.at(root).join("deep/hole")).unwrap().set_len(50 << 20).unwrap();
        for (to, link) in
            [("plain", "link"), ("..", "deep/up"), ("deep", "again"), ("self", "self")]
        {
            symlink(to, self.at(root).join(link)).unwrap();
        }
        drop(std::os::unix::net::UnixListener::bind(self.at(root).join("sock")).unwrap());
        let made = Command::new("mkfifo").arg(self.at(root).join("pipe")).status().unwrap();
        assert!(made.success());
    }

    /// Links of one file in several directories, and several in one.
    pub(crate) fn hard_links(&self, root: &str) {
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

/// Whether GNU du is there, in a version that counts directories in apparent sizes as we do.
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
        println!("skipped: this du counts no directories in apparent sizes");
    }
    counts
}

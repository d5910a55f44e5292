//! A directory with files of every kind, and the program in reach.

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ioloom");

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(o: Output) -> Self {
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        Self { code: o.status.code(), signal: o.status.signal(), out: o.stdout, err }
    }
}

impl Ran {
    /// Ended with this code, and without a crash.
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!((self.code, self.signal), (Some(code), None), "{}\n{}", self.text(), self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard output as one document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// One line on standard error that has these words, and nothing on standard output.
    pub(crate) fn one_error(&self, words: &[&str]) {
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.out.is_empty(), "{}", self.text());
        for word in words {
            assert!(self.err.contains(word), "{word}: {}", self.err);
        }
    }
}

/// A directory of a test.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// On the memory file system, where there is one.
    pub(crate) fn in_memory() -> Option<Self> {
        tempfile::tempdir_in("/dev/shm").ok().map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// `each` in this directory.
    pub(crate) fn each<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        self.command(PROGRAM).arg("each").args(args).output().unwrap().into()
    }

    /// `each` with something on its standard input.
    pub(crate) fn each_of<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Ran {
        let mut command = self.command(PROGRAM);
        fed(command.arg("each").args(args), input)
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    }

    /// Files of every size class, odd names, and what is no regular file.
    pub(crate) fn odd_tree(&self, root: &str) {
        let names: [&[u8]; 9] = [
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
        let root = Path::new(root);
        for (i, name) in names.iter().enumerate() {
            let bytes: Vec<u8> = (0..i * 1777).map(|b| (b * 7 + i) as u8).collect();
            self.write(root.join(OsStr::from_bytes(name)), bytes);
        }
        let big: Vec<u8> = (0..(3 << 20) + 5u32).map(|b| (b ^ (b >> 8)) as u8).collect();
        self.write(root.join("deep/er/est/big"), big);
        self.write(root.join("deep/page"), [7; 4096]);
        self.write(root.join("deep/empty"), "");
        self.write(root.join("deep.sibling"), "sorts between");
        std::os::unix::fs::symlink("plain", self.at(root).join("link")).unwrap();
        std::os::unix::fs::symlink("..", self.at(root).join("deep/up")).unwrap();
        drop(UnixListener::bind(self.at(root).join("sock")).unwrap());
        self.fifo(root.join("pipe"));
    }

    pub(crate) fn fifo(&self, name: impl AsRef<Path>) {
        let made = Command::new("mkfifo").arg(self.at(name)).status().unwrap();
        assert!(made.success());
    }
}

/// Runs a command with something on its standard input.
pub(crate) fn fed(command: &mut Command, input: &[u8]) -> Ran {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

/// Every regular file below a directory, relative to it; a file gives itself.
pub(crate) fn regular_files(root: &Path) -> Vec<OsString> {
    fn below(dir: &Path, prefix: &[u8], found: &mut Vec<OsString>) {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let name = [prefix, entry.file_name().as_bytes()].concat();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                below(&entry.path(), &[&name[..], b"/"].concat(), found);
            } else if kind.is_file() {
                found.push(OsString::from_vec(name));
            }
        }
    }
    let mut found = Vec::new();
    below(root, b"", &mut found);
    found
}

/// The combined digest by its definition: names as told, and where their bytes are.
pub(crate) fn digest_of(files: &[(Vec<u8>, PathBuf)]) -> String {
    let mut lines: Vec<Vec<u8>> = files
        .iter()
        .map(|(told, path)| {
            let hash = format!("{:016x}  ", xxh3_64(&fs::read(path).unwrap()));
            [hash.as_bytes(), told, b"\n"].concat()
        })
        .collect();
    lines.sort();
    format!("{:016x}", xxh3_64(&lines.concat()))
}

/// The digest of one directory.
pub(crate) fn digest_of_tree(root: &Path) -> String {
    let files: Vec<_> = regular_files(root)
        .into_iter()
        .map(|name| (name.as_bytes().to_vec(), root.join(&name)))
        .collect();
    digest_of(&files)
}

/// Whether a program is there.
pub(crate) fn there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        println!("skipped: no {program} here");
    }
    there
}

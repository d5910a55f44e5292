//! Runs the program in an empty home directory.

use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two arms on forty small files.
pub(crate) const TINY: &str = r#"
name = "tiny"
title = "A small question"
question = "Which of two plans is faster on forty files?"
quick_budget_s = 600
[sets.T]
about = "Forty small files."
full = { count = 40, size = "exp(mean=4KiB,min=1,max=64KiB)", seed = 3 }
[[experiment]]
name = "two"
question = "One thread or two?"
sets = ["T"]
conditions = ["cold"]
computes = ["xxh3"]
blocks_quick = 3
[[experiment.arm]]
name = "threads-{n}"
plan = "read/threads:n={n}"
with = { n = [1, 2] }
headline = true
"#;

/// Program output and exit code.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }

    /// Asserts that standard error has one message and standard output is empty.
    pub(crate) fn one_error(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        let errors: Vec<_> = self.err.lines().filter(|l| l.starts_with("ioloom: ")).collect();
        assert_eq!(errors.len(), 1, "{}", self.err);
        for word in words {
            assert!(errors[0].contains(word), "'{word}' is missing: {}", errors[0]);
        }
        assert_eq!(self.out, "");
    }
}

/// A home directory that is removed on drop.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    program: PathBuf,
    uid: Option<u32>,
}

impl Home {
    pub(crate) fn new() -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ioloom"));
        Self { dir: tempfile::tempdir().unwrap(), program, uid: None }
    }

    /// Creates the home directory of an unprivileged user, with a copy of the program. Returns `None`
    /// unless the test runs as root and can switch users.
    pub(crate) fn of_nobody() -> Option<Self> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        const NOBODY: u32 = 65534;
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            return None;
        }
        let mut home = Self::new();
        let copy = home.path("ioloom");
        // Another process copies the program, so that no child of another test has it open for writing.
        let copied = Command::new("cp").arg(&home.program).arg(&copy).status();
        assert!(copied.unwrap().success());
        for path in [home.dir.path(), &copy] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        home.program = copy;
        home.uid = Some(NOBODY);
        Some(home)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the directory with the study, creating it if necessary.
    pub(crate) fn studies(&self, text: &str) -> String {
        let dir = self.path("studies");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("tiny.toml"), text).unwrap();
        dir.to_str().unwrap().to_owned()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("data/ioloom")
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.with_home(Command::new(&self.program), args)
    }

    /// Returns a command for another program, such as a shell that sets limits, in the same
    /// environment.
    pub(crate) fn with_home<S: AsRef<OsStr>>(&self, mut command: Command, args: &[S]) -> Command {
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("COLUMNS", "80")
            .env("NO_COLOR", "1")
            .env_remove("IOLOOM_TRACE");
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        loop {
            match self.command(args).output() {
                // A process that another test starts at this moment still has the copy open.
                Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                ran => return ran.unwrap().into(),
            }
        }
    }

    /// Runs the program with a standard output whose reader has closed it.
    pub(crate) fn run_unread<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        self.command(args).stdout(writer).output().unwrap().into()
    }

    /// Returns the lines of the only session in the store.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.store().join("sessions")) else {
            return Vec::new();
        };
        let files: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
        assert!(files.len() <= 1, "{files:?}");
        let text = files.first().map_or_else(String::new, |f| std::fs::read_to_string(f).unwrap());
        // A partial last line is still being written.
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        text[..whole].lines().map(str::to_owned).collect()
    }

    /// Returns the records of the only session.
    pub(crate) fn records(&self) -> Vec<Value> {
        let lines = self.lines();
        let values = lines.iter().map(|l| serde_json::from_str::<Value>(l).unwrap());
        values.filter_map(|mut v| v.get_mut("run").map(Value::take)).collect()
    }
}

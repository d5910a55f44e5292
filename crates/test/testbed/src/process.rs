//! Processes: tests in a separate process, and captured output of programs.

use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Unprivileged user and group.
pub(crate) const NOBODY: u32 = 65_534;

/// Returns whether this process is root, for whom permissions are not checked.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Returns true in a process that runs only this test, which may inject system call failures and
/// measure memory. Otherwise reruns the test in such a process and returns false.
pub fn alone(test: &str) -> bool {
    if std::env::var_os("IOLOOM_ALONE").is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("a test has a program");
    pass(Command::new(own).args([test, "--exact", "--nocapture"]).env("IOLOOM_ALONE", "1"));
    false
}

/// Reruns `test` in an unprivileged child if this process is root. Returns whether it did.
pub fn as_nobody(test: &str) -> bool {
    if !is_root() {
        return false;
    }
    // Other users may not have access to the binary, but they have access to a copy in the
    // temporary directory.
    let temp = tempfile::tempdir().expect("a temporary directory");
    let copy = temp.path().join("test");
    copy_program(&std::env::current_exe().expect("a test has a program"), &copy);
    open_to_all(&[temp.path(), &copy]);
    let mut command = Command::new(&copy);
    command.args([test, "--exact", "--nocapture"]).current_dir("/").env("TMPDIR", "/tmp");
    pass(command.uid(NOBODY).gid(NOBODY));
    true
}

/// Copies a program with `cp`. A file descriptor open for writing in this process could be
/// inherited by a child that another test starts at the same time, and a file open for writing
/// cannot be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success(), "no room for a copy of the program");
}

/// Lets all users read and execute these paths.
pub(crate) fn open_to_all(paths: &[&Path]) {
    for path in paths {
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its owner may");
    }
}

/// Runs a test program, which must pass exactly one test.
fn pass(command: &mut Command) {
    let ran = ProcessOutput::from(command.output().expect("a test program starts"));
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.err);
    assert!(ran.text().contains("1 passed"), "the child ran no test: {}", ran.text());
}

/// Runs a command with `input` on its standard input.
pub fn fed(command: &mut Command, input: &[u8]) -> ProcessOutput {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    // The program may exit without reading all of it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the program is waited for once");
    writer.join().expect("writing does not panic");
    output.into()
}

/// Output and exit status of a program.
#[derive(Debug)]
pub struct ProcessOutput {
    /// Exit code, if the program exited by itself.
    pub code: Option<i32>,
    /// Signal that terminated the program.
    pub signal: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl From<Output> for ProcessOutput {
    fn from(o: Output) -> Self {
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        Self { code: o.status.code(), signal: o.status.signal(), out: o.stdout, err }
    }
}

impl ProcessOutput {
    /// Asserts this exit code and that the program did not crash.
    pub fn ended(self, code: i32) -> Self {
        assert_eq!((self.code, self.signal), (Some(code), None), "{}\n{}", self.text(), self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// Returns standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Parses standard output as one JSON document.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Asserts that standard error is one line that contains all `words`, and that standard output
    /// is empty.
    pub fn one_error(&self, words: &[&str]) {
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.out.is_empty(), "{}", self.text());
        for word in words {
            assert!(self.err.contains(word), "{word}: {}", self.err);
        }
    }
}

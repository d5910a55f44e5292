//! Processes: a test in one of its own, and programs that ran.

use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// User and group without rights.
pub(crate) const NOBODY: u32 = 65_534;

/// Whether this process is root, to whom permissions say nothing.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Whether the test is alone in its process, where calls may be made to fail and memory may be
/// measured. If not, it runs itself again in a process of its own.
pub fn alone(test: &str) -> bool {
    if std::env::var_os("IOLOOM_ALONE").is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("a test has a program");
    pass(Command::new(own).args([test, "--exact", "--nocapture"]).env("IOLOOM_ALONE", "1"));
    false
}

/// Runs `test` without rights in a child when this process is root; says whether it did.
pub fn as_nobody(test: &str) -> bool {
    if !is_root() {
        return false;
    }
    // The binary may lie where others cannot reach it; a copy in the temporary directory can.
    let temp = tempfile::tempdir().expect("a temporary directory");
    let copy = temp.path().join("test");
    copy_program(&std::env::current_exe().expect("a test has a program"), &copy);
    open_to_all(&[temp.path(), &copy]);
    let mut command = Command::new(&copy);
    command.args([test, "--exact", "--nocapture"]).current_dir("/").env("TMPDIR", "/tmp");
    pass(command.uid(NOBODY).gid(NOBODY));
    true
}

/// Copies a program in a process of its own. A descriptor of ours that writes it could be inherited
/// by a child that another test starts just then, and what is written does not start.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success(), "no room for a copy of the program");
}

/// Lets everybody read and run what lies at these paths.
pub(crate) fn open_to_all(paths: &[&Path]) {
    for path in paths {
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its owner may");
    }
}

/// Runs a test program that is to pass exactly one test.
fn pass(command: &mut Command) {
    let ran = ProcessOutput::from(command.output().expect("a test program starts"));
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.err);
    assert!(ran.text().contains("1 passed"), "the child ran no test: {}", ran.text());
}

/// Runs a command with something on its standard input.
pub fn fed(command: &mut Command, input: &[u8]) -> ProcessOutput {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it was asked for");
    let input = input.to_vec();
    // The program may end without reading everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the program is waited for once");
    writer.join().expect("writing does not panic");
    output.into()
}

/// What a program said and how it ended.
#[derive(Debug)]
pub struct ProcessOutput {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its standard output.
    pub out: Vec<u8>,
    /// Its standard error.
    pub err: String,
}

impl From<Output> for ProcessOutput {
    fn from(o: Output) -> Self {
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        Self { code: o.status.code(), signal: o.status.signal(), out: o.stdout, err }
    }
}

impl ProcessOutput {
    /// Ended with this code, and without a crash.
    pub fn ended(self, code: i32) -> Self {
        assert_eq!((self.code, self.signal), (Some(code), None), "{}\n{}", self.text(), self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard output as one document.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// One line on standard error that has these words, and nothing on standard output.
    pub fn one_error(&self, words: &[&str]) {
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.out.is_empty(), "{}", self.text());
        for word in words {
            assert!(self.err.contains(word), "{word}: {}", self.err);
        }
    }
}

//! Shows that in `COMMAND > FILE`, the shell opens the file before the command starts.
//!
//! Each installed shell redirects the output of a command to a file that its user cannot write. The
//! command creates a marker file, which shows whether it started. Without the redirection, it must
//! start, or the shell proves nothing. The same applies to `sudo`: it cannot help if it never
//! starts. As root, the shells run as an unprivileged user, and the working alternatives are tested
//! too: a shell inside the privileged process, and a privileged `tee`.
//!
//! The files need names because shells open files by name. They are in a temporary directory that
//! is removed at the end; a killed run leaves a few bytes behind.

use crate::stage::cannot;
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_model::Measured;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::make::random_number;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name, program and arguments before `-c` of each shell. The arguments keep it from reading the
/// user's configuration. Shells that are not installed are recorded as missing.
const SHELLS: [(&str, &str, &[&str]); 7] = [
    ("sh", "sh", &[]),
    ("bash", "bash", &["--norc"]),
    ("dash", "dash", &[]),
    ("zsh", "zsh", &["-f"]),
    ("ksh", "ksh", &[]),
    ("busybox", "busybox", &["sh"]),
    ("fish", "fish", &["--no-config"]),
];
/// Unprivileged user and group.
const NOBODY: u32 = 65_534;
/// Contents of the target before the redirection.
const BEFORE: &str = "before\n";
/// The command that creates the marker, with and without redirection to the target.
const PLAIN: &str = "touch mark";
const SENT: &str = "touch mark > ../target";

/// Directory in which the shells run.
struct ShellDir {
    base: PathBuf,
    is_root: bool,
}

/// Result of running a line in a shell.
struct Execution {
    /// Whether the command started.
    began: bool,
    /// Exit code; `None` if it was terminated by a signal.
    code: Option<i32>,
}

impl ShellDir {
    fn make() -> Result<Self, String> {
        // An unpredictable name.
        let name = format!("ioloom-shell-{}-{:016x}", std::process::id(), random_number());
        let base = std::env::temp_dir().join(name);
        let fail =
            |operation, path: &Path, e: io::Error| PathError::new(operation, path, e).to_string();
        let uid = fs::metadata("/proc/self")
            .map_err(|e| fail(Operation::Stat, Path::new("/proc/self"), e))?;
        fs::create_dir(&base).map_err(|e| fail(Operation::CreateDir, &base, e))?;
        let dir = Self { base, is_root: uid.uid() == 0 };
        let (marks, target) = (dir.marks(), dir.target());
        fs::create_dir(&marks).map_err(|e| fail(Operation::CreateDir, &marks, e))?;
        fs::write(&target, BEFORE).map_err(|e| fail(Operation::Write, &target, e))?;
        for (path, mode) in [(&dir.base, 0o755), (&marks, 0o755), (&target, 0o444)] {
            fs::set_permissions(path, Permissions::from_mode(mode))
                .map_err(|e| fail(Operation::ChangeMode, path, e))?;
        }
        if dir.is_root {
            chown(&marks, Some(NOBODY), Some(NOBODY))
                .map_err(|e| fail(Operation::ChangeOwner, &marks, e))?;
        }
        Ok(dir)
    }

    fn marks(&self) -> PathBuf {
        self.base.join("marks")
    }

    fn target(&self) -> PathBuf {
        self.base.join("target")
    }

    /// Returns a shell command for a line, run as the unprivileged user or as ours. Its environment
    /// contains only HOME and PATH.
    fn shell(&self, program: &str, before: &[&str], line: &str, ours: bool) -> Command {
        let mut command = Command::new(program);
        command.args(before).args(["-c", line]).current_dir(self.marks());
        command.env_clear().env("HOME", self.marks());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if self.is_root && !ours {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Runs a shell to completion; `None` if its user cannot start the program. If a directory in
    /// the path is inaccessible, the kernel reports a permission error rather than a missing file.
    fn execute(&self, mut shell: Command) -> Result<Option<Execution>, String> {
        let status = match shell.status() {
            Ok(status) => status,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(None);
            }
            Err(e) => {
                let program = shell.get_program().display().to_string();
                return Err(format!(
                    "cannot run '{program}' as an unprivileged user: {}",
                    reason(&e)
                ));
            }
        };
        let mark = self.marks().join("mark");
        let began = match fs::remove_file(&mark) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(PathError::new(Operation::Remove, &mark, e).to_string()),
        };
        Ok(Some(Execution { began, code: status.code() }))
    }

    fn contents(&self) -> Result<String, String> {
        let target = self.target();
        fs::read_to_string(&target)
            .map_err(|e| PathError::new(Operation::Read, &target, e).to_string())
    }

    /// Returns whether a privileged `tee` writes the output of an unprivileged shell.
    fn by_tee(&self) -> Result<bool, String> {
        let mut shell = self.shell("sh", &[], "echo 3", false);
        let fail = |e: io::Error| cannot("run `echo 3 | tee FILE`", &e);
        let mut shell = shell.stdout(Stdio::piped()).spawn().map_err(fail)?;
        let said = shell.stdout.take().ok_or("the shell has no pipe")?;
        let mut tee = Command::new("tee");
        tee.arg(self.target()).stdin(said).stdout(Stdio::null()).stderr(Stdio::null());
        let wrote = tee.status();
        shell.wait().map_err(fail)?;
        Ok(wrote.map_err(fail)?.success() && self.contents()? == "3\n")
    }
}

impl Drop for ShellDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

pub(super) fn run() -> Result<Measured, String> {
    let start = monotonic_ns();
    let mut measured = Measured::default();
    let dir = ShellDir::make()?;
    let mut put = |name: &str, value: f64| measured.extra.insert(name.to_owned(), value);
    let (mut shells, mut began, mut others, mut others_began) = (0.0, 0.0, 0.0, 0.0);
    for (name, program, before) in SHELLS {
        let plain = dir.execute(dir.shell(program, before, PLAIN, false))?;
        let can = plain.is_some_and(|plain| plain.began);
        put(&format!("{name}_there"), f64::from(u8::from(can)));
        if !can {
            continue;
        }
        let Some(sent) = dir.execute(dir.shell(program, before, SENT, false))? else { continue };
        let one = f64::from(u8::from(sent.began));
        put(&format!("{name}_began"), one);
        if let Some(code) = sent.code {
            put(&format!("{name}_exit_code"), f64::from(code));
        }
        (shells, began) = (shells + 1.0, began + one);
        if name != "zsh" {
            (others, others_began) = (others + 1.0, others_began + one);
        }
    }
    if shells == 0.0 {
        let base = quoted(&dir.base);
        return Err(format!("no shell could run `{PLAIN}` in {base} as an unprivileged user"));
    }
    put("shells", shells);
    put("shells_began", began);
    put("other_shells", others);
    put("other_shells_began", others_began);
    put("target_kept", f64::from(u8::from(dir.contents()? == BEFORE)));
    if dir.is_root {
        let inside = dir.execute(dir.shell("sh", &[], SENT, true))?;
        let worked = inside.is_some_and(|inside| inside.began && inside.code == Some(0));
        put("privileged_shell_began", f64::from(u8::from(worked)));
        put("privileged_tee_wrote", f64::from(u8::from(dir.by_tee()?)));
    }
    drop(dir);
    measured.elapsed_ns = monotonic_ns() - start;
    Ok(measured)
}

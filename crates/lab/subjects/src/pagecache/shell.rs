//! Who opens the file of `COMMAND > FILE`: the shell that reads the line, before the command begins.
//!
//! Each shell that is here is asked to send the output of a command to a file that its user may not
//! write. The command leaves a mark, so it is known whether it ever began; without a redirection it
//! must leave one, or that shell proves nothing. What `sudo` would be given to run is such a command:
//! it cannot help where it never begins. As root the shells run as a user without rights, and what
//! works is tried beside them: a shell inside of the privileged process, and a privileged `tee`.
//!
//! The files have names, because a shell opens names: in a directory of their own among the temporary
//! ones, which is removed at the end. A run that is killed leaves it, a few bytes.

use ioloom_model::Measured;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::make::random_number;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Shells: the name of each, its program, and what the program is given before `-c`: no files of the
/// user's are read. One that is missing is told as missing.
const SHELLS: [(&str, &str, &[&str]); 7] = [
    ("sh", "sh", &[]),
    ("bash", "bash", &["--norc"]),
    ("dash", "dash", &[]),
    ("zsh", "zsh", &["-f"]),
    ("ksh", "ksh", &[]),
    ("busybox", "busybox", &["sh"]),
    ("fish", "fish", &["--no-config"]),
];
/// User and group without rights.
const NOBODY: u32 = 65_534;
/// What the target holds before.
const BEFORE: &str = "before\n";
/// The command that leaves a mark, alone and with its output sent to the target.
const PLAIN: &str = "touch mark";
const SENT: &str = "touch mark > ../target";

/// Where the shells run.
struct Place {
    base: PathBuf,
    is_root: bool,
}

/// What a shell did with a line.
struct Asked {
    /// Whether the command began.
    began: bool,
    /// Exit code; `None` if a signal ended it.
    code: Option<i32>,
}

impl Place {
    fn make() -> Result<Self, String> {
        // A name that nobody can take beforehand.
        let name = format!("ioloom-shell-{}-{:016x}", std::process::id(), random_number());
        let base = std::env::temp_dir().join(name);
        let fail =
            |what: &str, path: &Path, e: io::Error| format!("{what} {}: {e}", path.display());
        let uid =
            fs::metadata("/proc/self").map_err(|e| fail("ask", Path::new("/proc/self"), e))?;
        fs::create_dir(&base).map_err(|e| fail("make", &base, e))?;
        let place = Self { base, is_root: uid.uid() == 0 };
        let (marks, target) = (place.marks(), place.target());
        fs::create_dir(&marks).map_err(|e| fail("make", &marks, e))?;
        fs::write(&target, BEFORE).map_err(|e| fail("write", &target, e))?;
        for (path, mode) in [(&place.base, 0o755), (&marks, 0o755), (&target, 0o444)] {
            fs::set_permissions(path, Permissions::from_mode(mode))
                .map_err(|e| fail("set the mode of", path, e))?;
        }
        if place.is_root {
            chown(&marks, Some(NOBODY), Some(NOBODY)).map_err(|e| fail("give away", &marks, e))?;
        }
        Ok(place)
    }

    fn marks(&self) -> PathBuf {
        self.base.join("marks")
    }

    fn target(&self) -> PathBuf {
        self.base.join("target")
    }

    /// A shell with a line, of the user without rights or of ours; nothing of the environment but
    /// where programs are.
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

    /// Runs a shell to its end; `None` where its user can start no program of that name. (Of a path
    /// with a directory that may not be entered the kernel says so, and not that it is missing.)
    fn ask(&self, mut shell: Command) -> Result<Option<Asked>, String> {
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
                return Err(format!("start {program} as a user without rights: {e}"));
            }
        };
        let mark = self.marks().join("mark");
        let began = match fs::remove_file(&mark) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(format!("remove {}: {e}", mark.display())),
        };
        Ok(Some(Asked { began, code: status.code() }))
    }

    fn holds(&self) -> Result<String, String> {
        let target = self.target();
        fs::read_to_string(&target).map_err(|e| format!("read {}: {e}", target.display()))
    }

    /// Whether a privileged `tee` writes what a shell without rights says.
    fn by_tee(&self) -> Result<bool, String> {
        let mut shell = self.shell("sh", &[], "echo 3", false);
        let fail = |e: io::Error| format!("run `echo 3 | tee FILE`: {e}");
        let mut shell = shell.stdout(Stdio::piped()).spawn().map_err(fail)?;
        let said = shell.stdout.take().ok_or("a pipe was asked for and is not there")?;
        let mut tee = Command::new("tee");
        tee.arg(self.target()).stdin(said).stdout(Stdio::null()).stderr(Stdio::null());
        let wrote = tee.status();
        shell.wait().map_err(fail)?;
        Ok(wrote.map_err(fail)?.success() && self.holds()? == "3\n")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

pub(super) fn run() -> Result<Measured, String> {
    let start = monotonic_ns();
    let mut measured = Measured::default();
    let place = Place::make()?;
    let mut put = |name: &str, value: f64| measured.extra.insert(name.to_owned(), value);
    let (mut shells, mut began, mut others, mut others_began) = (0.0, 0.0, 0.0, 0.0);
    for (name, program, before) in SHELLS {
        let plain = place.ask(place.shell(program, before, PLAIN, false))?;
        let can = plain.is_some_and(|plain| plain.began);
        put(&format!("{name}_there"), f64::from(u8::from(can)));
        if !can {
            continue;
        }
        let Some(sent) = place.ask(place.shell(program, before, SENT, false))? else { continue };
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
        let dir = place.base.display();
        return Err(format!("no shell here could run `{PLAIN}` in {dir} as a user without rights"));
    }
    put("shells", shells);
    put("shells_began", began);
    put("other_shells", others);
    put("other_shells_began", others_began);
    put("target_kept", f64::from(u8::from(place.holds()? == BEFORE)));
    if place.is_root {
        let inside = place.ask(place.shell("sh", &[], SENT, true))?;
        let worked = inside.is_some_and(|inside| inside.began && inside.code == Some(0));
        put("privileged_shell_began", f64::from(u8::from(worked)));
        put("privileged_tee_wrote", f64::from(u8::from(place.by_tee()?)));
    }
    drop(place);
    measured.elapsed_ns = monotonic_ns() - start;
    Ok(measured)
}

//! The frame of GNU's tests: a directory that looks like a built source tree, and the command that
//! runs one test in it.
//!
//! Nothing is configured or compiled. The tests need their scripts, a directory `src` with the
//! programs under test, and the variables that GNU's makefile sets. Facts that `configure` would
//! find are in a small header: what the system's own cp was built with. All other programs are the
//! system's.

use super::shim;
use anyhow::{Context, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `configure` finds on Linux and the tests read.
const CONFIG: &str = "\
#define HAVE_CAP 1
#define HAVE_LINKAT 1
#define HAVE_LUTIMES 1
#define HAVE_OPENAT 1
#define HAVE_UTIMENSAT 1
#define LINK_FOLLOWS_SYMLINKS 0
#define USE_ACL 1
#define USE_XATTR 1
";

/// The programs that tests declare as required.
const BUILT: &str = "cat chgrp chmod chown chroot cp cut date dd df du echo env id install ln ls mkdir \
    mkfifo mknod mktemp mv printf readlink rm rmdir seq sort stat tail timeout touch true truncate wc";

/// The files in the source that every test reads.
const SHARED: [&str; 11] = [
    "init.cfg",
    "tests/Coreutils.pm",
    "tests/CuSkip.pm",
    "tests/CuTmpdir.pm",
    "tests/d_type-check",
    "tests/envvar-check",
    "tests/filefrag-extent-compare",
    "tests/init.sh",
    "tests/lang-default",
    "tests/other-fs-tmpdir",
    "tests/seek-data-capable",
];

/// Runs one test: sets the environment as GNU's makefile does.
const DRIVER: &str = r#"
. ./tests/lang-default
. ./tests/envvar-check
TMPDIR=/tmp; export TMPDIR
here=$(pwd)
PATH=$here/src:$PATH
export PATH VERSION="$PACKAGE_VERSION" PACKAGE_VERSION LOCALE_FR=none LOCALE_FR_UTF8=none \
  abs_top_builddir="$here" abs_top_srcdir="$here" abs_srcdir="$here" srcdir=. top_srcdir=. \
  built_programs fail=0 host_os=linux-gnu host_triplet=x86_64-pc-linux-gnu \
  CONFIG_HEADER="$here/config.h" CU_TEST_NAME="$1" CC=gcc AWK=awk EGREP='grep -E' EXEEXT= \
  MAKE=make PERL=perl SHELL=/bin/bash
exec 9>&2
case $1 in
  *.pl) exec perl -w -I./tests -MCuSkip -MCoreutils -M"CuTmpdir qw($1)" "$1" ;;
  *) exec bash "$1" ;;
esac
"#;

/// Whose programs the tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The system's own cp and du.
    System,
    /// The program of this repository.
    Ours,
}

impl Subject {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Ours => "ioloom",
        }
    }
}

/// A user that tests run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl User {
    /// Finds a user in `/etc/passwd`.
    pub(super) fn find(name: &str) -> anyhow::Result<Self> {
        Self::first(|user| user.name == name)?.with_context(|| format!("no user '{name}'"))
    }

    /// Finds the user with this number in `/etc/passwd`.
    pub(super) fn with_uid(uid: u32) -> anyhow::Result<Self> {
        Self::first(|user| user.uid == uid)?.with_context(|| format!("no user with number {uid}"))
    }

    fn first(test: impl Fn(&Self) -> bool) -> anyhow::Result<Option<Self>> {
        let passwd = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
        let of = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            Some(Self { name, uid, gid })
        };
        Ok(passwd.lines().filter_map(of).find(test))
    }

    /// Returns the user of this process.
    pub(super) fn current() -> anyhow::Result<Self> {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        Ok(Self { name: if uid == 0 { "root".into() } else { format!("uid {uid}") }, uid, gid })
    }
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Pass,
    Fail,
    Skip,
    Frame,
    Timeout,
}

impl Outcome {
    pub(super) const ALL: [Self; 5] =
        [Self::Pass, Self::Fail, Self::Skip, Self::Frame, Self::Timeout];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Skip => "skip",
            Self::Frame => "frame",
            Self::Timeout => "timeout",
        }
    }
}

/// The result of one test.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    /// How often the test ran the wrapper.
    pub(super) calls: usize,
    /// Everything the test printed.
    pub(super) log: String,
}

impl Ran {
    /// Returns why the test was skipped or could not run.
    pub(super) fn why(&self) -> Option<&str> {
        let marks =
            [": skipped test: ", ": skipping test: ", ": set-up failure: ", ": hard error: "];
        let reason = |line| marks.iter().find_map(|mark| Some(str::split_once(line, mark)?.1));
        self.log.lines().find_map(reason)
    }
}

/// A directory to run tests in, for one subject and one user. Removed when dropped.
#[derive(Debug)]
pub(super) struct Frame {
    dir: PathBuf,
    subject: Subject,
    user: User,
    version: String,
    limit: Duration,
}

impl Frame {
    /// Prepares the directory.
    pub(super) fn new(
        source: &Path,
        subject: Subject,
        program: &Path,
        user: &User,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let pid = std::process::id();
        let name = format!("ioloom-gnu-{pid}-{}-{}", subject.word(), user.uid);
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let version = version_of("rm")?;
        let frame = Self { dir, subject, user: user.clone(), version, limit };
        for part in ["tests/cp", "tests/du", "src", "program"] {
            let part = frame.dir.join(part);
            fs::create_dir_all(&part).with_context(|| format!("create {}", part.display()))?;
        }
        for file in SHARED {
            copy(&source.join(file), &frame.dir.join(file))?;
        }
        for suite in ["cp", "du"] {
            for test in tests_in(source, suite)? {
                copy(&source.join(&test), &frame.dir.join(&test))?;
            }
        }
        fs::write(frame.dir.join("config.h"), CONFIG).context("write config.h")?;
        frame.add_programs(program)?;
        open_to_all(&frame.dir)?;
        if rustix::process::getuid().is_root() {
            // Tests create their directories in the first one, or next to their script.
            for dir in ["", "tests/cp", "tests/du"] {
                let dir = frame.dir.join(dir);
                std::os::unix::fs::chown(dir, Some(user.uid), Some(user.gid))
                    .context("give a directory to the user")?;
            }
        }
        Ok(frame)
    }

    fn add_programs(&self, program: &Path) -> anyhow::Result<()> {
        let calls = self.calls();
        fs::write(&calls, "").context("create the record of runs")?;
        fs::set_permissions(&calls, fs::Permissions::from_mode(0o666))
            .context("open the record of runs to all users")?;
        for name in ["cp", "du"] {
            let target = self.dir.join("src").join(name);
            match self.subject {
                // A test copies the program to another place, so it must be a file.
                Subject::System => copy(&Path::new("/bin").join(name), &target)?,
                Subject::Ours => copy(Path::new("/proc/self/exe"), &target)?,
            }
        }
        if self.subject == Subject::Ours {
            let target = self.dir.join("program/ioloom");
            if fs::hard_link(program, &target).is_err() {
                copy(program, &target)?;
            }
        }
        Ok(())
    }

    fn calls(&self) -> PathBuf {
        self.dir.join("calls")
    }

    /// Runs one test.
    pub(super) fn run(&self, test: &str) -> anyhow::Result<Ran> {
        fs::OpenOptions::new().write(true).truncate(true).open(self.calls()).context("calls")?;
        let log_path = self.dir.join("log");
        let log = fs::File::create(&log_path).context("create a log")?;
        let mut command = self.command(test);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share a log")?)
            .stderr(log)
            .process_group(0);
        let start = Instant::now();
        let mut child = command.spawn().context("start a test")?;
        let pid = rustix::process::Pid::from_child(&child);
        let status = loop {
            if let Some(status) = child.try_wait().context("wait for a test")? {
                break Some(status);
            }
            if start.elapsed() > self.limit {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        if status.is_none() {
            child.wait().context("wait for a killed test")?;
        }
        let outcome = match status.map(|s| s.code().unwrap_or(128 + s.signal().unwrap_or(0))) {
            None => Outcome::Timeout,
            Some(0) => Outcome::Pass,
            Some(77) => Outcome::Skip,
            Some(99) => Outcome::Frame,
            Some(_) => Outcome::Fail,
        };
        let log = fs::read(&log_path).unwrap_or_default();
        let calls = fs::read(self.calls()).unwrap_or_default();
        Ok(Ran {
            outcome,
            seconds: start.elapsed().as_secs_f64(),
            calls: calls.iter().filter(|b| **b == b'\n').count(),
            log: String::from_utf8_lossy(&log).into_owned(),
        })
    }

    /// Returns the command of a test. As root, mounts and processes of the test are its own, and
    /// end with it.
    fn command(&self, test: &str) -> Command {
        let mut words: Vec<String> = Vec::new();
        let mut say = |text: &str| words.extend(text.split(' ').map(str::to_owned));
        if rustix::process::getuid().is_root() {
            say("unshare --mount --pid --fork --kill-child --mount-proc --propagation private --");
            if self.user.uid != 0 {
                say(&format!("setpriv --reuid {} --regid {}", self.user.uid, self.user.gid));
                say("--clear-groups --inh-caps=-all --");
            }
        }
        say("bash -c");
        words.extend([DRIVER.to_owned(), "driver".to_owned(), test.to_owned()]);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(&self.dir)
            .env("PACKAGE_VERSION", &self.version)
            .env("built_programs", BUILT)
            .env(shim::CALLS, self.calls());
        match self.subject {
            Subject::System => command.env_remove(shim::PROGRAM),
            Subject::Ours => command.env(shim::PROGRAM, self.dir.join("program/ioloom")),
        };
        command
    }

    /// Returns what `NAME --version` prints first in the environment of the tests.
    pub(super) fn version_line(&self, name: &str) -> anyhow::Result<String> {
        let path = self.dir.join("src").join(name);
        let mut command = Command::new(&path);
        if self.subject == Subject::Ours {
            command.env(shim::PROGRAM, self.dir.join("program/ioloom"));
        }
        let output = command.arg("--version").output().context("run a program under test")?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // A killed test can leave directories without permissions behind.
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(&self.dir).output();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Lists the tests of a suite as paths in the source, sorted.
pub(super) fn tests_in(source: &Path, suite: &str) -> anyhow::Result<Vec<String>> {
    let dir = source.join("tests").join(suite);
    let list = || format!("list {}; is this an unpacked coreutils source?", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).with_context(list)? {
        let name = entry.with_context(list)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".sh") || name.ends_with(".pl") {
            found.push(format!("tests/{suite}/{name}"));
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("{} has no tests", dir.display());
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("copy {} to {}", from.display(), to.display()))
}

fn version_of(program: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--version").output().context("run rm")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().and_then(|line| line.rsplit(' ').next());
    Ok(first.context("rm --version prints no version")?.to_owned())
}

/// Makes everything readable, and programs executable, for the user of the tests.
fn open_to_all(dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).context("list the frame")? {
        let path = entry.context("list the frame")?.path();
        if path.is_dir() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("permissions")?;
            open_to_all(&path)?;
        } else if !path.ends_with("calls") && !path.ends_with("program/ioloom") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("permissions")?;
        }
    }
    Ok(())
}

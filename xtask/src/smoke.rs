//! Runs the first command of the README like a new user: with a fresh home directory, once as the
//! current user and, if that is root, once as an unprivileged user.

use crate::guard::{Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The unprivileged user of every Linux system.
const NOBODY_UID: u32 = 65534;

/// Time limit in seconds; the command itself takes far less.
const LIMIT_S: u64 = 420;

/// The user who runs the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// The current user.
    Current,
    /// [`NOBODY_UID`]; needs root.
    Unprivileged,
}

/// A directory that is removed on drop.
struct Home(PathBuf);

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `ioloom study` of the given release build.
pub(crate) fn run(repo: &Repo, program: &Path, user: User) -> anyhow::Result<Outcome> {
    if user == User::Unprivileged && !rustix::process::geteuid().is_root() {
        return Ok(Outcome::Skipped("needs root to run as another user".to_owned()));
    }
    let home = make_home(program, user)?;
    let run = |args: &[&str], limit_s: u64| {
        let mut job = Job::built(home.0.join("ioloom"), args, &home.0, limit_s)
            .env("HOME", home.0.to_string_lossy())
            .env("XDG_CACHE_HOME", home.0.join("cache").to_string_lossy())
            .env("XDG_DATA_HOME", home.0.join("data").to_string_lossy());
        if user == User::Unprivileged {
            job = job.uid(NOBODY_UID);
        }
        job.run()
    };
    let help = run(&["study", "--help"], 60)?;
    let is_there = help.fine() && help.lines.iter().any(|line| line.contains("study"));
    if !is_there && !is_declared(repo)? {
        return Ok(Outcome::Skipped("the program has no command `study`".to_owned()));
    }
    if !is_there {
        return Ok(Outcome::Failed(format!("ioloom study --help: {}", help.word())));
    }
    Ok(judge(&run(&["study"], LIMIT_S)?, |path| report_bytes(&home.0, path)))
}

/// Returns whether the program's source declares the command, in which case it must work.
fn is_declared(repo: &Repo) -> anyhow::Result<bool> {
    for file in repo.files()? {
        if file.starts_with("crates/tools/cli/src") && repo.read(&file)?.contains("Study") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make_home(program: &Path, user: User) -> anyhow::Result<Home> {
    let name = format!("ioloom-smoke-{}-{user:?}", std::process::id()).to_lowercase();
    // The temporary directory is often in memory, where no run can be cold.
    let disk = Path::new("/var/tmp");
    let base = if disk.is_dir() { disk.to_owned() } else { std::env::temp_dir() };
    let dir = base.join(name);
    std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
    let home = Home(dir);
    // A copy, because other users may not have access to the build directory.
    let copy = home.0.join("ioloom");
    std::fs::copy(program, &copy).with_context(|| format!("copy {}", program.display()))?;
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).context("permissions")?;
    std::fs::set_permissions(&home.0, PermissionsExt::from_mode(0o755)).context("permissions")?;
    if user == User::Unprivileged {
        chown(&home.0, Some(NOBODY_UID), Some(NOBODY_UID))
            .context("change the owner of the home")?;
    }
    Ok(home)
}

/// The command must exit with 0 and name a report that exists and is not empty.
fn judge(ended: &Ended, bytes_of: impl Fn(&str) -> Option<u64>) -> Outcome {
    if !ended.fine() {
        return Outcome::Failed(format!("ioloom study: {}", ended.word()));
    }
    let words = ended.lines.iter().rev().flat_map(|line| line.split_whitespace());
    let mut reports = words.map(|word| word.trim_matches(['"', '\'', '`', ',', '(', ')']));
    let report = reports.find(|word| word.trim_end_matches('.').ends_with(".html"));
    let Some(report) = report.map(|word| word.trim_end_matches('.')) else {
        return Outcome::Failed("ioloom study succeeded but named no report".to_owned());
    };
    match bytes_of(report) {
        Some(bytes) if bytes > 1024 => Outcome::Passed(format!("report of {bytes} bytes")),
        Some(bytes) => Outcome::Failed(format!("{report} has only {bytes} bytes")),
        None => Outcome::Failed(format!("{report} does not exist")),
    }
}

fn report_bytes(home: &Path, path: &str) -> Option<u64> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let path = match path.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => home.join(path),
    };
    std::fs::metadata(path).ok().map(|m| m.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Tests;

    fn ended(code: i32, lines: &[&str]) -> Ended {
        let lines = lines.iter().map(|&l| l.to_owned()).collect();
        Ended { code, killed: None, lines, tests: Tests::default() }
    }

    #[test]
    fn a_report_must_be_named_and_be_there() {
        let there = |path: &str| (path == "/h/report.html").then_some(50_000);
        let good = ended(0, &["answer", "report: /h/report.html"]);
        assert!(matches!(judge(&good, there), Outcome::Passed(_)));
        for bad in [
            ended(1, &["report: /h/report.html"]),
            ended(0, &["answer"]),
            ended(0, &["report: /h/other.html"]),
        ] {
            assert!(matches!(judge(&bad, there), Outcome::Failed(_)), "{bad:?}");
        }
        assert!(matches!(judge(&good, |_| Some(10)), Outcome::Failed(_)));
    }

    #[test]
    fn a_report_is_found_from_home() {
        let dir = std::env::temp_dir().join(format!("ioloom-smoke-test-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let home = Home(dir);
        std::fs::write(home.0.join("r.html"), "12345").unwrap();
        assert_eq!(report_bytes(&home.0, "~/r.html"), Some(5));
        assert_eq!(report_bytes(&home.0, "r.html"), Some(5));
        assert_eq!(report_bytes(&home.0, "s.html"), None);
    }
}

//! Checks of kept results by Python programs that share no code with ioloom: the pages of
//! `docs/findings` follow from their runs, and verdicts recomputed from raw runs are those of the
//! program.

use crate::guard::{Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Time limit of each program in seconds; both take a few.
const LIMIT_S: u64 = 120;

/// Checks the pages of `docs/findings`.
pub(crate) fn findings(repo: &Repo) -> anyhow::Result<Outcome> {
    let job = Job::new("python3", &["xtask/py/findings.py", "--check"], &repo.root, LIMIT_S);
    Ok(judge(&job.run()?))
}

/// Recomputes verdicts of a build on the runs in `results`.
pub(crate) fn verdicts(repo: &Repo, program: &Path) -> anyhow::Result<Outcome> {
    let dir = repo.target_dir()?.join("evidence");
    let runs = dir.join("runs");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&runs).with_context(|| format!("cannot create {}", runs.display()))?;
    for archive in archives(&repo.root.join("results"))? {
        let (archive, into) = (archive.to_string_lossy(), runs.to_string_lossy());
        let args = ["-m", "tarfile", "-e", &archive, &into];
        let unpacked = Job::new("python3", &args, &repo.root, LIMIT_S).run()?;
        if !unpacked.fine() {
            return Ok(Outcome::Failed(format!("{archive}: {}", unpacked.word())));
        }
    }
    let claims = dir.join("claims.json");
    let printed = std::process::Command::new(program)
        .args(["claims", "--json", "--store"])
        .arg(&runs)
        .current_dir(&repo.root)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !printed.status.success() {
        let why = String::from_utf8_lossy(&printed.stderr).into_owned();
        return Ok(Outcome::Failed(format!("ioloom claims: {why}")));
    }
    std::fs::write(&claims, &printed.stdout)
        .with_context(|| format!("cannot write {}", claims.display()))?;
    let (claims, runs) = (claims.to_string_lossy(), runs.to_string_lossy());
    let args = ["xtask/py/recompute.py", &claims, &runs, "results"];
    Ok(judge(&Job::new("python3", &args, &repo.root, LIMIT_S).run()?))
}

/// Returns the archives of kept studies.
fn archives(results: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for question in std::fs::read_dir(results)?.collect::<Result<Vec<_>, _>>()? {
        if question.file_name().to_string_lossy().starts_with("study-") {
            let runs = std::fs::read_dir(question.path())?.collect::<Result<Vec<_>, _>>()?;
            found.extend(runs.into_iter().map(|run| run.path().join("runs.tar.xz")));
        }
    }
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

fn judge(ended: &Ended) -> Outcome {
    let last = ended.lines.back().cloned().unwrap_or_default();
    if ended.fine() { Outcome::Passed(last) } else { Outcome::Failed(last) }
}

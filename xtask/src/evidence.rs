//! Checks of kept results by Python programs that share no code with ioloom: the pages of
//! `docs/findings` follow from their runs, and verdicts recomputed from raw runs are those of the
//! program.

use crate::guard::{Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;
use std::path::Path;

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
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let claims = dir.join("claims.json");
    let printed = std::process::Command::new(program)
        .args(["claims", "--json"])
        .current_dir(&repo.root)
        .env("XDG_DATA_HOME", &dir)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !printed.status.success() {
        let why = String::from_utf8_lossy(&printed.stderr).into_owned();
        return Ok(Outcome::Failed(format!("ioloom claims: {why}")));
    }
    std::fs::write(&claims, &printed.stdout)
        .with_context(|| format!("cannot write {}", claims.display()))?;
    let claims = claims.to_string_lossy();
    let args = ["xtask/py/recompute.py", &claims, "results"];
    Ok(judge(&Job::new("python3", &args, &repo.root, LIMIT_S).run()?))
}

fn judge(ended: &Ended) -> Outcome {
    let last = ended.lines.back().cloned().unwrap_or_default();
    if ended.fine() { Outcome::Passed(last) } else { Outcome::Failed(last) }
}

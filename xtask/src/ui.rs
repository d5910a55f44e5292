//! The viewer in `ui/`: its dependencies, type check and tests, and the build of its one file.

use crate::guard::{Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use crate::tools;

/// Messages of npm that mean: no network, not an error of ours.
const NO_NETWORK: [&str; 4] = ["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT"];

/// Checks the viewer, or builds its embedded file.
pub(crate) fn run(repo: &Repo, build: bool) -> anyhow::Result<Outcome> {
    let dir = repo.root.join("ui");
    if !dir.join("package.json").is_file() {
        return Ok(Outcome::Skipped("there is no ui/package.json".to_owned()));
    }
    for name in ["node", "npm"] {
        if tools::find(name).is_none() {
            return Ok(Outcome::Skipped(format!("{name} is not installed")));
        }
    }
    let install = Job::new("npm", &["ci", "--no-audit", "--no-fund"], &dir, 300).run()?;
    if !install.fine() {
        return Ok(judge_install(&install));
    }
    let script = if build { "build" } else { "check" };
    let ended = Job::new("npm", &["run", script], &dir, 300).run()?;
    Ok(if ended.fine() {
        Outcome::Passed(format!("npm run {script}"))
    } else {
        Outcome::Failed(format!("npm run {script}: {}", ended.word()))
    })
}

fn judge_install(ended: &Ended) -> Outcome {
    let offline = ended.lines.iter().any(|l| NO_NETWORK.iter().any(|word| l.contains(word)));
    if offline {
        Outcome::Skipped("npm ci found no network".to_owned())
    } else {
        Outcome::Failed(format!("npm ci: {}", ended.word()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Tests;

    #[test]
    fn no_network_is_no_failure_but_a_bad_lock_is() {
        let ended = |line: &str| Ended {
            code: 1,
            killed: None,
            lines: [line.to_owned()].into(),
            tests: Tests::default(),
        };
        let offline = judge_install(&ended("npm error code EAI_AGAIN"));
        assert!(matches!(offline, Outcome::Skipped(_)));
        let lock = judge_install(&ended("npm error lock file does not satisfy package.json"));
        assert!(matches!(lock, Outcome::Failed(_)));
    }
}

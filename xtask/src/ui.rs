//! The viewer in `ui/`: its dependencies, type check and tests, and the build of its single file.

use crate::guard::{Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use crate::tools;

/// npm messages that indicate a missing network rather than a bug.
const NO_NETWORK: [&str; 4] = ["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT"];

/// Checks the viewer, or builds its embedded file.
pub(crate) fn run(repo: &Repo, build: bool) -> anyhow::Result<Outcome> {
    let dir = repo.root.join("ui");
    if !dir.join("package.json").is_file() {
        return Ok(Outcome::Skipped("ui/package.json is missing".to_owned()));
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
    let ended = Job::new("npm", &["run", script], &dir, 600).run()?;
    Ok(judge_script(script, &ended))
}

/// A script that skips a part reports this in one line and exits with 0.
fn judge_script(script: &str, ended: &Ended) -> Outcome {
    let skipped = ended.lines.iter().find_map(|line| line.strip_prefix("SKIPPED: "));
    match skipped {
        _ if !ended.fine() => {
            let why = ended.lines.iter().rev().find(|line| line.starts_with("FAILED"));
            let why = why.map_or("", String::as_str);
            Outcome::Failed(format!("npm run {script}: {} {why}", ended.word()))
        }
        Some(words) => Outcome::Skipped(words.to_owned()),
        None => Outcome::Passed(format!("npm run {script}")),
    }
}

fn judge_install(ended: &Ended) -> Outcome {
    let offline = ended.lines.iter().any(|l| NO_NETWORK.iter().any(|word| l.contains(word)));
    if offline {
        Outcome::Skipped("npm ci could not reach the registry".to_owned())
    } else {
        Outcome::Failed(format!("npm ci: {}", ended.word()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Tests;

    fn ended(code: i32, line: &str) -> Ended {
        Ended { code, killed: None, lines: [line.to_owned()].into(), tests: Tests::default() }
    }

    #[test]
    fn what_a_script_left_out_is_counted() {
        let skipped = judge_script("check", &ended(0, "SKIPPED: no browser"));
        assert_eq!(skipped, Outcome::Skipped("no browser".to_owned()));
        assert!(matches!(judge_script("check", &ended(0, "fine")), Outcome::Passed(_)));
        assert!(matches!(judge_script("check", &ended(1, "SKIPPED: x")), Outcome::Failed(_)));
    }

    #[test]
    fn no_network_is_no_failure_but_a_bad_lock_is() {
        let offline = judge_install(&ended(1, "npm error code EAI_AGAIN"));
        assert!(matches!(offline, Outcome::Skipped(_)));
        let lock = judge_install(&ended(1, "npm error lock file does not satisfy package.json"));
        assert!(matches!(lock, Outcome::Failed(_)));
    }
}

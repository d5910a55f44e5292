//! Checks of kept results by Python programs that share no code with ioloom: the pages of
//! `docs/findings` follow from their runs, and verdicts recomputed from raw runs are those of the
//! program.

use crate::guard::{Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Time limit of each program in seconds; both take a few.
const LIMIT_S: u64 = 120;

/// What the name of a kept result begins with.
const DATE: &str = "2026-11-22-";

/// Checks the pages of `docs/findings`.
pub(crate) fn findings(repo: &Repo) -> anyhow::Result<Outcome> {
    let job = Job::new("python3", &["xtask/py/findings.py", "--check"], &repo.root, LIMIT_S);
    Ok(judge(&job.run()?))
}

/// Recomputes verdicts of a build on the runs in `results`: those in the archives of kept studies,
/// machine by machine, and the exports that are not in archives.
///
/// One machine decides all contrasts of a claim, and the p-values of the others are not corrected, so
/// those of each are recomputed only if its runs are judged apart.
pub(crate) fn verdicts(repo: &Repo, program: &Path) -> anyhow::Result<Outcome> {
    let dir = repo.target_dir()?.join("evidence");
    let _ = std::fs::remove_dir_all(&dir);
    let mut words = Vec::new();
    for (machine, archives) in archives(&repo.root.join("results"))? {
        let runs = dir.join(&machine).join("runs");
        create(&runs)?;
        for archive in archives {
            let (archive, into) = (archive.to_string_lossy(), runs.to_string_lossy());
            let args = ["-m", "tarfile", "-e", &archive, &into];
            let unpacked = Job::new("python3", &args, &repo.root, LIMIT_S).run()?;
            if !unpacked.fine() {
                return Ok(Outcome::Failed(format!("{archive}: {}", unpacked.word())));
            }
        }
        // Elsewhere than in the repository, so that its exports are not read.
        let outcome = recomputed(repo, program, (&dir.join(&machine), &runs), &runs)?;
        let Outcome::Passed(word) = outcome else { return Ok(outcome) };
        words.push(format!("{machine}: {word}"));
    }
    let none = dir.join("exports").join("none");
    create(&none)?;
    let outcome = recomputed(repo, program, (&repo.root, &none), &repo.root.join("results"))?;
    let Outcome::Passed(word) = outcome else { return Ok(outcome) };
    words.push(format!("exports: {word}"));
    Ok(Outcome::Passed(words.join("; ")))
}

fn create(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// Compares the verdicts that the program prints in directory `cwd` for a store with those recomputed
/// from the runs below `runs`.
fn recomputed(
    repo: &Repo,
    program: &Path,
    (cwd, store): (&Path, &Path),
    runs: &Path,
) -> anyhow::Result<Outcome> {
    let printed = std::process::Command::new(program)
        .args(["claims", "--json", "--store"])
        .arg(store)
        .current_dir(cwd)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !printed.status.success() {
        let why = String::from_utf8_lossy(&printed.stderr).into_owned();
        return Ok(Outcome::Failed(format!("ioloom claims: {why}")));
    }
    let claims = store.with_file_name("claims.json");
    std::fs::write(&claims, &printed.stdout)
        .with_context(|| format!("cannot write {}", claims.display()))?;
    let (claims, runs) = (claims.to_string_lossy(), runs.to_string_lossy());
    let args = ["xtask/py/recompute.py", &claims, &runs];
    Ok(judge(&Job::new("python3", &args, &repo.root, LIMIT_S).run()?))
}

/// Returns the archives of kept studies by machine, which is the name of their directory after the date.
fn archives(results: &Path) -> anyhow::Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for question in std::fs::read_dir(results)?.collect::<Result<Vec<_>, _>>()? {
        if !question.file_name().to_string_lossy().starts_with("study-") {
            continue;
        }
        for kept in std::fs::read_dir(question.path())?.collect::<Result<Vec<_>, _>>()? {
            let name = kept.file_name().to_string_lossy().into_owned();
            let machine = name.get(DATE.len()..).unwrap_or("unknown").to_owned();
            for file in std::fs::read_dir(kept.path())?.collect::<Result<Vec<_>, _>>()? {
                if file.file_name().to_string_lossy().ends_with(".tar.xz") {
                    found.entry(machine.clone()).or_default().push(file.path());
                }
            }
        }
    }
    found.values_mut().for_each(|archives| archives.sort());
    Ok(found)
}

fn judge(ended: &Ended) -> Outcome {
    let last = ended.lines.back().cloned().unwrap_or_default();
    if ended.fine() { Outcome::Passed(last) } else { Outcome::Failed(last) }
}

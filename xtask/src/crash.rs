//! `cargo xtask crash`: kills the program at random times and checks the remaining state.
//!
//! Five things must survive `kill -9`: the finished runs of a study, a file set under construction,
//! a copy of it, the orders of a server in each of its stores (`stores`), and the orders of a
//! server with a database, which is killed too (`databases`). Each round kills one of them. The
//! kill times come from the seed, so a failure can be reproduced as far as the machine allows. The
//! program runs from a copy in a private home, which identifies surviving processes. Nothing here
//! depends on speed: a round that finishes before its kill time counts as finished.
//!
//! After a study is killed, its file must consist of complete lines, except for the last one; every
//! previously complete line must be unchanged, byte for byte; each run must appear once and in
//! order; and no process of a run may survive. At the end, the study is resumed and must finish.
//! Repeating the command must complete a file set, which must verify and equal an undisturbed one.
//! After each kill, a copy must be absent or complete, which is checked using the copied manifest,
//! and repeating the command must complete it. `crash copy` kills only copies, in more variants and
//! with stricter checks (`copies`).

mod copies;
mod databases;
mod home;
mod stores;

use crate::guard::Job;
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::{Context, ensure};
use copies::Copying;
use databases::Databases;
use home::{Home, Random, SET_FILES, SetHome};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use stores::Stores;

/// Number of rounds in `ci`.
pub(crate) const ROUNDS_SHORT: u32 = 8;
/// Default number of rounds.
pub(crate) const ROUNDS: u32 = 100;
/// Maximum time before a study is killed.
const STUDY_KILL_MAX: Duration = Duration::from_millis(700);

const BLOCKS: u64 = 24;
/// Two arms, one of which runs twice.
const RUNS: u64 = 3 * BLOCKS;

/// The programs to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The five things, one after another.
    Each,
    /// Copies in every variant, with one report line per kill.
    Copies,
}

/// Builds the program and crashes it.
pub(crate) fn run(repo: &Repo, what: What, rounds: u32, seed: u64) -> anyhow::Result<Outcome> {
    let args = ["build", "--locked", "--package", "ioloom-cli"];
    let built = Job::new("cargo", &args, &repo.root, 1200).run()?;
    if !built.fine() {
        return Ok(Outcome::Failed(format!("build: {}", built.word())));
    }
    let program = repo.target_dir()?.join("debug/ioloom");
    match what {
        What::Each => crash(&program, rounds, seed),
        What::Copies => copies::crash(&program, rounds, seed),
    }
}

/// Crashes a program that is already built.
pub(crate) fn crash(program: &Path, rounds: u32, seed: u64) -> anyhow::Result<Outcome> {
    let mut random = Random(seed);
    let mut study: Option<Study> = None;
    let (mut killed, mut torn, mut studies, mut sets, mut copies) = (0, 0, 0, 0, 0);
    let (mut stores, mut served) = (Stores::new(Home::new(program, "stores")?), 0);
    let mut databases = Databases::new(Home::new(program, "databases")?);
    let reference = SetHome::new(program, "reference")?;
    let (whole, takes) = reference.undisturbed()?;
    let copying = Copying::new(&reference)?;
    for round in 0..rounds {
        let of = |error: anyhow::Error| error.context(format!("round {round} of seed {seed}"));
        match round % 5 {
            1 => {
                killed += crash_set(program, &mut random, &whole, takes).map_err(of)?;
                sets += 1;
                continue;
            }
            2 => {
                killed += copying.crash(program, &mut random).map_err(of)?;
                copies += 1;
                continue;
            }
            3 => {
                killed += stores.crash(&mut random).map_err(of)?;
                served += 1;
                continue;
            }
            4 => {
                killed += databases.crash(&mut random).map_err(of)?;
                continue;
            }
            _ => {}
        }
        let mut now = match study.take() {
            Some(study) => study,
            None => Study::new(program)?,
        };
        if now.round(&mut random).map_err(of)? {
            killed += 1;
            torn += u32::from(now.torn);
            study = Some(now);
        } else {
            studies += 1;
        }
    }
    if let Some(mut last) = study {
        last.finish().context("finish the last study")?;
        studies += 1;
    }
    Ok(Outcome::Passed(format!(
        "{rounds} rounds of seed {seed}: {killed} kills, {torn} torn lines, {studies} studies, \
         {sets} sets and {copies} copies completed intact, {served} stores lost none of {} \
         acknowledged orders, {}",
        stores.acknowledged,
        databases.summary()
    )))
}

/// A small study that is killed and resumed until it finishes.
struct Study {
    home: Home,
    /// The complete lines of its session so far.
    before: Vec<u8>,
    /// Whether the last kill left a torn line.
    torn: bool,
}

impl Study {
    fn new(program: &Path) -> anyhow::Result<Self> {
        let home = Home::new(program, "study")?;
        let studies = home.0.join("studies");
        std::fs::create_dir(&studies).context("create a directory for the study")?;
        std::fs::write(studies.join("crash.toml"), study_text()).context("write the study")?;
        Ok(Self { home, before: Vec::new(), torn: false })
    }

    const ARGS: [&str; 5] = ["study", "crash", "--studies", "studies", "--resume"];

    /// Starts the study and kills it at a random time. Returns false if it exited before that.
    fn round(&mut self, random: &mut Random) -> anyhow::Result<bool> {
        let mut running = self.home.start(&Self::ARGS)?;
        let ended = running.wait(random.moment(STUDY_KILL_MAX))?;
        drop(running);
        if let Some(code) = ended {
            ensure!(code == 0, "the study exited with {code}");
            self.look()?;
            self.is_whole()?;
            return Ok(false);
        }
        self.look()?;
        self.home.nobody_left()?;
        // It was killed between its last line and its exit, so there is nothing to resume.
        if session(&self.before)?.1 {
            self.is_whole()?;
            return Ok(false);
        }
        Ok(true)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.home.well(&Self::ARGS)?;
        self.look()?;
        self.is_whole()
    }

    fn is_whole(&self) -> anyhow::Result<()> {
        let (runs, ended) = session(&self.before)?;
        ensure!(ended && runs == RUNS, "the study ended with {runs} of {RUNS} runs");
        self.home.well(&["results", "show", "latest", "--json"])
    }

    /// Reads the session and compares it with its previous content.
    fn look(&mut self) -> anyhow::Result<()> {
        let bytes = one_session(&self.home.0.join("data/ioloom/sessions"))?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.torn = whole < bytes.len();
        let lines = &bytes[..whole];
        ensure!(lines.starts_with(&self.before), "a complete line was lost or changed");
        session(lines)?;
        self.before = lines.to_vec();
        Ok(())
    }
}

fn study_text() -> String {
    format!(
        r#"name = "crash"
title = "Killed at random"
question = "Is anything lost?"
quick_budget_s = 600
[sets.T]
about = "Sixty small files."
full = {{ count = 60, size = "exp(mean=4KiB,min=1,max=64KiB)", seed = 3 }}
[[experiment]]
name = "two"
question = "One thread or two?"
sets = ["T"]
conditions = ["warm"]
computes = ["xxh3"]
blocks_quick = {BLOCKS}
[[experiment.arm]]
name = "threads-{{n}}"
plan = "read/threads:n={{n}}"
with = {{ n = [1, 2] }}
headline = true
"#
    )
}

/// Returns the contents of the session file with a header. A kill before the first complete line
/// leaves a file without a header, which does not count.
fn one_session(dir: &Path) -> anyhow::Result<Vec<u8>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.context("list the sessions")?.path();
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        if bytes.contains(&b'\n') {
            found.push(bytes);
        }
    }
    ensure!(found.len() <= 1, "--resume started {} sessions", found.len());
    Ok(found.pop().unwrap_or_default())
}

/// Counts the runs in complete lines, each of which must appear once and in order. The second value
/// is true if an end line follows.
fn session(lines: &[u8]) -> anyhow::Result<(u64, bool)> {
    let (mut runs, mut ended) = (0, false);
    for (i, line) in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()).enumerate() {
        let value: Value =
            serde_json::from_slice(line).with_context(|| format!("line {} is torn", i + 1))?;
        ensure!(!ended, "line {} follows the end", i + 1);
        ensure!((i == 0) == value.get("session").is_some(), "line {} is not a header", i + 1);
        if let Some(run) = value.get("run") {
            let position = run["key"]["position"].as_u64();
            ensure!(position == Some(runs), "expected run {runs}, found {position:?}");
            ensure!(run["outcome"]["kind"] == "done", "run {runs}: {}", run["outcome"]);
            runs += 1;
        }
        ended = value.get("end").is_some();
    }
    Ok((runs, ended))
}

/// Creates a file set, killing the process up to three times. Returns the number of kills.
fn crash_set(
    program: &Path,
    random: &mut Random,
    whole: &str,
    takes: Duration,
) -> anyhow::Result<u32> {
    let home = SetHome::new(program, "set")?;
    let mut killed = 0;
    for _ in 0..1 + random.next() % 3 {
        let mut running = home.0.start(&SetHome::CREATE)?;
        let ended = running.wait(random.moment(takes))?;
        drop(running);
        match ended {
            Some(code) => ensure!(code == 0, "fileset create exited with {code}"),
            None => killed += 1,
        }
        // A set with a complete manifest must verify.
        if home.manifest()?.is_some_and(|text| text == whole) {
            home.0.well(&["fileset", "verify", "set"])?;
        }
    }
    home.0.well(&SetHome::CREATE)?;
    home.0.well(&["fileset", "verify", "set"])?;
    let manifest = home.manifest()?.unwrap_or_default();
    ensure!(manifest == whole, "the set differs: {manifest}, expected {whole}");
    let files = home.files();
    ensure!(files == SET_FILES + 1, "{files} files, expected {SET_FILES} and the manifest");
    Ok(killed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "{\"session\":{}}\n";

    fn run_line(position: u64, kind: &str) -> String {
        format!(
            "{{\"run\":{{\"key\":{{\"position\":{position}}},\"outcome\":{{\"kind\":\"{kind}\"}}}}}}\n"
        )
    }

    #[test]
    fn lines_of_a_session_are_judged() {
        let good =
            format!("{HEAD}{}{{\"note\":{{}}}}\n{}", run_line(0, "done"), run_line(1, "done"));
        assert_eq!(session(good.as_bytes()).unwrap(), (2, false));
        let ended = format!("{good}{{\"end\":{{}}}}\n");
        assert_eq!(session(ended.as_bytes()).unwrap(), (2, true));
        assert_eq!(session(b"").unwrap(), (0, false));
        for bad in [
            format!("{HEAD}{}", run_line(1, "done")),
            format!("{good}{}", run_line(1, "done")),
            format!("{good}{}", run_line(2, "failed")),
            format!("{good}{{\"run\":\n"),
            format!("{ended}{}", run_line(2, "done")),
            format!("{good}{HEAD}"),
            run_line(0, "done"),
        ] {
            assert!(session(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_come_from_the_seed_and_lie_before_the_limit() {
        let of = |seed| {
            let mut random = Random(seed);
            (0..100).map(|_| random.moment(STUDY_KILL_MAX)).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(1).iter().all(|m| *m < STUDY_KILL_MAX));
        assert!(of(1).iter().any(|m| *m > STUDY_KILL_MAX / 2));
        assert!(of(1).iter().any(|m| *m < STUDY_KILL_MAX / 2));
    }

    #[test]
    fn a_lost_line_is_seen() {
        let dir = std::env::temp_dir().join(format!("ioloom-crash-test-{}", std::process::id()));
        let home = Home(dir.clone());
        let sessions = dir.join("data/ioloom/sessions");
        std::fs::create_dir_all(&sessions).unwrap();
        let file = sessions.join("crash-1.jsonl");
        let mut study = Study { home, before: Vec::new(), torn: false };
        let whole = format!("{HEAD}{}", run_line(0, "done"));
        std::fs::write(&file, format!("{whole}{{\"run\":{{\"ke")).unwrap();
        study.look().unwrap();
        assert!(study.torn && study.before == whole.as_bytes());
        std::fs::write(&file, format!("{whole}{}", run_line(1, "done"))).unwrap();
        study.look().unwrap();
        assert!(!study.torn);
        std::fs::write(&file, &whole).unwrap();
        assert!(study.look().unwrap_err().to_string().contains("lost"));
        std::fs::write(sessions.join("crash-2.jsonl"), HEAD).unwrap();
        assert!(study.look().unwrap_err().to_string().contains("2 sessions"));
    }
}

//! `cargo xtask gnu`: GNU's own tests of cp and du, run with this program.
//!
//! The tests come from an unpacked coreutils source that the user points at; nothing of it is kept
//! in this repository. Each test runs with the system's own cp and du, which shows that the frame
//! works, and with ours, for root and for a plain user. A wrapper ([`shim`]) maps the program's
//! name and strips advice; any other difference in wording is a failure. The wrapper counts its
//! runs, so a test that passed without running our program is visible.
//!
//! Cost: about four minutes for both programs and both users on two cores.

mod frame;
mod shim;

use crate::repo::Repo;
use crate::steps::Outcome as Step;
use anyhow::{Context, bail, ensure};
use frame::{Frame, Outcome, Ran, Subject, User, tests_in};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use shim::run_if_called;

/// The unprivileged user of root's second run.
const PLAIN: u32 = 65534;
/// Time limit of one test.
const LIMIT: Duration = Duration::from_secs(120);
/// How much of the output of a failed test is kept.
const LOG_KEPT: usize = 16 << 10;

const USAGE: &str = "usage: gnu --source DIR [--only cp|du] [--test NAME] [--user NAME] \
    [--program PATH] [--ours] [--out DIR]";

/// What to run.
#[derive(Debug, Default)]
struct Options {
    source: PathBuf,
    /// One suite instead of both.
    only: Option<String>,
    /// Tests whose name contains this.
    test: Option<String>,
    user: Option<String>,
    program: Option<PathBuf>,
    /// Whether to leave out the system's programs.
    ours: bool,
    out: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--ours" {
                options.ours = true;
                continue;
            }
            let Some(value) = words.next() else { bail!("{word}: a value is missing; {USAGE}") };
            match *word {
                "--source" => options.source = PathBuf::from(value),
                "--only" => options.only = Some((*value).to_owned()),
                "--test" => options.test = Some((*value).to_owned()),
                "--user" => options.user = Some((*value).to_owned()),
                "--program" => options.program = Some(PathBuf::from(value)),
                "--out" => options.out = Some(PathBuf::from(value)),
                _ => bail!("{word}: unknown option; {USAGE}"),
            }
        }
        ensure!(!options.source.as_os_str().is_empty(), "--source is missing; {USAGE}");
        let known = options.only.as_deref().is_none_or(|only| only == "cp" || only == "du");
        ensure!(known, "--only takes cp or du");
        Ok(options)
    }

    /// Returns the users to run as: as root, root and a plain user.
    fn users(&self) -> anyhow::Result<Vec<User>> {
        if let Some(name) = &self.user {
            return Ok(vec![User::find(name)?]);
        }
        let own = User::current()?;
        Ok(if own.uid == 0 { vec![own, User::with_uid(PLAIN)?] } else { vec![own] })
    }

    fn tests(&self) -> anyhow::Result<Vec<String>> {
        let mut tests = Vec::new();
        for suite in ["cp", "du"] {
            if self.only.as_deref().is_none_or(|only| only == suite) {
                tests.extend(tests_in(&self.source, suite)?);
            }
        }
        tests.retain(|test| self.test.as_ref().is_none_or(|part| test.contains(part)));
        ensure!(!tests.is_empty(), "no test matches");
        Ok(tests)
    }
}

/// The results of one subject and one user, in the order of the tests.
struct Column {
    subject: Subject,
    user: String,
    ran: Vec<Ran>,
}

impl Column {
    fn title(&self) -> String {
        format!("{} ({})", self.subject.word(), self.user)
    }

    fn count(&self, tests: &[String], suite: &str, outcome: Outcome) -> usize {
        let of = format!("tests/{suite}/");
        let pairs = tests.iter().zip(&self.ran);
        pairs.filter(|(test, ran)| test.starts_with(&of) && ran.outcome == outcome).count()
    }
}

/// Runs the tests, prints the table, and stores it with `--out`.
pub(crate) fn run(repo: &Repo, words: &[&str]) -> anyhow::Result<Step> {
    let options = Options::parse(words)?;
    let tests = options.tests()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => repo.target_dir()?.join("debug/ioloom"),
    };
    let program = fs::canonicalize(&program)
        .with_context(|| format!("{}: build the program first", program.display()))?;
    let subjects: &[Subject] =
        if options.ours { &[Subject::Ours] } else { &[Subject::System, Subject::Ours] };
    let mut columns = Vec::new();
    for user in options.users()? {
        for &subject in subjects {
            let frame = Frame::new(&options.source, subject, &program, &user, LIMIT)?;
            for name in ["cp", "du"] {
                println!("{} {name}: {}", subject.word(), frame.version_line(name)?);
            }
            let mut column = Column { subject, user: user.name.clone(), ran: Vec::new() };
            for test in &tests {
                let ran = frame.run(test)?;
                println!("{} {test} {}", column.title(), ran.outcome.word());
                column.ran.push(ran);
            }
            columns.push(column);
        }
    }
    let table = table(&tests, &columns);
    print!("\n{table}");
    if let Some(out) = &options.out {
        keep(out, &tests, &columns, &table)?;
    }
    verdict(&tests, &columns)
}

/// A test fails the command if ours fails it and the system's program does not, or if only the system's
/// passes it: a test can be skipped because ours lacks a feature.
fn verdict(tests: &[String], columns: &[Column]) -> anyhow::Result<Step> {
    let mut worse = Vec::new();
    for ours in columns.iter().filter(|column| column.subject == Subject::Ours) {
        let system = columns.iter().find(|c| c.subject == Subject::System && c.user == ours.user);
        for (at, test) in tests.iter().enumerate() {
            let passed = |ran: &Ran| matches!(ran.outcome, Outcome::Pass | Outcome::Skip);
            ensure!(
                ours.ran[at].outcome != Outcome::Pass || ours.ran[at].calls > 0,
                "{test} passed without running the program"
            );
            let is_worse = match system.map(|system| &system.ran[at]) {
                None => !passed(&ours.ran[at]),
                Some(system) if system.outcome == Outcome::Pass => {
                    ours.ran[at].outcome != Outcome::Pass
                }
                Some(system) => passed(system) && !passed(&ours.ran[at]),
            };
            if is_worse {
                worse.push(format!("{test} ({})", ours.user));
            }
        }
    }
    let count = tests.len() * columns.len();
    Ok(if worse.is_empty() {
        Step::Passed(format!("{count} runs"))
    } else {
        Step::Failed(format!("{} of {count} runs: {}", worse.len(), worse.join(", ")))
    })
}

/// Returns a line per test on which the columns differ or that failed, and the totals.
fn table(tests: &[String], columns: &[Column]) -> String {
    let mut text = format!("{:<40}", "test");
    for column in columns {
        text += &format!(" {:>17}", column.title());
    }
    text.push('\n');
    for (at, test) in tests.iter().enumerate() {
        let all: Vec<Outcome> = columns.iter().map(|column| column.ran[at].outcome).collect();
        text += &format!("{:<40}", test.trim_start_matches("tests/"));
        for (outcome, column) in all.iter().zip(columns) {
            let calls = match column.subject {
                Subject::System => String::new(),
                Subject::Ours => format!(" {:>4}", column.ran[at].calls),
            };
            text += &format!(" {:>17}", format!("{}{calls}", outcome.word()));
        }
        text.push('\n');
    }
    text += "\n(The number is how often the test ran the program.)\n\n";
    for suite in ["cp", "du"] {
        for column in columns {
            let counts = Outcome::ALL.map(|outcome| {
                format!("{} {}", column.count(tests, suite, outcome), outcome.word())
            });
            text += &format!("{suite} {:<18} {}\n", column.title(), counts.join(", "));
        }
    }
    text
}

/// Stores the table, one record per run, and the output of failed tests.
fn keep(out: &Path, tests: &[String], columns: &[Column], table: &str) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let mut records = String::new();
    let mut logs = String::new();
    for column in columns {
        for (test, ran) in tests.iter().zip(&column.ran) {
            let record = json!({
                "test": test,
                "program": column.subject.word(),
                "user": column.user,
                "outcome": ran.outcome.word().to_lowercase(),
                "seconds": (ran.seconds * 1000.0).round() / 1000.0,
                "calls": ran.calls,
                "why": ran.why(),
            });
            records += &format!("{record}\n");
            if !matches!(ran.outcome, Outcome::Pass | Outcome::Skip) {
                let start = ran.log.char_indices().rev().nth(LOG_KEPT).map_or(0, |(at, _)| at);
                let (title, word) = (column.title(), ran.outcome.word());
                logs += &format!("=== {test} {title} {word}\n{}\n", &ran.log[start..]);
            }
        }
    }
    for (name, text) in [("table.txt", table), ("runs.jsonl", &records), ("failed.log", &logs)] {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(outcome: Outcome, calls: usize) -> Ran {
        Ran { outcome, seconds: 0.0, calls, log: String::new() }
    }

    fn columns(system: Outcome, ours: Outcome, calls: usize) -> Vec<Column> {
        let column = |subject, ran| Column { subject, user: "root".into(), ran: vec![ran] };
        vec![column(Subject::System, ran(system, 0)), column(Subject::Ours, ran(ours, calls))]
    }

    #[test]
    fn only_failures_of_ours_alone_count() {
        let tests = ["tests/cp/a.sh".to_owned()];
        for (system, ours, fine) in [
            (Outcome::Pass, Outcome::Pass, true),
            (Outcome::Pass, Outcome::Fail, false),
            (Outcome::Pass, Outcome::Skip, false),
            (Outcome::Skip, Outcome::Skip, true),
            (Outcome::Fail, Outcome::Skip, true),
            (Outcome::Skip, Outcome::Timeout, false),
            (Outcome::Fail, Outcome::Fail, true),
            (Outcome::Pass, Outcome::Frame, false),
        ] {
            let step = verdict(&tests, &columns(system, ours, 1)).unwrap();
            assert_eq!(matches!(step, Step::Passed(_)), fine, "{system:?} {ours:?}");
        }
    }

    #[test]
    fn a_pass_without_a_run_of_the_program_is_an_error() {
        let tests = ["tests/cp/a.sh".to_owned()];
        assert!(verdict(&tests, &columns(Outcome::Pass, Outcome::Pass, 0)).is_err());
        assert!(verdict(&tests, &columns(Outcome::Skip, Outcome::Skip, 0)).is_ok());
    }

    #[test]
    fn the_table_ends_with_the_totals() {
        let tests = ["tests/du/a.sh".to_owned()];
        let text = table(&tests, &columns(Outcome::Pass, Outcome::Fail, 3));
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("du ioloom (root)") && last.contains("1 FAIL"), "{text}");
    }
}

//! `cargo xtask sweep`: an error in each call of `ioloom cp` on its files, in the built program.
//!
//! The list of calls comes from `strace` of the same copy, so no call can be forgotten, and the errors
//! are injected by `strace`, so the program is the one that users run. After each round: exit code 0
//! means that the copy equals its source; any other code means that every missing path is named; and
//! nothing outside the target has changed. The checker is that of the random copies. Rounds that test
//! nothing are counted separately: the program did not start, or its calls differed and none failed.
//!
//! Cost: about 0.1 seconds per round.

use super::place::remove;
use super::snapshot::{Record, Snapshot, take};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::{Context, bail, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const USAGE: &str = "usage: sweep [--program PATH] [--out DIR]";

/// Calls that can find a device full or a quota exceeded; each also fails with `ENOSPC` or `EDQUOT`.
const WITH_SPACE: [&str; 11] = [
    "close",
    "copy_file_range",
    "fallocate",
    "fsync",
    "ftruncate",
    "linkat",
    "mkdirat",
    "openat",
    "pwrite64",
    "renameat2",
    "syncfs",
];

/// A copy, and what is at its target before it.
struct Scenario {
    name: &'static str,
    options: &'static [&'static str],
    /// Source and target below the place.
    source: &'static str,
    target: &'static str,
    /// Whether all attributes are compared, or only the contents.
    all: bool,
}

const SCENARIOS: [Scenario; 7] = [
    tree("new tree", &["-a"], "t/new"),
    tree("existing tree", &["-aT"], "t/there"),
    tree("existing tree, backups", &["-aT", "--backup=numbered"], "t/there"),
    tree("new tree, synced", &["-a", "--durable", "full"], "t/new"),
    file("replaced file", &["--durable", "file"]),
    file("file in place", &["--in-place"]),
    file("file by copy_file_range", &["--mode", "range"]),
];

const fn tree(
    name: &'static str,
    options: &'static [&'static str],
    target: &'static str,
) -> Scenario {
    Scenario { name, options, source: "source", target, all: true }
}

const fn file(name: &'static str, options: &'static [&'static str]) -> Scenario {
    Scenario { name, options, source: "source/dir/middle", target: "t/old", all: false }
}

/// Exit code of a program that could not be loaded.
const LOADER_FAILED: i32 = 127;

/// One call of the reference trace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    name: String,
    /// Which of the calls of this name in its thread.
    number: u32,
}

/// What one round showed.
struct Round {
    code: Option<i32>,
    /// Number of hidden files and directories left behind.
    left: usize,
    /// Whether the trace shows the injected error.
    injected: bool,
    /// What is wrong; `None` if the promises hold.
    wrong: Option<String>,
}

impl Round {
    /// Returns the column of the table that counts it.
    const fn column(&self) -> usize {
        match (&self.wrong, self.code) {
            (Some(_), _) => WRONG,
            (None, _) if !self.injected => NOT_INJECTED,
            (None, Some(0)) => EQUAL,
            (None, Some(LOADER_FAILED)) => NO_START,
            (None, _) => REPORTED,
        }
    }
}

/// Number of rounds in each column of the table.
type Counts = [u32; 5];

const EQUAL: usize = 0;
const REPORTED: usize = 1;
const WRONG: usize = 2;
const NO_START: usize = 3;
const NOT_INJECTED: usize = 4;

/// What all rounds showed.
struct Swept {
    /// One JSON record per round.
    records: String,
    table: String,
    counts: Counts,
}

/// Runs all rounds, prints the table and stores it with `--out`.
pub(crate) fn run(repo: &Repo, words: &[&str]) -> anyhow::Result<Outcome> {
    let (mut program, mut out) = (repo.target_dir()?.join("debug/ioloom"), None);
    for pair in words.chunks(2) {
        match pair {
            ["--program", path] => program = PathBuf::from(path),
            ["--out", dir] => out = Some(PathBuf::from(dir)),
            _ => bail!("{USAGE}"),
        }
    }
    let program = fs::canonicalize(&program)
        .with_context(|| format!("{}: build the program first", program.display()))?;
    if Command::new("strace").arg("-V").output().is_err() {
        return Ok(Outcome::Skipped("strace is not installed".to_owned()));
    }
    let place = std::env::temp_dir().join(format!("ioloom-sweep-{}", std::process::id()));
    let swept = sweep(&program, &place);
    let _ = remove(&place);
    let Swept { records, table, counts } = swept?;
    print!("{table}");
    if let Some(out) = out {
        fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
        for (name, text) in [("table.txt", &table), ("rounds.jsonl", &records)] {
            fs::write(out.join(name), text).with_context(|| format!("write {name}"))?;
        }
    }
    Ok(outcome(counts))
}

fn outcome(counts: Counts) -> Outcome {
    let rounds: u32 = counts.iter().sum();
    let untested = format!("{} no start, {} not injected", counts[NO_START], counts[NOT_INJECTED]);
    match counts[WRONG] {
        0 if counts[EQUAL] + counts[REPORTED] == 0 => {
            Outcome::Failed(format!("no error was injected in {rounds} rounds: {untested}"))
        }
        0 => Outcome::Passed(format!("{rounds} rounds; {untested}")),
        wrong => Outcome::Failed(format!("{wrong} of {rounds} rounds; {untested}")),
    }
}

fn sweep(program: &Path, place: &Path) -> anyhow::Result<Swept> {
    let (mut records, mut total) = (String::new(), Counts::default());
    let mut counts: BTreeMap<(usize, String, &str), Counts> = BTreeMap::new();
    for (at, scenario) in SCENARIOS.iter().enumerate() {
        let calls = calls(program, place, scenario)?;
        println!("{}: {} calls", scenario.name, calls.len());
        for call in &calls {
            let is_space = WITH_SPACE.contains(&call.name.as_str());
            let space = if call.name == "close" { "EDQUOT" } else { "ENOSPC" };
            for error in ["EIO"].into_iter().chain(is_space.then_some(space)) {
                let round = round(program, place, scenario, call, error)?;
                let count = counts.entry((at, call.name.clone(), error)).or_default();
                count[round.column()] += 1;
                total[round.column()] += 1;
                if let Some(text) = &round.wrong {
                    println!(
                        "WRONG: {}, {} {} {error}: {text}",
                        scenario.name, call.name, call.number
                    );
                }
                let record = json!({
                    "scenario": scenario.name, "call": call.name, "number": call.number,
                    "error": error, "code": round.code, "left": round.left,
                    "injected": round.injected, "wrong": round.wrong,
                });
                records += &format!("{record}\n");
            }
        }
    }
    Ok(Swept { records, table: table(&counts), counts: total })
}

fn table(counts: &BTreeMap<(usize, String, &str), Counts>) -> String {
    let mut text = format!(
        "{:<24} {:<16} {:<7} {:>7} {:>9} {:>6} {:>8} {:>12}\n",
        "copy", "call", "error", "equal", "reported", "wrong", "no start", "not injected"
    );
    for ((at, call, error), [equal, reported, wrong, unstarted, missed]) in counts {
        let name = SCENARIOS[*at].name;
        text += &format!("{name:<24} {call:<16} {error:<7} {equal:>7} {reported:>9} ");
        text += &format!("{wrong:>6} {unstarted:>8} {missed:>12}\n");
    }
    text + "\nequal: exit code 0, and the copy equals its source. reported: another exit code, and \
            every missing path is named.\nno start: the same call of the loader failed first, because calls are \
            counted per thread.\nnot injected: the copy ended without this call.\n"
}

/// Creates the source, what is outside, and what is at the target.
fn prepare(place: &Path) -> anyhow::Result<()> {
    if place.exists() {
        remove(place)?;
    }
    let at = |name: &str| place.join(name);
    for dir in ["source/dir/empty", "t/there/dir", "outside"] {
        fs::create_dir_all(at(dir)).context("create a directory")?;
    }
    for (name, bytes) in [
        ("source/small", b"small".to_vec()),
        ("source/dir/middle", vec![7; 300_000]),
        ("source/dir/none", Vec::new()),
        ("t/there/dir/middle", b"old".to_vec()),
        ("t/there/small", b"old".to_vec()),
        ("t/old", b"old".to_vec()),
        ("outside/mine", b"mine".to_vec()),
    ] {
        fs::write(at(name), bytes).with_context(|| format!("write {name}"))?;
    }
    fs::hard_link(at("source/small"), at("source/dir/again")).context("link")?;
    fs::hard_link(at("t/there/small"), at("outside/linked")).context("link")?;
    symlink("small", at("source/link")).context("link")?;
    symlink("../../outside/mine", at("t/there/link")).context("link")?;
    let sparse = fs::File::create(at("source/sparse")).context("create a sparse file")?;
    sparse.set_len(1 << 20).context("size a sparse file")?;
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::setxattr(at("source/small"), c"user.test", b"value", flags);
    let made = Command::new("mkfifo").arg(at("source/pipe")).status().context("mkfifo")?;
    ensure!(made.success(), "mkfifo failed");
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    for name in ["source/small", "source/dir/middle", "source/dir", "source"] {
        let file = fs::File::open(at(name)).context("open")?;
        file.set_modified(old).context("set a time")?;
    }
    Ok(())
}

fn traced(program: &Path, place: &Path, scenario: &Scenario, strace: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-qq", "-s", "0"])
        .args(strace)
        .arg(program)
        .args(["cp", "--threads", "1"])
        .args(scenario.options)
        .args([place.join(scenario.source), place.join(scenario.target)])
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Returns the calls of a copy that name or use a file below the place.
fn calls(program: &Path, place: &Path, scenario: &Scenario) -> anyhow::Result<Vec<Call>> {
    prepare(place)?;
    let (output, trace) = run_traced(program, place, scenario, &[])?;
    ensure!(
        output.status.success(),
        "{}: {}",
        scenario.name,
        String::from_utf8_lossy(&output.stderr)
    );
    let found = parse(&trace, &place.to_string_lossy());
    ensure!(!found.is_empty(), "strace shows no call on a file");
    Ok(found)
}

/// Runs one copy. Returns its output and the trace.
fn run_traced(
    program: &Path,
    place: &Path,
    scenario: &Scenario,
    strace: &[&str],
) -> anyhow::Result<(Output, String)> {
    let trace = place.with_extension("trace");
    let word = trace.to_string_lossy().into_owned();
    let strace = [&["-o", word.as_str()], strace].concat();
    let output = traced(program, place, scenario, &strace).output().context("strace")?;
    let bytes = fs::read(&trace).context("read a trace")?;
    fs::remove_file(&trace).context("remove a trace")?;
    Ok((output, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns whether a trace shows an injected error.
fn is_injected(trace: &str) -> bool {
    trace.lines().any(|line| line.ends_with("(INJECTED)"))
}

/// Reads a trace: `PID name(…`, or `PID <... name resumed>` for the end of a call.
fn parse(trace: &str, place: &str) -> Vec<Call> {
    let mut numbers: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut found = std::collections::BTreeSet::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((name, arguments)) = rest.trim_start().split_once('(') else { continue };
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') || name == "execve" {
            continue;
        }
        let number = numbers.entry((thread, name)).or_default();
        *number += 1;
        if arguments.contains(place) {
            found.insert(Call { name: name.to_owned(), number: *number });
        }
    }
    found.into_iter().collect()
}

/// Runs one copy in which a call fails.
fn round(
    program: &Path,
    place: &Path,
    scenario: &Scenario,
    call: &Call,
    error: &str,
) -> anyhow::Result<Round> {
    prepare(place)?;
    let before = take(place, i64::MAX)?;
    let filter = format!("trace={}", call.name);
    let inject = format!("inject={}:error={error}:when={}", call.name, call.number);
    let (output, trace) = run_traced(program, place, scenario, &["-e", &filter, "-e", &inject])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let after = take(place, i64::MAX)?;
    let code = output.status.code();
    let left = after.keys().filter(|path| path.to_string_lossy().contains(".ioloom-")).count();
    let wrong = match code {
        None => Some("the program was killed".to_owned()),
        Some(LOADER_FAILED) if said.contains("error while loading shared libraries") => None,
        Some(0) if left > 0 => Some("exit code 0, but hidden files were left behind".to_owned()),
        Some(code) => broken(scenario, &before, &after, code, &said),
    };
    Ok(Round { code, left, injected: is_injected(&trace), wrong })
}

/// Returns the promise that does not hold.
fn broken(
    scenario: &Scenario,
    before: &Snapshot,
    after: &Snapshot,
    code: i32,
    said: &str,
) -> Option<String> {
    for (path, record) in before.iter().filter(|(path, _)| !path.starts_with(scenario.target)) {
        // The directory of the target gets a new name, and a file outside loses a link.
        let is_same = after.get(path).is_some_and(|new| equal(record, new, path.ends_with("t")));
        if !is_same {
            return Some(format!("{} changed outside the target", path.display()));
        }
    }
    let missing = missing(scenario, after);
    if code == 0 {
        return (!missing.is_empty()).then(|| format!("exit code 0, but {missing:?} differ"));
    }
    if said.is_empty() {
        return Some(format!("exit code {code} without a message"));
    }
    let unnamed = missing.iter().find(|path| !is_named(scenario, before, path, said));
    unnamed.map(|path| format!("{} is missing and not named in: {said}", path.display()))
}

/// Compares all that a copy can preserve or must not change.
fn equal(old: &Record, new: &Record, contents_only: bool) -> bool {
    let ignored = |name: &str| match name {
        "atime" | "links" | "extents" => true,
        "mtime" => contents_only,
        _ => false,
    };
    let fields = |record: &Record| -> Vec<(&'static str, String)> {
        let kept = record.fields.iter().filter(|(name, _)| !ignored(name));
        kept.map(|(name, value)| (*name, value.clone())).collect()
    };
    fields(old) == fields(new)
}

/// Returns the paths below the source that are not in the target, or not equal.
fn missing(scenario: &Scenario, after: &Snapshot) -> Vec<PathBuf> {
    let below = |path: &Path| path.strip_prefix(scenario.source).map(Path::to_owned).ok();
    let in_source = after.iter().filter_map(|(path, record)| Some((below(path)?, record)));
    let differs = |(path, record): (PathBuf, &Record)| {
        let target = Path::new(scenario.target);
        let target = if path.as_os_str().is_empty() { target.into() } else { target.join(&path) };
        let is_same = after.get(&target).is_some_and(|new| match scenario.all {
            true => equal(record, new, false),
            false => new.fields.get("contents") == record.fields.get("contents"),
        });
        (!is_same).then_some(path)
    };
    in_source.filter_map(differs).collect()
}

/// Returns true if a message names a path, another name of the same file, or a directory above.
fn is_named(scenario: &Scenario, before: &Snapshot, path: &Path, said: &str) -> bool {
    let field = |name| before.get(&Path::new(scenario.source).join(path))?.fields.get(name);
    let group = field("links").cloned().unwrap_or_default();
    let names = group.split(" = ").map(|name| PathBuf::from(name.trim_matches('"')));
    let others = names.filter_map(|name| Some(name.strip_prefix(scenario.source).ok()?.to_owned()));
    let mut all = others.chain([path.to_owned()]);
    all.any(|path| {
        path.ancestors().any(|at| {
            let roots = [scenario.source, scenario.target].map(Path::new);
            let ends = roots.map(|root| root.join(at).to_string_lossy().into_owned());
            ends.iter().any(|end| said.contains(&format!("/{}'", end.trim_end_matches('/'))))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_thread() {
        let trace = "7 openat(AT_FDCWD, \"/etc/x\") = 3\n7 close(3</etc/x>) = 0\n\
            7 close(4</p/a>) = 0\n8 close(5</p/b> <unfinished ...>\n7 close(1</p/c>) = 0\n\
            8 <... close resumed>) = 0\n8 +++ exited with 0 +++\n";
        let call = |name: &str, number| Call { name: name.to_owned(), number };
        let found = parse(trace, "/p");
        assert_eq!(found, [call("close", 1), call("close", 2), call("close", 3)]);
    }

    #[test]
    fn a_round_without_an_injected_error_is_not_counted_as_equal() {
        let fine = "7 close(3</p/a>) = 0\n7 close(4</p/b>) = 0\n";
        let failed = "7 close(3</p/a>) = 0\n8 close(4 <unfinished ...>\n7 close(5</p/(INJECTED)>) = 0\n\
            8 <... close resumed>) = -1 EIO (Input/output error) (INJECTED)\n";
        assert!(is_injected(failed) && !is_injected(fine));
        assert!(!is_injected("7 close(5</p/(INJECTED)>) = 0\n"));
        let column = |code, trace, wrong: Option<&str>| {
            let wrong = wrong.map(str::to_owned);
            Round { code, left: 0, injected: is_injected(trace), wrong }.column()
        };
        assert_eq!(column(Some(0), fine, None), NOT_INJECTED);
        assert_eq!(column(Some(1), fine, None), NOT_INJECTED);
        assert_eq!(column(Some(0), fine, Some("it differs")), WRONG);
        assert_eq!(column(Some(0), failed, None), EQUAL);
        assert_eq!(column(Some(LOADER_FAILED), failed, None), NO_START);
        assert_eq!(column(Some(1), failed, None), REPORTED);
    }

    #[test]
    fn rounds_that_test_nothing_are_reported() {
        let Outcome::Passed(text) = outcome([3, 2, 0, 1, 4]) else { panic!("not passed") };
        assert_eq!(text, "10 rounds; 1 no start, 4 not injected");
        assert!(matches!(outcome([3, 2, 1, 0, 0]), Outcome::Failed(_)));
        assert!(matches!(outcome([0, 0, 0, 1, 4]), Outcome::Failed(_)));
    }

    #[test]
    fn broken_promises_are_seen() {
        let place = std::env::temp_dir().join(format!("ioloom-sweep-test-{}", std::process::id()));
        prepare(&place).unwrap();
        let before = take(&place, i64::MAX).unwrap();
        let scenario = &SCENARIOS[0];
        let said =
            |text: &str, code, after: &Snapshot| broken(scenario, &before, after, code, text);
        assert!(said("", 0, &before).unwrap().contains("exit code 0"));
        assert!(said("ioloom: cannot open '/x/source/small'", 1, &before).is_some());
        assert_eq!(said("ioloom: cannot create '/x/t/new'", 1, &before), None);
        assert!(said("", 1, &before).is_some());
        fs::write(place.join("outside/mine"), "changed").unwrap();
        let after = take(&place, i64::MAX).unwrap();
        assert!(said("ioloom: cannot create '/x/t/new'", 1, &after).unwrap().contains("outside"));
        remove(&place).unwrap();
    }
}

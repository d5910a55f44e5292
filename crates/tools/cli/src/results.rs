//! `ioloom results`: the contents of the store, and exports.

use crate::directories::{StoreArg, short};
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use crate::sessions;
use clap::{Args, Subcommand};
use comfy_table::{Cell, CellAlignment};
use ioloom_failure::{Operation, PathError};
use ioloom_lab::Store;
use ioloom_lab::export;
use ioloom_lab::index::{Index, RunFilter, outcome_word};
use ioloom_lab::store::{EndReason, Session};
use ioloom_model::units::{format_counted, format_ns, format_size, readable};
use ioloom_model::{Doubt, Outcome};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Error;
use std::path::PathBuf;

/// Version of the `--json` documents.
const SCHEMA: u32 = 1;

/// List, show and export stored results
///
/// The store contains one file per session, by default in $XDG_DATA_HOME/ioloom or
/// ~/.local/share/ioloom.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom results list
  ioloom results show latest
  ioloom results keep latest --to results      export to files of up to 1 MiB")]
pub(crate) struct ResultsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List sessions, newest first
    ///
    /// Shows the mode, number of runs, seed, and whether each session is complete.
    #[command(after_long_help = "Examples:\n  ioloom results list\n  ioloom results list --json")]
    List(ListArgs),
    /// Show the runs of a session
    ///
    /// Prints one line per arm with the number of runs and the median time.
    #[command(after_long_help = "\
Examples:
  ioloom results show latest
  ioloom results show pipeline-2026 --json     print all records")]
    Show(ShowArgs),
    /// Export sessions to files of at most 1 MiB
    ///
    /// Use it to keep results in a repository. Spans of runs are left out, and so are traces and
    /// traced runs that are too long. Series of more than 64 points and curves of more than 512
    /// points are thinned. Standard error lists what each session lacks.
    #[command(after_long_help = "\
Examples:
  ioloom results keep latest
  ioloom results keep latest latest-1 --to results/2026-11")]
    Keep(KeepArgs),
    /// Rebuild the SQLite index
    ///
    /// The index is derived from the session files and is only for your own queries.
    #[command(after_long_help = "\
Examples:
  ioloom results index
  sqlite3 ~/.local/share/ioloom/index.sqlite 'select arm, elapsed_ns from runs'")]
    Index(IndexArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    store: StoreArg,
    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Session to show
    ///
    /// Its name, an unambiguous prefix, latest, or latest-N for the N-th before the latest.
    /// latest-N counts commands of `study`.
    #[arg(value_name = "SESSION", default_value = "latest")]
    session: String,
    #[command(flatten)]
    store: StoreArg,
    /// Print one JSON document
    ///
    /// Contains every record. The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct KeepArgs {
    /// Sessions to export
    ///
    /// Names, unambiguous prefixes, latest or latest-N, which counts commands of `study`.
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Target directory
    ///
    /// Created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "results")]
    to: PathBuf,
}

#[derive(Debug, Args)]
struct IndexArgs {
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) fn run(args: &ResultsArgs) -> Ended {
    match &args.what {
        What::List(args) => list(args),
        What::Show(args) => show(args).map(|()| Exit::Ok),
        What::Keep(args) => keep(args).map(|()| Exit::Ok),
        What::Index(args) => index(args),
    }
}

/// Reports the sessions that an index lacks. Returns the exit code.
fn report_unreadable(index: &Index) -> Exit {
    sessions::report_unreadable(index.unreadable());
    if index.unreadable().is_empty() { Exit::Ok } else { Exit::Failed }
}

fn list(args: &ListArgs) -> Ended {
    let store = sessions::open(&args.store)?;
    let index = Index::open(&store).map_err(Failure::failed)?;
    let rows = index.sessions().map_err(Failure::failed)?;
    let exit = report_unreadable(&index);
    if args.json {
        let document = json!({"schema": SCHEMA, "sessions": rows});
        return out::then(out::print_json(&document), Ok(exit));
    }
    if rows.is_empty() {
        if exit == Exit::Ok {
            crate::stderr::message(&format!("no sessions in {} yet", short(store.dir())));
        }
        return Ok(exit);
    }
    let verified = unfinished_verifications(&store)?;
    let mut table = out::table(out::columns());
    table.set_header(["session", "mode", "runs", "seed", "complete"]);
    for row in rows {
        let ended = match row.ended {
            true if row.runs_done < row.runs_planned => {
                let session = sessions::read_named(&store, &row.session)?;
                lacks(&session).unwrap_or_else(|| "yes".to_owned())
            }
            true => "yes".to_owned(),
            false if verified.contains(&row.session) => "no: use --verify".to_owned(),
            false => "no: use --resume".to_owned(),
        };
        table.add_row(vec![
            Cell::new(readable(&row.session)),
            Cell::new(&row.mode),
            Cell::new(format!("{} of {}", row.runs_done, row.runs_planned))
                .set_alignment(CellAlignment::Right),
            Cell::new(row.seed).set_alignment(CellAlignment::Right),
            Cell::new(ended),
        ]);
    }
    out::then(out::print(&out::table_text(&table)), Ok(exit))
}

/// Returns the unfinished sessions of `claims --verify`, which `study --resume` does not continue.
fn unfinished_verifications(store: &Store) -> Result<BTreeSet<String>, Failure> {
    let files = store.list().map_err(Failure::failed)?.files.into_iter();
    let verified = files.filter(|f| !f.ended && f.header.sequential.is_some());
    Ok(verified.map(|f| f.header.session).collect())
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let store = sessions::open(&args.store)?;
    let session = sessions::read(&store, &args.session)?;
    if args.json {
        return out::print_json(&json!({
            "schema": SCHEMA,
            "session": session.header,
            "runs": session.runs,
            "notes": session.notes,
            "end": session.end,
            "torn_bytes": session.torn_bytes,
        }));
    }
    let width = out::columns();
    let header = &session.header;
    let mut text = format!("{} ({}, seed {})\n", header.session, header.mode.name(), header.seed);
    // Names in a session file must not control the terminal.
    let mut say =
        |head: &str, what: &str| text.push_str(&out::labelled(head, 8, &readable(what), width));
    say("Command", &header.command.join(" "));
    say("Machine", &machine(&session));
    say("Complete", &ended(&session));
    let others = others(&store, &args.session, &header.session)?;
    if !others.is_empty() {
        say("With", &format!("{}, of the same command", others.join(", ")));
    }
    for note in &session.notes {
        say("Note", &note.text);
    }
    text.push('\n');
    text.push_str(&arms(&session, width));
    out::print(&text)
}

/// Returns the other sessions of the command that `latest` selects.
fn others(store: &Store, word: &str, shown: &str) -> Result<Vec<String>, Failure> {
    if !word.starts_with("latest") {
        return Ok(Vec::new());
    }
    let mut names = sessions::batch_names(store, word)?;
    names.retain(|name| name != shown);
    Ok(names)
}

fn machine(session: &Session) -> String {
    let m = &session.header.machine;
    let cpu = m.cpu_model.as_deref().unwrap_or("unknown processor");
    format!("{cpu}, {} usable cores, {}", m.cpus_usable, m.fingerprint)
}

/// Returns how many runs a finished session lacks, if any.
fn lacks(session: &Session) -> Option<String> {
    let missing = session.missing().len() as u64;
    (missing > 0).then(|| {
        let runs = format_counted(missing, "run is", "runs are");
        format!("no, {runs} missing")
    })
}

fn ended(session: &Session) -> String {
    if let Some(lacks) = lacks(session) {
        return lacks;
    }
    match &session.end {
        None if session.header.sequential.is_some() => {
            "no; continue with the same `ioloom claims --verify` command".to_owned()
        }
        None => "no; continue with `ioloom study --resume` and the same options".to_owned(),
        Some(end) if end.reason == EndReason::Finished => "yes, all runs".to_owned(),
        Some(end) if end.reason == EndReason::Decided => format!(
            "yes, every claim is decided or given up; {} blocks were not needed",
            end.blocks_dropped
        ),
        Some(end) => format!("yes, within the budget; {} blocks were dropped", end.blocks_dropped),
    }
}

/// The runs of one arm: times of finished runs, and counts of other outcomes.
#[derive(Default)]
struct ArmRuns {
    times_ns: Vec<f64>,
    otherwise: BTreeMap<&'static str, usize>,
}

/// Returns a table of all arms with runs and median times.
fn arms(session: &Session, width: usize) -> String {
    let mut rows: BTreeMap<[String; 3], ArmRuns> = BTreeMap::new();
    for run in &session.runs {
        let key = &run.key;
        let mut place = format!("{}, {}, {}", key.set, key.condition, key.compute);
        if !["", "work"].contains(&key.medium.as_str()) {
            place.push_str(&format!(", {}", key.medium));
        }
        let row = rows.entry([key.experiment.clone(), place, key.arm.clone()]).or_default();
        match &run.outcome {
            // The time of a run that read wrong bytes is meaningless.
            Outcome::Done { .. } if run.doubts.contains(&Doubt::WrongBytes) => {
                *row.otherwise.entry("wrong bytes").or_default() += 1;
            }
            Outcome::Done { measured } => row.times_ns.push(measured.elapsed_ns as f64),
            other => *row.otherwise.entry(outcome_word(other)).or_default() += 1,
        }
    }
    let mut table = out::table(width);
    table.set_header(["experiment", "set, condition", "arm", "runs", "median"]);
    for ([experiment, place, arm], ArmRuns { times_ns: mut times, otherwise }) in rows {
        times.sort_by(f64::total_cmp);
        let median = match times.len() {
            0 => "–".to_owned(),
            n => format_ns((times[(n - 1) / 2] + times[n / 2]) / 2.0),
        };
        let mut runs = times.len().to_string();
        for (word, count) in otherwise {
            runs.push_str(&format!(", {count} {word}"));
        }
        table.add_row(vec![
            Cell::new(readable(&experiment)),
            Cell::new(readable(&place)),
            Cell::new(readable(&arm)),
            Cell::new(runs).set_alignment(CellAlignment::Right),
            Cell::new(median).set_alignment(CellAlignment::Right),
        ]);
    }
    out::table_text(&table)
}

fn keep(args: &KeepArgs) -> Result<(), Failure> {
    let store = sessions::open(&args.store)?;
    let mut names: Vec<String> = Vec::new();
    for word in &args.sessions {
        // `latest` is a command, which may have run several studies.
        match word.starts_with("latest") {
            true => names.extend(sessions::batch_names(&store, word)?),
            false => names.push(sessions::pick(&store, word)?),
        }
    }
    let mut text = String::new();
    let exported = export::export(&store, &names, &args.to).map_err(Failure::failed)?;
    exported.lacks.iter().for_each(|lacks| crate::stderr::message(lacks));
    for file in exported.files {
        let (size, runs) = (format_size(file.bytes), counted_runs(file.runs as u64));
        text.push_str(&format!("{}  {size}, {runs}\n", file.path.display()));
    }
    out::print(&text)
}

fn index(args: &IndexArgs) -> Ended {
    let store = sessions::open(&args.store)?;
    let path = Index::path(&store);
    Index::remove(&store).map_err(Failure::failed)?;
    let index = Index::open(&store).map_err(Failure::failed)?;
    if !index.is_file() {
        let opened = File::options().append(true).create(true).open(&path);
        let reason = index.write_error().unwrap_or("it is not an index of ioloom");
        let error = opened.err().unwrap_or_else(|| Error::other(reason));
        return Err(Failure::failed(PathError::new(Operation::Write, path, error)));
    }
    let count = index.sessions().map_err(Failure::failed)?.len() as u64;
    let runs = index.runs(&RunFilter::default()).map_err(Failure::failed)?.len() as u64;
    let (count, runs) = (format_counted(count, "session", "sessions"), counted_runs(runs));
    let exit = report_unreadable(&index);
    let text = format!("{}  {count}, {runs}\n", short(&path));
    out::then(out::print(&text), Ok(exit))
}

fn counted_runs(runs: u64) -> String {
    format_counted(runs, "run", "runs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn missing_runs_are_counted_and_media_and_wrong_bytes_are_apart() {
        let dir = Path::new("../../../tests/fixtures/a8ad189/results/store");
        let store = Store::open_to_read(dir).unwrap();
        let mut session = store.read("walk-20261123T085513Z").unwrap();
        assert_eq!(ended(&session), "yes, all runs");
        let last = session.runs.pop().unwrap();
        assert_eq!(ended(&session), "no, 1 run is missing");
        session.runs.push(last);
        let done = session.runs.iter().find(|run| run.measured().is_some()).unwrap().clone();
        let run = |medium: &str, doubts: &[Doubt]| {
            let mut run = done.clone();
            run.key.medium = medium.to_owned();
            run.doubts = doubts.to_vec();
            run
        };
        session.runs =
            vec![run("work", &[]), run("work", &[Doubt::WrongBytes]), run("/mnt/\u{1b}x", &[])];
        let text = arms(&session, 200);
        assert!(text.contains("1, 1 wrong bytes"), "{text}");
        assert!(text.contains("/mnt/\\u{1b}x"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}

//! `ioloom compare`: compares two sessions arm by arm.

use crate::directories::StoreArg;
use crate::exit::{Ended, Exit, Failure};
use crate::ledger::Ledger;
use crate::{atomic_file, out, session_report, sessions};
use clap::Args;
use ioloom_report::Input;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;

/// Compare two stored sessions arm by arm
///
/// The runs of two sessions are not interleaved, so a change can have any cause between them: the
/// program, the load, the time of day. If the machine, medium, files, compute time, plan or condition
/// differ, that difference is listed instead.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom compare latest-1 latest               what changed since last time
  ioloom compare pipeline-2026 latest --html diff.html
  ioloom compare latest-1 latest --json")]
pub(crate) struct CompareArgs {
    /// The first session
    ///
    /// Its name, an unambiguous prefix, latest, or latest-N for the N-th before the latest.
    /// latest-N counts commands of `study`.
    #[arg(value_name = "A")]
    first: String,

    /// The second session
    ///
    /// Specified like the first.
    #[arg(value_name = "B")]
    second: String,

    #[command(flatten)]
    store: StoreArg,

    /// Use studies from this directory
    ///
    /// Study files (*.toml) and folders with study.toml replace the built-in studies.
    #[arg(long, value_name = "DIR")]
    studies: Option<PathBuf>,

    /// Compare only this study
    ///
    /// For sessions of a command that ran several studies.
    #[arg(long, value_name = "NAME")]
    study: Option<String>,

    /// Also write an HTML page
    ///
    /// One self-contained file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CompareArgs) -> Ended {
    atomic_file::refuse_dash("--html", args.html.as_deref())?;
    let ledger = Ledger::read(None)?;
    session_report::check_studies(args.studies.as_deref())?;
    let store = sessions::open(&args.store)?;
    let inputs = |word: &str| -> Result<Vec<Input>, Failure> {
        let sitting = sessions::batch(&store, word)?;
        let studies = args.studies.as_deref();
        let input = |mut session: ioloom_lab::Session| {
            // Comparisons have no timelines.
            session.pictures.clear();
            session_report::input(session, studies, &ledger, store.dir()).0
        };
        let wanted = |i: &Input| args.study.as_ref().is_none_or(|name| i.study.name == *name);
        Ok(sitting.into_iter().map(input).filter(wanted).collect())
    };
    let pairs = pairs(inputs(&args.first)?, inputs(&args.second)?)?;
    if let ([(a, b)], Some(path)) = (&pairs[..], &args.html) {
        atomic_file::write(path, ioloom_report::compare_html(a, b))?;
    } else if pairs.len() > 1 && (args.html.is_some() || args.json) {
        let names: Vec<&str> = pairs.iter().map(|(a, _)| a.study.name.as_str()).collect();
        let known = names.join(", ");
        return Err(Failure::usage(format!(
            "--html and --json need a single study; choose one with --study: {known}"
        )));
    }
    for (a, b) in &pairs {
        if args.json {
            out::print_json(&document(a, b))?;
            continue;
        }
        out::print(&ioloom_report::compare_terminal(a, b, out::columns(), out::colour()))?;
        if let Some(path) = &args.html {
            out::print(&format!("Report {}\n", path.display()))?;
        }
    }
    Ok(Exit::Ok)
}

/// Returns the common studies. Two sessions of one study each are compared even if the studies differ.
fn pairs(first: Vec<Input>, second: Vec<Input>) -> Result<Vec<(Input, Input)>, Failure> {
    if let ([_], [_]) = (&first[..], &second[..]) {
        return Ok(first.into_iter().zip(second).collect());
    }
    let mut second = second;
    let mut pairs = Vec::new();
    for a in first {
        if let Some(at) = second.iter().position(|b| b.study.name == a.study.name) {
            pairs.push((a, second.swap_remove(at)));
        }
    }
    if pairs.is_empty() {
        return Err(Failure::failed("the sessions have no study in common".to_owned()));
    }
    Ok(pairs)
}

fn document(a: &Input, b: &Input) -> Value {
    let matched = ioloom_report::compare::matched(a, b);
    let rows: Vec<Value> = matched
        .rows
        .iter()
        .map(|row| {
            json!({
                "experiment": row.group.experiment.name,
                "set": row.first.set,
                "medium": row.group.medium,
                "condition": row.group.condition,
                "compute": row.group.compute,
                "arm": row.first.name,
                "metric": row.group.experiment.metric,
                "ratio": row.ratio.map(|r| r.value),
                "lo": row.ratio.map(|r| r.ends.low),
                "hi": row.ratio.map(|r| r.ends.high),
                "confidence": row.ratio.map(|r| r.ends.confidence),
                "medians": row.medians(),
                "n": row.n(),
                "change": row.change.name(),
                "differs": row.differs,
            })
        })
        .collect();
    let alone: Vec<Value> = matched
        .alone
        .iter()
        .map(|(session, arm)| json!({"session": session, "arm": arm}))
        .collect();
    json!({
        "schema": SCHEMA,
        "command": "compare",
        "first": a.session,
        "second": b.session,
        "differs_in": matched.remarks,
        "arms": rows,
        "only_in_one": alone,
    })
}

//! `ioloom compare`: two sessions beside each other.

use crate::exit::{Ended, Exit};
use crate::ledger::Ledger;
use crate::place::StoreArg;
use crate::{out, session_report, sessions, study};
use clap::Args;
use ioloom_report::Input;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Version of the document that `--json` prints.
const SCHEMA: u32 = 1;

/// Compares two stored sessions arm by arm.
#[derive(Debug, Args)]
#[command(after_help = "\
The runs of two sessions were not taken together, so a difference can come from anything that
changed between them: the program, the load, the time of day. Where machine, medium, files, plan
or condition are not the same, no change is told; what differs is.

Examples:
  ioloom compare latest-1 latest               what changed since the last time
  ioloom compare pipeline-2026 latest --html diff.html
  ioloom compare latest-1 latest --json")]
pub(crate) struct CompareArgs {
    /// The first session: its name, the beginning of it, latest, latest-1
    #[arg(value_name = "A")]
    first: String,

    /// The second session
    #[arg(value_name = "B")]
    second: String,

    #[command(flatten)]
    store: StoreArg,

    /// Study files (*.toml) of this directory in place of the built-in studies
    #[arg(long, value_name = "DIR")]
    studies: Option<PathBuf>,

    /// Write the comparison as a page as well
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CompareArgs) -> Ended {
    let ledger = Ledger::read(None)?;
    let store = sessions::open(&args.store)?;
    let input = |word: &str| {
        let session = sessions::read(&store, word)?;
        let studies = args.studies.as_deref();
        Ok(session_report::input(session, studies, &ledger, store.dir()).0)
    };
    let (a, b) = (input(&args.first)?, input(&args.second)?);
    if let Some(path) = &args.html {
        study::write_report(path, ioloom_report::compare_html(&a, &b))?;
    }
    if args.json {
        out::print_json(&document(&a, &b))?;
    } else {
        let text = ioloom_report::compare_terminal(&a, &b, out::columns(), out::colour());
        out::print(&text)?;
        if let Some(path) = &args.html {
            out::print(&format!("Report {}\n", path.display()))?;
        }
    }
    Ok(Exit::Ok)
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
                "lo": row.ratio.map(|r| r.low),
                "hi": row.ratio.map(|r| r.high),
                "n": row.ratio.map_or(0, |r| r.n),
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

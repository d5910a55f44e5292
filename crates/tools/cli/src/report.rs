//! `ioloom report`: writes the report of a stored session.

use crate::directories::{StoreArg, short};
use crate::exit::{Ended, Exit, Failure};
use crate::ledger::Ledger;
use crate::{atomic_file, out, session_report, sessions};
use clap::Args;
use std::path::PathBuf;

/// Write the report of a stored session
///
/// The report is a single HTML file that works offline. It is created from stored runs alone, so you
/// can recreate it at any time, for example with other claims.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom report                            the latest session
  ioloom report latest-1 -o before.html    the session before it, to this file
  ioloom report --picture window-depth -o depth.svg
                                           a single chart")]
pub(crate) struct ReportArgs {
    /// Session to report
    ///
    /// Its name, an unambiguous prefix, latest, or latest-N for the N-th before the latest.
    #[arg(value_name = "SESSION", default_value = "latest")]
    session: String,

    #[command(flatten)]
    store: StoreArg,

    /// Use studies from this directory
    ///
    /// Study files (*.toml) and folders with study.toml replace the built-in studies.
    #[arg(long, value_name = "DIR")]
    studies: Option<PathBuf>,

    /// Use claims from this directory
    ///
    /// Ledgers (*.toml) and folders with claims.toml replace the built-in claims.
    #[arg(long, value_name = "DIR")]
    claims: Option<PathBuf>,

    /// Write to this file
    ///
    /// Use - for standard output. Default: next to the store.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write one chart as SVG
    ///
    /// Writes only the chart of this experiment instead of the report.
    #[arg(long, value_name = "EXPERIMENT")]
    picture: Option<String>,
}

pub(crate) fn run(args: &ReportArgs) -> Ended {
    let ledger = Ledger::read(args.claims.as_deref())?;
    let store = sessions::open(&args.store)?;
    let mut sitting = sessions::batch(&store, &args.session)?;
    let name = sitting.first().map(|s| s.header.batch().to_owned()).unwrap_or_default();
    sitting.retain(|session| !session.runs.is_empty());
    if sitting.is_empty() {
        return Err(Failure::failed(format!("session {name} has no runs yet")));
    }
    let headers = sitting.iter().map(|session| &session.header);
    session_report::report_missing_ledger(headers, args.claims.as_deref());
    let studies = args.studies.as_deref();
    let sitting = sitting.into_iter().map(|session| (session, None)).collect();
    let made = session_report::inputs(sitting, studies, &ledger, store.dir());
    let mut inputs: Vec<_> = made.into_iter().map(|(input, _)| input).collect();
    let to_stdout = args.output.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if let Some(experiment) = &args.picture {
        let picture = |input| ioloom_report::picture(input, Some(experiment));
        let svg = inputs.iter().find_map(picture).ok_or_else(|| {
            Failure::failed(format!("session {name} has no runs of experiment '{experiment}'"))
        })?;
        return match &args.output {
            Some(path) if !to_stdout => {
                atomic_file::write(path, &svg)?;
                out::print(&format!("{}\n", path.display()))?;
                Ok(Exit::Ok)
            }
            _ => out::print(&svg).map(|()| Exit::Ok),
        };
    }
    if to_stdout {
        out::print(&ioloom_report::html_all(&inputs))?;
        return Ok(Exit::Ok);
    }
    let path =
        args.output.clone().unwrap_or_else(|| session_report::report_path(store.dir(), &name));
    for input in &mut inputs {
        input.report_path = Some(short(&path));
    }
    atomic_file::write(&path, ioloom_report::html_all(&inputs))?;
    session_report::print_summary(&inputs)?;
    Ok(Exit::Ok)
}

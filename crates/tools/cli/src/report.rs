//! `ioloom report`: writes the report of a stored session.

use crate::directories::{StoreArg, short};
use crate::exit::{Ended, Exit, Failure};
use crate::ledger::Ledger;
use crate::{atomic_file, out, session_report, sessions, values};
use clap::Args;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_report::Input;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
                                           a single chart
  ioloom report --format md                the answers and numbers as Markdown
  ioloom report --merge here.json there.json
                                           exported results side by side")]
pub(crate) struct ReportArgs {
    /// Session to report
    ///
    /// Its name, an unambiguous prefix, latest, or latest-N for the N-th before the latest.
    /// latest-N counts commands of `study`.
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
    /// Use - for standard output. Default: reports/SESSION.html in the store.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Format
    ///
    /// html is a page (default), md is Markdown, json is the data of the page. md and json are written to
    /// standard output unless --output is given.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "html",
        hide_default_value = true,
        value_parser = formats(),
        conflicts_with = "picture"
    )]
    format: Format,

    /// Show exported results side by side
    ///
    /// Writes Markdown with a column for each document of `study --export` or `report --format json`, from
    /// one machine or several. Values are never pooled.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        conflicts_with_all = ["session", "format", "picture", "studies", "claims", "store"]
    )]
    merge: Vec<PathBuf>,

    /// Write one chart as SVG
    ///
    /// Writes only the chart of this experiment instead of the report, to standard output unless --output is
    /// given. If it ran in several places, such as on two media, the first is drawn and the others are
    /// listed; EXPERIMENT:PLACE draws one of them. If several studies of the session have an experiment of
    /// this name, use STUDY/EXPERIMENT.
    #[arg(long, value_name = "EXPERIMENT")]
    picture: Option<String>,
}

/// The form of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Markdown,
    Json,
}

fn formats() -> values::Choice<Format> {
    values::choice([("html", Format::Html), ("md", Format::Markdown), ("json", Format::Json)])
}

impl Format {
    fn of(self, inputs: &[Input]) -> String {
        match self {
            Self::Html => ioloom_report::html_all(inputs),
            Self::Markdown => ioloom_report::markdown(inputs),
            Self::Json => format!("{}\n", ioloom_report::json(inputs)),
        }
    }
}

/// Says that a file is not a document to merge, such as the lines of a kept session.
fn not_exported(path: &Path, error: &serde_json::Error) -> String {
    format!(
        "cannot parse {}: {error}; expected a document of `study --export` or `report --format \
         json`; for kept sessions use `report --store DIR --format json`",
        quoted(path)
    )
}

/// Writes exported documents side by side.
fn merge(args: &ReportArgs) -> Ended {
    let read = |path: &PathBuf| -> Result<_, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::failed(PathError::new(Operation::Read, path, e)))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let document = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(not_exported(path, &error)))?;
        Ok((name, document))
    };
    let documents = args.merge.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let text = ioloom_report::merge(&documents).map_err(Failure::usage)?;
    match &args.output {
        Some(path) if path.as_os_str() != "-" => {
            atomic_file::write(path, &text)?;
            Ok(Exit::Ok)
        }
        _ => out::print(&text).map(|()| Exit::Ok),
    }
}

/// Splits `EXPERIMENT` or `EXPERIMENT:PLACE` after the longest name of an experiment, which can contain
/// colons.
fn experiment_and_place<'a>(
    wanted: &'a str,
    names: impl Iterator<Item = &'a str>,
) -> (&'a str, Option<&'a str>) {
    let before_place = |name: &&str| {
        let rest = wanted.strip_prefix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let length = names.filter(before_place).map(str::len).max().unwrap_or(wanted.len());
    let (experiment, rest) = wanted.split_at(length);
    (experiment, rest.strip_prefix(':').map(str::trim))
}

/// Splits `STUDY/EXPERIMENT` after the name of a study.
fn study_and_rest<'a>(
    wanted: &'a str,
    mut studies: impl Iterator<Item = &'a str>,
) -> (Option<&'a str>, &'a str) {
    let found = studies.find_map(|study| {
        let rest = wanted.strip_prefix(study)?.strip_prefix('/')?;
        Some((Some(study), rest))
    });
    found.unwrap_or((None, wanted))
}

/// Returns the chart of `[STUDY/]EXPERIMENT[:PLACE]`. Of several places, it reports which one is drawn.
///
/// # Errors
/// No study has such a chart, or several have one and `wanted` names no study.
fn picture(inputs: &[Input], wanted: &str, session: &str) -> Result<String, Failure> {
    let (study, rest) = study_and_rest(wanted, inputs.iter().map(|i| i.study.name.as_str()));
    let is_named = move |input: &&Input| study.is_none_or(|name| input.study.name == name);
    let selected = move || inputs.iter().filter(is_named);
    let experiments = selected().flat_map(|input| &input.study.experiments);
    let names = experiments.map(|experiment| experiment.name.as_str());
    let (experiment, place) = experiment_and_place(rest, names);
    let mut studies = BTreeSet::new();
    let (mut places, mut charts) = (Vec::new(), Vec::new());
    for input in selected() {
        for (place, chart) in ioloom_report::pictures(input, experiment) {
            studies.insert(input.study.name.as_str());
            places.push(place);
            charts.push(chart);
        }
    }
    if charts.is_empty() {
        let words = format!("session {session} has no runs of experiment '{experiment}'");
        return Err(Failure::usage(words));
    }
    if studies.len() > 1 {
        let names: Vec<_> = studies.iter().map(|study| format!("{study}/{experiment}")).collect();
        return Err(Failure::usage(format!(
            "several studies have an experiment '{experiment}'; use --picture {}",
            names.join(" or ")
        )));
    }
    let Some(at) = place.map_or(Some(0), |place| places.iter().position(|of| of == place)) else {
        let places = places.join("; ");
        let words = format!("no chart of '{wanted}'; {experiment} ran on {places}");
        return Err(Failure::usage(words));
    };
    let chosen = places.remove(at);
    if place.is_none() && !places.is_empty() {
        crate::stderr::message(&format!(
            "the chart shows {chosen}; --picture '{wanted}:PLACE' draws one of the others: {}",
            places.join("; ")
        ));
    }
    Ok(charts.swap_remove(at))
}

pub(crate) fn run(args: &ReportArgs) -> Ended {
    if !args.merge.is_empty() {
        return merge(args);
    }
    let ledger = Ledger::read(args.claims.as_deref())?;
    session_report::check_studies(args.studies.as_deref())?;
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
    if args.picture.is_some() {
        // A chart has no timelines.
        sitting.iter_mut().for_each(|session| session.pictures.clear());
    }
    let sitting = sitting.into_iter().map(|session| (session, None)).collect();
    let made = session_report::inputs(sitting, studies, &ledger, store.dir());
    let mut inputs: Vec<_> = made.into_iter().map(|(input, _)| input).collect();
    let to_stdout = args.output.as_ref().is_some_and(|path| path.as_os_str() == "-");
    if let Some(wanted) = &args.picture {
        let svg = picture(&inputs, wanted, &name)?;
        return match &args.output {
            Some(path) if !to_stdout => {
                atomic_file::write(path, &svg)?;
                out::print(&format!("{}\n", out::readable(path.as_os_str().as_encoded_bytes())))?;
                Ok(Exit::Ok)
            }
            _ => out::print(&svg).map(|()| Exit::Ok),
        };
    }
    let to_stdout = to_stdout || (args.format != Format::Html && args.output.is_none());
    for input in &mut inputs {
        input.since = session_report::since(&store, input, studies);
    }
    if to_stdout {
        out::print(&args.format.of(&inputs))?;
        return Ok(Exit::Ok);
    }
    let path =
        args.output.clone().unwrap_or_else(|| session_report::report_path(store.dir(), &name));
    for input in &mut inputs {
        input.report_path = Some(short(&path));
    }
    let text = args.format.of(&inputs);
    match &args.output {
        Some(path) => atomic_file::write(path, text)?,
        None => atomic_file::write_with_parents(&path, text)?,
    }
    session_report::print_summary(&inputs)?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::{experiment_and_place, study_and_rest};

    #[test]
    fn names_of_experiments_can_contain_colons() {
        let names = ["a", "a:b"];
        let of = |wanted: &'static str| experiment_and_place(wanted, names.into_iter());
        assert_eq!(of("a"), ("a", None));
        assert_eq!(of("a: E, cold, sleep:1ms"), ("a", Some("E, cold, sleep:1ms")));
        assert_eq!(of("a:b"), ("a:b", None));
        assert_eq!(of("a:b:E, cold"), ("a:b", Some("E, cold")));
        assert_eq!(of("c:E"), ("c:E", None));
    }

    #[test]
    fn an_experiment_can_be_named_with_its_study() {
        let of = |wanted: &'static str| study_and_rest(wanted, ["memory", "copy"].into_iter());
        assert_eq!(of("left-alone"), (None, "left-alone"));
        assert_eq!(of("copy/left-alone:E, cold"), (Some("copy"), "left-alone:E, cold"));
        assert_eq!(of("copying/left-alone"), (None, "copying/left-alone"));
    }
}

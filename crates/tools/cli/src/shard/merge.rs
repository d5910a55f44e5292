//! `shard merge`: proves that each shard has one part, and combines them.

use super::combine::{Combined, Lines, combine, hash_of};
use super::operands::Parts;
use super::report::Shown;
use super::{copied, report, text, usage};
use crate::each::input;
use crate::each::line::Form;
use crate::each::output::ERRORS_PRINTED;
use crate::each::selection::Selection;
use crate::exit::{Ended, Exit, Failure};
use crate::sharding::{absolute, check_file, failure, host};
use crate::{atomic_file, out, stderr};
use clap::Args;
use ioloom_failure::quoted;
use ioloom_model::units::{format_count, format_counted};
use ioloom_shard::census::{Census, census};
use ioloom_shard::plan::{Plan, names_checksum};
use ioloom_shard::summary::Summary;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;

/// Combine the parts of all shards
///
/// Verifies that each shard of the plan has exactly one part, that all parts belong to this plan and
/// to the same work, and that none is damaged. Then prints the result that one `ioloom each` over all
/// files gives: the same digest, counts and lines. Parts of `ioloom du` are added up.
///
/// Parts of `ioloom cp` are added up, and the directories that several shards filled get their owners,
/// permissions and times from the source: run it where source and target are mounted, as the user that
/// copied. Only then is the copy complete. It can be repeated.
///
/// If a part is missing, duplicate, damaged, or of another plan or other work, nothing is combined, and
/// the exit code is 1. Parts are not changed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom shard merge data.shards parts          digest, counts and hosts
  ioloom shard merge data.shards parts --per-file > SUMS
  ioloom shard merge data.shards parts --report result.html
  ioloom shard merge data.shards parts --recheck --json")]
pub(super) struct MergeArgs {
    #[command(flatten)]
    parts: Parts,

    /// Print HASH  PATH for each file, in the order of `each --ordered`
    #[arg(long)]
    per_file: bool,

    /// Print NAME (PATH) = HASH for each file, with --per-file
    #[arg(long, requires = "per_file", conflicts_with = "json")]
    tag: bool,

    /// End lines of --per-file with NUL, without escapes in names
    #[arg(short, long, requires = "per_file", conflicts_with = "json")]
    zero: bool,

    /// List the directories of the plan again
    ///
    /// Reports files that are new or gone since the plan was made, and fails if there are any. Without
    /// it, files that are gone are errors of their shards, and new files are not noticed.
    #[arg(long)]
    recheck: bool,

    /// Print the result as JSON, with hosts and timeline
    #[arg(long)]
    json: bool,

    /// Write the result as a page: hosts, workers over time, slowest shards
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Print only errors, and compute no digest
    ///
    /// The digest needs memory for all paths, and about 16 bytes per file.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

pub(super) fn run(args: &MergeArgs) -> Ended {
    atomic_file::refuse_dash("--report", args.report.as_deref())?;
    // The directory changes before it is written.
    let report = args.report.clone().map(absolute).transpose()?;
    let report = report.as_deref();
    check_file(&args.parts.plan)?;
    args.parts.places.iter().try_for_each(|place| check_file(place))?;
    let plan = Plan::read(&args.parts.plan).map_err(failure)?;
    let census = census(&plan, &args.parts.places, &host()).map_err(failure)?;
    if !census.is_complete() {
        return incomplete(args, &plan, &census);
    }
    let command = census.work.as_ref().map(|work| work.command.as_str());
    let merge: Option<fn(&Plan, &Census, Shown<'_>) -> Ended> = match command {
        Some(usage::COMMAND) => Some(usage::merge),
        Some(copied::COMMAND) => Some(copied::merge),
        _ => None,
    };
    if let Some(merge) = merge {
        if args.per_file || args.recheck {
            return Err(Failure::usage(
                "--per-file and --recheck are for the files of 'ioloom each'",
            ));
        }
        return merge(&plan, &census, Shown { json: args.json, quiet: args.quiet, report });
    }
    let lines = lines(args, &census)?;
    let summary = Summary::of(&census);
    let combined = combine(&plan, &census, lines, !args.quiet)?;
    let changes = args.recheck.then(|| changes(&plan)).transpose()?;
    let count = summary.errors.saturating_add(plan.header.errors_count);
    // Those of files were printed with their lines.
    let unprinted =
        if args.per_file { plan.header.errors.clone() } else { combined.errors.clone() };
    let unprinted_count = if args.per_file { plan.header.errors_count } else { count };
    text::print_errors(&unprinted, unprinted_count);
    if combined.gone > 0 {
        let files = format_counted(combined.gone, "file was", "files were");
        stderr::message(&format!(
            "{files} missing when the shard ran: removed after the plan was made, or not mounted there"
        ));
    }
    if let Some(shards) = text::with_errors(&census) {
        let files = format_counted(summary.errors, "file", "files");
        stderr::message(&format!("{files} failed in {shards}"));
    }
    let changed = changes.as_ref().is_some_and(|changes| changes.new > 0 || changes.gone > 0);
    if let Some(changes) = changes.as_ref().filter(|_| changed) {
        stderr::message(&changes.message());
    }
    report::write(report, &plan, &census, &summary, || report::Result {
        answer: report::amount(&summary),
        doubts: changes.iter().filter(|_| changed).map(Changes::message).collect(),
        facts: combined.digest.iter().map(|digest| ("digest", digest.to_string())).collect(),
        errors: combined.errors.clone(),
        errors_count: count,
    })?;
    let printed = print(args, &plan, &census, (&summary, &combined, changes.as_ref()));
    out::then(printed, Ok(if count > 0 || changed { Exit::Failed } else { Exit::Ok }))
}

fn lines(args: &MergeArgs, census: &Census) -> Result<Lines, Failure> {
    if !args.per_file {
        return Ok(Lines::None);
    }
    match hash_of(census) {
        Some(_) if args.json => Ok(Lines::Json),
        Some(hash) => Ok(Lines::Text(Form { tag: args.tag, zero: args.zero }, hash)),
        None => {
            let work = census.work.as_ref().map_or(String::new(), |work| work.words());
            let work = out::readable(work.as_bytes());
            Err(Failure::usage(format!("--per-file prints hashes, and '{work}' computed none")))
        }
    }
}

/// Reports why the parts cannot be combined.
fn incomplete(args: &MergeArgs, plan: &Plan, census: &Census) -> Ended {
    let printed = match args.json {
        true => out::print_json(&json!({
            "schema": 1,
            "command": "shard merge",
            "plan": plan.checksum,
            "shards": plan.header.shards,
            "complete": false,
            "faults": text::faults_json(census),
        })),
        false => Ok(()),
    };
    let faults = text::faults(census).join("\n  ");
    let message = format!("cannot combine the parts of {}:\n  {faults}", quoted(&plan.path));
    out::then(printed, Err(Failure::failed(message)))
}

fn print(
    args: &MergeArgs,
    plan: &Plan,
    census: &Census,
    (summary, combined, changes): (&Summary, &Combined, Option<&Changes>),
) -> Result<(), Failure> {
    if args.quiet {
        return Ok(());
    }
    if args.json {
        let document = document(plan, census, (summary, combined, changes));
        return match args.per_file {
            true => out::print(&(document.to_string() + "\n")),
            false => out::print_json(&document),
        };
    }
    let partial = match summary.errors.saturating_add(plan.header.errors_count) {
        0 => String::new(),
        errors => format!("  (partial: {})", format_counted(errors, "error", "errors")),
    };
    let mut text = text::totals(summary);
    if let Some(digest) = &combined.digest {
        text += &format!("digest      {digest}{partial}\n");
    }
    text += &text::hosts(summary);
    if args.per_file {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    out::print(&text)
}

fn document(
    plan: &Plan,
    census: &Census,
    (summary, combined, changes): (&Summary, &Combined, Option<&Changes>),
) -> Value {
    let errors = summary.errors.saturating_add(plan.header.errors_count);
    json!({
        "schema": 1,
        "command": "shard merge",
        "plan": plan.checksum,
        "shards": plan.header.shards,
        "complete": true,
        "work": census.work,
        "files": summary.files,
        "bytes": summary.bytes,
        "errors": errors,
        "error_samples": combined.errors.iter().take(ERRORS_PRINTED).collect::<Vec<_>>(),
        "gone": combined.gone,
        "digest": combined.digest,
        "digest_partial": combined.digest.is_some() && errors > 0,
        "recheck": changes.map(|changes| json!({"new": changes.new, "gone": changes.gone})),
        "started_ns": summary.started_ns,
        "elapsed_ns": summary.elapsed_ns,
        "busy_ns": summary.busy_ns,
        "cpu_ns": summary.cpu_ns,
        "median_ns": summary.median_ns,
        "hosts": summary.hosts,
        "slowest": text::slowest(summary),
        "timeline": summary.timeline,
    })
}

/// How the files of a plan differ from those that are there now.
struct Changes {
    new: u64,
    gone: u64,
    /// The first new file and the first that is gone.
    examples: [Option<PathBuf>; 2],
}

impl Changes {
    fn message(&self) -> String {
        let [new, gone] = &self.examples;
        let example = |path: &Option<PathBuf>| {
            path.as_ref().map_or(String::new(), |path| format!(" ({}…)", quoted(path)))
        };
        format!(
            "the files changed since the plan was made: {} new{}, {} gone{}; plan again to include \
             new files",
            format_count(self.new),
            example(new),
            format_count(self.gone),
            example(gone)
        )
    }
}

/// Lists the directories of a plan again.
fn changes(plan: &Plan) -> Result<Changes, Failure> {
    use std::os::unix::ffi::OsStringExt;
    let header = &plan.header;
    if header.roots.is_empty() {
        return Err(Failure::usage(
            "--recheck lists directories, and the plan was made from a list",
        ));
    }
    let words = header.selection.iter().map(|word| std::ffi::OsString::from_vec(word.0.clone()));
    let selection = Selection::of_words(words).map_err(Failure::failed)?;
    let roots: Vec<PathBuf> = header.roots.iter().map(|root| root.path().to_owned()).collect();
    // Manifests are read first: their paths may be relative to this directory.
    let mut planned = Vec::new();
    for entry in plan.entries() {
        planned.push(plan.names(&entry).map_err(failure)?);
    }
    std::env::set_current_dir(header.directory.path()).map_err(|error| {
        let directory = header.directory.path();
        Failure::failed(ioloom_failure::PathError::new(
            ioloom_failure::Operation::OpenDir,
            directory,
            error,
        ))
    })?;
    let now = input::planned(&selection, &roots);
    if let Some((_, first)) = now.errors.first() {
        return Err(Failure::failed(format!(
            "cannot list the files again: {first}; mend it, or leave out --recheck"
        )));
    }
    now.warnings.iter().for_each(|warning| stderr::message(warning));
    let mut changes = Changes { new: 0, gone: 0, examples: [None, None] };
    if names_checksum(now.paths.iter()) == header.names {
        return Ok(changes);
    }
    let known: HashSet<&[u8]> = planned.iter().flat_map(|names| names.iter()).collect();
    let present: HashSet<&[u8]> = now.paths.iter().collect();
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    for name in now.paths.iter().filter(|name| !known.contains(name)) {
        changes.new += 1;
        changes.examples[0].get_or_insert_with(|| path(name));
    }
    for name in planned.iter().flat_map(|names| names.iter()).filter(|name| !present.contains(name))
    {
        changes.gone += 1;
        changes.examples[1].get_or_insert_with(|| path(name));
    }
    Ok(changes)
}

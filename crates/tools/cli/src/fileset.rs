//! `ioloom fileset`: creates, verifies and removes seeded file sets.

use crate::bar_target;
use crate::exit::{Ended, Exit, Failure};
use crate::{out, stderr, values};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use ioloom_failure::quoted;
use ioloom_fileset::{self as fileset, CreateOptions, CreateProgress, Created, SetError, SetText};
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_model::{FileSetRealised, FileSetSpec};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;
/// Maximum number of printed faults.
const FAULTS_PRINTED: usize = 10;

/// Create, verify and remove seeded sets of files
///
/// A description and a seed determine a file set completely: names, sizes and bytes are the same on
/// every machine. Studies create their own sets; use this command for other programs or to reproduce
/// a run by hand.
///
/// The files are in DIR/files. The manifest DIR/.ioloom-set.json describes the set; verify and remove need
/// it, and ioloom each DIR counts it as one more file.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom fileset create tree /tmp/set
  ioloom fileset create 'count=20k,size=exp(mean=4KiB,max=1MiB)' /tmp/set
  ioloom fileset verify /tmp/set
  ioloom fileset remove /tmp/set")]
pub(crate) struct FilesetArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create a file set, or complete a partial one
    ///
    /// SPEC is count=N,size=SIZES[,KEY=VALUE...], where SIZES is a size, normal(), exp(),
    /// lognormal(), pareto(), uniform(), mix() or list(). SPEC can also be a preset (tree;
    /// source000:A to source000:H and source001, the sets of source studies), optionally followed
    /// by changes such as count=4000. like:DIR creates as many files as an existing tree has, with
    /// the same sizes, in nested directories; files that cannot be read are left out, and the exit
    /// code is 1.
    ///
    /// Keys: compute=TIMES; layout=flat|nested|tree|deep (one directory; two levels, the default;
    /// five levels; chains of 64 directories); data=written|sparse; order=listed|shuffled, the
    /// order of creation; links=N, every N-th name is a hard link to the previous file; seed=N.
    ///
    /// Existing files of the set are reused. Free space and inodes are checked first.
    #[command(after_long_help = "\
Examples:
  ioloom fileset create source000:E,count=4000 /tmp/small
  ioloom fileset create 'count=100,size=lognormal(mu=8.2,sigma=1.6)' /tmp/set
  ioloom fileset create like:/usr/share/doc /tmp/like-doc --random 7")]
    Create(CreateArgs),
    /// Compare every byte of a set with its description
    ///
    /// Reads all files. The exit code is 1 if a file is missing, different or not part of the set.
    #[command(after_long_help = "Examples:\n  ioloom fileset verify /tmp/set")]
    Verify(DirArgs),
    /// Remove a set created by ioloom, and nothing else
    ///
    /// Directories without a manifest written by ioloom are refused. Other files in the directory are
    /// left alone, as are the directories that contain them.
    #[command(after_long_help = "Examples:\n  ioloom fileset remove /tmp/set")]
    Remove(DirArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Set description
    #[arg(value_name = "SPEC", value_parser = set_text())]
    spec: SetText,
    /// A new or empty directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Random seed for sizes, times and bytes
    ///
    /// Default: the seed in the description. Another seed creates a different set of the same shape.
    #[arg(long, alias = "seed", value_name = "N")]
    random: Option<u64>,
    /// Number of threads, 1 to 1024
    ///
    /// Default: two per core, at most 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DirArgs {
    /// The set's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Parses a description, whose directory need not be UTF-8.
fn set_text() -> impl TypedValueParser<Value = SetText> {
    OsStringValueParser::new().try_map(|text| {
        SetText::from_os(&text).map_err(|error| values::reason(&text.to_string_lossy(), error))
    })
}

pub(crate) fn run(args: &FilesetArgs) -> Ended {
    match &args.what {
        What::Create(args) => create(args),
        What::Verify(args) => verify(args),
        What::Remove(args) => remove(args),
    }
}

fn failure(error: SetError) -> Failure {
    match error {
        SetError::Spec { .. } => Failure::usage(error),
        SetError::NotOurs { .. }
        | SetError::OtherSet { .. }
        | SetError::OtherSizes { .. }
        | SetError::Busy { .. }
        | SetError::NoRoom { .. }
        | SetError::NoInodes { .. } => Failure::refused(error),
        SetError::Stopped { .. } => Failure::new(Exit::Interrupted, error.to_string()),
        _ => Failure::failed(error),
    }
}

/// The document of `fileset create --json`.
#[derive(Serialize)]
struct CreateDocument {
    schema: u32,
    spec: String,
    set: FileSetRealised,
    elapsed_ns: u64,
    files_made: u64,
    files_per_s: f64,
}

fn create(args: &CreateArgs) -> Ended {
    let (mut spec, exit) = resolved(&args.spec)?;
    spec.seed = args.random.unwrap_or(spec.seed);
    let mut options = CreateOptions::default();
    options.threads = args.threads.map_or(options.threads, usize::from);
    let stop = crate::interrupt::stop_flag();
    let bar = bar(spec.count);
    let on_progress = |p: CreateProgress| {
        if let Some(bar) = &bar {
            bar.set_position(p.files_done);
        }
        !stop.load(Ordering::Relaxed)
    };
    let start = Instant::now();
    let made = fileset::create(&spec, &args.dir, &options, &on_progress);
    let elapsed = start.elapsed();
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let Created { set, files_made } = made.map_err(failure)?;
    let files_per_s = files_made as f64 / elapsed.as_secs_f64().max(1e-9);
    if args.json {
        let spec = fileset::spell(&spec);
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let document =
            CreateDocument { schema: SCHEMA, spec, set, elapsed_ns, files_made, files_per_s };
        return out::then(out::print_json(&document), Ok(exit));
    }
    let speed = if files_made == 0 {
        "all files already existed".to_owned()
    } else {
        let time = format_ns(elapsed.as_nanos() as f64);
        let made = counted(files_made);
        format!("created {made} in {time}, {} files/s", format_count(files_per_s as u64))
    };
    out::then(out::print(&format!("{}{speed}\n", described(&set))), Ok(exit))
}

/// Returns the description of a set. Entries of a tree that cannot be read are missing from it: they
/// are reported, and the exit code is 1.
fn resolved(text: &SetText) -> Result<(FileSetSpec, Exit), Failure> {
    let (dir, seed) = match text {
        SetText::Spec(spec) => return Ok((spec.clone(), Exit::Ok)),
        SetText::Like { dir, seed } => (dir, *seed),
    };
    let shape = fileset::spec_from_tree(dir, seed).map_err(failure)?;
    if shape.errors_count == 0 {
        return Ok((shape.spec, Exit::Ok));
    }
    if let Some(error) = &shape.first_error {
        stderr::message(error);
    }
    let count = format_counted(shape.errors_count, "entry", "entries");
    stderr::message(&format!("the set lacks {count} of {} that cannot be read", quoted(dir)));
    Ok((shape.spec, Exit::Failed))
}

fn counted(files: u64) -> String {
    format_counted(files, "file", "files")
}

fn described(set: &FileSetRealised) -> String {
    let compute =
        set.compute_ns_mean.map_or(String::new(), |ns| format!(", mean compute {}", format_ns(ns)));
    format!(
        "{}: {}, {} in total, mean {}{compute}\nhash {}\n",
        set.name,
        counted(set.files),
        format_size(set.bytes_total),
        format_size(set.bytes_mean as u64),
        set.hash,
    )
}

fn bar(files: u64) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(Some(files), bar_target::stderr());
        let style = "{bar:30} {human_pos}/{human_len} files, {eta} left";
        bar.with_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    })
}

fn verify(args: &DirArgs) -> Ended {
    let threads = CreateOptions::default().threads;
    let found = fileset::verify(&args.dir, threads).map_err(failure)?;
    let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
    let printed = if args.json {
        out::print_json(&serde_json::json!({
            "schema": SCHEMA, "good": found.is_good(), "files_good": found.good,
            "files": found.files, "bytes": found.bytes, "faults_count": found.faults_count,
            "faults": faults,
        }))
    } else {
        out::print(&format!(
            "{}: {} of {} files match the description, {} compared\n",
            quoted(&args.dir),
            format_count(found.good),
            format_count(found.files),
            format_size(found.bytes),
        ))
    };
    for fault in faults.iter().take(FAULTS_PRINTED) {
        stderr::message(fault);
    }
    let ended = match found.is_good() {
        true => Ok(Exit::Ok),
        false => Err(Failure::failed(format!(
            "{} does not match its description: {}",
            quoted(&args.dir),
            format_counted(found.faults_count, "fault", "faults")
        ))),
    };
    out::then(printed, ended)
}

fn remove(args: &DirArgs) -> Ended {
    let removed = fileset::remove(&args.dir).map_err(failure)?;
    let printed = if args.json {
        let mut document = serde_json::json!({
            "schema": SCHEMA, "files": removed.files,
            "left": removed.left.iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        });
        let exact: Vec<_> = removed.left.iter().map(|p| out::base64_unless_utf8(p)).collect();
        if exact.iter().any(Option::is_some) {
            document["left_base64"] = serde_json::json!(exact);
        }
        out::print_json(&document)
    } else {
        let files = counted(removed.files);
        out::print(&format!("{}: {files} removed\n", quoted(&args.dir)))
    };
    for dir in &removed.left {
        stderr::message(&format!("{} was not removed: it contains other files", quoted(dir)));
    }
    out::then(printed, Ok(Exit::Ok))
}

//! `shard plan`: lists files and writes the manifests.

use super::operands::check_local;
use super::subtrees;
use crate::each::input::{self, Planned};
use crate::each::output::{ERRORS_PRINTED, one_line};
use crate::each::selection::Selection;
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::StopSignals;
use crate::sharding::{check_file, failure, host, now_ns};
use crate::subtrees::is_filled;
use crate::{out, standard_input, stderr};
use clap::Args;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::units::{format_count, format_counted};
use ioloom_shard::plan::{FILES_PER_SHARD, Plan, PlanHeader, SHARDS_MAX, shards_for};
use ioloom_shard::{Raw, ShardError};
use ioloom_walk::{PathList, Separator, read_list};
use serde_json::json;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Errors whose text a plan keeps.
const ERRORS_KEPT: usize = 1000;

/// Split files into shards
///
/// Lists the files below the given directories once, sorted by path, and writes a directory with one
/// manifest per shard and the file plan, which lists them with their checksums. Neighbouring files
/// are in the same shard. The plan appears under its name when it is complete and on the device.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom shard plan /data                       4096 files per shard
  ioloom shard plan /data --shards 100 --out /shared/plan
  find /data -newer stamp -print0 | ioloom shard plan -0 - --files 1000
  ioloom shard plan --subtrees /data            64 shards for ioloom du or cp")]
pub(super) struct PlanArgs {
    /// Directories or files, or - for a list on standard input
    #[arg(required_unless_present = "files_from", conflicts_with = "files_from")]
    paths: Vec<PathBuf>,

    /// Read the list of files from this file
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,

    /// Listed paths end with NUL, as `find -print0` writes them
    #[arg(short = '0', long = "null")]
    zero: bool,

    /// Number of shards, at most one per file [default: one per 4096 files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SHARDS_MAX))]
    shards: Option<u64>,

    /// Files per shard, instead of a number of shards
    #[arg(long, value_name = "N", conflicts_with = "shards",
          value_parser = clap::value_parser!(u64).range(1..))]
    files: Option<u64>,

    /// Directory of the plan [default: NAME.shards]
    ///
    /// It must be absent or empty. All workers need to see it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// List directories for `ioloom du` and `ioloom cp` instead of files
    ///
    /// Splits the tree at its upper directories and reads nothing below them, so a plan of a
    /// billion files takes seconds. The sizes of subtrees are unknown; use more shards than workers
    /// to balance the work. The default is 64 shards.
    #[arg(long, conflicts_with_all = ["files_from", "zero", "files"])]
    subtrees: bool,

    #[command(flatten)]
    selection: Selection,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PlanArgs) -> Ended {
    let directory = std::env::current_dir()
        .map_err(PathError::on(Operation::Resolve, Path::new(".")))
        .map_err(Failure::failed)?;
    args.out.iter().try_for_each(|out| check_file(out))?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_name(args, &directory),
    };
    Plan::check_absent(&out).map_err(failure)?;
    let planned = match args.subtrees {
        true => subtrees::planned(&args.paths, &args.selection, args.shards)?,
        false => list(args)?,
    };
    check_outside(&out, &planned.once, args.selection.one_file_system)?;
    for warning in &planned.warnings {
        stderr::message(&one_line(warning));
    }
    let errors: Vec<String> = planned.errors.iter().map(|(_, message)| message.clone()).collect();
    for error in errors.iter().take(ERRORS_PRINTED) {
        stderr::message(&one_line(error));
    }
    let more = errors.len().saturating_sub(ERRORS_PRINTED);
    if more > 0 {
        stderr::message(&format!("and {} more errors", format_count(more as u64)));
    }
    let files = planned.paths.len() as u64;
    if files == 0 && !errors.is_empty() {
        return Err(Failure::failed("nothing to plan: no file could be listed"));
    }
    let header = PlanHeader {
        shards: shards(args, files),
        files,
        directory: (&directory).into(),
        roots: planned.once.iter().map(Raw::from).collect(),
        tree: planned.tree.as_ref().map(Raw::from),
        selection: args.selection.words().iter().map(|word| Raw::from(Path::new(word))).collect(),
        subtrees: args.subtrees,
        contained: match args.subtrees {
            true => args.paths.len().saturating_sub(planned.once.len()) as u64,
            false => 0,
        },
        filled: match args.subtrees {
            true => planned.once.iter().filter(|root| is_filled(root)).map(Raw::from).collect(),
            false => Vec::new(),
        },
        names: String::new(),
        regular: false,
        errors_count: errors.len() as u64,
        errors: errors.into_iter().take(ERRORS_KEPT).collect(),
        host: host(),
        pid: std::process::id(),
        created_ns: now_ns(),
        version: crate::version::VERSION.to_owned(),
    };
    let signals = StopSignals::catch();
    let plan = match Plan::write_unless(&signals.flag, &out, header, &planned.paths) {
        Err(ShardError::Interrupted(_)) => {
            stderr::message("interrupted: no plan was written");
            return Ok(signals.exit());
        }
        written => written.map_err(failure)?,
    };
    let exit = if plan.header.errors_count > 0 { Exit::Failed } else { Exit::Ok };
    out::then(report(args, &plan, &out), Ok(exit))
}

/// Returns the number of shards: none is empty, unless there are no files.
fn shards(args: &PlanArgs, files: u64) -> u64 {
    let wanted = match args.subtrees {
        true => subtrees::shards(args.shards),
        false => {
            let per_shard = args.files.unwrap_or(FILES_PER_SHARD);
            args.shards.unwrap_or_else(|| shards_for(files, per_shard))
        }
    };
    let shards = wanted.min(files.max(1));
    if !args.subtrees && shards < wanted {
        stderr::message(&format!(
            "only {}: the plan has {}, not {}",
            format_counted(files, "file", "files"),
            format_counted(shards, "shard", "shards"),
            format_count(wanted)
        ));
    }
    shards
}

/// Lists the files.
fn list(args: &PlanArgs) -> Result<Planned, Failure> {
    let list = match (&args.files_from, args.paths.as_slice()) {
        (Some(file), _) => file.as_path(),
        (None, [only]) if only.as_os_str() == "-" => only,
        (None, paths) if paths.iter().any(|path| path.as_os_str() == "-") => {
            return Err(Failure::usage("- cannot be combined with other paths"));
        }
        (None, _) if args.zero => {
            return Err(Failure::usage("-0 is for lists; give - or --files-from"));
        }
        (None, paths) => {
            paths.iter().try_for_each(|path| check_local(path))?;
            return Ok(input::planned(&args.selection, paths));
        }
    };
    if !args.selection.words().is_empty() {
        return Err(Failure::usage(
            "-L, -x, --exclude, --ignore and --skip-hidden select files of directories; a list \
             names its files",
        ));
    }
    let paths = read(list, args.zero)?;
    let (tree, once) = (None, Vec::new());
    Ok(Planned { paths, tree, once, warnings: Vec::new(), errors: Vec::new() })
}

fn read(list: &Path, zero: bool) -> Result<PathList, Failure> {
    check_file(list)?;
    let stdin = list.as_os_str() == "-";
    let name = if stdin { "standard input".to_owned() } else { quoted(list).to_string() };
    let reader: Box<dyn Read> = match stdin {
        true => Box::new(standard_input::required()?),
        false => {
            let file = File::open(list).map_err(PathError::on(Operation::Open, list));
            Box::new(file.map_err(Failure::failed)?)
        }
    };
    let separator = if zero { Separator::Nul } else { Separator::Newline };
    let mut reader = read_list(BufReader::with_capacity(1 << 20, reader), separator);
    let mut paths = PathList::new();
    while let Some(path) = reader.next_path() {
        // A plan of a part of the list would lose files.
        let path = path.map_err(|error| Failure::failed(input::list_error(&name, &error)))?;
        check_local(Path::new(OsStr::from_bytes(path)))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Refuses a plan below a directory that it lists: the plan would be new in it.
fn check_outside(out: &Path, roots: &[PathBuf], one_file_system: bool) -> Result<(), Failure> {
    let above = out.parent().filter(|above| !above.as_os_str().is_empty());
    // If the directory above does not exist, writing the plan reports it.
    let Ok(above) = above.unwrap_or(Path::new(".")).canonicalize() else { return Ok(()) };
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    let is_left_out = |root: &Path| one_file_system && device(root) != device(&above);
    let out_is_below = |root: &&PathBuf| {
        let is_inside = root.canonicalize().is_ok_and(|root| above.starts_with(root));
        root.is_dir() && is_inside && !is_left_out(root)
    };
    match roots.iter().find(out_is_below) {
        None => Ok(()),
        Some(root) => Err(Failure::refused(format!(
            "cannot create the plan {} below {}, which it lists; choose another directory with --out",
            quoted(out),
            quoted(root)
        ))),
    }
}

/// Returns the name of the argument, or `list`, with `.shards`.
fn default_name(args: &PlanArgs, directory: &Path) -> PathBuf {
    let named = args.paths.first().filter(|path| path.as_os_str() != "-");
    let name = match named {
        Some(path) => directory.join(path).canonicalize().ok(),
        None => None,
    };
    let name = name.as_deref().and_then(Path::file_name).map_or("list".into(), ToOwned::to_owned);
    let mut name = name;
    name.push(".shards");
    PathBuf::from(name)
}

/// Returns a path that no command takes for a flag.
fn operand(path: &Path) -> PathBuf {
    match path.as_os_str().as_bytes().starts_with(b"-") {
        true => Path::new(".").join(path),
        false => path.to_owned(),
    }
}

fn report(args: &PlanArgs, plan: &Plan, out: &Path) -> Result<(), Failure> {
    let header = &plan.header;
    let most = plan.entries().map(|entry| entry.files).max().unwrap_or(0);
    if args.json {
        return out::print_json(&json!({
            "schema": 1,
            "command": "shard plan",
            "plan": out.to_string_lossy(),
            "checksum": plan.checksum,
            "shards": header.shards,
            "files": header.files,
            "files_per_shard_max": most,
            "directory": header.directory,
            "roots": header.roots,
            "subtrees": header.subtrees,
            "errors": header.errors_count,
        }));
    }
    let out = operand(out);
    let name = quoted(&out);
    let (commands, one, many): (&[(&str, &str)], _, _) = match header.subtrees {
        true => (&[("du", ""), ("cp -a", " TARGET")], "directory", "directories"),
        false => (&[("each", "")], "file", "files"),
    };
    let mut text = format!(
        "{} in {} of at most {}: {name}\n",
        format_counted(header.files, one, many),
        format_counted(header.shards, "shard", "shards"),
        format_count(most),
    );
    for (at, (command, target)) in commands.iter().enumerate() {
        let head = if at == 0 { "run" } else { "or" };
        let shards = header.shards;
        text += &format!(
            "{head:9}ioloom {command} --shard I/{shards} --manifest {name} --part DIR{target}\n"
        );
    }
    out::print(&(text + &format!("combine  ioloom shard merge {name} DIR\n")))
}

//! `ioloom du`: disk usage as lines, tree view, document, treemap or browser.
//!
//! The crate `ioloom-du` scans; this module contains the flags and the output. Lines are printed root
//! by root during the scan, all other output at the end.

mod args;
mod browse;
mod compare;
mod document;
mod gnu;
mod input;
mod lines;
mod map;
#[cfg(feature = "objects")]
mod objects;
mod operands;
mod patterns;
mod picture;
mod shard;
mod shard_args;
mod size;
mod time;

pub(crate) use args::DuArgs;
pub(crate) use patterns::plain;

use crate::exit::{Ended, Exit, Failure};
use crate::{atomic_file, interrupt, out, remote};
use document::{comparable, document, not_written, save};
use input::{exit_of, import, print_notes, scan, writes_files};
use ioloom_du::tree::Kind;
use ioloom_du::{Scan, ncdu};
use ioloom_failure::quoted;
use ioloom_sys::stdio;
use lines::Lines;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Parses the words after `du`: in the order of GNU du, and then with clap. Returns the arguments, or
/// a failure with code 1.
///
/// `command` defines the flags; `parse` lets clap parse whole words, and exits if they are wrong.
pub(crate) fn parse(
    command: &clap::Command,
    words: impl IntoIterator<Item = OsString>,
    parse: impl FnOnce(Vec<OsString>) -> DuArgs,
) -> Result<DuArgs, Failure> {
    let line = gnu::read(command, words, &gnu::Environment::read())?;
    let mut args = parse(line.words);
    args.choices = line.choices;
    Ok(args)
}

/// Runs the command. Like GNU du, it fails with code 1, whatever the reason, and a closed pipe ends it by
/// SIGPIPE unless the caller ignores this signal. Shards keep the exit code of their part.
pub(crate) fn run(args: &DuArgs) -> Ended {
    execute(args).map_err(|failure| {
        if failure.is_quiet() {
            if stdio::pipe_signal_was_ignored() {
                return Failure::failed("write error: Broken pipe");
            }
            // It returns only if the signal is blocked.
            let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
        }
        let failure = out::in_gnu_words(failure);
        match failure.exit {
            Exit::Usage | Exit::Refused => Failure { exit: Exit::Failed, ..failure },
            _ => failure,
        }
    })
}

fn execute(args: &DuArgs) -> Ended {
    if args.sharding.manifest.is_some() {
        return shard::run(args);
    }
    check_files(args)?;
    if writes_files(args) {
        // A write beyond the limit of file sizes then fails, and leaves no temporary file.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    }
    let lines = Lines::of(args);
    let terminal = std::io::stdout().is_terminal();
    if args.interactive && !terminal {
        return Err(Failure::refused("--interactive needs a terminal"));
    }
    if args.interactive && out::is_dumb() {
        let message = "--interactive cannot draw on this terminal: TERM is 'dumb' or not set";
        return Err(Failure::refused(message));
    }
    if let Some(old) = &args.diff {
        return compare::run(args, old);
    }
    let scan = match &args.import {
        Some(file) => import(file)?,
        None => match args.paths.iter().find_map(|path| remote::url_of(path.as_ref())) {
            #[cfg(feature = "objects")]
            Some(url) => objects::scan(args, url, &lines, prints_lines(args, terminal))?,
            #[cfg(not(feature = "objects"))]
            Some(url) => return Err(remote::unsupported(url)),
            None => scan(args, &lines, prints_lines(args, terminal))?,
        },
    };
    finish(args, &lines, &scan, terminal)?;
    if args.interactive {
        let exit = exit_of(&scan);
        // A signal may also arrive after the scan. An interrupt from the keyboard ends only the scan.
        let caught = if interrupt::is_raised() { interrupt::exit() } else { exit };
        if matches!(caught, Exit::Terminated | Exit::Hangup) {
            return Ok(caught);
        }
        return Ok(browse::run(args, scan)?.unwrap_or(exit));
    }
    Ok(exit_of(&scan))
}

/// Refuses other output with an export on standard output, files that cannot be written there, and one file
/// for several outputs.
fn check_files(args: &DuArgs) -> Result<(), Failure> {
    atomic_file::refuse_dash("--save", args.save.as_deref())?;
    atomic_file::refuse_dash("--svg", args.svg.as_deref())?;
    let files =
        [("--save", &args.save), ("--svg", &args.svg), ("--export-ncdu", &args.export_ncdu)];
    let mut places: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, file) in files {
        let Some(place) = file.as_deref().and_then(atomic_file::place) else { continue };
        if let Some((other, _)) = places.iter().find(|(_, known)| *known == place) {
            return Err(Failure::usage(format!("{other} and {flag} name the same file")));
        }
        places.push((flag, place));
    }
    let others = [
        ("--json", args.json),
        ("--tree", args.tree),
        ("--lines", args.lines),
        ("--top", args.top.is_some()),
        ("--total", args.total),
    ];
    match others.into_iter().find(|(_, given)| *given && exports_to_stdout(args)) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("--export-ncdu - cannot be combined with {flag}")))
        }
        None => Ok(()),
    }
}

/// Returns whether an export is the output.
fn exports_to_stdout(args: &DuArgs) -> bool {
    args.export_ncdu.as_ref().is_some_and(|file| file.as_os_str() == "-")
}

/// Returns whether lines are printed root by root.
fn prints_lines(args: &DuArgs, terminal: bool) -> bool {
    let other = args.json || args.interactive || args.top.is_some() || args.diff.is_some();
    !other && !exports_to_stdout(args) && !args.picture(terminal)
}

/// Writes files and prints all output that was not printed during the scan.
fn finish(args: &DuArgs, lines: &Lines, scan: &Scan, terminal: bool) -> Result<(), Failure> {
    print_notes(scan);
    write_files(args, lines, scan)?;
    if args.interactive || exports_to_stdout(args) {
        return Ok(());
    }
    if args.json {
        return out::print_json_to_slow_reader(&document(args, lines, scan));
    }
    if args.picture(terminal) {
        return out::print_to_slow_reader(&picture(args, lines).draw(scan));
    }
    if scan.interrupted {
        // Lines do not say that they are incomplete.
        return Ok(());
    }
    let mut text = Vec::new();
    match args.top {
        Some(count) => lines.top(&scan.roots, count, &mut text),
        None if args.import.is_some() => {
            scan.roots.iter().for_each(|tree| lines.tree(tree, &mut text));
        }
        // The lines were printed during the scan.
        None => return Ok(()),
    }
    if args.total {
        lines.total(scan.total(), &mut text);
    }
    out::print_bytes_to_slow_reader(&text)
}

/// Writes the files that the flags name. An interrupted scan replaces none.
fn write_files(args: &DuArgs, lines: &Lines, scan: &Scan) -> Result<(), Failure> {
    if scan.interrupted {
        let export = args.export_ncdu.as_ref().filter(|file| file.as_os_str() != "-");
        for file in [args.save.as_ref(), args.svg.as_ref(), export].into_iter().flatten() {
            not_written(file);
        }
        return Ok(());
    }
    if let Some(file) = &args.save {
        save(file, &comparable(lines, scan))?;
    }
    if let Some(file) = &args.svg {
        atomic_file::write_with(file, |out| {
            out.write_all(map::draw(scan, lines.measure).as_bytes())
        })?;
    }
    match &args.export_ncdu {
        Some(file) => export(file, scan, args.count_links),
        None => Ok(()),
    }
}

fn picture(args: &DuArgs, lines: &Lines) -> picture::Picture {
    picture::Picture {
        measure: lines.measure,
        unit: args.unit().cloned(),
        rows: args.top.unwrap_or(picture::ROWS),
        depth_max: lines.depth_max,
        all: lines.all,
        threshold: lines.threshold,
        total: args.total,
        columns: out::columns(),
        colour: out::colour(),
    }
}

fn export(file: &Path, scan: &Scan, count_links: bool) -> Result<(), Failure> {
    let Some(tree) = scan.roots.first() else {
        return Err(Failure::failed("nothing to export: no entry could be read"));
    };
    if tree.root().kind != Kind::Directory {
        let path = tree.path(0);
        let path = quoted(Path::new(OsStr::from_bytes(&path)));
        return Err(Failure::failed(format!("cannot export {path}: Not a directory")));
    }
    if let Some(at) = ncdu::unnamable(tree) {
        let path = tree.path(at);
        let path = quoted(Path::new(OsStr::from_bytes(&path)));
        let wrong = "the format of ncdu cannot contain an empty name, '.' or '..'";
        return Err(Failure::failed(format!("cannot export {path}: {wrong}")));
    }
    let write = |out: &mut dyn Write| {
        let program = ("ioloom", env!("CARGO_PKG_VERSION"));
        ncdu::export(tree, program, scan.started_unix_s, count_links, out)
    };
    if file.as_os_str() == "-" {
        let mut text = Vec::new();
        write(&mut text).map_err(Failure::failed)?;
        return out::print_bytes_to_slow_reader(&text);
    }
    atomic_file::write_with(file, write)
}

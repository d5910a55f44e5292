//! `ioloom du`: what takes the space, as lines, a picture, a document, a map or a browser.
//!
//! The scan is the crate `ioloom-du`; here are flags and the ways to show it. Lines are printed root
//! by root while the scan goes on, everything else when it is done. How far it has come is told from
//! two counters that the scan writes once per directory.

mod args;
mod browse;
mod compare;
mod lines;
mod map;
mod picture;

pub(crate) use args::DuArgs;

use crate::each::stop_flag;
use crate::exit::{Ended, Exit, Failure};
use crate::told::Told;
use crate::{out, tell};
use ioloom_du::document::Document;
use ioloom_du::scan::{Progress, ScanError, Scanner};
use ioloom_du::{Scan, Tree, ncdu};
use ioloom_model::units::{format_count, format_size};
use ioloom_walk::TablesUse;
use lines::Lines;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) fn run(args: &DuArgs) -> Ended {
    let lines = Lines::of(args)?;
    let terminal = std::io::stdout().is_terminal();
    if args.interactive && !terminal {
        return Err(Failure::refused("--interactive needs a terminal; leave it out for lines"));
    }
    if let Some(old) = &args.diff {
        return compare::run(args, old);
    }
    let scan = match &args.import {
        Some(file) => import(file)?,
        None => scan(args, &lines, prints_lines(args, terminal))?,
    };
    finish(args, &lines, &scan, terminal)?;
    if args.interactive {
        let exit = exit_of(&scan);
        browse::run(args, scan)?;
        return Ok(exit);
    }
    Ok(exit_of(&scan))
}

/// Whether lines are printed root by root.
fn prints_lines(args: &DuArgs, terminal: bool) -> bool {
    let other = args.json || args.interactive || args.top.is_some() || args.diff.is_some();
    let export = args.export_ncdu.as_ref().is_some_and(|file| file.as_os_str() == "-");
    !other && !export && !args.picture(terminal)
}

/// Scans the arguments. With `print` the lines of each root are printed when it is done.
fn scan(args: &DuArgs, lines: &Lines, print: bool) -> Result<Scan, Failure> {
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let roots = args.roots()?;
    if roots.len() != 1 && args.export_ncdu.is_some() {
        return Err(Failure::usage("--export-ncdu holds one tree: give one directory"));
    }
    let stop: Arc<AtomicBool> = stop_flag();
    let progress = Arc::new(Progress::default());
    let failure = |error: ScanError| match error {
        ScanError::NoSizes => Failure::usage(error),
        ScanError::Walk(refused) => Failure::refused(refused),
    };
    let mut scanner =
        Scanner::new(args.options()?, &roots, stop, progress.clone()).map_err(failure)?;
    let told = Told::start("du-progress", move |elapsed| {
        let entries = progress.entries.load(Ordering::Relaxed);
        progress_line(entries, progress.disk_bytes.load(Ordering::Relaxed), elapsed)
    });
    for root in &roots {
        if let Some(tree) = scanner.root(root).map_err(failure)?.filter(|_| print) {
            let mut text = Vec::new();
            lines.tree(tree, &mut text);
            told.aside(|| out::print_bytes(&text))?;
        }
        if scanner.stopped() {
            break;
        }
    }
    told.finish();
    let scan = scanner.finish();
    if print && args.total {
        let mut text = Vec::new();
        lines.line(scan.total().by(lines.measure), b"total", &mut text);
        out::print_bytes(&text)?;
    }
    Ok(scan)
}

fn import(file: &Path) -> Result<Scan, Failure> {
    let limits = ncdu::Limits::default();
    let read = if file.as_os_str() == "-" {
        ncdu::import(&mut std::io::stdin().lock(), limits)
    } else {
        let opened = File::open(file).map_err(|e| {
            Failure::failed(format!("open {}: {e}; check the path", file.display()))
        })?;
        ncdu::import(&mut BufReader::new(opened), limits)
    };
    let tree = read.map_err(|e| Failure::failed(format!("import {}: {e}", file.display())))?;
    let unreadable = tree.nodes().iter().filter(|node| node.unreadable).count();
    Ok(Scan { errors_count: unreadable as u64, roots: vec![tree], ..Scan::default() })
}

/// Prints what is asked for beside the lines that were printed during the scan, and writes files.
fn finish(args: &DuArgs, lines: &Lines, scan: &Scan, terminal: bool) -> Result<(), Failure> {
    tell_troubles(scan);
    if let Some(file) = &args.save {
        save(file, &document(args, lines, scan))?;
    }
    if let Some(file) = &args.svg {
        write_file(file, |out| out.write_all(map::draw(scan, lines.measure).as_bytes()))?;
    }
    if let Some(file) = &args.export_ncdu {
        export(file, scan)?;
    }
    let to_stdout = args.export_ncdu.as_ref().is_some_and(|file| file.as_os_str() == "-");
    if args.interactive || to_stdout {
        return Ok(());
    }
    if args.json {
        return out::print_json(&document(args, lines, scan));
    }
    if args.picture(terminal) {
        return out::print(&picture(args, lines).draw(scan));
    }
    let mut text = Vec::new();
    match args.top {
        Some(count) => lines.top(&scan.roots, count, &mut text),
        None if args.import.is_some() => {
            scan.roots.iter().for_each(|tree| lines.tree(tree, &mut text));
        }
        // They were printed when their root was done.
        None => return Ok(()),
    }
    if args.total {
        lines.line(scan.total().by(lines.measure), b"total", &mut text);
    }
    out::print_bytes(&text)
}

fn picture(args: &DuArgs, lines: &Lines) -> picture::Picture {
    picture::Picture {
        measure: lines.measure,
        rows: args.top.unwrap_or(picture::ROWS),
        depth_max: lines.depth_max,
        all: lines.all,
        threshold: lines.threshold,
        total: args.total,
        columns: out::columns(),
        colour: out::colour(),
    }
}

/// The document of a scan: the directories that the flags ask for.
fn document(args: &DuArgs, lines: &Lines, scan: &Scan) -> Document {
    let largest = args.top.map(|count| largest(scan, lines, count));
    let depth_max = Some(lines.depth_max).filter(|depth| *depth < u32::MAX);
    Document::of(scan, depth_max, &|root, at| {
        lines.shows(&scan.roots[root], at)
            && largest.as_ref().is_none_or(|largest| largest.contains(&(root, at)))
    })
}

/// The largest nodes below the roots.
fn largest(scan: &Scan, lines: &Lines, count: usize) -> std::collections::HashSet<(usize, usize)> {
    let mut all: Vec<(u64, usize, usize)> = Vec::new();
    for (root, tree) in scan.roots.iter().enumerate() {
        let shown = (1..tree.nodes().len()).filter(|at| lines.shows(tree, *at));
        all.extend(shown.map(|at| (tree.nodes()[at].total.by(lines.measure), root, at)));
    }
    all.sort_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    all.into_iter().take(count).map(|(_, root, at)| (root, at)).collect()
}

fn save(file: &Path, document: &Document) -> Result<(), Failure> {
    write_file(file, |out| {
        serde_json::to_writer(&mut *out, document)?;
        out.write_all(b"\n")
    })
}

/// Writes beside the file and renames, so that a file is whole or not there.
fn write_file(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let written = File::create(&part).and_then(|created| {
        let mut out = BufWriter::new(created);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        std::fs::rename(&part, file)
    });
    written.map_err(|e| {
        let _ = std::fs::remove_file(&part);
        Failure::failed(format!("write {}: {e}; check the path and the space", file.display()))
    })
}

fn export(file: &Path, scan: &Scan) -> Result<(), Failure> {
    let Some(tree) = scan.roots.first() else {
        return Err(Failure::failed("there is no tree to export: nothing could be read"));
    };
    let write = |out: &mut dyn Write| {
        ncdu::export(tree, ("ioloom", env!("CARGO_PKG_VERSION")), scan.started_unix_s, out)
    };
    if file.as_os_str() == "-" {
        let mut text = Vec::new();
        write(&mut text).map_err(Failure::failed)?;
        return out::print_bytes(&text);
    }
    write_file(file, write)
}

/// Tells what could not be read, and what was left out.
fn tell_troubles(scan: &Scan) {
    for error in &scan.errors {
        tell(&out::readable(error.as_bytes()));
    }
    let more = scan.errors_count.saturating_sub(scan.errors.len() as u64);
    if more > 0 && !scan.errors.is_empty() {
        tell(&format!("and {more} more errors"));
    }
    for (path, kind) in &scan.not_entered {
        let path = out::readable(path.as_os_str().as_encoded_bytes());
        tell(&format!("{path} ({kind}) is not entered; name it, or give --all-file-systems"));
    }
    scan.inode_tables.iter().for_each(|used| tell(&tables_line(used)));
    if scan.interrupted {
        tell("interrupted: the totals are incomplete");
    }
}

/// What stands behind sizes that were read from inode tables.
fn tables_line(used: &TablesUse) -> String {
    let count = |n: u64| format_count(n);
    let device = out::readable(used.device.as_os_str().as_encoded_bytes());
    let checked = if used.checksums { "each with its checksum" } else { "without checksums" };
    format!(
        "sizes as of a sync at the start: {} entries from the inode tables of {device}, {checked}; \
         {} asked for by name; {} of both compared, {} changed since the sync",
        count(used.read),
        count(used.asked),
        count(used.sampled),
        count(used.changed),
    )
}

fn exit_of(scan: &Scan) -> Exit {
    if scan.interrupted {
        Exit::Interrupted
    } else if scan.errors_count > 0 {
        Exit::Failed
    } else {
        Exit::Ok
    }
}

/// How far a scan has come.
fn progress_line(entries: u64, bytes: u64, elapsed: Duration) -> String {
    let per_s = entries as f64 / elapsed.as_secs_f64().max(0.001);
    let (entries, size) = (format_count(entries), format_size(bytes));
    format!("{entries} entries, {size}, {} per s", format_count(per_s as u64))
}

/// The paths of a tree and its nodes for people.
fn path_text(tree: &Tree, at: usize) -> String {
    out::readable(&tree.path(at))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_line_says_how_much_and_how_fast() {
        let text = super::progress_line(20_000, 3 << 30, std::time::Duration::from_secs(2));
        assert_eq!(text, "20 000 entries, 3.00 GiB, 10 000 per s");
    }
}

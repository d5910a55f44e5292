//! `ioloom trace export` and `compare`: converts a trace for other programs, or draws two on one axis.

use super::input::read;
use crate::exit::{Ended, Exit, Failure};
use crate::{atomic_file, out};
use clap::{Args, ValueEnum};
use ioloom_failure::quoted;
use ioloom_report::timeline;
use ioloom_trace::{csv, perfetto};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Default of `--scale`.
const SCALE: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Trace file
    ///
    /// Written by --trace or watch -o. Use - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Output format
    ///
    /// html is a zoomable page, perfetto a trace for ui.perfetto.dev, csv a table, and svg and png are
    /// pictures.
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    format: Format,

    /// Table for --format csv
    ///
    /// segments lists the states of every thread, spans the activities that threads reported, and
    /// requests the requests to every device.
    #[arg(
        long,
        value_enum,
        value_name = "TABLE",
        default_value = "segments",
        hide_possible_values = true
    )]
    table: Table,

    /// PNG scale
    ///
    /// Pixels per unit of the drawing, for --format png. Default: 2.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    scale: Option<u8>,

    /// Write to this file
    ///
    /// Use - for standard output.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A self-contained, zoomable page
    Html,
    /// A trace for ui.perfetto.dev and trace_processor
    Perfetto,
    /// A table
    Csv,
    /// A static picture
    Svg,
    /// The same picture as pixels
    Png,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// All states of all threads
    Segments,
    /// All activities reported by threads
    Spans,
    /// All device requests
    Requests,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// First trace
    ///
    /// Drawn at the top. Use - for standard input.
    #[arg(value_name = "A")]
    first: PathBuf,

    /// Second trace
    ///
    /// Drawn below the first. Use - for standard input.
    #[arg(value_name = "B")]
    second: PathBuf,

    /// Write the page to this file
    ///
    /// Use - for standard output.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

pub(super) fn run(args: &ExportArgs) -> Ended {
    if args.table != Table::Segments && args.format != Format::Csv {
        return Err(Failure::usage("--table needs --format csv"));
    }
    if args.scale.is_some() && args.format != Format::Png {
        return Err(Failure::usage("--scale needs --format png"));
    }
    check_output(&args.output, &[&args.file])?;
    let trace = read(&args.file)?;
    let bytes = match (args.format, args.table) {
        (Format::Html, _) => timeline::timeline_page(std::slice::from_ref(&trace)).into_bytes(),
        (Format::Svg, _) => {
            timeline::timeline_svg(&trace, &timeline::SvgOptions::default()).into_bytes()
        }
        (Format::Png, _) => {
            // The renderer does not support CSS variables.
            let plain =
                timeline::SvgOptions { theme: timeline::Theme::Light, ..Default::default() };
            let svg = timeline::timeline_svg(&trace, &plain);
            super::png::png(&svg, args.scale.unwrap_or(SCALE)).map_err(Failure::failed)?
        }
        (Format::Perfetto, _) => perfetto::encode(&trace),
        (Format::Csv, Table::Segments) => csv::segments(&trace).into_bytes(),
        (Format::Csv, Table::Spans) => csv::spans(&trace).into_bytes(),
        (Format::Csv, Table::Requests) => csv::requests(&trace).into_bytes(),
    };
    put(&args.output, &bytes)
}

pub(super) fn compare(args: &CompareArgs) -> Ended {
    if args.first.as_os_str() == "-" && args.second.as_os_str() == "-" {
        return Err(Failure::usage("only one of the traces can be standard input"));
    }
    check_output(&args.output, &[&args.first, &args.second])?;
    let traces = [read(&args.first)?, read(&args.second)?];
    put(&args.output, timeline::timeline_page(&traces).as_bytes())
}

/// Refuses an output that would replace an input.
fn check_output(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    let Some(replaced) = identity(output).filter(|_| output.as_os_str() != "-") else {
        return Ok(());
    };
    let opened = |input: &Path| match input.as_os_str() == "-" {
        true => identity(Path::new("/dev/stdin")),
        false => identity(input),
    };
    if inputs.iter().any(|input| opened(input) == Some(replaced)) {
        let path = quoted(output);
        return Err(Failure::usage(format!("{path} is an input; write to another file")));
    }
    Ok(())
}

/// Writes a file atomically, or to standard output.
fn put(path: &Path, bytes: &[u8]) -> Ended {
    if path.as_os_str() == "-" {
        return out::print_bytes(bytes).map(|()| Exit::Ok);
    }
    atomic_file::write(path, bytes)?;
    out::print(&format!("{}\n", out::readable(path.as_os_str().as_encoded_bytes())))?;
    Ok(Exit::Ok)
}

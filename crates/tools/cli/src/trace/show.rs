//! `ioloom trace show`: prints a trace as text.

use super::document::document;
use super::input::read;
use crate::exit::{Ended, Exit};
use crate::out;
use clap::Args;
use ioloom_model::State;
use ioloom_model::units::format_ns;
use ioloom_trace::{Thread, Trace};
use std::fmt::Write;
use std::path::PathBuf;

/// Maximum number of listed threads; the rest are counted.
const THREADS: usize = 40;
/// Column width of thread names.
const NAMES: usize = 22;

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Trace file
    ///
    /// Written by --trace or watch -o. Use - for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Width of the output
    ///
    /// Default: the width of the terminal, from 40 to 100 columns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: Option<u16>,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long, conflicts_with = "width")]
    json: bool,
}

pub(super) fn run(args: &ShowArgs) -> Ended {
    let trace = read(&args.file)?;
    if args.json {
        return out::print_json(&document(&trace, "trace show")).map(|()| Exit::Ok);
    }
    out::print(&text(&trace, args.width.map_or_else(out::columns, usize::from)))?;
    Ok(Exit::Ok)
}

/// Formats findings, lanes, shares by role and thread, and gaps in the evidence.
pub(crate) fn text(trace: &Trace, width: usize) -> String {
    let mut text = ioloom_report::timeline::timeline_text(trace, width);
    let heading = |words: &str| format!("\n{}", out::wrap(words, width, 0));
    text.push_str(&heading("Threads, with their time in the run and its distribution:"));
    for thread in trace.threads.iter().take(THREADS) {
        let name = out::readable(thread.name.as_bytes());
        let name: String = name.chars().take(NAMES).collect();
        text.push_str(&out::labelled(&name, NAMES, &shares(thread), width));
    }
    if trace.threads.len() > THREADS {
        let _ = writeln!(text, "and {} more", trace.threads.len() - THREADS);
    }
    if !trace.evidence.notes.is_empty() {
        text.push_str(&heading("Gaps in the evidence, and notes from the sources:"));
    }
    for note in &trace.evidence.notes {
        let note = out::readable(note.as_bytes());
        text.push_str(&out::labelled("-", 1, &note, width));
    }
    text
}

/// Formats the shares of one thread. Unmeasured states are listed once for all threads, above.
fn shares(thread: &Thread) -> String {
    let elapsed = thread.end_ns.saturating_sub(thread.start_ns);
    let mut text = format_ns(elapsed as f64);
    for state in State::ALL {
        let ns = thread.states.get(&state).and_then(|time| time.ns).unwrap_or(0);
        if ns > 0 && elapsed > 0 {
            let _ = write!(text, ", {} {:.1} %", state.name(), ns as f64 / elapsed as f64 * 100.0);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_notes_cannot_control_the_terminal() {
        let odd = "a\u{1b}[2Jb\u{7}";
        let thread = Thread { name: odd.to_owned(), end_ns: 1, ..Thread::default() };
        let mut trace = Trace { elapsed_ns: 1, threads: vec![thread], ..Trace::default() };
        trace.evidence.notes.push(odd.to_owned());
        let text = text(&trace, 80);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        let shown = text.lines().filter(|line| line.contains("a\\u{1b}[2Jb")).count();
        assert!(shown >= 2, "{text}");
    }

    #[test]
    fn headings_fit_narrow_terminals() {
        let mut trace = Trace { elapsed_ns: 1, ..Trace::default() };
        trace.evidence.notes.push("note".to_owned());
        let text = text(&trace, 40);
        let at = text.find("Threads, with").unwrap();
        assert!(text[at..].lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("\nGaps in the evidence"), "{text}");
    }
}

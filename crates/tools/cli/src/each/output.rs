//! What `each` prints.

use super::work::stdout_gone;
use super::{EachArgs, Job, Outcome};
use crate::exit::{Ended, Exit, Failure};
use crate::tell;
use indicatif::{ProgressBar, ProgressStyle};
use ioloom::Plan;
use ioloom_model::table::{Cell, cell, check};
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_model::{Method, Schedule};
use serde_json::json;
use std::io::{IsTerminal, Write};

/// Version of the JSON document.
const SCHEMA: u32 = 1;
/// Failures that are printed one by one.
const ERRORS_PRINTED: usize = 20;
/// Below this a run is too short to say what limited it.
const LIMIT_TOLD_NS: u64 = 10_000_000;

/// How far the run is, on standard error.
pub(super) enum Bar {
    /// Not told: it is no terminal, or nothing is wanted.
    None,
    /// Drawn on a terminal.
    Drawn(ProgressBar),
    /// Told in lines to the parent of a mapped plan, which draws it; the number of files if known.
    Told(Option<u64>),
}

/// What a line of [`Bar::Told`] begins with.
const TOLD: &str = "ioloom-progress ";

impl Bar {
    pub(super) fn new(args: &EachArgs, files: Option<u64>) -> Self {
        if args.tell_progress {
            Self::Told(files)
        } else if Self::wanted(args) {
            Self::drawn(files)
        } else {
            Self::None
        }
    }

    /// Whether a bar is to be drawn.
    pub(super) fn wanted(args: &EachArgs) -> bool {
        !args.quiet && std::io::stderr().is_terminal()
    }

    fn drawn(files: Option<u64>) -> Self {
        let (bar, template) = match files {
            Some(n) => {
                (ProgressBar::new(n), "{bar:30} {human_pos}/{human_len} files {msg} ETA {eta}")
            }
            None => (ProgressBar::new_spinner(), "{spinner} {human_pos} files {msg} {elapsed}"),
        };
        bar.set_style(
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> "),
        );
        Self::Drawn(bar)
    }

    pub(super) fn tell(&self, files: u64, bytes: u64) {
        match self {
            Self::None => {}
            Self::Drawn(bar) => {
                bar.set_position(files);
                bar.set_message(format_size(bytes));
            }
            Self::Told(total) => {
                // One write, so that nothing can come between.
                let line = match total {
                    Some(total) => format!("{TOLD}{files} {bytes} {total}\n"),
                    None => format!("{TOLD}{files} {bytes}\n"),
                };
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
        }
    }

    /// Takes a line of a child. False: it does not tell progress.
    pub(super) fn hear(&mut self, line: &[u8]) -> bool {
        let Some(told) = line.strip_prefix(TOLD.as_bytes()) else { return false };
        let mut numbers = std::str::from_utf8(told)
            .unwrap_or_default()
            .split_whitespace()
            .map_while(|n| n.parse::<u64>().ok());
        let (Some(files), Some(bytes)) = (numbers.next(), numbers.next()) else { return false };
        if matches!(self, Self::None) {
            *self = Self::drawn(numbers.next());
        }
        self.tell(files, bytes);
        true
    }

    /// Does something else with standard error while nothing is drawn there.
    pub(super) fn aside(&self, f: impl FnOnce()) {
        match self {
            Self::Drawn(bar) => bar.suspend(f),
            Self::None | Self::Told(_) => f(),
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Drawn(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Prints errors, and the result unless lines of files or a program's output are it.
pub(super) fn print(args: &EachArgs, job: &Job, outcome: &Outcome) -> Result<(), Failure> {
    for error in outcome.errors.iter().take(ERRORS_PRINTED) {
        tell(&one_line(error));
    }
    let m = &outcome.measured;
    let more = m.errors.saturating_sub(outcome.errors.len().min(ERRORS_PRINTED) as u64);
    if more > 0 {
        tell(&format!("and {} more errors", format_count(more)));
    }
    if outcome.cancelled {
        tell(&format!("interrupted after {}", files(m.files)));
    }
    if args.quiet {
        return Ok(());
    }
    let text = if args.json { json_text(job, outcome)? } else { human(job, outcome) };
    if args.json || !(args.per_file || job.exec.is_some()) {
        std::io::stdout().lock().write_all(text.as_bytes()).map_err(stdout_gone)
    } else {
        // Standard output carries data; the summary goes beside it.
        let _ = std::io::stderr().write_all(text.as_bytes());
        Ok(())
    }
}

fn json_text(job: &Job, outcome: &Outcome) -> Result<String, Failure> {
    let m = &outcome.measured;
    let why = m.bottleneck.as_ref();
    let document = json!({
        "schema": SCHEMA,
        "command": "each",
        "plan": job.plan.to_string(),
        "method": job.plan.method.to_string(),
        "schedule": job.plan.schedule.to_string(),
        "compute": job.work_name(),
        "files": m.files,
        "bytes": m.bytes,
        "errors": m.errors,
        "error_samples": outcome.errors.iter().take(ERRORS_PRINTED).collect::<Vec<_>>(),
        "cancelled": outcome.cancelled,
        "digest": outcome.digest,
        "elapsed_ns": m.elapsed_ns,
        "files_per_s": m.files_per_s(),
        "bytes_per_s": m.bytes_per_s(),
        "limited_by": why.map(|b| b.word.clone()),
        "why": why.map(|b| b.sentence.clone()),
        "memory_peak_bytes": m.memory_peak_bytes,
        "budget_peak_bytes": m.budget_peak_bytes,
        "cpu_user_ns": m.cpu_user_ns,
        "cpu_kernel_ns": m.cpu_kernel_ns,
        "calls": m.calls,
        "threads": m.threads,
    });
    serde_json::to_string_pretty(&document).map(|t| t + "\n").map_err(Failure::failed)
}

fn human(job: &Job, outcome: &Outcome) -> String {
    let m = &outcome.measured;
    let mut text = format!(
        "{}, {} in {}  ({} files/s, {}/s)\n",
        files(m.files),
        format_size(m.bytes),
        format_ns(m.elapsed_ns as f64),
        format_count(m.files_per_s() as u64),
        format_size(m.bytes_per_s() as u64),
    );
    if let Some(digest) = &outcome.digest {
        text += &format!("digest      {digest}\n");
    }
    text += &format!("plan        {}\n", job.plan);
    if let Some(b) = m.bottleneck.as_ref().filter(|_| m.elapsed_ns >= LIMIT_TOLD_NS) {
        let sentence = format!("{}: {}", b.word, b.sentence);
        text += &format!("limited by  {}\n", wrap(&sentence, 66).join("\n            "));
    }
    text
}

/// `--explain`: the sentence of one plan, or the whole table.
pub(super) fn explain(args: &EachArgs) -> Ended {
    let mut text = String::new();
    if args.method_given() || args.schedule.is_some() || !args.paths.is_empty() {
        let plan: Plan = args.plan()?;
        let sentence = check(&plan).map_err(Failure::refused)?;
        text += &format!("{plan}\n  {sentence}.\n");
    } else {
        for name in ["threads:n=4", "window:l=32,p=2", "roles:r=1,h=0,c=3"] {
            let schedule: Schedule = name.parse().map_err(Failure::usage)?;
            text += &format!("{}\n", schedule.name());
            for method in Method::ALL {
                let (mark, sentence) = match cell(method, &schedule) {
                    Cell::Runs(s) => (' ', s),
                    Cell::Refused(s) => ('x', s),
                };
                let lines = wrap(sentence, 56);
                text += &format!(
                    "  {mark} {:17}{}\n",
                    method.name(),
                    lines.join(&format!("\n{:21}", ""))
                );
            }
        }
        text += "x: refused, with the reason\n";
    }
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(stdout_gone)?;
    Ok(Exit::Ok)
}

fn files(count: u64) -> String {
    format_counted(count, "file", "files")
}

/// A message on one line: a name with a line end or an escape code cannot draw on the terminal.
pub(super) fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Lines of at most `width` characters, broken at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

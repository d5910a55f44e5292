//! Progress of a run on standard error.

use super::args::EachArgs;
use crate::{bar_target, out, stderr};
use indicatif::{ProgressBar, ProgressStyle};
use ioloom::Progress;
use ioloom_model::units::format_size;
use std::io::IsTerminal;

/// Progress of a run on standard error.
pub(super) enum Bar {
    /// Not shown.
    None,
    /// Drawn on a terminal.
    Drawn(ProgressBar),
    /// Printed as lines for the parent of a mapped plan, which draws them.
    Lines,
}

/// Prefix of a line of [`Bar::Lines`].
const PREFIX: &str = "ioloom-progress ";
/// What follows a bar whose length is known, before the first file is done and later.
const WAITING: &str = "{human_pos}/{human_len} files {msg}";
const COMPLETE: &str = "{human_pos}/{human_len} files {msg} ETA {eta}";
/// Columns that it takes.
const TEXT_COLUMNS: usize = 50;
/// Least length of a bar.
const BAR_COLUMNS_MIN: usize = 5;
/// A bar whose length may grow.
const GROWING: &str = "{spinner} {human_pos} of at least {human_len} files {msg} {elapsed}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// The numbers that a bar shows.
struct Shown {
    files: u64,
    bytes: u64,
    found: u64,
    complete: bool,
}

impl Bar {
    pub(super) fn new(args: &EachArgs) -> Self {
        if args.progress_lines {
            Self::Lines
        } else if Self::wanted(args) {
            Self::drawn()
        } else {
            Self::None
        }
    }

    /// Returns whether a bar is to be drawn.
    pub(super) fn wanted(args: &EachArgs) -> bool {
        // Lines of commands go to standard error with --json.
        let lines = match args.exec {
            Some(_) => args.json || std::io::stdout().is_terminal(),
            None => args.per_file && std::io::stdout().is_terminal(),
        };
        !args.quiet && !lines && std::io::stderr().is_terminal()
    }

    fn drawn() -> Self {
        let bar = ProgressBar::with_draw_target(None, bar_target::stderr());
        bar.set_style(style(GROWING));
        Self::Drawn(bar)
    }

    pub(super) fn update(&self, progress: &Progress) {
        self.show(&Shown {
            files: progress.files + progress.failed,
            bytes: progress.bytes,
            found: progress.files_found,
            complete: progress.files_total.is_some(),
        });
    }

    /// Shows the progress of a run over objects.
    #[cfg(feature = "objects")]
    pub(super) fn count(&self, now: &ioloom_objects::Progress) {
        self.show(&Shown {
            files: now.objects,
            bytes: now.bytes,
            found: now.found,
            complete: now.complete,
        });
    }

    fn show(&self, now: &Shown) {
        match self {
            Self::None => {}
            Self::Drawn(bar) => {
                if bar.length() != Some(now.found) {
                    bar.set_length(now.found);
                }
                let text = if now.files == 0 { WAITING } else { COMPLETE };
                // The prefix is not drawn. It is the text of the style.
                if now.complete && bar.prefix() != text {
                    let columns = out::columns_of_stderr().saturating_sub(TEXT_COLUMNS);
                    let columns = columns.max(BAR_COLUMNS_MIN);
                    bar.set_style(style(&format!("{{bar:{columns}}} {text}")));
                    bar.set_prefix(text);
                }
                bar.set_position(now.files);
                bar.set_message(format_size(now.bytes));
            }
            Self::Lines => {
                let Shown { files, bytes, found, complete } = now;
                // A single write, so that nothing can come between.
                let line = format!("{PREFIX}{files} {bytes} {found} {}\n", u8::from(*complete));
                stderr::bytes(line.as_bytes());
            }
        }
    }

    /// Handles a line of a child. Returns false if it is not a progress line.
    pub(super) fn show_line(&mut self, line: &[u8]) -> bool {
        let Some(counts) = line.strip_prefix(PREFIX.as_bytes()) else { return false };
        let mut numbers = std::str::from_utf8(counts)
            .unwrap_or_default()
            .split_whitespace()
            .map_while(|n| n.parse::<u64>().ok());
        let mut next = || numbers.next();
        let (Some(files), Some(bytes), Some(found), Some(complete)) =
            (next(), next(), next(), next())
        else {
            return false;
        };
        if matches!(self, Self::None) {
            *self = Self::drawn();
        }
        self.show(&Shown { files, bytes, found, complete: complete == 1 });
        true
    }

    /// Runs `f` while the bar is hidden.
    pub(super) fn hide_during(&self, f: impl FnOnce()) {
        match self {
            Self::Drawn(bar) => bar.suspend(f),
            _ => f(),
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Drawn(bar) = self {
            bar.finish_and_clear();
        }
    }
}

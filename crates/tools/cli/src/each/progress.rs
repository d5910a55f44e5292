//! Progress of a run on standard error.

use super::args::EachArgs;
use indicatif::{ProgressBar, ProgressStyle};
use ioloom_model::units::format_size;
use std::io::{IsTerminal, Write};

/// Progress of a run on standard error.
pub(super) enum Bar {
    /// Not shown.
    None,
    /// Drawn on a terminal.
    Drawn(ProgressBar),
    /// Printed as lines for the parent of a mapped plan, which draws them; the number of files if
    /// known.
    Lines(Option<u64>),
}

/// Prefix of a line of [`Bar::Lines`].
const PREFIX: &str = "ioloom-progress ";

impl Bar {
    pub(super) fn new(args: &EachArgs, files: Option<u64>) -> Self {
        if args.progress_lines {
            Self::Lines(files)
        } else if Self::wanted(args) {
            Self::drawn(files)
        } else {
            Self::None
        }
    }

    /// Returns whether a bar is to be drawn.
    pub(super) fn wanted(args: &EachArgs) -> bool {
        let lines = args.per_file && std::io::stdout().is_terminal();
        !args.quiet && !lines && std::io::stderr().is_terminal()
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

    pub(super) fn update(&self, files: u64, bytes: u64) {
        match self {
            Self::None => {}
            Self::Drawn(bar) => {
                bar.set_position(files);
                bar.set_message(format_size(bytes));
            }
            Self::Lines(total) => {
                // A single write, so that nothing can come between.
                let line = match total {
                    Some(total) => format!("{PREFIX}{files} {bytes} {total}\n"),
                    None => format!("{PREFIX}{files} {bytes}\n"),
                };
                let _ = std::io::stderr().write_all(line.as_bytes());
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
        let (Some(files), Some(bytes)) = (numbers.next(), numbers.next()) else { return false };
        if matches!(self, Self::None) {
            *self = Self::drawn(numbers.next());
        }
        self.update(files, bytes);
        true
    }

    /// Runs `f` while the bar is hidden.
    pub(super) fn hide_during(&self, f: impl FnOnce()) {
        match self {
            Self::Drawn(bar) => bar.suspend(f),
            Self::None | Self::Lines(_) => f(),
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Drawn(bar) = self {
            bar.finish_and_clear();
        }
    }
}

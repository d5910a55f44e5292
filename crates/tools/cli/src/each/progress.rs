//! Progress of a run on standard error.

use super::args::EachArgs;
use indicatif::{ProgressBar, ProgressStyle};
use ioloom_model::units::format_size;
use std::io::{IsTerminal, Write};

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

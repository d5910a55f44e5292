//! Study progress: a bar on a terminal, otherwise a line every few seconds. Both are printed on
//! standard error and only between runs, so printing cannot disturb a run.

use crate::bar_target;
use crate::directories::short;
use crate::out::{columns_of_stderr, wrap};
use indicatif::{ProgressBar, ProgressStyle};
use ioloom_lab::needs::Needs;
use ioloom_lab::{Event, Progress};
use ioloom_model::Outcome;
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

const MAKING: &str = "sets {bar:16} {human_pos}/{human_len} files  {wide_msg}";
const RUNNING: &str = "runs {bar:16} {pos}/{len}, {eta} left  {wide_msg}";

/// Prints the events of a study.
pub(crate) struct StudyProgress {
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the bar counts: files of a set, or runs.
    of: String,
    bar: Option<ProgressBar>,
    line_at: Option<Instant>,
    /// Whether a session has started or continued.
    has_begun: bool,
    /// Reasons for unsuccessful runs; each is printed once.
    reasons: BTreeSet<String>,
}

impl State {
    /// Returns the bar for `of`. Counting something else creates a new bar, because the estimate of the
    /// remaining time depends on the rate.
    fn bar(&mut self, of: &str, template: &str, all: u64) -> &ProgressBar {
        if self.of != of {
            self.clear();
            of.clone_into(&mut self.of);
        }
        self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(all), bar_target::stderr());
            bar.with_style(style(template))
        })
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl StudyProgress {
    /// Creates a progress display on standard error.
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), state: Mutex::default() }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns whether a session has started or continued.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_begun
    }

    /// Prints a line unless the previous one is more recent than `LINE_EVERY`.
    fn line_if_due(&self, state: &mut State, text: impl FnOnce() -> String) {
        let due = state.line_at.is_none_or(|at| at.elapsed() >= LINE_EVERY);
        if !self.terminal && due {
            state.line_at = Some(Instant::now());
            crate::stderr::line(&text());
        }
    }

    fn preparing(&self, state: &mut State, set: &str, medium: &str, done: u64, all: u64) {
        let word = set_name(set, medium);
        if self.terminal {
            let bar = state.bar(&word, MAKING, all);
            bar.set_message(word.clone());
            bar.set_position(done);
        }
        self.line_if_due(state, || {
            format!("creating set {word}: {} of {} files", format_count(done), format_count(all))
        });
    }

    fn running(&self, state: &mut State, key: &ioloom_model::record::RunKey, all: usize) {
        let at = u64::from(key.position);
        let what = format!("{}: {}", key.experiment, key.arm);
        if self.terminal {
            let bar = state.bar("", RUNNING, all as u64);
            bar.set_message(what.clone());
            bar.set_position(at);
        }
        self.line_if_due(state, || format!("run {} of {all}, {what}", at + 1));
    }
}

/// Prints a line above the bar.
fn line(state: &State, text: &str) {
    match &state.bar {
        Some(bar) => bar.suspend(|| crate::stderr::line(text)),
        None => crate::stderr::line(text),
    }
}

/// Returns the set name, with its medium unless it is in the work directory.
fn set_name(set: &str, medium: &str) -> String {
    if medium == "work" { set.to_owned() } else { format!("{set} on {medium}") }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; an invalid one falls back to the default bar.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━━╌")
}

impl Progress for StudyProgress {
    fn event(&self, event: &Event<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Needs(needs) => line(&state, needs_text(needs, columns_of_stderr()).trim_end()),
            Event::Preparing(set, medium, done, all) => {
                self.preparing(&mut state, set, medium, *done, *all);
            }
            Event::Begun(session, done, all) => {
                state.has_begun = true;
                let text = if *done > 0 {
                    format!("continuing session {session}: {done} of {all} runs finished")
                } else {
                    format!("session {session}")
                };
                line(&state, &text);
            }
            Event::Run(key, all) => self.running(&mut state, key, *all),
            Event::Recorded(record) => {
                let reason = match &record.outcome {
                    Outcome::Done { .. } => return,
                    Outcome::Refused { reason } => format!("not run: {reason}"),
                    Outcome::Failed { reason } => format!("failed: {reason}"),
                    Outcome::TimedOut { seconds } => format!("timed out after {seconds:.0} s"),
                };
                // Many arms can share a reason; the report lists all of them.
                if state.reasons.insert(reason.clone()) {
                    let text = format!("{}: {}: {reason}", record.key.experiment, record.key.arm);
                    line(&state, wrap(&text, columns_of_stderr(), 2).trim_end());
                }
            }
            Event::Note(text) => line(&state, text),
        }
    }
}

/// Formats the time and space that a study needs in lines of `width` columns.
fn needs_text(needs: &Needs, width: usize) -> String {
    let bound = needs
        .budget_s
        .map_or_else(String::new, |budget| format!(" (budget {})", format_ns(budget * 1e9)));
    let runs = format_counted(needs.runs as u64, "run", "runs");
    let mut out = wrap(&format!("Needs: {runs}, {}{bound}.", needs.time_words()), width, 2);
    for place in &needs.workspaces {
        let free = format!("{} free", format_size(place.free_bytes));
        let dir = short(&place.dir);
        let run = format_size(place.run.bytes);
        let line = match (place.files, place.run.bytes) {
            (0, 0) => format!("Space: none, all sets exist in {dir}."),
            (0, _) => {
                format!("Space: up to {run} for files of a run in {dir} ({free}); all sets exist.")
            }
            (files, written) => {
                let written = match written {
                    0 => String::new(),
                    _ => format!(", and up to {run} for files of a run"),
                };
                format!(
                    "Space: {} in {}{written}, created in {dir} ({free}).",
                    format_size(place.bytes),
                    format_counted(files, "file", "files"),
                )
            }
        };
        out.push_str(&wrap(&line, width, 2));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_lab::Room;
    use ioloom_lab::estimate::Range;
    use ioloom_lab::needs::WorkspaceNeeds;

    #[test]
    fn a_session_has_begun_after_its_event() {
        let progress = StudyProgress::new();
        assert!(!progress.has_begun());
        progress.event(&Event::Begun("pipeline-1", 0, 9));
        assert!(progress.has_begun());
    }

    #[test]
    fn needs_name_time_space_and_place() {
        let mut needs = Needs {
            workspaces: vec![WorkspaceNeeds {
                medium: "work".into(),
                dir: "/data".into(),
                bytes: 3 << 30,
                files: 1234,
                run: Room::default(),
                free_bytes: 9 << 30,
                reserve_bytes: 1 << 30,
            }],
            sets_ready: 0,
            sets_missing: 2,
            runs: 96,
            sets_s: Range::exactly(5.0),
            runs_s: Range { low: 30.0, high: 200.0 },
            runs_known: 0,
            budget_s: Some(90.0),
        };
        let text = needs_text(&needs, 80).replace("\n  ", " ");
        for word in [
            "96 runs",
            "35.0 s on a fast disk to 3.42 min on a slow one (",
            "budget 90.0 s",
            "3.00 GiB",
            "1 234 files",
            "/data",
            "9.00 GiB",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        needs.runs_s = Range { low: 28.0, high: 28.0 };
        needs.runs_known = 96;
        assert!(needs_text(&needs, 80).contains("about 33.0 s, based on earlier runs here"));
        needs.budget_s = Some(10.0);
        assert!(needs_text(&needs, 80).contains("about 33.0 s, more than the budget, based on"));
        needs.workspaces[0].files = 0;
        assert!(needs_text(&needs, 80).contains("none, all sets exist in /data"));
        needs.workspaces[0].files = 1;
        assert!(needs_text(&needs, 80).contains("in 1 file, created in /data"));
        assert!(needs_text(&Needs { runs: 1, ..needs.clone() }, 80).starts_with("Needs: 1 run, "));
        needs.workspaces[0].files = 0;
        needs.workspaces[0].run = Room { bytes: 5 << 30, files: 60 };
        assert!(
            needs_text(&needs, 80)
                .contains("up to 5.00 GiB for files of a run in /data (9.00 GiB free)")
        );
        needs.workspaces[0].files = 1234;
        assert!(
            needs_text(&needs, 80).contains("1 234 files, and up to 5.00 GiB for files of a run")
        );
    }
}

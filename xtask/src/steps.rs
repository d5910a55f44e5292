//! The outcome of a step and the table at the end.

use std::time::{Duration, Instant};

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The check passed, with a note.
    Passed(String),
    /// The check failed.
    Failed(String),
    /// The check could not run, which is an error under `--strict`.
    Skipped(String),
}

impl Outcome {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Passed(note) => ("OK", note),
            Self::Failed(note) => ("FAILED", note),
            Self::Skipped(note) => ("SKIPPED", note),
        }
    }

    /// Prints one line. Returns whether the check ran and passed: a command run alone has a purpose, so
    /// a skipped check is not a success.
    pub(crate) fn print_alone(&self, name: &str) -> bool {
        let (word, note) = self.words();
        println!("{name}: {word} {note}");
        matches!(self, Self::Passed(_))
    }
}

/// The steps so far.
#[derive(Debug)]
pub(crate) struct Steps {
    rows: Vec<(String, Duration, Outcome)>,
    start: Instant,
}

impl Default for Steps {
    fn default() -> Self {
        Self { rows: Vec::new(), start: Instant::now() }
    }
}

impl Steps {
    /// Adds the steps that ran at the same time as others.
    pub(crate) fn append(&mut self, others: Self) {
        self.rows.extend(others.rows);
    }

    /// Runs and times a step and records its outcome; an error is a failure.
    pub(crate) fn take(&mut self, name: &str, step: impl FnOnce() -> anyhow::Result<Outcome>) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(note) | Outcome::Skipped(note) = &outcome {
            println!("{}: {note}", outcome.words().0);
        }
        self.rows.push((name.to_owned(), start.elapsed(), outcome));
    }

    /// Returns whether the step of this name passed.
    pub(crate) fn passed(&self, name: &str) -> bool {
        self.rows.iter().any(|(n, _, o)| n == name && matches!(o, Outcome::Passed(_)))
    }

    /// Returns the table; its last line contains only the counts.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("\n");
        for (name, time, outcome) in &self.rows {
            let (word, note) = outcome.words();
            let line = format!("{name:<16} {:>7.1} s  {word:<8} {note}", time.as_secs_f64());
            text += line.trim_end();
            text.push('\n');
        }
        // Less than the sum: some steps run at the same time.
        let total = self.start.elapsed();
        let (passed, failed, skipped) = self.counts();
        text += &format!("{:<16} {:>7.1} s\n", "total", total.as_secs_f64());
        text + &format!("steps: {passed} passed, {failed} failed, {skipped} skipped\n")
    }

    /// Returns the numbers of passed, failed and skipped steps.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let count = |f: fn(&Outcome) -> bool| self.rows.iter().filter(|(_, _, o)| f(o)).count();
        (
            count(|o| matches!(o, Outcome::Passed(_))),
            count(|o| matches!(o, Outcome::Failed(_))),
            count(|o| matches!(o, Outcome::Skipped(_))),
        )
    }

    /// Returns whether no step failed and, under `strict`, none was skipped.
    pub(crate) fn fine(&self, strict: bool) -> bool {
        let (_, failed, skipped) = self.counts();
        failed == 0 && !(strict && skipped > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Steps {
        let mut steps = Steps::default();
        steps.take("one", || Ok(Outcome::Passed("12 files".into())));
        steps.take("two", || Ok(Outcome::Skipped("valgrind is missing".into())));
        steps
    }

    #[test]
    fn the_last_line_counts() {
        let mut steps = three();
        assert_eq!(steps.summary().lines().last(), Some("steps: 1 passed, 0 failed, 1 skipped"));
        steps.take("three", || anyhow::bail!("no such file"));
        let summary = steps.summary();
        assert!(summary.ends_with("steps: 1 passed, 1 failed, 1 skipped\n"), "{summary}");
        assert!(summary.contains("FAILED   no such file"), "{summary}");
    }

    #[test]
    fn a_check_that_is_skipped_alone_is_not_a_success() {
        assert!(Outcome::Passed(String::new()).print_alone("gate"));
        assert!(!Outcome::Failed("1 of 3".into()).print_alone("gate"));
        assert!(!Outcome::Skipped("valgrind is not installed".into()).print_alone("gate"));
    }

    #[test]
    fn strict_refuses_what_was_skipped() {
        let mut steps = three();
        assert!(steps.fine(false));
        assert!(!steps.fine(true));
        assert!(steps.passed("one") && !steps.passed("two"));
        steps.take("three", || Ok(Outcome::Failed(String::new())));
        assert!(!steps.fine(false));
    }
}

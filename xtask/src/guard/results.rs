//! The results of tests in the output of a test runner.

/// The output of a test runner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Names of failed tests.
    pub(crate) failed: Vec<String>,
    /// Number of failed tests in the results.
    failures: u64,
    /// Test programs that ended without a result.
    aborted: Vec<String>,
    /// The test program that cargo started last.
    started: Option<String>,
    /// Lists of tests that began and have no result so far.
    open: Vec<List>,
    /// Whether a list of its own began since.
    began: bool,
    /// Whether a signal or an exit in a test ended that program.
    has_ended: bool,
    /// Whether it runs the tests of documents.
    is_of_documents: bool,
    /// Announcements of slow tests.
    pub(super) slow: Vec<String>,
    /// The test that finished last.
    pub(super) last: Option<String>,
}

/// Exit status of a test program in which tests failed.
const FAILED_TESTS: &str = "101";

/// A list of tests that a program announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct List {
    count: u64,
    /// Whether it is a list of the program that cargo started. Tests start the same program as a child, which
    /// prints a list too, and no result if it is killed.
    is_own: bool,
}

impl Tests {
    /// Reads complete output.
    #[cfg(test)]
    pub(crate) fn of(lines: &[String]) -> Self {
        let mut tests = Self::default();
        lines.iter().for_each(|line| tests.see(line));
        tests
    }

    /// Reads the next line.
    pub(super) fn see(&mut self, line: &str) {
        // Cargo indents these words, so output of tests hardly begins with them.
        let program =
            line.strip_prefix("     Running ").or_else(|| line.strip_prefix("   Doc-tests "));
        let list = || line.strip_prefix("running ")?.split_once(" test")?.0.parse::<u64>().ok();
        if let Some(program) = program {
            self.aborted = self.aborted();
            self.started = Some(program.to_owned());
            self.is_of_documents = line.starts_with("   Doc-tests ");
            self.open.clear();
            self.began = false;
            self.has_ended = false;
        } else if let Some(count) = list() {
            // Tests of documents can run in several programs, one after another, and start no children.
            let is_own = !self.began || self.is_of_documents;
            self.open.push(List { count, is_own });
            self.began = true;
        } else if is_end_without_result(line) {
            self.has_ended = self.started.is_some();
        } else if line.contains("has been running for over") {
            self.slow.push(line.trim_start_matches("test ").to_owned());
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let count = |at: usize, word: &str| {
                let words = rest.split("; ").nth(at)?.strip_suffix(word)?.trim_end();
                words.rsplit(' ').next()?.parse::<u64>().ok()
            };
            let words = ["passed", "failed", "ignored", "measured"];
            let counts = [0, 1, 2, 3].map(|at| count(at, words[at]).unwrap_or(0));
            self.passed += counts[0];
            self.failures += counts[1];
            let total: u64 = counts.iter().sum();
            let at = |own: bool| {
                self.open.iter().rposition(|list| list.count == total && list.is_own == own)
            };
            if let Some(at) = at(true).or_else(|| at(false)) {
                self.open.remove(at);
            }
        } else if let Some(rest) = line.strip_prefix("test ") {
            if let Some(name) = rest.strip_suffix(" ... FAILED") {
                self.failed.push(name.to_owned());
            }
            self.last = Some(rest.to_owned());
        }
    }

    /// Returns the test programs that ended without a result, as after an abort.
    pub(crate) fn aborted(&self) -> Vec<String> {
        let has_none = self.started.is_some() && !self.began;
        let is_open = has_none || self.has_ended || self.open.iter().any(|list| list.is_own);
        let last = is_open.then(|| self.started.clone().unwrap_or_else(|| "a program".to_owned()));
        self.aborted.iter().cloned().chain(last).collect()
    }

    /// Returns whether the names in [`Self::failed`] are all that failed.
    pub(crate) fn names_all_failures(&self) -> bool {
        self.aborted().is_empty() && self.failures == self.failed.len() as u64
    }
}

/// Returns whether cargo prints here that a signal, or an exit in a test, ended a test program. Its list can have
/// been taken for one with a result: a child that ended may have had as many tests.
fn is_end_without_result(line: &str) -> bool {
    let words = line.trim_start();
    let status = || words.rsplit_once(" (exit status: ")?.1.split(')').next();
    words.starts_with("process didn't exit successfully: ")
        && (words.contains(" (signal: ") || status().is_some_and(|status| status != FAILED_TESTS))
}

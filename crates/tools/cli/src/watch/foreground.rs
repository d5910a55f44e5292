//! Whether this process is in the foreground of its terminal.

use std::path::Path;

/// Group in the foreground of a process without a controlling terminal.
const NO_TERMINAL: &str = "-1";

/// Returns whether a terminal sends its signals to this process, and so to the command.
pub(super) fn is_in_foreground() -> bool {
    groups(&stat()).is_some_and(|(own, front)| own == front)
}

/// Returns whether the rows of a terminal can be used: unless this process is in the background of its controlling
/// terminal, as another terminal has no shell that needs them.
pub(super) fn may_use_rows() -> bool {
    has_rows(&stat())
}

fn has_rows(stat: &str) -> bool {
    groups(stat).is_some_and(|(own, front)| own == front || front == NO_TERMINAL)
}

fn stat() -> String {
    ioloom_sys::proc::read_text(Path::new("/proc/self/stat")).unwrap_or_default()
}

/// Returns the process group and that in the foreground.
fn groups(stat: &str) -> Option<(&str, &str)> {
    // After the name: state, parent, group, session, terminal, and the group in the foreground.
    let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
    Some((fields.nth(2)?, fields.nth(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_for_the_foreground_and_for_terminals_that_control_no_process() {
        for (front, rows) in [("70", true), ("50", false), ("-1", true)] {
            let stat = format!("70 (a) b) S 50 70 50 34816 {front} 4194560 1");
            assert_eq!(groups(&stat), Some(("70", front)));
            assert_eq!(has_rows(&stat), rows, "{front}");
        }
        assert!(!has_rows(""));
    }
}

//! Whether this process is in the foreground of its terminal.

use std::path::Path;

/// Returns whether a terminal sends its signals to this process, and so to the command.
pub(super) fn is_in_foreground() -> bool {
    let text = ioloom_sys::proc::read_text(Path::new("/proc/self/stat")).unwrap_or_default();
    // After the name: state, parent, group, session, terminal, and the group in the foreground.
    let mut fields = text.rsplit(')').next().unwrap_or("").split_ascii_whitespace();
    let group = fields.nth(2);
    group.is_some() && group == fields.nth(2)
}

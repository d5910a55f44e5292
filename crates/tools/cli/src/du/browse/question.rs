//! The question before a removal.

use crate::out::readable;
use ioloom_du::{Tally, Tree};
use ioloom_model::units::{format_count, format_counted, format_size};

/// The word that confirms a removal.
pub(super) const WORD: &str = "remove";

/// Maximum number of entries that are named.
const NAMED_MAX: usize = 5;

/// The entries to remove and the typed answer.
pub(super) struct Question {
    pub(super) nodes: Vec<usize>,
    /// Bytes of them that stay, with links elsewhere.
    pub(super) kept_bytes: u64,
    pub(super) typed: String,
}

impl Question {
    /// Returns its lines for a screen with `height` rows. `complete`: the scan has all entries.
    pub(super) fn lines(&self, tree: &Tree, complete: bool, height: u16) -> Vec<String> {
        let path = |at: &usize| readable(&tree.path(*at));
        let mut lines = Vec::new();
        match &self.nodes[..] {
            [at] => lines.push(format!("Permanently remove {}?", path(at))),
            nodes => {
                lines.push(format!("Permanently remove {}?", things(nodes.len())));
                // Room for the first line, the count of the others and three lines below.
                let named = NAMED_MAX.min(usize::from(height.saturating_sub(5)));
                lines.extend(nodes.iter().take(named).map(|at| format!("  {}", path(at))));
                let more = nodes.len().saturating_sub(named);
                if named > 0 && more > 0 {
                    lines.push(format!("  and {} more", format_count(more as u64)));
                }
            }
        }
        let total = |at: &usize| tree.nodes()[*at].total;
        let sum = self.nodes.iter().map(total).fold(Tally::default(), |sum, total| sum + total);
        let mut what = format!(
            "{} on disk, {}",
            format_size(sum.disk_bytes),
            format_counted(sum.inodes, "entry", "entries")
        );
        if self.kept_bytes > 0 {
            what += &format!("; {} stay, with links elsewhere", format_size(self.kept_bytes));
        }
        what.push('.');
        lines.push(what);
        if !complete {
            lines.push("INCOMPLETE: more than shown may be removed.".to_owned());
        }
        // The typed text is first, as the end of the line is cut on a narrow terminal.
        let typed = format!("{}_", self.typed);
        lines.push(format!("> {typed:<8} Type '{WORD}' and Enter to remove, or Esc to cancel."));
        lines
    }
}

pub(super) fn things(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

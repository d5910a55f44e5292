//! The tree view: sizes, shares, bars and names.
//!
//! It shows the largest nodes and their parent directories. Bars show shares of the total: the dark
//! part is the node, the light part extends to the share of its parent directory. Colour adds no
//! information.

use super::gnu::Threshold;
use super::size::Spelling;
use crate::out::{fitted, readable};
use ioloom_du::tree::Kind;
use ioloom_du::{Measure, Scan, Tree};
use ioloom_model::units::{format_count, format_counted, format_size};
use std::collections::{BTreeSet, BinaryHeap};

/// Number of nodes shown without --top.
pub(super) const ROWS: usize = 20;
/// Bar width in columns.
const BAR: usize = 16;
/// Columns that names have at least; on a narrower terminal, there are no bars.
const NAME_MIN: usize = 12;
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Drawing options.
pub(super) struct Picture {
    pub(super) measure: Measure,
    /// The spelling of sizes, if an option gives one.
    pub(super) unit: Option<Spelling>,
    pub(super) rows: usize,
    pub(super) depth_max: u32,
    pub(super) all: bool,
    pub(super) threshold: Threshold,
    pub(super) total: bool,
    pub(super) columns: usize,
    pub(super) colour: bool,
}

/// The contents of one line.
struct Row {
    value: u64,
    /// The value of the parent directory.
    above: u64,
    shared: u64,
    branch: String,
    name: String,
    depth: usize,
    mark: &'static str,
}

impl Picture {
    pub(super) fn draw(&self, scan: &Scan) -> String {
        let whole = scan.total().by(self.measure);
        let chosen = self.chosen(scan);
        let mut rows = Vec::new();
        let mut left_out = 0;
        for root in self.roots(scan) {
            let tree = &scan.roots[root];
            let shown = |at: usize| at == 0 || chosen.contains(&(root, at));
            rows.push(self.row(tree, 0, whole, String::new()));
            left_out += self.below(tree, &shown, &mut rows);
        }
        if self.total || scan.roots.len() > 1 {
            rows.push(Row {
                value: whole,
                above: whole,
                shared: 0,
                branch: String::new(),
                name: "total".to_owned(),
                depth: 0,
                mark: "",
            });
        }
        let mut out = self.lines(&rows, whole);
        out.push_str(&self.foot(scan, left_out));
        out
    }

    /// Returns the roots, largest first.
    fn roots(&self, scan: &Scan) -> Vec<usize> {
        let mut roots: Vec<usize> = (0..scan.roots.len()).collect();
        let value = |root: &usize| scan.roots[*root].root().total.by(self.measure);
        roots.sort_by_key(|root| std::cmp::Reverse(value(root)));
        roots
    }

    fn shows(&self, tree: &Tree, at: usize) -> bool {
        let node = &tree.nodes()[at];
        node.depth <= self.depth_max
            && (self.all || node.kind == Kind::Directory)
            && node.total.inodes > 0
            && self.threshold.shows(node.total.by(self.measure))
    }

    /// Returns the largest nodes below the roots. A node is chosen only after its parent.
    fn chosen(&self, scan: &Scan) -> BTreeSet<(usize, usize)> {
        let mut waiting = BinaryHeap::new();
        let push = |waiting: &mut BinaryHeap<_>, root: usize, at: usize| {
            let tree = &scan.roots[root];
            for child in tree.children(at).filter(|child| self.shows(tree, *child)) {
                let value = tree.nodes()[child].total.by(self.measure);
                // Order nodes of equal size by name.
                waiting.push((value, std::cmp::Reverse((root, child))));
            }
        };
        for root in 0..scan.roots.len() {
            push(&mut waiting, root, 0);
        }
        let mut chosen = BTreeSet::new();
        while chosen.len() < self.rows
            && let Some((_, std::cmp::Reverse((root, at)))) = waiting.pop()
        {
            chosen.insert((root, at));
            push(&mut waiting, root, at);
        }
        chosen
    }

    /// Appends the rows below a root. Returns the number of omitted nodes.
    fn below(&self, tree: &Tree, shown: &dyn Fn(usize) -> bool, rows: &mut Vec<Row>) -> usize {
        let mut left_out = 0;
        // Stack of nodes to draw, with the branches to their left.
        let mut waiting: Vec<(usize, String, bool)> = Vec::new();
        let mut open = |at: usize, before: &str, waiting: &mut Vec<(usize, String, bool)>| {
            let could = |child: &usize| self.shows(tree, *child);
            let children: Vec<usize> =
                tree.by_size(at, self.measure).into_iter().filter(could).collect();
            let all = children.len();
            let children: Vec<usize> = children.into_iter().filter(|c| shown(*c)).collect();
            left_out += all - children.len();
            let last = children.last().copied();
            for child in children.into_iter().rev() {
                waiting.push((child, before.to_owned(), Some(child) == last));
            }
        };
        open(0, "", &mut waiting);
        while let Some((at, before, last)) = waiting.pop() {
            let parent = tree.nodes()[at].parent as usize;
            let above = tree.nodes()[parent].total.by(self.measure);
            let branch = format!("{before}{}", if last { "└─ " } else { "├─ " });
            rows.push(self.row(tree, at, above, branch));
            let before = format!("{before}{}", if last { "   " } else { "│  " });
            open(at, &before, &mut waiting);
        }
        left_out
    }

    fn row(&self, tree: &Tree, at: usize, above: u64, branch: String) -> Row {
        let node = &tree.nodes()[at];
        let name = readable(tree.name(at));
        let slash = node.kind == Kind::Directory && at > 0;
        Row {
            value: node.total.by(self.measure),
            above,
            shared: node.shared_bytes,
            branch,
            name: if slash { name + "/" } else { name },
            depth: node.depth as usize,
            mark: if node.unreadable { "  (unreadable)" } else { "" },
        }
    }

    fn lines(&self, rows: &[Row], whole: u64) -> String {
        let size = |value: u64| size_in(self.unit.as_ref(), value, self.measure);
        let sizes: Vec<String> = rows.iter().map(|row| size(row.value)).collect();
        let width = sizes.iter().map(|s| s.chars().count()).max().unwrap_or(0).max(8);
        let with_shared = self.measure == Measure::Disk && rows.iter().any(|row| row.shared > 0);
        let shared = |row: &Row| if row.shared == 0 { String::new() } else { size(row.shared) };
        let shared_width = rows.iter().map(|row| shared(row).chars().count()).max().unwrap_or(0);
        let shared_width = shared_width.max(10);
        let others = width + 1 + 6 + if with_shared { shared_width + 1 } else { 0 } + 2;
        // On a narrow terminal, names are more useful than bars.
        let with_bars = self.columns >= others + 2 + BAR + NAME_MIN;
        let bar_width = if with_bars { 2 + BAR } else { 0 };
        let room = self.columns.saturating_sub(others + bar_width).max(1);
        let mut out = format!("{:>width$}  share{:bar_width$}", self.measure.word(), "");
        if with_shared {
            out.push_str(&format!(" {:>shared_width$}", "shared"));
        }
        out.push_str("  name\n");
        for (row, own) in rows.iter().zip(&sizes) {
            let part = |value: u64| if whole == 0 { 0.0 } else { value as f64 / whole as f64 };
            let mut line = format!("{own:>width$} {:>6}", percent(part(row.value)));
            if with_bars {
                let drawn = bar(part(row.value), part(row.above));
                line.push_str("  ");
                line.push_str(&if self.colour { painted(&drawn, row.depth) } else { drawn });
            }
            if with_shared {
                line.push_str(&format!(" {:>shared_width$}", shared(row)));
            }
            line.push_str("  ");
            let tail = format!("{}{}{}", row.branch, row.name, row.mark);
            line.push_str(&fitted(&tail, room));
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn foot(&self, scan: &Scan, left_out: usize) -> String {
        let total = scan.total();
        let mut words = vec![format_counted(total.inodes, "entry", "entries")];
        match self.measure {
            Measure::Apparent => words.push(format!("{} on disk", format_size(total.disk_bytes))),
            Measure::Disk => words.push(format!("{} apparent", format_size(total.apparent_bytes))),
            Measure::Inodes => words.push(format!("{} on disk", format_size(total.disk_bytes))),
        }
        if left_out > 0 {
            words.push(format!("{} smaller not shown (--top N)", format_count(left_out as u64)));
        }
        let mut out = words.join(", ") + "\n";
        if scan.roots.iter().any(|tree| tree.nodes().iter().any(|n| n.shared_bytes > 0))
            && self.measure == Measure::Disk
        {
            out.push_str("shared: files with another link outside the directory\n");
        }
        if scan.interrupted {
            out.push_str("INCOMPLETE: interrupted before the end\n");
        } else if scan.errors_count > 0 {
            let count = format_count(scan.errors_count);
            let paths = if scan.errors_count == 1 { "path" } else { "paths" };
            out.push_str(&format!("INCOMPLETE: {count} {paths} could not be read\n"));
        }
        out
    }
}

/// Formats a value.
pub(super) fn size(value: u64, measure: Measure) -> String {
    if measure == Measure::Inodes { format_count(value) } else { format_size(value) }
}

/// Formats a value in the unit that an option gives, if any.
pub(super) fn size_in(unit: Option<&Spelling>, value: u64, measure: Measure) -> String {
    unit.map_or_else(|| size(value, measure), |unit| unit.spell(value))
}

pub(super) fn percent(part: f64) -> String {
    let value = part * 100.0;
    if value >= 99.95 { format!("{value:.0} %") } else { format!("{value:.1} %") }
}

/// Draws a bar: full for `part`, light up to `above`.
pub(super) fn bar(part: f64, above: f64) -> String {
    let eighths = (part.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let light = (above.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let mut out = "█".repeat(eighths / 8);
    let mut cells = eighths / 8;
    if !eighths.is_multiple_of(8) {
        out.push(EIGHTHS[eighths % 8]);
        cells += 1;
    }
    out.push_str(&"░".repeat(light.saturating_sub(cells)));
    cells = cells.max(light);
    out.push_str(&" ".repeat(BAR.saturating_sub(cells)));
    out
}

/// Colours a bar by its level.
fn painted(bar: &str, depth: usize) -> String {
    const COLOURS: [&str; 5] = ["36", "34", "32", "33", "35"];
    format!("\x1b[{}m{bar}\x1b[0m", COLOURS[depth % COLOURS.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::out::columns_of;
    use ioloom_du::ncdu::{Limits, import};

    #[test]
    fn rows_fit_on_narrow_terminals_without_bars() {
        let link = r#"{"name":"f","dsize":4096,"ino":7,"hlnkc":true,"nlink":2}"#;
        for (file, bars_from) in [(r#"{"name":"f","dsize":4096}"#, 47), (link, 58)] {
            let text = format!(
                r#"[1,2,{{}},[{{"name":"/srv"}},[{{"name":"a directory with a long name"}},{file}]]]"#
            );
            let tree = import(&mut text.as_bytes(), Limits::default()).unwrap().tree;
            let scan = Scan { roots: vec![tree], ..Scan::default() };
            for columns in [40, 46, 47, 57, 58, 80] {
                let picture = Picture {
                    measure: Measure::Disk,
                    unit: None,
                    rows: ROWS,
                    depth_max: u32::MAX,
                    all: false,
                    threshold: Threshold::None,
                    total: false,
                    columns,
                    colour: false,
                };
                let text = picture.draw(&scan);
                let rows: Vec<&str> = text.lines().take(3).collect();
                assert!(rows.iter().all(|row| columns_of(row) <= columns), "{text}");
                assert_eq!(rows[1].contains('█'), columns >= bars_from, "{columns}: {text}");
                assert!(rows[1].ends_with("/srv") && rows[2].contains("a dir"), "{text}");
            }
        }
    }

    #[test]
    fn bars_have_one_width_and_grow() {
        let mut last = 0;
        for part in 0..=100 {
            let drawn = bar(f64::from(part) / 100.0, 1.0);
            assert_eq!(drawn.chars().count(), BAR, "{drawn:?}");
            let full = drawn.chars().filter(|c| *c == '█').count();
            assert!(full >= last);
            last = full;
        }
        assert_eq!(bar(0.5, 0.5), "████████        ");
        assert_eq!(bar(0.0, 0.25), "░░░░            ");
    }
}

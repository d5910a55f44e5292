//! Lines in the format of GNU du.

use super::args::DuArgs;
use super::gnu::Threshold;
use super::size::Spelling;
use super::time::TimeFormat;
use crate::stderr;
use ioloom_du::tree::Kind;
use ioloom_du::{Measure, Newest, Tally, Tree};
use ioloom_walk::Follow;

/// Selection and format of printed lines.
pub(super) struct Lines {
    pub(super) spelling: Spelling,
    pub(super) measure: Measure,
    pub(super) threshold: Threshold,
    pub(super) depth_max: u32,
    pub(super) all: bool,
    /// Whether the size of a directory includes its subdirectories.
    pub(super) whole: bool,
    pub(super) end: u8,
    pub(super) time: Option<TimeFormat>,
    /// Whether all symbolic links were followed.
    pub(super) follows: bool,
}

impl Lines {
    pub(super) fn of(args: &DuArgs) -> Self {
        Self {
            spelling: args.choices.spelling.clone(),
            measure: args.measure(),
            threshold: args.choices.threshold,
            depth_max: args.depth_max(),
            all: args.all,
            whole: !args.separate_dirs,
            end: if args.zero { 0 } else { b'\n' },
            time: args.choices.time.as_ref().map(|(_, format)| format.clone()),
            follows: args.choices.follow.0 == Follow::Always,
        }
    }

    /// Returns the path of a node as GNU du shows it: with -L, an empty directory whose path ends
    /// with a slash loses it.
    fn path(&self, tree: &Tree, at: usize) -> Vec<u8> {
        let (mut path, node) = (tree.path(at), &tree.nodes()[at]);
        let is_empty =
            at == 0 && node.kind == Kind::Directory && !node.unreadable && node.total.inodes == 1;
        if self.follows && is_empty && path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        path
    }

    /// Returns whether a node has a line.
    pub(super) fn shows(&self, tree: &Tree, at: usize) -> bool {
        self.lists(tree, at) && self.threshold.shows(self.value(tree, at))
    }

    /// Returns whether a node would have a line if all sizes were shown.
    pub(super) fn lists(&self, tree: &Tree, at: usize) -> bool {
        let node = &tree.nodes()[at];
        let kind = at == 0 || self.all || node.kind == Kind::Directory;
        kind && node.depth <= self.depth_max && !self.uncounted(tree, at)
    }

    /// Returns the totals printed for a node.
    fn totals(&self, tree: &Tree, at: usize) -> Tally {
        let node = &tree.nodes()[at];
        if self.whole {
            return node.total;
        }
        let files = tree.children(at).filter(|at| tree.nodes()[*at].kind != Kind::Directory);
        files.fold(node.own, |sum, at| sum + tree.nodes()[at].total)
    }

    /// Returns the number printed for a node.
    fn value(&self, tree: &Tree, at: usize) -> u64 {
        self.totals(tree, at).by(self.measure)
    }

    /// Returns whether this is an additional link to a file counted elsewhere. As in GNU du, such links
    /// have no line.
    pub(super) fn uncounted(&self, tree: &Tree, at: usize) -> bool {
        let node = &tree.nodes()[at];
        node.kind != Kind::Directory && node.total.inodes == 0
    }

    /// Appends all lines of a tree, children before their directory.
    pub(super) fn tree(&self, tree: &Tree, out: &mut Vec<u8>) {
        for at in tree.children_first().filter(|at| self.shows(tree, *at)) {
            self.line(self.totals(tree, at), &self.path(tree, at), out);
        }
    }

    /// Appends lines for the largest entries of all trees, largest first.
    pub(super) fn top(&self, trees: &[Tree], count: usize, out: &mut Vec<u8>) {
        let mut all: Vec<(u64, usize, usize)> = Vec::new();
        for (root, tree) in trees.iter().enumerate() {
            let shown = (0..tree.nodes().len()).filter(|at| self.shows(tree, *at));
            all.extend(shown.map(|at| (self.value(tree, at), root, at)));
        }
        all.sort_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (_, root, at) in all.into_iter().take(count) {
            self.line(self.totals(&trees[root], at), &self.path(&trees[root], at), out);
        }
    }

    /// Appends the line for all trees together. As in GNU du, its time is not before 1970.
    pub(super) fn total(&self, total: Tally, out: &mut Vec<u8>) {
        let newest = total.newest.max(Newest((0, 0)));
        self.line(Tally { newest, ..total }, b"total", out);
    }

    fn line(&self, totals: Tally, path: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.spelling.spell(totals.by(self.measure)).as_bytes());
        out.push(b'\t');
        if let Some(format) = &self.time {
            let (text, in_range) = format.spell(totals.newest);
            if !in_range {
                stderr::message(&format!("time '{text}' is out of range"));
            }
            out.extend_from_slice(text.as_bytes());
            out.push(b'\t');
        }
        out.extend_from_slice(path);
        out.push(self.end);
    }
}

//! Lines and sizes in the format of GNU du.

use super::args::{DuArgs, Threshold};
use ioloom_du::tree::Kind;
use ioloom_du::{Measure, Tree};

/// Format of sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spelling {
    /// In whole units of this many bytes, rounded up; with the unit letter if --block-size is only a
    /// letter.
    Units(u64, String),
    /// With a unit letter, in powers of this base.
    Letter(u64),
}

impl Spelling {
    pub(super) fn of(args: &DuArgs) -> Self {
        if args.human_readable {
            Self::Letter(1024)
        } else if args.si {
            Self::Letter(1000)
        } else if args.inodes {
            Self::units(1)
        } else if let Some(unit) = &args.block_size {
            Self::Units(unit.bytes, unit.letter.clone())
        } else if args.mib {
            Self::units(1 << 20)
        } else if args.bytes && !args.kib {
            Self::units(1)
        } else {
            Self::units(1 << 10)
        }
    }

    const fn units(bytes: u64) -> Self {
        Self::Units(bytes, String::new())
    }

    pub(super) fn spell(&self, value: u64) -> String {
        match self {
            Self::Units(unit, letter) => format!("{}{letter}", value.div_ceil(*unit)),
            Self::Letter(base) => letter(value, *base),
        }
    }
}

/// Formats a size with a unit letter, rounded up: `1023`, `1.5K`, `15M`.
fn letter(value: u64, base: u64) -> String {
    const LETTERS: [char; 7] = ['B', 'K', 'M', 'G', 'T', 'P', 'E'];
    let mut unit = 1_u128;
    for (step, name) in LETTERS.into_iter().enumerate() {
        let tenths = (u128::from(value) * 10).div_ceil(unit);
        let whole = u128::from(value).div_ceil(unit);
        let name = if base == 1000 && name == 'K' { 'k' } else { name };
        if step == 0 && whole < u128::from(base) {
            return whole.to_string();
        }
        if step > 0 && tenths < 100 {
            return format!("{}.{}{name}", tenths / 10, tenths % 10);
        }
        if step > 0 && (whole < u128::from(base) || step + 1 == LETTERS.len()) {
            return format!("{whole}{name}");
        }
        unit *= u128::from(base);
    }
    value.to_string()
}

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
}

impl Lines {
    pub(super) fn of(args: &DuArgs) -> Self {
        Self {
            spelling: Spelling::of(args),
            measure: args.measure(),
            threshold: args.threshold.unwrap_or(Threshold::None),
            depth_max: args.depth_max(),
            all: args.all,
            whole: !args.separate_dirs,
            end: if args.zero { 0 } else { b'\n' },
        }
    }

    /// Returns whether a node has a line.
    pub(super) fn shows(&self, tree: &Tree, at: usize) -> bool {
        let node = &tree.nodes()[at];
        let kind = at == 0 || self.all || node.kind == Kind::Directory;
        kind && node.depth <= self.depth_max
            && !self.uncounted(tree, at)
            && self.threshold.shows(self.value(tree, at))
    }

    /// Returns the number printed for a node.
    fn value(&self, tree: &Tree, at: usize) -> u64 {
        let total = tree.nodes()[at].total.by(self.measure);
        if self.whole {
            return total;
        }
        let below = tree.children(at).filter(|at| tree.nodes()[*at].kind == Kind::Directory);
        below.fold(total, |left, at| left.saturating_sub(tree.nodes()[at].total.by(self.measure)))
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
            self.line(self.value(tree, at), &tree.path(at), out);
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
        for (value, root, at) in all.into_iter().take(count) {
            self.line(value, &trees[root].path(at), out);
        }
    }

    pub(super) fn line(&self, value: u64, path: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.spelling.spell(value).as_bytes());
        out.push(b'\t');
        out.extend_from_slice(path);
        out.push(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spelled_as_gnu_du_spells_them() {
        for (value, binary, decimal) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (1000, "1000", "1.0k"),
            (1023, "1023", "1.1k"),
            (1024, "1.0K", "1.1k"),
            (1025, "1.1K", "1.1k"),
            (10_137, "9.9K", "11k"),
            (10_138, "10K", "11k"),
            (1_047_552, "1023K", "1.1M"),
            (1_047_553, "1.0M", "1.1M"),
            (u64::MAX, "16E", "19E"),
        ] {
            let spelled =
                (Spelling::Letter(1024).spell(value), Spelling::Letter(1000).spell(value));
            assert_eq!(spelled, (binary.to_owned(), decimal.to_owned()), "{value}");
        }
        assert_eq!(Spelling::units(1024).spell(1025), "2");
    }
}

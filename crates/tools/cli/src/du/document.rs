//! A scan as the document that `--json` prints and `--save` writes. `--save` writes small entries too, so that a
//! comparison does not take them for new or removed ones.

use super::args::DuArgs;
use super::gnu::Threshold;
use super::lines::Lines;
use crate::exit::Failure;
use crate::{atomic_file, stderr};
use ioloom_du::Scan;
use ioloom_du::document::Document;
use ioloom_failure::quoted;
use std::path::Path;

/// Returns the document of a scan with the selected directories.
pub(super) fn document(args: &DuArgs, lines: &Lines, scan: &Scan) -> Document {
    let largest = args.top.map(|count| largest(scan, lines, count));
    let mut document = of(lines, scan, &|root, at| {
        lines.shows(&scan.roots[root], at)
            && largest.as_ref().is_none_or(|largest| largest.contains(&(root, at)))
    });
    document.selected = args.top.is_some() || lines.threshold != Threshold::None;
    document
}

/// Returns the document of a scan for comparisons, with directories of all sizes.
pub(super) fn comparable(lines: &Lines, scan: &Scan) -> Document {
    of(lines, scan, &|root, at| lines.lists(&scan.roots[root], at))
}

fn of(lines: &Lines, scan: &Scan, keep: &dyn Fn(usize, usize) -> bool) -> Document {
    let depth_max = Some(lines.depth_max).filter(|depth| *depth < u32::MAX);
    let mut document = Document::of(scan, depth_max, keep);
    if let Some(options) = &mut document.options {
        // The scan can retain files for other output.
        options.all = lines.all;
    }
    document
}

/// Returns the largest nodes below the roots.
fn largest(scan: &Scan, lines: &Lines, count: usize) -> std::collections::HashSet<(usize, usize)> {
    let mut all: Vec<(u64, usize, usize)> = Vec::new();
    for (root, tree) in scan.roots.iter().enumerate() {
        let shown = (1..tree.nodes().len()).filter(|at| lines.shows(tree, *at));
        all.extend(shown.map(|at| (tree.nodes()[at].total.by(lines.measure), root, at)));
    }
    all.sort_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    all.into_iter().take(count).map(|(_, root, at)| (root, at)).collect()
}

/// Reports that an interrupted scan does not replace a file.
pub(super) fn not_written(file: &Path) {
    stderr::message(&format!("interrupted: {} was not written", quoted(file)));
}

pub(super) fn save(file: &Path, document: &Document) -> Result<(), Failure> {
    atomic_file::write_with(file, |out| {
        serde_json::to_writer(&mut *out, document)?;
        out.write_all(b"\n")
    })
}

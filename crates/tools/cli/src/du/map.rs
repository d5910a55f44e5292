//! A scan as a treemap.

use crate::out::readable;
use ioloom_du::{Measure, Scan, Tree};
use ioloom_report::quantity::Unit;
use ioloom_report::svg::WIDE;
use ioloom_report::svg::treemap::{Tile, Treemap, draw as draw_map};

/// Maximum number of tiles per directory; the rest counts as part of the directory itself.
const TILES_MAX: usize = 200;
/// Drawing height in pixels.
const HEIGHT: f64 = 560.0;

/// Draws the children of a single root, or several roots.
pub(super) fn draw(scan: &Scan, measure: Measure) -> String {
    let (tiles, what) = match &scan.roots[..] {
        [tree] => (inside(tree, 0, 2, measure), readable(&tree.path(0))),
        trees => {
            let roots = trees.iter().map(|tree| tile(tree, 0, 2, measure)).collect();
            (roots, format!("{} arguments", trees.len()))
        }
    };
    let unit = if measure == Measure::Inodes { Unit::Number } else { Unit::Bytes };
    let total = unit.format(scan.total().by(measure) as f64);
    let word = match measure {
        Measure::Disk => "on disk",
        Measure::Apparent => "apparent size",
        Measure::Inodes => "entries",
    };
    let incomplete = if scan.interrupted || scan.errors_count > 0 { ", incomplete" } else { "" };
    let chart = Treemap {
        title: format!("{what}: {total} {word}{incomplete}"),
        description: format!("The area of each directory or file is its share of {total} {word}."),
        tiles,
        unit,
        height: HEIGHT,
    };
    draw_map(&chart, WIDE).standalone()
}

fn tile(tree: &Tree, at: usize, levels: u32, measure: Measure) -> Tile {
    Tile {
        name: readable(tree.name(at)),
        value: tree.nodes()[at].total.by(measure) as f64,
        inside: if levels > 1 { inside(tree, at, levels - 1, measure) } else { Vec::new() },
    }
}

fn inside(tree: &Tree, at: usize, levels: u32, measure: Measure) -> Vec<Tile> {
    let children = tree.by_size(at, measure).into_iter().take(TILES_MAX);
    children.map(|child| tile(tree, child, levels, measure)).collect()
}

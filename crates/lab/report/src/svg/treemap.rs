//! A treemap: sizes of a tree as areas.
//!
//! The squarified layout (Bruls, Huizing, van Wijk 2000) keeps tiles close to squares, which makes
//! areas comparable by eye. Two levels are drawn: large tiles with a header, and their contents.
//! Colour only separates large tiles from each other. Names, sizes and shares are written in the
//! tiles if they fit, and in every tooltip. Tiles below [`TILE_SIDE_MIN`] are merged into one that
//! shows their number.

use super::{Svg, fitted, label, series_class, text_width};
use crate::markup::Markup;
use crate::quantity::{Unit, percent};

/// Minimum side of a tile in pixels.
pub const TILE_SIDE_MIN: f64 = 4.0;
/// Height of the header of a large tile.
const HEAD: f64 = 20.0;

/// A directory or file and its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Tile {
    /// Name.
    pub name: String,
    /// Size in the unit of the chart.
    pub value: f64,
    /// Its contents; any rest of `value` is drawn as files directly in it.
    pub inside: Vec<Tile>,
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Treemap {
    /// Title.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// The tiles, in any order.
    pub tiles: Vec<Tile>,
    /// Unit of the values.
    pub unit: Unit,
    /// Height of the drawing in pixels.
    pub height: f64,
}

/// A rectangle: left, top, width, height.
type Place = (f64, f64, f64, f64);

/// Draws the map for a column of `width` pixels.
pub fn draw(chart: &Treemap, width: f64) -> Svg {
    let mut m = Markup::new();
    let total: f64 = chart.tiles.iter().map(|t| worth(t.value)).sum();
    let place = (0.0, 0.0, width, chart.height.max(40.0));
    if total <= 0.0 {
        label(&mut m, "q", 0.0, 16.0, "nothing to show: all sizes are zero");
    }
    for (style, (tiles, at)) in laid(&chart.tiles, place).into_iter().enumerate() {
        m.tag("g").a("class", series_class(style)).body(|m| large(m, chart, &tiles, at, total));
    }
    Svg {
        width,
        height: place.3,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

/// Returns a finite, non-negative value for use as an area.
fn worth(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

/// One large tile, or several that are too small to draw separately.
fn large(m: &mut Markup, chart: &Treemap, tiles: &[&Tile], at: Place, total: f64) {
    let value: f64 = tiles.iter().map(|t| worth(t.value)).sum();
    let name = name_of(tiles);
    let (x, y, w, h) = inset(at, 1.0);
    let head = h >= HEAD + 4.0 && w >= 34.0;
    // The tiles inside are marks of their own: a mark in a mark would have two tooltips.
    m.tag("g").a("class", "pt").body(|m| {
        m.tag("title").text(&tip(&name, chart.unit, value, total));
        rect(m, "mk", at, 1.0, Some(0.18));
        if !head {
            return;
        }
        let size = chart.unit.format(value);
        // Falls back to the name alone if size and share do not fit.
        let words =
            [format!("{name} · {size} · {}", percent(value / total)), format!("{name} · {size}")]
                .into_iter()
                .find(|words| text_width(words, 12.5) <= w - 10.0)
                .unwrap_or_else(|| name.clone());
        label(m, "b", x + 6.0, y + 14.0, &fitted(&words, 12.5, w - 10.0));
    });
    let [tile] = tiles else { return };
    let top = if head { HEAD } else { 2.0 };
    let inner = (x + 2.0, y + top, w - 4.0, h - top - 2.0);
    if tile.inside.is_empty() || inner.2 < 3.0 * TILE_SIDE_MIN || inner.3 < 3.0 * TILE_SIDE_MIN {
        return;
    }
    let inside: f64 = tile.inside.iter().map(|t| worth(t.value)).sum();
    let mut parts = tile.inside.clone();
    let rest = worth(tile.value) - inside;
    if rest > 0.0 {
        parts.push(Tile { name: "own files".to_owned(), value: rest, inside: Vec::new() });
    }
    for (tiles, at) in laid(&parts, inner) {
        small(m, chart, (&name, &tiles), at, total);
    }
}

/// Draws a tile inside a large tile.
fn small(m: &mut Markup, chart: &Treemap, (above, tiles): (&str, &[&Tile]), at: Place, total: f64) {
    let value: f64 = tiles.iter().map(|t| worth(t.value)).sum();
    let name = name_of(tiles);
    m.tag("g").a("class", "pt").body(|m| {
        m.tag("title").text(&tip(&format!("{above} / {name}"), chart.unit, value, total));
        rect(m, "mk", at, 0.5, Some(0.30));
        let (x, y, w, h) = at;
        if h >= 16.0 && w >= 30.0 {
            label(m, "", x + 4.0, y + 13.0, &fitted(&name, 12.0, w - 8.0));
        }
        let size = chart.unit.format(value);
        if h >= 31.0 && text_width(&size, 11.5) <= w - 8.0 {
            label(m, "t", x + 4.0, y + 27.0, &size);
        }
    });
}

fn name_of(tiles: &[&Tile]) -> String {
    match tiles {
        [tile] => tile.name.clone(),
        tiles => format!("{} smaller", tiles.len()),
    }
}

fn tip(name: &str, unit: Unit, value: f64, total: f64) -> String {
    format!("{name}\n{}, {} of all", unit.format(value), percent(value / total))
}

fn inset((x, y, w, h): Place, by: f64) -> Place {
    (x + by, y + by, (w - 2.0 * by).max(0.0), (h - 2.0 * by).max(0.0))
}

fn rect(m: &mut Markup, class: &'static str, at: Place, by: f64, opacity: Option<f64>) {
    let (x, y, w, h) = inset(at, by);
    m.tag("rect")
        .a("class", class)
        .maybe("fill-opacity", opacity)
        .a("x", x)
        .a("y", y)
        .a("width", w)
        .a("height", h)
        .void();
}

/// Returns tiles with their rectangles, largest first. Tiles that would be too small are merged
/// into one, which comes last.
fn laid(tiles: &[Tile], place: Place) -> Vec<(Vec<&Tile>, Place)> {
    let mut sorted: Vec<&Tile> = tiles.iter().filter(|t| worth(t.value) > 0.0).collect();
    sorted.sort_by(|a, b| b.value.total_cmp(&a.value).then_with(|| a.name.cmp(&b.name)));
    let total: f64 = sorted.iter().map(|t| worth(t.value)).sum();
    let area = place.2.max(0.0) * place.3.max(0.0);
    let worth_drawing = |t: &&&Tile| t.value / total * area >= TILE_SIDE_MIN * TILE_SIDE_MIN;
    let drawn = sorted.iter().take_while(worth_drawing).count();
    let mut groups: Vec<Vec<&Tile>> = sorted[..drawn].iter().map(|t| vec![*t]).collect();
    if drawn < sorted.len() {
        groups.push(sorted[drawn..].to_vec());
    }
    let values: Vec<f64> = groups.iter().map(|g| g.iter().map(|t| worth(t.value)).sum()).collect();
    groups.into_iter().zip(squarified(&values, place)).collect()
}

/// Returns nearly square rectangles that fill the area in proportion to the values.
fn squarified(values: &[f64], place: Place) -> Vec<Place> {
    let (mut x, mut y, mut w, mut h) = place;
    let total: f64 = values.iter().sum();
    let scale = if total > 0.0 { w * h / total } else { 0.0 };
    let mut out = Vec::with_capacity(values.len());
    let mut at = 0;
    while at < values.len() {
        let side = w.min(h).max(f64::MIN_POSITIVE);
        let mut end = at + 1;
        let mut worst_now = worst(&values[at..end], scale, side);
        while end < values.len() {
            let next = worst(&values[at..=end], scale, side);
            if next > worst_now {
                break;
            }
            worst_now = next;
            end += 1;
        }
        let row = &values[at..end];
        let sum: f64 = row.iter().sum();
        // The last row takes the remaining space because rounding would leave a gap.
        let thick = if end == values.len() { w.max(h) } else { sum * scale / side };
        let mut along = 0.0;
        for value in row {
            let long = if sum > 0.0 { side * value / sum } else { 0.0 };
            out.push(if w >= h {
                (x, y + along, thick, long)
            } else {
                (x + along, y, long, thick)
            });
            along += long;
        }
        if w >= h {
            (x, w) = (x + thick, (w - thick).max(0.0));
        } else {
            (y, h) = (y + thick, (h - thick).max(0.0));
        }
        at = end;
    }
    out
}

/// Returns the worst aspect ratio of a row laid along `side`.
fn worst(row: &[f64], scale: f64, side: f64) -> f64 {
    let sum: f64 = row.iter().sum::<f64>() * scale;
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for value in row {
        least = least.min(value * scale);
        most = most.max(value * scale);
    }
    let (square, side) = (sum * sum, side * side);
    (side * most / square).max(square / (side * least))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(name: &str, value: f64, inside: Vec<Tile>) -> Tile {
        Tile { name: name.to_owned(), value, inside }
    }

    #[test]
    fn areas_are_the_values_and_fill_the_place() {
        let values = [600.0, 600.0, 400.0, 300.0, 200.0, 200.0, 100.0, 1.0];
        for place in [(0.0, 0.0, 600.0, 400.0), (5.0, 7.0, 100.0, 900.0)] {
            let total: f64 = values.iter().sum();
            let out = squarified(&values, place);
            for (value, (x, y, w, h)) in values.iter().zip(&out) {
                let expected = value / total * place.2 * place.3;
                assert!((w * h - expected).abs() < 1e-6 * place.2 * place.3, "{value}: {w}×{h}");
                assert!(*x >= place.0 - 1e-9 && x + w <= place.0 + place.2 + 1e-6);
                assert!(*y >= place.1 - 1e-9 && y + h <= place.1 + place.3 + 1e-6);
            }
            for (i, a) in out.iter().enumerate() {
                for b in &out[i + 1..] {
                    let over = |from_a: f64, to_a: f64, from_b: f64, to_b: f64| {
                        to_a.min(to_b) - from_a.max(from_b)
                    };
                    let wide = over(a.0, a.0 + a.2, b.0, b.0 + b.2);
                    let high = over(a.1, a.1 + a.3, b.1, b.1 + b.3);
                    assert!(wide < 1e-6 || high < 1e-6, "{a:?} overlaps {b:?}");
                }
            }
        }
    }

    #[test]
    fn large_tiles_are_near_squares() {
        let out = squarified(&[6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0], (0.0, 0.0, 6.0, 4.0));
        for (_, _, w, h) in out {
            assert!((w / h).max(h / w) < 3.0, "{w}×{h}");
        }
    }

    /// The data of a chart are the words of its marks.
    #[test]
    fn every_tile_is_one_mark() {
        let chart = Treemap {
            title: "Sizes".into(),
            description: "Sizes below /x".into(),
            tiles: vec![
                tile("directory", 100.0, vec![tile("a", 60.0, vec![]), tile("b", 40.0, vec![])]),
                tile("file", 50.0, vec![]),
            ],
            unit: Unit::Bytes,
            height: 300.0,
        };
        let text = draw(&chart, 600.0).standalone();
        let marks = text.split("<g class=\"pt\"><title>").skip(1);
        let names: Vec<&str> = marks.filter_map(|mark| mark.split('\n').next()).collect();
        assert_eq!(names, ["directory", "directory / a", "directory / b", "file"]);
        assert_eq!(text.matches("<title>").count(), 1 + names.len(), "{text}");
    }

    #[test]
    fn the_map_names_what_it_shows_and_nothing_hostile_gets_out() {
        let mut inside: Vec<Tile> =
            (0..900).map(|i| tile(&format!("f{i}"), 0.001, vec![])).collect();
        inside.push(tile("<script>", 60.0, vec![]));
        let chart = Treemap {
            title: "Sizes".into(),
            description: "Sizes below /x".into(),
            tiles: vec![
                tile("big", 100.0, inside),
                tile("nil", 0.0, vec![]),
                tile("odd", f64::NAN, vec![]),
            ],
            unit: Unit::Bytes,
            height: 300.0,
        };
        let text = draw(&chart, 600.0).standalone();
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"), "{text}");
        assert!(text.contains("900 smaller") && text.contains("own files"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("nil"));
        let empty = Treemap { tiles: vec![], ..chart };
        assert!(draw(&empty, 600.0).standalone().contains("nothing to show"));
    }
}

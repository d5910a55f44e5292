//! Charts as byte-for-byte deterministic SVG.
//!
//! Every chart is a function from values and a width to an [`Svg`]. Colours are CSS variables, so
//! one drawing works in light and dark mode. Markers, dashes and patterns duplicate the information
//! in colours, and every mark has a `<title>` with its count, ends and raw values. The page embeds
//! each chart twice, for a wide and a narrow column, because scaled-down text is unreadable; the
//! narrow version has no titles. Text widths are estimated from the widest common screen font, so
//! labels reserve slightly more space than needed.

pub mod dots;
pub mod heat;
pub mod ladder;
pub mod lanes;
pub mod lines;
pub mod machine;
pub mod scale;
pub mod spark;
pub mod stacks;
pub mod stages;
pub mod strips;
pub mod treemap;

use crate::estimate::Estimate;
use crate::markup::Markup;
use crate::quantity::Unit;

/// Width of a chart for a laptop in pixels.
pub const WIDE: f64 = 880.0;
/// Width of a chart for a phone in pixels.
pub const NARROW: f64 = 356.0;
/// Number of series styles with distinct colours, markers and dashes.
pub const STYLES: usize = 8;

const CHART_CSS: &str = include_str!("../../assets/chart.css");
const PALETTE_CSS: &str = include_str!("../../assets/palette.css");

/// Returns the chart style rules for a page that embeds charts.
pub const fn chart_css() -> &'static str {
    CHART_CSS
}

/// Returns the light and dark colours for a page that embeds charts.
pub const fn palette_css() -> &'static str {
    PALETTE_CSS
}

/// A finished drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct Svg {
    width: f64,
    height: f64,
    title: String,
    description: String,
    body: Markup,
}

impl Svg {
    /// Writes the drawing as an element of a page that includes [`chart_css`], [`palette_css`] and
    /// [`write_patterns`]. `class` is the element's class.
    pub fn write(&self, m: &mut Markup, class: &'static str) {
        self.element(m, class, None, (0.0, 0.0, self.width, self.height), |_| {});
    }

    /// Writes the drawing without tooltips: a phone has no pointer to show them, and the table
    /// contains the numbers.
    pub fn write_untitled(&self, m: &mut Markup, class: &'static str) {
        let mut body = Markup::new();
        body.append_without_titles(&self.body);
        Self { body, title: self.title.clone(), description: self.description.clone(), ..*self }
            .write(m, class);
    }

    /// Returns the drawing as an SVG file with title, margins, and light and dark colours.
    pub fn standalone(&self) -> String {
        const MARGIN: f64 = 24.0;
        const HEAD: f64 = 56.0;
        let view = (-MARGIN, -HEAD, self.width + 2.0 * MARGIN, self.height + HEAD + MARGIN);
        let mut m = Markup::new();
        self.element(&mut m, "chart alone", Some("http://www.w3.org/2000/svg"), view, |m| {
            m.tag("style").body(|m| {
                m.asset(PALETTE_CSS).asset(CHART_CSS);
            });
            m.tag("defs").body(patterns);
            m.tag("rect")
                .a("class", "paper")
                .a("x", view.0)
                .a("y", view.1)
                .a("width", view.2)
                .a("height", view.3)
                .void();
            label(m, "head", 0.0, 22.0 - HEAD / 2.0 - 16.0, &fitted(&self.title, 15.0, self.width));
        });
        m.text("\n");
        m.into_string()
    }

    fn element(
        &self,
        m: &mut Markup,
        class: &'static str,
        namespace: Option<&'static str>,
        view: (f64, f64, f64, f64),
        head: impl FnOnce(&mut Markup),
    ) {
        let numbers = [view.0, view.1, view.2, view.3].map(crate::markup::coordinate);
        m.tag("svg")
            .maybe("xmlns", namespace)
            .a("class", class)
            .a("viewBox", numbers.join(" "))
            .a("width", view.2)
            .a("height", view.3)
            .a("role", "img")
            .a("aria-label", &self.title)
            .body(|m| {
                m.tag("title").text(&self.title);
                m.tag("desc").text(&self.description);
                head(m);
                m.append(&self.body);
            });
    }

    /// Height in pixels.
    pub fn height(&self) -> f64 {
        self.height
    }
}

/// Writes text on a chart.
pub(crate) fn label(m: &mut Markup, class: &'static str, x: f64, y: f64, text: &str) {
    m.tag("text").a("class", class).a("x", x).a("y", y).text(text);
}

/// Draws a straight line.
pub(crate) fn line(m: &mut Markup, class: &'static str, from: (f64, f64), to: (f64, f64)) {
    m.tag("line")
        .a("class", class)
        .a("x1", from.0)
        .a("y1", from.1)
        .a("x2", to.0)
        .a("y2", to.1)
        .void();
}

/// Returns the text width in pixels, estimated from a wide screen font.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.34,
            '\u{300}'..='\u{36F}' => 0.0,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.93,
            'A'..='Z' => 0.70,
            c if (c as u32) >= 0x1100 => 1.0,
            _ => 0.62,
        })
        .sum();
    em * size
}

/// Truncates text to a width, adding an ellipsis if necessary.
pub(crate) fn fitted(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let mut next = out.clone();
        next.push(c);
        next.push('…');
        if text_width(&next, size) > width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Moves labels apart. Returns centres within `[low, high]` that are at least `gap` apart, in the
/// order of the values, each as close to its value as possible.
pub(crate) fn spread(wishes: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*a].total_cmp(&wishes[*b]));
    // Each block of adjacent labels is centred on the mean of its values.
    let mut blocks: Vec<(f64, Vec<usize>)> = Vec::new();
    for i in order {
        blocks.push((wishes[i], vec![i]));
        while blocks.len() > 1 {
            let (b, a) = (&blocks[blocks.len() - 1], &blocks[blocks.len() - 2]);
            let reach = (a.1.len() + b.1.len()) as f64 * gap / 2.0;
            if b.0 - a.0 >= reach {
                break;
            }
            let (b, mut a) = (blocks.pop().unwrap_or_default(), blocks.pop().unwrap_or_default());
            a.1.extend(b.1);
            let sum: f64 = a.1.iter().map(|i| wishes[*i]).sum();
            a.0 = sum / a.1.len() as f64;
            blocks.push(a);
        }
        if let Some((centre, members)) = blocks.last_mut() {
            let half = (members.len() - 1) as f64 * gap / 2.0;
            *centre = centre.min(high - half).max(low + half);
        }
    }
    let mut out = vec![0.0; wishes.len()];
    for (centre, members) in blocks {
        let first = centre - (members.len() - 1) as f64 * gap / 2.0;
        for (k, i) in members.into_iter().enumerate() {
            out[i] = first + k as f64 * gap;
        }
    }
    out
}

/// Draws the marker of a style around a point.
pub(crate) fn marker(m: &mut Markup, style: usize, x: f64, y: f64) {
    let r = 4.2;
    let shape = |points: &[(f64, f64)]| {
        points
            .iter()
            .map(|(dx, dy)| {
                let (px, py) = (x + dx * r, y + dy * r);
                format!("{},{}", crate::markup::coordinate(px), crate::markup::coordinate(py))
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    let polygon = |m: &mut Markup, points: &[(f64, f64)]| {
        m.tag("polygon").a("class", "mk").a("points", shape(points)).void();
    };
    match style % STYLES {
        0 => m.tag("circle").a("class", "mk").a("cx", x).a("cy", y).a("r", 4.0).void(),
        1 => polygon(m, &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => polygon(m, &[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)]),
        3 => polygon(m, &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
        4 => polygon(m, &[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)]),
        5 => m.tag("circle").a("class", "mk hollow").a("cx", x).a("cy", y).a("r", 3.6).void(),
        6 => m
            .tag("polygon")
            .a("class", "mk hollow")
            .a("points", shape(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]))
            .void(),
        _ => m
            .tag("polygon")
            .a("class", "mk hollow")
            .a("points", shape(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]))
            .void(),
    }
}

/// Returns the class of a series by its index.
pub(crate) const fn series_class(index: usize) -> &'static str {
    match index % STYLES {
        0 => "s s1",
        1 => "s s2",
        2 => "s s3",
        3 => "s s4",
        4 => "s s5",
        5 => "s s6",
        6 => "s s7",
        _ => "s s8",
    }
}

/// Maximum number of raw values in a tooltip.
const TIP_VALUES_MAX: usize = 64;

/// Returns the tooltip text of a mark: name, median and ends, and the count and raw values if there are
/// any. A published or computed number has none.
pub fn tip(what: &str, unit: Unit, e: &Estimate) -> String {
    let mut out = format!("{what}\nmedian {}", unit.format(e.median));
    match e.ends {
        Some(ends) => {
            let words = if ends.is_interval() { "95 % interval" } else { "minimum to maximum" };
            out.push_str(&format!(", {words} {}", unit.format_ends(ends)));
        }
        None => out.push_str(", no interval"),
    }
    if e.values.is_empty() {
        return out;
    }
    out.push_str(&format!("\nn = {}: ", e.values.len()));
    let shown: Vec<_> = e.values.iter().take(TIP_VALUES_MAX).map(|v| unit.format(*v)).collect();
    out.push_str(&shown.join(", "));
    if e.values.len() > shown.len() {
        out.push_str(&format!(" and {} more", e.values.len() - shown.len()));
    }
    out
}

/// Writes the patterns that accompany colours, once per page.
pub fn write_patterns(m: &mut Markup) {
    unseen(m, patterns);
}

/// Writes definitions for the other charts of the page in an invisible SVG.
pub(crate) fn unseen(m: &mut Markup, definitions: impl FnOnce(&mut Markup)) {
    m.tag("svg")
        .a("class", "patterns")
        .a("width", "0")
        .a("height", "0")
        .a("aria-hidden", "true")
        .body(|m| {
            m.tag("defs").body(definitions);
        });
}

/// A pattern: lines on a repeating square tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    /// Name for fill references.
    pub(crate) id: &'static str,
    /// Side of the tile in pixels.
    pub(crate) side: f64,
    /// Class of the background, if any.
    pub(crate) ground: Option<&'static str>,
    /// Class of the lines.
    pub(crate) lines: &'static str,
    /// The lines, as a path.
    pub(crate) path: &'static str,
}

impl Pattern {
    /// Writes its definition.
    pub(crate) fn define(&self, m: &mut Markup) {
        m.tag("pattern")
            .a("id", self.id)
            .a("width", self.side)
            .a("height", self.side)
            .a("patternUnits", "userSpaceOnUse")
            .body(|m| {
                if let Some(class) = self.ground {
                    m.tag("rect")
                        .a("class", class)
                        .a("width", self.side)
                        .a("height", self.side)
                        .void();
                }
                m.tag("path").a("class", self.lines).a("d", self.path).void();
            });
    }
}

/// Patterns for states, and one for cells that were not run.
fn patterns(m: &mut Markup) {
    for (id, ground, side, path) in [
        ("pt-ready", "st-ready", 6.0, "M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2"),
        ("pt-io", "st-io", 5.0, "M2.5,2.5 h0.01"),
        ("pt-sync", "st-sync", 6.0, "M0,0 l6,6 M6,0 l-6,6"),
        ("pt-blocked", "st-blocked", 5.0, "M0,2.5 h5"),
        ("pt-unknown", "st-unknown", 6.0, "M-1,5 l2,2 M0,0 l6,6 M5,-1 l2,2"),
        ("pt-none", "st-none", 7.0, "M-1,1 l2,-2 M0,7 l7,-7 M6,8 l2,-2"),
    ] {
        let lines = if id == "pt-io" { "hatch dot" } else { "hatch" };
        Pattern { id, side, ground: Some(ground), lines, path }.define(m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_keeps_distance_and_order() {
        let out = spread(&[10.0, 12.0, 11.0, 90.0], 10.0, 0.0, 95.0);
        assert!(out[0] < out[2] && out[2] < out[1] && out[1] < out[3], "{out:?}");
        let mut sorted = out.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 10.0 - 1e-9), "{sorted:?}");
        assert!(out.iter().all(|y| (0.0..=95.0).contains(y)));
        assert_eq!(spread(&[50.0], 10.0, 0.0, 95.0), [50.0]);
    }

    #[test]
    fn tooltips_list_the_values_that_exist() {
        let of = |count: u32| {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            tip("arm", Unit::Number, &Estimate { values, median: 1.0, ends: None })
        };
        assert_eq!(of(0), "arm\nmedian 1, no interval");
        assert!(of(20).ends_with(", 19, 20"), "{}", of(20));
        assert!(of(70).ends_with(" and 6 more"), "{}", of(70));
    }

    #[test]
    fn fitted_text_fits() {
        for text in ["short", "a very long label that does not fit", "파일 이름이 아주 긴 경우"]
        {
            assert!(text_width(&fitted(text, 12.0, 80.0), 12.0) <= 80.0, "{text}");
        }
    }
}

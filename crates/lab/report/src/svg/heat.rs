//! A heat map: readers and hybrids × compute threads, shaded by the metric.
//!
//! Every cell also shows its number, so the shade is not the only cue. Cells that were not run are
//! hatched; the best cell is framed.

use super::{Svg, fitted, label, text_width, tip};
use crate::estimate::Estimate;
use crate::markup::Markup;
use crate::quantity::{Better, Unit};
use ioloom_model::units::EXPONENT_MIN;

/// Cell content.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A measured value and the name of its arm.
    Value {
        /// Name of the arm.
        name: String,
        /// The value.
        value: Estimate,
    },
    /// A word, such as `refused`, with a reason.
    Word {
        /// The word.
        word: &'static str,
        /// The reason.
        reason: String,
    },
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Heat {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Title of the columns.
    pub x_title: String,
    /// Title of the rows.
    pub y_title: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Names of rows.
    pub rows: Vec<String>,
    /// Cells by (row, column); missing cells were not run.
    pub cells: Vec<((usize, usize), Cell)>,
    /// Unit of the values.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// Name of the metric.
    pub metric: String,
}

const SHADES: [&str; 6] = ["h0", "h1", "h2", "h3", "h4", "h5"];

/// Draws the table for a column of `width` pixels.
pub fn draw(chart: &Heat, width: f64) -> Svg {
    let names = chart.rows.iter().map(|r| text_width(r, 12.0)).fold(0.0, f64::max);
    let left = (names + 12.0).clamp(40.0, width * 0.35);
    let columns = chart.columns.len().max(1) as f64;
    let cell_width = ((width - left) / columns).min(112.0);
    let cell_height = if cell_width < 56.0 { 32.0 } else { 38.0 };
    let top = 46.0;
    let mut m = Markup::new();
    label(&mut m, "ax", 0.0, 12.0, &chart.y_title);
    let start = left.max(text_width(&chart.y_title, 12.0) + 14.0);
    label(&mut m, "ax", start, 12.0, &fitted(&format!("{} →", chart.x_title), 12.0, width - start));
    for (i, name) in chart.columns.iter().enumerate() {
        label(&mut m, "tm", left + cell_width * (i as f64 + 0.5), 36.0, name);
    }
    let values = chart.cells.iter().filter_map(|(_, c)| match c {
        Cell::Value { value, .. } => Some(value.median),
        Cell::Word { .. } => None,
    });
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
    let best = if chart.better == Better::Higher { high } else { low };
    for (r, name) in chart.rows.iter().enumerate() {
        let y = top + cell_height * r as f64;
        label(
            &mut m,
            "e",
            left - 10.0,
            y + cell_height / 2.0 + 4.0,
            &fitted(name, 12.0, left - 10.0),
        );
        for c in 0..chart.columns.len() {
            let place = (left + cell_width * c as f64, y, cell_width, cell_height);
            let cell = chart.cells.iter().find(|(at, _)| *at == (r, c)).map(|(_, cell)| cell);
            draw_cell(&mut m, chart, cell, place, (low, high, best));
        }
    }
    let bottom = top + cell_height * chart.rows.len() as f64;
    let height = legend(&mut m, chart, (low, high), left, bottom + 14.0, width);
    Svg {
        width,
        height,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

fn shade(chart: &Heat, value: f64, (low, high): (f64, f64)) -> usize {
    if high <= low {
        return 2;
    }
    let part = if low > 0.0 { (value / low).ln() / (high / low).ln() } else { value / high };
    // Dark cells attract attention, so the best values are dark.
    let part = if chart.better == Better::Higher { part } else { 1.0 - part };
    ((part * 6.0) as usize).min(5)
}

fn draw_cell(
    m: &mut Markup,
    chart: &Heat,
    cell: Option<&Cell>,
    (x, y, w, h): (f64, f64, f64, f64),
    (low, high, best): (f64, f64, f64),
) {
    let rect = |m: &mut Markup, class: &'static str, fill: Option<&'static str>| {
        m.tag("rect")
            .a("class", class)
            .maybe("fill", fill)
            .a("x", x + 1.0)
            .a("y", y + 1.0)
            .a("width", w - 2.0)
            .a("height", h - 2.0)
            .a("rx", 3.0)
            .void();
    };
    let (cx, cy) = (x + w / 2.0, y + h / 2.0 + 4.0);
    m.tag("g").a("class", "pt").body(|m| match cell {
        None => {
            m.tag("title").text("not run");
            rect(m, "cell", Some("url(#pt-none)"));
        }
        Some(Cell::Word { word, reason }) => {
            m.tag("title").text(&format!("{word}: {reason}"));
            rect(m, "cell", Some("url(#pt-none)"));
            // The word also appears in the tooltip and in the list below the chart.
            let text = if text_width(word, 11.5) <= w - 4.0 { word } else { "✕" };
            label(m, "tm halo", cx, cy, text);
        }
        Some(Cell::Value { name, value }) => {
            m.tag("title").text(&tip(name, chart.unit, value));
            let step = shade(chart, value.median, (low, high));
            rect(m, SHADES[step], None);
            if value.median == best {
                rect(m, "best", None);
            }
            let (factor, _) = chart.unit.tick_unit(low);
            let text = short(value.median / factor);
            label(m, if step >= 3 { "m on b" } else { "m" }, cx, cy, &text);
        }
    });
}

/// Formats three digits without the unit, which the legend shows.
fn short(value: f64) -> String {
    match value {
        v if v >= EXPONENT_MIN => format!("{v:.1e}"),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Draws the legend with the minimum and maximum. Returns the height of the chart.
fn legend(
    m: &mut Markup,
    chart: &Heat,
    (low, high): (f64, f64),
    left: f64,
    y: f64,
    width: f64,
) -> f64 {
    if high <= 0.0 {
        return y;
    }
    let (factor, unit) = chart.unit.tick_unit(low);
    let from = short(if chart.better == Better::Higher { low } else { high } / factor);
    let to = short(if chart.better == Better::Higher { high } else { low } / factor);
    let name =
        if unit.is_empty() { chart.metric.clone() } else { format!("{}, {unit}", chart.metric) };
    let start = left + text_width(&from, 11.5) + 6.0;
    label(m, "t", left, y + 10.0, &from);
    for (i, class) in SHADES.iter().enumerate() {
        m.tag("rect")
            .a("class", *class)
            .a("x", start + 20.0 * i as f64)
            .a("y", y)
            .a("width", 20.0)
            .a("height", 12.0)
            .void();
    }
    let end = start + 126.0;
    let words = format!("{to}   {name}; the framed cell is the best");
    let rest = width - end;
    if text_width(&words, 11.5) <= rest {
        label(m, "t", end, y + 10.0, &words);
        y + 20.0
    } else {
        label(m, "t", end, y + 10.0, &to);
        let words = format!("{name}; the framed cell is the best");
        label(m, "t", 0.0, y + 30.0, &fitted(&words, 11.5, width));
        y + 38.0
    }
}

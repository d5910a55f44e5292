//! A dot chart: the simplest comparison, with one row per arm showing its value and ends.
//!
//! The raw values are drawn behind the bar as light ticks to reveal two regimes or a single
//! outlier. On a narrow page, the name is above its row.

use super::scale::Scale;
use super::{Svg, fitted, label, line, marker, series_class, text_width};
use crate::estimate::{Ends, Estimate};
use crate::markup::{Markup, coordinate};
use crate::quantity::Unit;

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the arm.
    pub name: String,
    /// Its value.
    pub value: Estimate,
    /// Style index, shared by the arms of a family.
    pub style: usize,
    /// Text at the right end, such as the gain over the simplest arm.
    pub remark: String,
    /// Whether it is the best row.
    pub best: bool,
    /// Whether it has a doubt.
    pub doubtful: bool,
    /// Tooltip text; see [`super::tip`].
    pub words: String,
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Dots {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Title of the axis.
    pub x_title: String,
    /// Unit of the axis.
    pub unit: Unit,
    /// Title of the remarks; may be empty.
    pub remark_title: String,
    /// A value marked by a line, such as 1 for ratios.
    pub reference: Option<f64>,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
}

/// Width of bold text relative to normal text.
const BOLD: f64 = 1.12;

/// Draws the rows for a column of `width` pixels.
pub fn draw(chart: &Dots, width: f64) -> Svg {
    let wide_page = width >= 600.0;
    let names =
        chart.rows.iter().map(|r| text_width(&r.name, 12.0) * BOLD + 16.0).fold(0.0, f64::max);
    let name_width = if wide_page { names.clamp(80.0, width * 0.37) } else { 0.0 };
    let remarks = chart.rows.iter().map(|r| text_width(&r.remark, 12.0)).fold(0.0, f64::max);
    let remarks = remarks.max(text_width(&chart.remark_title, 11.5));
    let remark_width = if wide_page && remarks > 0.0 { remarks + 24.0 } else { 0.0 };
    // On a narrow page, name and remark are above the row, on one line if all of them fit.
    let one_line =
        |r: &Row| text_width(&r.name, 12.0) * BOLD + text_width(&r.remark, 11.5) + 28.0 <= width;
    let split = !wide_page && !chart.rows.iter().all(one_line);
    let row_height = match (wide_page, split) {
        (true, _) => 27.0,
        (_, false) => 42.0,
        (_, true) => 64.0,
    };
    let (left, right) = (name_width + 12.0, width - remark_width - 10.0);
    let top = 24.0;
    let bottom = top + row_height * chart.rows.len() as f64 + 4.0;
    let scale = scale(chart, left, right);
    let mut m = Markup::new();
    let (_, unit) = chart.unit.tick_unit(scale.ends().1);
    let own = scale.is_log() || unit.is_empty();
    let title = if own { chart.x_title.clone() } else { format!("{}, {unit}", chart.x_title) };
    label(&mut m, "ax", left, 12.0, &fitted(&title, 12.0, width - left));
    if wide_page && !chart.remark_title.is_empty() {
        label(&mut m, "te", width, 12.0, &chart.remark_title);
    }
    for tick in scale.ticks(chart.unit, if wide_page { 6 } else { 4 }) {
        let x = scale.at(tick.value);
        line(&mut m, "grid", (x, top - 4.0), (x, bottom));
        let half = text_width(&tick.text, 12.0) / 2.0 + 1.0;
        let inside = x.clamp(half.min(width / 2.0), (width - half).max(width / 2.0));
        label(&mut m, "tm", inside, bottom + 16.0, &tick.text);
    }
    line(&mut m, "base", (left, bottom), (right, bottom));
    if let Some(value) = chart.reference {
        let x = scale.at(value);
        line(&mut m, "mean", (x, top - 4.0), (x, bottom));
    }
    for (i, row) in chart.rows.iter().enumerate() {
        let y = top + row_height * i as f64;
        draw_row(
            &mut m,
            row,
            &scale,
            RowLayout { y, row_height, name_width, width, wide_page, split },
        );
    }
    Svg {
        width,
        height: bottom + 26.0,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

struct RowLayout {
    y: f64,
    row_height: f64,
    name_width: f64,
    width: f64,
    wide_page: bool,
    split: bool,
}

fn scale(chart: &Dots, left: f64, right: f64) -> Scale {
    let values = chart.rows.iter().flat_map(|r| {
        let (low, high) = r.value.reach();
        r.value.values.iter().copied().chain([low, high])
    });
    let values = values.chain(chart.reference);
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
    let scale = if low > 0.0 && low.is_finite() && high / low >= 12.0 {
        Scale::log(low, high, left, right)
    } else {
        Scale::linear(0.0, high, left, right)
    };
    scale.nice(chart.unit, 6)
}

fn draw_row(m: &mut Markup, row: &Row, scale: &Scale, p: RowLayout) {
    let middle = p.y
        + match (p.wide_page, p.split) {
            (true, _) => p.row_height / 2.0,
            (_, false) => 29.0,
            (_, true) => 45.0,
        };
    m.tag("g").a("class", "row pt").body(|m| {
        m.tag("title").text(&row.words);
        m.tag("rect")
            .a("class", "rowbg")
            .a("x", 0.0)
            .a("y", p.y)
            .a("width", p.width)
            .a("height", p.row_height)
            .a("rx", 3.0)
            .void();
        let mark = if row.doubtful { " ◇" } else { "" };
        if p.wide_page {
            let name = fitted(&row.name, 12.0, (p.name_width - 16.0) / BOLD);
            let class = if row.best { "be" } else { "e" };
            label(m, class, p.name_width - 2.0, middle + 4.0, &format!("{name}{mark}"));
            label(m, if row.best { "be" } else { "qe" }, p.width - 2.0, middle + 4.0, &row.remark);
        } else {
            let room = p.width - if p.split { 0.0 } else { text_width(&row.remark, 11.5) + 24.0 };
            let name = fitted(&row.name, 12.0, room / BOLD);
            let class = if row.best { "b halo" } else { "n halo" };
            label(m, class, 0.0, p.y + 14.0, &format!("{name}{mark}"));
            if p.split {
                label(m, "t halo", 0.0, p.y + 30.0, &row.remark);
            } else {
                label(m, "te halo", p.width, p.y + 14.0, &row.remark);
            }
        }
        m.tag("g").a("class", series_class(row.style)).body(|m| {
            // All ticks share one path and the bar has another, because a page draws tens of
            // thousands.
            let tick = |value: &f64| {
                format!("M{},{}v12", coordinate(scale.at(*value)), coordinate(middle - 6.0))
            };
            if !row.value.values.is_empty() {
                let ticks: String = row.value.values.iter().map(tick).collect();
                m.tag("path").a("class", "raw").a("d", ticks).void();
            }
            if let Some(Ends { low, high, .. }) = row.value.ends {
                let (from, to) = (coordinate(scale.at(low)), coordinate(scale.at(high)));
                let (y, top) = (coordinate(middle), coordinate(middle - 4.0));
                let bar = format!("M{from},{y}H{to}M{from},{top}v8M{to},{top}v8");
                m.tag("path").a("class", "bar").a("d", bar).void();
            }
            marker(m, row.style, scale.at(row.value.median), middle);
        });
    });
}

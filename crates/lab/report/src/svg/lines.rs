//! Lines over a factor: thread ladders (metric over threads, one line per arm family) and cost curves
//! (p50 and p99 by size).
//!
//! Wide charts label each line at its right end; narrow ones list the names above the plot.

use super::scale::{Scale, Tick};
use super::{STYLES, Svg, fitted, label, line, marker, series_class, spread, text_width, tip};
use crate::estimate::{Ends, Estimate};
use crate::markup::{Markup, coordinate};
use crate::quantity::Unit;

/// A point of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Its value.
    pub y: Estimate,
    /// Value on a second, thinner line (the 99th percentile of a cost curve).
    pub thin: Option<Estimate>,
    /// Additional tooltip text.
    pub note: String,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name, written next to it.
    pub name: String,
    /// Its points, in any order.
    pub points: Vec<Point>,
}

/// A horizontal level: an arm without the factor on the axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Its name.
    pub name: String,
    /// Its value.
    pub y: Estimate,
}

/// The distance of a prediction from what was measured, drawn as a bar with its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Miss {
    /// Index of the line of the prediction.
    pub line: usize,
    /// Position on the horizontal axis.
    pub x: f64,
    /// The predicted and the measured value.
    pub values: [f64; 2],
    /// The error in words, written above the bar.
    pub text: String,
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Unit of the horizontal axis.
    pub x_unit: Unit,
    /// Title of the vertical axis.
    pub y_title: String,
    /// Unit of the vertical axis.
    pub y_unit: Unit,
    /// Lines; styles repeat after eight.
    pub lines: Vec<Line>,
    /// Horizontal levels.
    pub levels: Vec<Level>,
    /// Height of the plot in pixels.
    pub plot_height: f64,
    /// Misses of predictions.
    pub misses: Vec<Miss>,
}

struct Frame {
    x: Scale,
    y: Scale,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

const LINE_HEIGHT: f64 = 17.0;

/// Draws the lines for a column of `width` pixels.
pub fn draw(chart: &Lines, width: f64) -> Svg {
    let wide_page = width >= 600.0;
    let names: Vec<&str> = chart
        .lines
        .iter()
        .map(|l| l.name.as_str())
        .chain(chart.levels.iter().map(|l| l.name.as_str()))
        .collect();
    let widest = names.iter().map(|n| text_width(n, 12.0)).fold(0.0, f64::max);
    let gutter = if wide_page { (widest + 30.0).clamp(60.0, width * 0.3) } else { 12.0 };
    let (legend, legend_height) = legend_places(&names, width, wide_page);
    let frame = frame(chart, width, gutter, legend_height);
    let mut m = Markup::new();
    axes(&mut m, chart, &frame, width, legend_height);
    for (i, name) in names.iter().enumerate() {
        if let Some((x, y)) = legend.get(i) {
            m.tag("g").a("class", series_class(i)).body(|m| {
                sample(m, i, *x, *y, i >= chart.lines.len());
                label(m, "lb", x + 26.0, y + 4.0, &fitted(name, 12.0, width - x - 30.0));
            });
        }
    }
    for (i, level) in chart.levels.iter().enumerate() {
        draw_level(&mut m, chart, &frame, chart.lines.len() + i, level);
    }
    for (i, one) in chart.lines.iter().enumerate() {
        draw_line(&mut m, chart, &frame, i, one);
    }
    for miss in &chart.misses {
        draw_miss(&mut m, &frame, miss);
    }
    if wide_page {
        end_labels(&mut m, chart, &frame, gutter);
    }
    Svg {
        width,
        height: frame.bottom + 46.0,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

/// Returns the positions of the names above a narrow plot and their total height.
fn legend_places(names: &[&str], width: f64, wide_page: bool) -> (Vec<(f64, f64)>, f64) {
    if wide_page || names.is_empty() {
        return (Vec::new(), 0.0);
    }
    let (mut x, mut y) = (0.0, 8.0);
    let mut out = Vec::new();
    for name in names {
        let wide = (text_width(name, 12.0) + 44.0).min(width);
        if x > 0.0 && x + wide > width {
            x = 0.0;
            y += LINE_HEIGHT + 2.0;
        }
        out.push((x, y));
        x += wide;
    }
    (out, y + 14.0)
}

fn frame(chart: &Lines, width: f64, gutter: f64, legend_height: f64) -> Frame {
    let points = || chart.lines.iter().flat_map(|l| &l.points);
    let xs: Vec<f64> = points().map(|p| p.x).collect();
    let estimates = points()
        .flat_map(|p| std::iter::once(&p.y).chain(p.thin.as_ref()))
        .chain(chart.levels.iter().map(|l| &l.y));
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for e in estimates {
        let (from, to) = e.reach();
        low = low.min(from);
        high = high.max(to);
    }
    if !low.is_finite() {
        (low, high) = (0.0, 1.0);
    }
    let top = legend_height + 30.0;
    let bottom = top + chart.plot_height;
    let y = if low > 0.0 && high / low >= 12.0 && chart.y_unit != Unit::Share {
        Scale::log(low, high, bottom, top)
    } else {
        Scale::linear(low.min(0.0), high, bottom, top)
    };
    let y = y.nice(chart.y_unit, 5);
    let ticks = y.ticks(chart.y_unit, 5);
    let widest = ticks.iter().map(|t| text_width(&t.text, 11.5)).fold(0.0, f64::max);
    let left = (widest + 14.0).clamp(30.0, 90.0);
    let right = width - gutter;
    let (x_low, x_high) =
        xs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
    let (x_low, x_high) = if x_low.is_finite() { (x_low, x_high) } else { (0.0, 1.0) };
    let x = if x_low > 0.0 && x_high / x_low >= 6.0 {
        Scale::log(x_low, x_high, left + 14.0, right - 10.0)
    } else {
        Scale::linear(x_low, x_high, left + 14.0, right - 10.0)
    };
    Frame { x, y, left, right, top, bottom }
}

fn axes(m: &mut Markup, chart: &Lines, f: &Frame, width: f64, legend_height: f64) {
    let (_, y_name) = chart.y_unit.tick_unit(f.y.ends().0.abs().max(f.y.ends().1.abs()));
    let y_title = with_unit(&chart.y_title, y_name, f.y.is_log());
    label(m, "ax", 0.0, legend_height + 12.0, &fitted(&y_title, 12.0, width));
    for tick in f.y.ticks(chart.y_unit, 5) {
        let y = f.y.at(tick.value);
        line(m, if y > f.bottom - 0.5 { "base" } else { "grid" }, (f.left, y), (f.right, y));
        label(m, "te", f.left - 7.0, y + 4.0, &tick.text);
    }
    line(m, "base", (f.left, f.bottom), (f.right, f.bottom));
    let mut last_end = f64::NEG_INFINITY;
    for tick in x_ticks(chart, f) {
        let x = f.x.at(tick.value);
        let half = text_width(&tick.text, 11.5) / 2.0;
        if x - half < last_end + 7.0 {
            continue;
        }
        last_end = x + half;
        line(m, "base", (x, f.bottom), (x, f.bottom + 4.0));
        label(m, "tm", x, f.bottom + 18.0, &tick.text);
    }
    let (_, x_name) = chart.x_unit.tick_unit(f.x.ends().1.abs());
    let own = f.x.is_log() || has_few(chart);
    let x_title = with_unit(&chart.x_title, x_name, own);
    label(m, "axe", f.right, f.bottom + 38.0, &fitted(&x_title, 12.0, f.right - f.left));
}

fn with_unit(title: &str, unit: &str, ticks_say_it: bool) -> String {
    if unit.is_empty() || ticks_say_it { title.to_owned() } else { format!("{title}, {unit}") }
}

/// Returns the distinct x values if they are few enough to serve as ticks.
fn distinct(chart: &Lines) -> Vec<f64> {
    let mut xs: Vec<f64> = chart.lines.iter().flat_map(|l| &l.points).map(|p| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

fn has_few(chart: &Lines) -> bool {
    (1..=12).contains(&distinct(chart).len())
}

fn x_ticks(chart: &Lines, f: &Frame) -> Vec<Tick> {
    if has_few(chart) {
        let tick = |value| Tick { value, text: chart.x_unit.format_tick(value) };
        distinct(chart).into_iter().map(tick).collect()
    } else {
        f.x.ticks(chart.x_unit, 7)
    }
}

/// Draws a short line segment with its marker for a legend.
fn sample(m: &mut Markup, index: usize, x: f64, y: f64, level: bool) {
    if level {
        line(m, "ref", (x, y), (x + 20.0, y));
    } else {
        m.tag("path").a("class", "ln").a("d", path(&[(x, y), (x + 20.0, y)])).void();
        marker(m, index, x + 10.0, y);
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        d.push(if i == 0 { 'M' } else { 'L' });
        d.push_str(&coordinate(*x));
        d.push(',');
        d.push_str(&coordinate(*y));
    }
    d
}

fn draw_level(m: &mut Markup, chart: &Lines, f: &Frame, index: usize, level: &Level) {
    m.tag("g").a("class", series_class(index)).body(|m| {
        let (low, high) = level.y.reach();
        let (top, bottom) = (f.y.at(high), f.y.at(low));
        m.tag("rect")
            .a("class", "band")
            .a("x", f.left)
            .a("y", top)
            .a("width", f.right - f.left)
            .a("height", (bottom - top).max(1.0))
            .void();
        m.tag("g").a("class", "pt").body(|m| {
            m.tag("title").text(&tip(&level.name, chart.y_unit, &level.y));
            let y = f.y.at(level.y.median);
            line(m, "ref", (f.left, y), (f.right, y));
        });
    });
}

fn draw_line(m: &mut Markup, chart: &Lines, f: &Frame, index: usize, one: &Line) {
    let mut points: Vec<&Point> = one.points.iter().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    m.tag("g").a("class", series_class(index)).body(|m| {
        let thin: Vec<_> = points
            .iter()
            .filter_map(|p| Some((f.x.at(p.x), f.y.at(p.thin.as_ref()?.median))))
            .collect();
        if thin.len() > 1 {
            m.tag("path").a("class", "ln thin").a("d", path(&thin)).void();
        }
        let main: Vec<_> = points.iter().map(|p| (f.x.at(p.x), f.y.at(p.y.median))).collect();
        if main.len() > 1 {
            m.tag("path").a("class", "ln").a("d", path(&main)).void();
        }
        for p in points {
            let x = f.x.at(p.x);
            m.tag("g").a("class", "pt").body(|m| {
                let place = chart.x_unit.format_tick(p.x);
                let what = format!("{}, {} {place}", one.name, chart.x_title);
                let mut words = tip(&what, chart.y_unit, &p.y);
                if !p.note.is_empty() {
                    words.push('\n');
                    words.push_str(&p.note);
                }
                m.tag("title").text(&words);
                if let Some(Ends { low, high, .. }) = p.y.ends {
                    interval_bar(m, x, f.y.at(low), f.y.at(high));
                }
                marker(m, index % STYLES, x, f.y.at(p.y.median));
            });
        }
    });
}

fn draw_miss(m: &mut Markup, f: &Frame, miss: &Miss) {
    let x = f.x.at(miss.x);
    let [a, b] = miss.values.map(|value| f.y.at(value));
    m.tag("g").a("class", series_class(miss.line)).body(|m| {
        interval_bar(m, x, a.max(b), a.min(b));
        label(m, "tm", x, a.min(b) - 7.0, &miss.text);
    });
}

fn interval_bar(m: &mut Markup, x: f64, low: f64, high: f64) {
    let [left, x, low, high] = [x - 3.5, x, low, high].map(coordinate);
    let bar = format!("M{x},{low}V{high}M{left},{low}h7M{left},{high}h7");
    m.tag("path").a("class", "bar").a("d", bar).void();
}

/// Writes names at the right ends, moving them apart if needed and connecting moved names with thin
/// leaders.
fn end_labels(m: &mut Markup, chart: &Lines, f: &Frame, gutter: f64) {
    let ends: Vec<(usize, &str, f64, f64)> =
        chart
            .lines
            .iter()
            .enumerate()
            .filter_map(|(i, l)| {
                let last = l.points.iter().max_by(|a, b| a.x.total_cmp(&b.x))?;
                Some((i, l.name.as_str(), f.x.at(last.x), f.y.at(last.y.median)))
            })
            .chain(chart.levels.iter().enumerate().map(|(i, l)| {
                (chart.lines.len() + i, l.name.as_str(), f.right, f.y.at(l.y.median))
            }))
            .collect();
    let wishes: Vec<f64> = ends.iter().map(|e| e.3).collect();
    let places = spread(&wishes, LINE_HEIGHT, f.top, f.bottom - 4.0);
    for ((index, name, x, wish), y) in ends.into_iter().zip(places) {
        let from = f.right + 2.0;
        if (y - wish).abs() > 3.0 || f.right - x > 14.0 {
            line(m, "leader", (x + 6.0, wish), (from + 6.0, y));
        }
        m.tag("g").a("class", series_class(index)).body(|m| {
            label(m, "lb", from + 9.0, y + 4.0, &fitted(name, 12.0, gutter - 12.0));
        });
    }
}

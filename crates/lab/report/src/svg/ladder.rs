//! Latency of dependent loads by working set on logarithmic axes, with the capacities detected in
//! the curve and those reported by the kernel.
//!
//! The line is the minimum over all blocks; the ribbon spans the 10th percentile to the median. A
//! detected capacity is a shaded range. A reported capacity is a vertical line: solid if the curve
//! confirms it, dashed with a cross if it does not.

use super::scale::Scale;
use super::{Svg, fitted, label, line, marker, text_width};
use crate::markup::{Markup, coordinate};
use crate::quantity::Unit;
use ioloom_model::memory::{LadderPoint, MemoryLevel, MemoryResult};
use ioloom_model::units::{format_ns, format_size};

const PLOT_HEIGHT: f64 = 300.0;
/// Space above the plot for two rows of reported sizes.
const TOLD_HEIGHT: f64 = 40.0;

struct Frame {
    x: Scale,
    y: Scale,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Draws the ladder for a column of `width` pixels; `None` without points.
pub fn draw(result: &MemoryResult, width: f64) -> Option<Svg> {
    let points = &result.ladder;
    let (first, last) = (points.first()?, points.last()?);
    let low = points.iter().map(|p| p.ns_min).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|p| p.ns_median).fold(0.0, f64::max);
    let top = 30.0 + TOLD_HEIGHT;
    let bottom = top + PLOT_HEIGHT;
    let (left, right) = (58.0, width - 8.0);
    let reported = result.levels.iter().filter_map(|l| l.advertised_bytes);
    let widest =
        reported.chain(result.not_visible_bytes.iter().copied()).fold(last.bytes, u64::max);
    let frame = Frame {
        x: Scale::log(first.bytes as f64, widest as f64, left + 8.0, right - 8.0),
        y: Scale::log(low * 0.7, high * 1.3, bottom, top),
        left,
        right,
        top,
        bottom,
    };
    let mut m = Markup::new();
    axes(&mut m, &frame, width);
    for level in &result.levels {
        bracket(&mut m, &frame, level);
    }
    m.tag("g").a("class", "s s1").body(|m| curve(m, &frame, points));
    for level in &result.levels {
        level_name(&mut m, &frame, result, level);
    }
    told_sizes(&mut m, &frame, result);
    let levels: Vec<String> =
        result.levels.iter().map(|l| format!("{} {}", l.name, format_ns(l.latency_ns))).collect();
    Some(Svg {
        width,
        height: bottom + 46.0,
        title: "Dependent load latency by working set".to_owned(),
        description: format!("Levels detected: {}.", levels.join(", ")),
        body: m,
    })
}

fn axes(m: &mut Markup, f: &Frame, width: f64) {
    let title = "ns per load, logarithmic: line minimum, ribbon 10th percentile to median";
    label(m, "ax", 0.0, 12.0, &fitted(title, 12.0, width));
    for tick in f.y.ticks(Unit::Time, 6) {
        let y = f.y.at(tick.value);
        line(m, "grid", (f.left, y), (f.right, y));
        label(m, "te", f.left - 7.0, y + 4.0, &tick.text);
    }
    line(m, "base", (f.left, f.bottom), (f.right, f.bottom));
    let mut end = f64::NEG_INFINITY;
    for tick in f.x.ticks(Unit::Bytes, 9) {
        let (x, half) = (f.x.at(tick.value), text_width(&tick.text, 11.5) / 2.0);
        if x - half > end + 7.0 {
            end = x + half;
            line(m, "base", (x, f.bottom), (x, f.bottom + 4.0));
            label(m, "tm", x, f.bottom + 18.0, &tick.text);
        }
    }
    label(m, "axe", f.right, f.bottom + 38.0, "working set, logarithmic");
}

fn curve(m: &mut Markup, f: &Frame, points: &[LadderPoint]) {
    let at = |p: &LadderPoint, ns: f64| {
        format!("{},{}", coordinate(f.x.at(p.bytes as f64)), coordinate(f.y.at(ns)))
    };
    let upper = points.iter().map(|p| at(p, p.ns_median));
    let lower = points.iter().rev().map(|p| at(p, p.ns_p10));
    let ribbon: Vec<String> = upper.chain(lower).collect();
    m.tag("polygon").a("class", "band").a("points", ribbon.join(" ")).void();
    let least: Vec<String> = points.iter().map(|p| at(p, p.ns_min)).collect();
    m.tag("polyline").a("class", "ln").a("points", least.join(" ")).void();
    for p in points {
        m.tag("g").body(|m| {
            m.tag("title").text(&tip(p));
            marker(m, if p.disturbed { 5 } else { 0 }, f.x.at(p.bytes as f64), f.y.at(p.ns_min));
        });
    }
}

fn tip(p: &LadderPoint) -> String {
    let disturbed = if p.disturbed { "\ndisturbed: a larger working set was faster" } else { "" };
    format!(
        "{}\nminimum {}, 10th percentile {}, median {}\nn = {} blocks{disturbed}",
        format_size(p.bytes),
        format_ns(p.ns_min),
        format_ns(p.ns_p10),
        format_ns(p.ns_median),
        p.blocks
    )
}

fn bracket(m: &mut Markup, f: &Frame, level: &MemoryLevel) {
    let Some((low, high)) = level.bracket_bytes else { return };
    let (from, to) = (f.x.at(low as f64), f.x.at(high as f64));
    m.tag("g").body(|m| {
        let between = format!("{} to {}", format_size(low), format_size(high));
        m.tag("title").text(&format!("{} ends between {between}", level.name));
        m.tag("rect")
            .a("class", "area")
            .a("x", from)
            .a("y", f.top)
            .a("width", (to - from).max(2.0))
            .a("height", f.bottom - f.top)
            .void();
    });
}

/// Writes the name of a level above its plateau.
fn level_name(m: &mut Markup, f: &Frame, result: &MemoryResult, level: &MemoryLevel) {
    let index = result.levels.iter().position(|l| l.name == level.name).unwrap_or(0);
    let from = match index.checked_sub(1).and_then(|i| result.levels[i].bracket_bytes) {
        Some((_, high)) => f.x.at(high as f64),
        None => f.left + 8.0,
    };
    let to = level.bracket_bytes.map_or(f.right - 8.0, |(low, _)| f.x.at(low as f64));
    let text = format!("{} {}", level.name, format_ns(level.latency_ns));
    let half = text_width(&text, 12.0) / 2.0;
    let x = f64::midpoint(from, to).min(f.right - half).max(f.left + half + 2.0);
    let y = f.y.at(level.latency_ns) - 12.0;
    m.tag("text").a("class", "m b halo").a("x", x).a("y", y.max(f.top + 12.0)).text(&text);
}

/// Writes the reported sizes in two rows above the plot to keep adjacent labels from overlapping.
fn told_sizes(m: &mut Markup, f: &Frame, result: &MemoryResult) {
    let of_levels =
        result.levels.iter().filter_map(|l| Some((l.advertised_bytes?, l.verdict == "confirmed")));
    let unseen = result.not_visible_bytes.iter().map(|bytes| (*bytes, false));
    let mut reported: Vec<(u64, bool)> = of_levels.chain(unseen).collect();
    reported.sort_unstable();
    reported.dedup();
    let mut ends = [f64::NEG_INFINITY; 2];
    for (bytes, confirmed) in reported {
        let x = f.x.at(bytes as f64);
        let sign = if confirmed { "✓" } else { "✗" };
        let text = format!("kernel: {} {sign}", format_size(bytes));
        let half = text_width(&text, 11.5) / 2.0;
        let centre = x.min(f.right - half).max(f.left + half);
        let row = usize::from(centre - half < ends[0] + 8.0);
        ends[row] = centre + half;
        let y = 34.0 + 17.0 * row as f64;
        let class = if confirmed { "reported" } else { "reported refuted" };
        line(m, class, (x, y + 5.0), (x, f.bottom));
        label(m, if confirmed { "tm" } else { "tm dbt" }, centre, y, &text);
    }
}

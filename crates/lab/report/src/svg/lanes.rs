//! Work on many hosts over time: a lane per worker, and a bar per piece of work.
//!
//! Bars that lie closer than a pixel are drawn as one, so a lane of thousands of pieces takes a few KiB.
//! Long pieces have bars of their own, with a pattern, a number and a tooltip.

use super::scale::Scale;
use super::{Svg, fitted, label, line};
use crate::markup::Markup;
use crate::quantity::Unit;

/// A piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its start in nanoseconds after the first of all.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// The text on a slow piece, and its tooltip; `None` for all others.
    pub mark: Option<(String, String)>,
}

/// A worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Text for the tooltip of the lane.
    pub note: String,
    /// Its pieces of work in the order of their start.
    pub bars: Vec<Bar>,
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Lanes {
    /// Title.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// The time from the first start to the last end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Workers.
    pub lanes: Vec<Lane>,
}

const ROW_HEIGHT: f64 = 24.0;
const BAR_HEIGHT: f64 = 16.0;
/// Largest part of the width for names.
const NAMES_SHARE: f64 = 0.28;
const NAMES_MAX: f64 = 190.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 26.0;
/// Smaller gaps between bars are not drawn.
const GAP: f64 = 1.0;
/// Narrower bars are widened.
const BAR_MIN: f64 = 1.0;
/// Width of a bar that has room for its number.
const NUMBERED: f64 = 34.0;
/// Pixels between two ticks at least.
const TICK_EVERY: f64 = 90.0;

/// Draws the lanes for a column of `width` pixels.
pub fn draw(chart: &Lanes, width: f64) -> Svg {
    let mut m = Markup::new();
    let names = (width * NAMES_SHARE).min(NAMES_MAX);
    let scale = Scale::linear(0.0, chart.elapsed_ns as f64, names, width - 8.0);
    let height = TOP + ROW_HEIGHT * chart.lanes.len().max(1) as f64;
    legend(&mut m, names);
    let ticks = ((width - names) / TICK_EVERY).floor().max(1.0) as usize;
    for tick in scale.ticks(Unit::Time, ticks) {
        let x = scale.at(tick.value);
        line(&mut m, "grid", (x, TOP), (x, height));
        label(&mut m, "tm", x, height + 16.0, &Unit::Time.format(tick.value));
    }
    for (i, lane) in chart.lanes.iter().enumerate() {
        let y = TOP + ROW_HEIGHT * i as f64;
        m.tag("g").a("class", "pt").body(|m| {
            m.tag("title").text(&format!("{}: {}", lane.name, lane.note));
            label(m, "", 0.0, y + 14.0, &fitted(&lane.name, 12.0, names - 10.0));
            rect(m, "st-none", (scale.at(0.0), y + 2.0), width - 8.0 - names);
            for (start, end) in joined(&lane.bars, &scale) {
                rect(m, "st-on-cpu", (start, y + 2.0), end - start);
            }
        });
        for bar in &lane.bars {
            if let Some(mark) = &bar.mark {
                marked(&mut m, bar, mark, &scale, y + 2.0);
            }
        }
    }
    let (title, description) = (chart.title.clone(), chart.description.clone());
    Svg { width, height: height + BOTTOM, title, description, body: m }
}

/// Returns the bars without marks in pixels, those that nearly touch as one.
fn joined(bars: &[Bar], scale: &Scale) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = Vec::new();
    for bar in bars.iter().filter(|bar| bar.mark.is_none()) {
        let start = scale.at(bar.start_ns as f64);
        let end = scale.at(bar.end_ns as f64).max(start + BAR_MIN);
        match out.last_mut() {
            Some((_, last)) if start - *last < GAP => *last = last.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

fn marked(m: &mut Markup, bar: &Bar, (text, tip): &(String, String), scale: &Scale, y: f64) {
    let start = scale.at(bar.start_ns as f64);
    let wide = (scale.at(bar.end_ns as f64) - start).max(BAR_MIN);
    m.tag("g").a("class", "pt").body(|m| {
        m.tag("title").text(tip);
        rect(m, "st-on-cpu", (start, y), wide);
        m.tag("rect")
            .a("fill", "url(#pt-sync)")
            .a("x", start)
            .a("y", y)
            .a("width", wide)
            .a("height", BAR_HEIGHT)
            .void();
        if wide >= NUMBERED {
            m.tag("rect")
                .a("class", "paper")
                .a("x", start + wide / 2.0 - NUMBERED / 2.0 + 3.0)
                .a("y", y + 2.0)
                .a("width", NUMBERED - 6.0)
                .a("height", BAR_HEIGHT - 4.0)
                .void();
            label(m, "tm", start + wide / 2.0, y + 12.0, text);
        }
    });
}

fn legend(m: &mut Markup, x: f64) {
    rect(m, "st-on-cpu", (x, 2.0), 24.0);
    label(m, "t", x + 30.0, 14.0, "at work");
    rect(m, "st-none", (x + 90.0, 2.0), 24.0);
    label(m, "t", x + 120.0, 14.0, "idle");
    rect(m, "st-on-cpu", (x + 160.0, 2.0), 24.0);
    m.tag("rect")
        .a("fill", "url(#pt-sync)")
        .a("x", x + 160.0)
        .a("y", 2.0)
        .a("width", 24.0)
        .a("height", BAR_HEIGHT)
        .void();
    label(m, "t", x + 190.0, 14.0, "slow shard");
}

fn rect(m: &mut Markup, class: &'static str, (x, y): (f64, f64), width: f64) {
    m.tag("rect")
        .a("class", class)
        .a("x", x)
        .a("y", y)
        .a("width", width)
        .a("height", BAR_HEIGHT)
        .void();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(start_ns: u64, end_ns: u64) -> Bar {
        Bar { start_ns, end_ns, mark: None }
    }

    #[test]
    fn bars_that_nearly_touch_are_one() {
        let scale = Scale::linear(0.0, 1000.0, 0.0, 1000.0);
        let bars = [bar(0, 10), bar(10, 20), bar(20, 20), bar(50, 60), bar(52, 55)];
        assert_eq!(joined(&bars, &scale), [(0.0, 21.0), (50.0, 60.0)]);
        let many: Vec<Bar> = (0..1000).map(|at| bar(at, at + 1)).collect();
        assert_eq!(joined(&many, &scale).len(), 1);
    }

    #[test]
    fn every_width_draws_all_lanes_and_marks() {
        let mark = Some(("7".to_owned(), "shard 7 on b".to_owned()));
        let lanes = ["a", "b"].map(|name| Lane {
            name: name.to_owned(),
            note: "2 shards".to_owned(),
            bars: vec![bar(0, 400), Bar { start_ns: 500, end_ns: 1000, mark: mark.clone() }],
        });
        let chart = Lanes {
            title: "Workers".to_owned(),
            description: String::new(),
            elapsed_ns: 1000,
            lanes: lanes.into(),
        };
        for width in [crate::svg::WIDE, crate::svg::NARROW] {
            let text = draw(&chart, width).standalone();
            assert_eq!(text.matches("shard 7 on b").count(), 2);
            assert!(!text.contains("NaN"), "{text}");
        }
    }
}

//! An operation in stages: one bar per row that starts at zero and changes its fill at each stage.
//!
//! The chart shows when an operation returned and how much later it was complete. If stages differ
//! by a factor of a thousand, a linear axis shows only the last one, so each row also shows its
//! numbers.

use super::scale::Scale;
use super::{Svg, fitted, label, line, text_width, tip};
use crate::estimate::Estimate;
use crate::markup::Markup;
use crate::quantity::Unit;

/// Fills of the stages: class and pattern.
const FILLS: [(&str, Option<&str>); 3] =
    [("st-on-cpu", None), ("seg", Some("url(#pt-sync)")), ("seg", Some("url(#pt-unknown)"))];

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Heading above it; rows with the same heading are grouped.
    pub heading: String,
    /// End of each stage, relative to the start; `None` if it was not measured.
    pub ends: [Option<Estimate>; 3],
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Names of the stages.
    pub words: [&'static str; 3],
    /// Title of the axis.
    pub x_title: String,
    /// Unit of the axis.
    pub unit: Unit,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
}

const BAR: f64 = 16.0;
const STEP: f64 = 25.0;

/// Draws the rows for a column of `width` pixels.
pub fn draw(chart: &Stages, width: f64) -> Svg {
    let wide_page = width >= 600.0;
    let wide = |text: &str| text_width(text, 12.0) + 14.0;
    let names = chart.rows.iter().map(|row| wide(&row.name)).fold(0.0, f64::max);
    let numbers = chart.rows.iter().map(|row| wide(&written(chart, row))).fold(0.0, f64::max);
    let (left, right) = if wide_page {
        (names.clamp(80.0, width * 0.25), width - numbers.min(width * 0.4))
    } else {
        (0.0, width)
    };
    let most = chart.rows.iter().flat_map(|row| row.ends.iter().flatten());
    let most = most.map(|end| end.median).fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most, left, right - 12.0).nice(chart.unit, 6);
    let mut m = Markup::new();
    let top = legend(&mut m, &chart.words, width);
    let mut y = top;
    let mut heading = "";
    let mut bars = Markup::new();
    for row in &chart.rows {
        if row.heading != heading {
            heading = &row.heading;
            y += 6.0;
            label(&mut bars, "b", 0.0, y + 12.0, &fitted(heading, 12.0, width));
            y += 21.0;
        }
        if !wide_page {
            label(&mut bars, "n", 0.0, y + 11.0, &fitted(&row.name, 12.0, width * 0.4));
            label(&mut bars, "te", width, y + 11.0, &written(chart, row));
            y += 17.0;
        }
        draw_row(&mut bars, chart, row, &scale, y);
        if wide_page {
            label(&mut bars, "e", left - 10.0, y + 12.5, &fitted(&row.name, 12.0, left - 10.0));
            label(&mut bars, "te", width, y + 12.5, &written(chart, row));
        }
        y += STEP;
    }
    for tick in scale.ticks(chart.unit, if wide_page { 6 } else { 4 }) {
        let x = scale.at(tick.value);
        line(&mut m, "grid", (x, top), (x, y));
        let half = text_width(&tick.text, 12.0) / 2.0 + 1.0;
        label(&mut m, "tm", x.min(width - half).max(half), y + 15.0, &tick.text);
    }
    let (_, unit) = chart.unit.tick_unit(scale.ends().1);
    label(
        &mut m,
        "ax",
        left,
        y + 32.0,
        &fitted(&format!("{}, {unit}", chart.x_title), 12.0, width),
    );
    m.append(&bars);
    Svg {
        width,
        height: y + 38.0,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

/// Returns the numbers of a row.
fn written(chart: &Stages, row: &Row) -> String {
    let ends = row.ends.iter().flatten().map(|end| chart.unit.format(end.median));
    let mut texts: Vec<String> = ends.collect();
    // A stage that ends at the same time as the previous one is omitted.
    texts.dedup();
    texts.join(" → ")
}

fn fill(m: &mut Markup, stage: usize, x: f64, y: f64, width: f64, height: f64) {
    let (class, pattern) = FILLS[stage];
    m.tag("rect")
        .a("class", class)
        .maybe("fill", pattern)
        .a("x", x)
        .a("y", y)
        .a("width", width)
        .a("height", height)
        .void();
}

fn legend(m: &mut Markup, words: &[&'static str; 3], width: f64) -> f64 {
    let (mut x, mut y) = (0.0, 2.0);
    for (stage, word) in words.iter().enumerate() {
        let wide = text_width(word, 12.0) + 40.0;
        if x > 0.0 && x + wide > width + 10.0 {
            x = 0.0;
            y += 20.0;
        }
        fill(m, stage, x, y, 20.0, 12.0);
        label(m, "n", x + 26.0, y + 10.5, word);
        x += wide;
    }
    y + 22.0
}

fn draw_row(m: &mut Markup, chart: &Stages, row: &Row, scale: &Scale, y: f64) {
    m.tag("g").a("class", "pt").body(|m| {
        let mut title = format!("{}: {}", row.heading, row.name);
        for (word, end) in chart.words.iter().zip(&row.ends) {
            if let Some(end) = end {
                title.push('\n');
                title.push_str(&tip(word, chart.unit, end));
            }
        }
        m.tag("title").text(&title);
        let mut from = scale.at(0.0);
        for (stage, end) in row.ends.iter().enumerate() {
            let Some(end) = end else { continue };
            let to = scale.at(end.median);
            if to > from {
                fill(m, stage, from, y, to - from, BAR);
                from = to;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: f64) -> Option<Estimate> {
        Some(Estimate { values: vec![ns], median: ns, ends: None })
    }

    fn chart(rows: Vec<Row>) -> Stages {
        Stages {
            title: "t".to_owned(),
            description: "d".to_owned(),
            words: ["returned", "durable", "settled"],
            x_title: "time since the start".to_owned(),
            unit: Unit::Time,
            rows,
        }
    }

    #[test]
    fn extreme_values_are_drawn() {
        for value in [1e-300, 1e15, 1e100, 1.7e308] {
            let ends = [at(1.0), at(value), None];
            let row = Row { name: "r".into(), heading: "h".into(), ends };
            for width in [320.0, 900.0] {
                let page = draw(&chart(vec![row.clone()]), width).standalone();
                assert!(!page.contains("NaN"), "{value}: {page}");
            }
        }
    }

    #[test]
    fn each_stage_begins_where_the_last_ended() {
        let row = |name: &str, ends| Row { name: name.into(), heading: "warm".into(), ends };
        let both = row("buffered", [at(1e6), at(4e6), at(4e6)]);
        let one = row("direct", [at(3e6), None, None]);
        let chart = chart(vec![both, one]);
        assert_eq!(written(&chart, &chart.rows[0]), "1.00 ms → 4.00 ms");
        for width in [super::super::WIDE, super::super::NARROW] {
            let drawn = draw(&chart, width).standalone();
            // Three in the legend, two in the first row (the third stage adds no time), one in the
            // second.
            let filled =
                drawn.matches("st-on-cpu\"").count() + drawn.matches("class=\"seg\"").count();
            assert_eq!(filled, 6, "{drawn}");
            assert_eq!(drawn.matches("st-on-cpu\"").count(), 3);
        }
    }
}

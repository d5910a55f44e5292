//! The machine as nested boxes: memory, sockets, shared caches, cores and their threads, with any
//! measured times.
//!
//! To fit a large machine into one drawing, only a limited number of processor groups is drawn and
//! the rest are counted.

use super::{Svg, fitted, label};
use crate::machine::{Drawing, Group};
use crate::markup::Markup;

const GAP: f64 = 8.0;
const ROW: f64 = 30.0;
const HEAD: f64 = 22.0;
/// Maximum number of cores in a row; narrower boxes are not readable.
const CORE_WIDTH_MIN: f64 = 84.0;

/// Draws the machine for a column of `width` pixels.
pub fn draw(drawing: &Drawing, width: f64) -> Svg {
    let mut m = Markup::new();
    let mut y = 0.0;
    bar(&mut m, (0.0, y, width, ROW), "box mem", &drawing.memory);
    y += ROW + GAP;
    for group in &drawing.groups {
        y = draw_group(&mut m, group, y, width) + GAP;
    }
    for text in &drawing.notes {
        label(&mut m, "q", 0.0, y + 12.0, &fitted(text, 12.0, width));
        y += 18.0;
    }
    Svg {
        width,
        height: y + 4.0,
        title: "This machine".to_owned(),
        description: drawing.sentence(),
        body: m,
    }
}

/// Draws a box with one line of text, truncated to fit.
fn bar(m: &mut Markup, (x, y, w, h): (f64, f64, f64, f64), class: &'static str, text: &str) {
    m.tag("g").body(|m| {
        m.tag("title").text(text);
        m.tag("rect")
            .a("class", class)
            .a("x", x)
            .a("y", y)
            .a("width", w)
            .a("height", h)
            .a("rx", 3.0)
            .void();
        label(m, "m", x + w / 2.0, y + h / 2.0 + 4.0, &fitted(text, 12.0, w - 8.0));
    });
}

/// Draws the processors that share a cache. Returns the y position of the bottom edge.
fn draw_group(m: &mut Markup, group: &Group, y: f64, width: f64) -> f64 {
    let inner = width - 2.0 * GAP;
    let per_row = ((inner / CORE_WIDTH_MIN).floor() as usize).clamp(1, group.cores.len().max(1));
    let rows = group.cores.len().div_ceil(per_row);
    let lines = group.cores.iter().map(|c| c.caches.len()).max().unwrap_or(0);
    let core_height = lines as f64 * (ROW + 4.0) + ROW + 4.0 + HEAD + GAP;
    let shared = group.shared.len() as f64 * (ROW + GAP);
    let height = HEAD + shared + rows as f64 * (core_height + GAP) + GAP / 2.0;
    m.tag("rect")
        .a("class", "box outer")
        .a("x", 0.0)
        .a("y", y)
        .a("width", width)
        .a("height", height)
        .a("rx", 5.0)
        .void();
    label(m, "b", GAP, y + 15.0, &fitted(&group.name, 12.0, inner));
    let mut top = y + HEAD;
    for cache in &group.shared {
        bar(m, (GAP, top, inner, ROW), "box cache", cache);
        top += ROW + GAP;
    }
    let wide = (inner - (per_row - 1) as f64 * GAP) / per_row as f64;
    for (i, core) in group.cores.iter().enumerate() {
        let x = GAP + (i % per_row) as f64 * (wide + GAP);
        let mut at = top + (i / per_row) as f64 * (core_height + GAP);
        m.tag("rect")
            .a("class", "box core")
            .a("x", x)
            .a("y", at)
            .a("width", wide)
            .a("height", core_height)
            .a("rx", 4.0)
            .void();
        label(m, "q", x + 6.0, at + 15.0, &fitted(&core.name, 12.0, wide - 12.0));
        at += HEAD;
        for cache in &core.caches {
            bar(m, (x + 6.0, at, wide - 12.0, ROW), "box cache", cache);
            at += ROW + 4.0;
        }
        let n = core.threads.len().max(1) as f64;
        let each = (wide - 12.0 - (n - 1.0) * 4.0) / n;
        for (k, thread) in core.threads.iter().enumerate() {
            bar(m, (x + 6.0 + k as f64 * (each + 4.0), at, each, ROW), "box unit", thread);
        }
    }
    y + height
}

//! The page cache contents of files: one row per file, filled in resident ranges.
//!
//! The fill height is the resident share of a range. Ranges with dirty pages or pages under
//! writeback are hatched. Equal adjacent ranges are merged.

use super::{Svg, fitted, label, text_width};
use crate::markup::Markup;

/// The state of a range of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mark {
    /// The resident share; all resident pages are clean.
    Resident(f64),
    /// Some pages are dirty.
    Dirty,
    /// Some pages are being written.
    Writeback,
    /// The state is unknown.
    Unknown,
}

/// One file.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Text next to the name.
    pub note: String,
    /// Its ranges, all of the same length.
    pub marks: Vec<Mark>,
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Strips {
    /// Title.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Files.
    pub rows: Vec<Row>,
}

const ROW_HEIGHT: f64 = 46.0;
const STRIP_HEIGHT: f64 = 20.0;

/// Draws the rows for a column of `width` pixels.
pub fn draw(chart: &Strips, width: f64) -> Svg {
    let mut m = Markup::new();
    let top = legend(&mut m, width);
    for (i, row) in chart.rows.iter().enumerate() {
        let y = top + ROW_HEIGHT * i as f64;
        let note = text_width(&row.note, 11.5);
        label(&mut m, "", 0.0, y + 12.0, &fitted(&row.name, 12.0, width - note - 16.0));
        label(&mut m, "te", width, y + 12.0, &row.note);
        m.tag("g").a("class", "pt").body(|m| {
            m.tag("title").text(&format!("{}: {}", row.name, row.note));
            strip(m, &row.marks, y + 18.0, width);
        });
    }
    if chart.rows.is_empty() {
        label(&mut m, "t", 0.0, top + 12.0, "no files to show");
    }
    let rows = chart.rows.len().max(1) as f64;
    Svg {
        width,
        height: top + ROW_HEIGHT * rows,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

fn rect(
    m: &mut Markup,
    class: &'static str,
    fill: Option<&'static str>,
    at: (f64, f64),
    size: (f64, f64),
) {
    m.tag("rect")
        .maybe("class", Some(class).filter(|class| !class.is_empty()))
        .maybe("fill", fill)
        .a("x", at.0)
        .a("y", at.1)
        .a("width", size.0)
        .a("height", size.1)
        .void();
}

fn mark(m: &mut Markup, mark: Mark, (x, y): (f64, f64), width: f64) {
    match mark {
        Mark::Resident(share) => {
            let height = STRIP_HEIGHT * share.clamp(0.0, 1.0);
            if height > 0.0 {
                rect(m, "st-on-cpu", None, (x, y + STRIP_HEIGHT - height), (width, height));
            }
        }
        Mark::Dirty => rect(m, "", Some("url(#pt-sync)"), (x, y), (width, STRIP_HEIGHT)),
        Mark::Writeback => rect(m, "", Some("url(#pt-io)"), (x, y), (width, STRIP_HEIGHT)),
        Mark::Unknown => rect(m, "", Some("url(#pt-unknown)"), (x, y), (width, STRIP_HEIGHT)),
    }
}

fn strip(m: &mut Markup, marks: &[Mark], y: f64, width: f64) {
    rect(m, "st-none", None, (0.0, y), (width, STRIP_HEIGHT));
    let x = |i: usize| width * i as f64 / marks.len() as f64;
    let mut start = 0;
    for i in 1..=marks.len() {
        if i == marks.len() || marks[i] != marks[start] {
            mark(m, marks[start], (x(start), y), x(i) - x(start));
            start = i;
        }
    }
}

/// Draws the legend. Returns its height.
fn legend(m: &mut Markup, width: f64) -> f64 {
    let (mut x, mut y) = (0.0, 0.0);
    for (what, word) in [
        (Mark::Resident(1.0), "resident"),
        (Mark::Resident(0.4), "partly"),
        (Mark::Resident(0.0), "not resident"),
        (Mark::Dirty, "changed"),
        (Mark::Writeback, "under writeback"),
        (Mark::Unknown, "unknown"),
    ] {
        let wide = 30.0 + text_width(word, 11.5) + 18.0;
        if x + wide > width {
            (x, y) = (0.0, y + 28.0);
        }
        rect(m, "st-none", None, (x, y), (24.0, STRIP_HEIGHT));
        mark(m, what, (x, y), 24.0);
        label(m, "t", x + 30.0, y + 14.0, word);
        x += wide;
    }
    y + 36.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_are_one_mark() {
        let mut m = Markup::new();
        let full = Mark::Resident(1.0);
        let marks = [full, full, Mark::Dirty, Mark::Dirty, Mark::Resident(0.0), full];
        strip(&mut m, &marks, 0.0, 600.0);
        // The background, two filled ranges and one hatched range; non-resident ranges are not
        // drawn.
        assert_eq!(m.as_str().matches("<rect").count(), 4, "{}", m.as_str());
    }

    #[test]
    fn an_empty_file_has_its_row() {
        let row = Row { name: "<x>".into(), note: "empty".into(), marks: Vec::new() };
        let chart = Strips { title: "t".into(), description: "d".into(), rows: vec![row] };
        let text = draw(&chart, 300.0).standalone();
        assert!(text.contains("&lt;x&gt;") && text.contains("empty"));
    }
}

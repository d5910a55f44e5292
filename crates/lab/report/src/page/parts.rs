//! Elements used by all sections: sentences, numbers, tables, figures, doubts.

use crate::estimate::{Estimate, Ratio};
use crate::figures::Figure;
use crate::headline::Piece;
use crate::input::{Input, Verdict, runs_done};
use crate::markup::Markup;
use crate::quantity::{Unit, ratio_ends};
use crate::svg::{NARROW, WIDE};
use crate::table::Table;
use ioloom_model::Doubt;
use std::collections::BTreeSet;

/// A section of the page: identifier, name, body.
pub(crate) type Section = (String, &'static str, Markup);

/// Title of a page with several studies.
pub(crate) const SEVERAL: &str = "I/O concurrency on this machine";
const SEVERAL_ASKED: &str = "Several studies of the same machine. Each answers a separate \
    question, and its runs test published claims.";

/// Returns the total duration of all studies in words.
pub(crate) fn took(inputs: &[Input]) -> String {
    let seconds: f64 = inputs.iter().map(|input| input.duration_s).sum();
    ioloom_model::units::format_ns(seconds * 1e9)
}

/// Writes the title, the question and the facts of this session.
pub(crate) fn masthead(m: &mut Markup, inputs: &[Input]) {
    let Some(input) = inputs.first() else { return };
    let alone = inputs.len() == 1;
    let studies: Vec<&str> = inputs.iter().map(|i| i.study.name.as_str()).collect();
    let (title, asked) = match alone {
        true => (input.study.title.as_str(), input.study.question.as_str()),
        false => (SEVERAL, SEVERAL_ASKED),
    };
    m.tag("header").body(|m| {
        bar(m, &studies.join(", "));
        m.tag("h1").text(title);
        m.tag("p").a("class", "question").text(asked);
        m.tag("dl").a("class", "session").body(|m| {
            let cpu =
                input.machine.cpu_model.clone().unwrap_or_else(|| "unknown processor".to_owned());
            let machine = format!("{cpu}, {} usable", input.machine.cpus_usable);
            for (name, value) in [
                ("mode", input.mode.name().to_owned()),
                ("started", input.started()),
                ("took", took(inputs)),
                ("runs", runs_done(inputs)),
                ("machine", machine),
                ("session", input.session.clone()),
            ] {
                m.tag("div").body(|m| {
                    m.tag("dt").text(name);
                    m.tag("dd").text(&value);
                });
            }
        });
        for text in inputs.iter().filter_map(Input::unfinished) {
            m.tag("p").text(&text);
        }
    });
}

/// Writes the top bar: program name, page subject and colour scheme button.
pub(crate) fn bar(m: &mut Markup, subject: &str) {
    m.tag("div").a("class", "bar").body(|m| {
        m.tag("span").a("class", "brand").text("ioloom");
        m.tag("span").a("class", "study").text(subject);
        m.tag("button")
            .a("type", "button")
            .a("id", "theme")
            .a("aria-label", "Auto: colours of the system")
            .text("Auto");
    });
}

/// Writes the footer; `words` say what the page does not contain.
pub(crate) fn footer(m: &mut Markup, inputs: &[Input], runs: bool, words: &[String]) {
    if inputs.is_empty() {
        return;
    }
    let mut sessions: Vec<&str> = inputs.iter().map(|input| input.session.as_str()).collect();
    sessions.dedup();
    let noun = if sessions.len() == 1 { "session" } else { "sessions" };
    let versions: BTreeSet<&str> = inputs.iter().map(|input| input.version.as_str()).collect();
    let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
    m.tag("footer").body(|m| {
        m.tag("p").text(&format!(
            "Medians with exact 95\u{A0}% intervals between order statistics (for fewer than six values, \
            minimum and maximum in parentheses); ratios are paired over blocks. Hover over a mark to see \
            its count, interval and raw values. Written by ioloom {} from {noun} {} (measured with ioloom {}). \
            This file contains the raw numbers as JSON (element report-data){}.",
            env!("CARGO_PKG_VERSION"),
            sessions.join(", "),
            versions,
            match runs {
                true => " and the data of each run as base64-encoded gzip (element report-runs)",
                false => "",
            }
        ));
        for sentence in words {
            m.tag("p").text(sentence);
        }
    });
}

/// Writes a sentence.
pub(crate) fn pieces(m: &mut Markup, pieces: &[Piece]) {
    for piece in pieces {
        match piece {
            Piece::Words(text) => {
                m.text(text);
            }
            Piece::Name(text) => m.tag("b").text(text),
            Piece::Plan(text) => plan(m, text),
            Piece::Number { text, of, field } => number(m, of, field, text),
        }
    }
}

/// Writes a plan; lines can break only after its separators.
pub(crate) fn plan(m: &mut Markup, spelling: &str) {
    m.tag("code").body(|m| {
        for (i, part) in spelling.split_inclusive(['/', ',']).enumerate() {
            m.asset(if i > 0 { "<wbr>" } else { "" });
            m.text(part);
        }
    });
}

/// Writes a number with a reference to the embedded data.
pub(crate) fn number(m: &mut Markup, of: &str, field: &'static str, text: &str) {
    m.tag("span").a("class", "num").a("data-ref", of).a("data-field", field).text(text);
}

/// Writes an estimate: the median, then its ends in a lighter style.
pub(crate) fn estimate(m: &mut Markup, of: &str, unit: Unit, e: &Estimate) {
    number(m, of, "median", &unit.format(e.median));
    m.text(" ");
    match e.ends {
        Some(ends) => {
            let [open, between, close] =
                if ends.is_interval() { ["[", ", ", "]"] } else { ["(", " to ", ")"] };
            m.tag("span").a("class", "iv").body(|m| {
                m.text(open);
                number(m, of, "low", &unit.format(ends.low));
                m.text(between);
                number(m, of, "high", &unit.format(ends.high));
                m.text(close);
            });
        }
        None => m.tag("span").a("class", "iv").text("no interval"),
    }
}

/// Gains below this are written as slowdowns.
const SLOW: f64 = 0.5;

/// Writes a gain with its interval bounds; a gain of 0.05 is a plan that is 20 times slower.
pub(crate) fn ratio(m: &mut Markup, of: &str, r: &Ratio) {
    let slower = r.value < SLOW;
    let (value, ends) = if slower { (1.0 / r.value, r.ends.inverse()) } else { (r.value, r.ends) };
    let text = ratio_ends(value, ends);
    let few = if r.ends.is_interval() { "" } else { ", minimum to maximum" };
    let (value, interval) = text.split_once(' ').unwrap_or((&text, ""));
    m.tag("span")
        .a("class", if r.is_clear() { "ratio clear" } else { "ratio" })
        .a("title", format!("paired over {} blocks{few}", r.n))
        .body(|m| {
            number(m, of, if slower { "slowdown" } else { "ratio" }, value);
            m.text(if slower { " slower " } else { " " });
            m.tag("span").a("class", "iv").text(interval);
        });
}

/// Writes a verdict as an icon and a word.
pub(crate) fn verdict(m: &mut Markup, v: Verdict) {
    m.tag("span").a("class", verdict_class(v)).body(|m| {
        m.tag("span").a("class", "icon").a("aria-hidden", "true").text(v.icon());
        m.text(v.name());
    });
}

/// Returns the CSS class of a verdict.
pub(crate) const fn verdict_class(v: Verdict) -> &'static str {
    match v {
        Verdict::Confirmed => "vd vd-confirmed",
        Verdict::Refuted => "vd vd-refuted",
        Verdict::Scope => "vd vd-scope",
        Verdict::Undecided => "vd vd-undecided",
        Verdict::NotTestableHere => "vd vd-not",
        Verdict::Consistent | Verdict::Inconsistent => "vd vd-not",
    }
}

/// Writes a chart with its caption, for wide and for narrow pages.
pub(crate) fn figure(m: &mut Markup, figure: &Figure, caption: impl FnOnce(&mut Markup)) {
    m.tag("figure").body(|m| {
        m.tag("figcaption").body(caption);
        figure.draw(WIDE).write(m, "chart wide");
        figure.draw(NARROW).write_untitled(m, "chart narrow");
    });
}

/// Writes a chart without a caption, in one size for all page widths.
pub(crate) fn small_figure(m: &mut Markup, figure: &Figure) {
    m.tag("figure").body(|m| figure.draw(NARROW).write(m, "chart"));
}

/// Maximum number of characters in a table head on one line.
const HEAD_LONG: usize = 28;
/// Maximum number of characters in a word, such as a path, before it may be broken.
const WORD_LONG: usize = 32;

/// Writes text in which paths preferably break after a slash.
fn breakable(m: &mut Markup, text: &str) {
    for (i, word) in text.split(' ').enumerate() {
        m.text(if i > 0 { " " } else { "" });
        let parts = if word.chars().count() > WORD_LONG { usize::MAX } else { 1 };
        for (i, part) in word.splitn(parts, '/').enumerate() {
            if i > 0 {
                m.text("/").asset("<wbr>");
            }
            m.text(part);
        }
    }
}

/// Writes a text cell that may be as narrow as the table requires.
pub(crate) fn words_cell(m: &mut Markup, text: &str) {
    let long = text.split(' ').any(|word| word.chars().count() > WORD_LONG);
    m.tag("td").maybe("class", long.then_some("long")).body(|m| breakable(m, text));
}

/// Writes a table; numeric columns are right-aligned.
pub(crate) fn table(
    m: &mut Markup,
    class: &'static str,
    columns: &[(&str, bool)],
    rows: impl FnOnce(&mut Markup),
) {
    m.tag("div").a("class", "scroll").a("tabindex", "0").body(|m| {
        m.tag("table").a("class", class).body(|m| {
            m.tag("thead").body(|m| {
                m.tag("tr").body(|m| {
                    for (name, numeric) in columns {
                        let class = match (*numeric, name.chars().count() > HEAD_LONG) {
                            (false, false) => None,
                            (false, true) => Some("long"),
                            (true, false) => Some("r"),
                            (true, true) => Some("r long"),
                        };
                        m.tag("th").a("scope", "col").maybe("class", class).body(|m| {
                            breakable(m, name);
                        });
                    }
                });
            });
            m.tag("tbody").body(rows);
        });
    });
}

/// Writes a cell that is sorted by a number, or by its text without one.
pub(crate) fn number_cell(
    m: &mut Markup,
    sort: impl Into<Option<f64>>,
    fill: impl FnOnce(&mut Markup),
) {
    let sort = sort.into().map(|number| number.to_string());
    m.tag("td").a("class", "r").maybe("data-sort", sort).body(fill);
}

/// Writes a text table below its title; the first column contains row names.
pub(crate) fn plain_table(m: &mut Markup, t: &Table) {
    m.tag("h3").text(&t.title);
    let columns: Vec<_> = t.columns.iter().map(|c| (c.as_str(), true)).collect();
    table(m, "sort plain", &columns, |m| {
        for (at, row) in t.rows.iter().enumerate() {
            let numbers = t.numbers.get(at).map_or(&[][..], Vec::as_slice);
            m.tag("tr").body(|m| {
                for (column, cell) in row.iter().enumerate() {
                    number_cell(m, numbers.get(column).copied().flatten(), |m| {
                        m.text(cell);
                    });
                }
            });
        }
    });
}

/// Writes doubts with their remedies.
pub(crate) fn doubts(m: &mut Markup, doubts: &BTreeSet<Doubt>, input: &Input) {
    if doubts.is_empty() {
        return;
    }
    m.tag("ul").a("class", "doubts").body(|m| {
        for doubt in doubts {
            m.tag("li").body(|m| {
                m.tag("span").a("class", "dname").body(|m| {
                    m.tag("span").a("aria-hidden", "true").text("◇ ");
                    m.text(doubt.name());
                });
                m.text(" ");
                m.text(&input.advice(*doubt));
            });
        }
    });
}

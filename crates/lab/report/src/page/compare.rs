//! The page that compares two sessions.

use super::frame::{Lanes, document_frame};
use super::parts;
use crate::compare::{Change, Matched, Row, ZEROS_NOTE, matched};
use crate::estimate::RANGE_NOTE;
use crate::input::Input;
use crate::markup::Markup;
use crate::quantity::{ratio, ratio_ends};

/// Returns the page of `ioloom compare A B`.
pub fn compare_html(a: &Input, b: &Input) -> String {
    let matched = matched(a, b);
    let mut m = Markup::new();
    let title = format!("{}: {} compared with {}", a.study.title, b.session, a.session);
    document_frame(&mut m, &title, Lanes::None, |m| {
        m.tag("header").body(|m| {
            parts::bar(m, &format!("compare {}", a.study.name));
            m.tag("h1").text(&a.study.title);
            m.tag("p").a("class", "question").text(&format!(
                "Session {} ({}) compared with session {} ({}).",
                b.session,
                b.started(),
                a.session,
                a.started()
            ));
        });
        m.tag("main").a("class", "single").body(|m| section(m, &matched));
    });
    m.into_string()
}

fn section(m: &mut Markup, matched: &Matched<'_>) {
    m.tag("section").a("id", "compare").body(|m| {
        m.tag("h2").text("Arms in both sessions");
        m.tag("p").a("class", "lead").text(
            "Ratio of medians, second session to first, with its 95\u{A0}% interval. A change \
            counts if the interval excludes 1 and the ratio differs from 1 by more than 5 %. If \
            machine, medium, files, plan or condition differ, there is no conclusion.",
        );
        if matched.has_too_few() {
            m.tag("p").a("class", "lead").text(RANGE_NOTE);
        }
        if matched.has_zeros() {
            m.tag("p").a("class", "lead").text(ZEROS_NOTE);
        }
        if matched.has_intervals() {
            m.tag("p").a("class", "lead").text(crate::terminal::CHANCE);
        }
        if !matched.remarks.is_empty() {
            m.tag("ul").a("class", "doubts").body(|m| {
                for remark in &matched.remarks {
                    m.tag("li").text(remark);
                }
            });
        }
        let columns = [
            ("experiment", false),
            ("file set and condition", false),
            ("arm", false),
            ("first", true),
            ("second", true),
            ("second / first", true),
            ("change", false),
        ];
        parts::table(m, "sort plain", &columns, |m| {
            for row in &matched.rows {
                m.tag("tr").body(|m| row_cells(m, row));
            }
        });
        if !matched.alone.is_empty() {
            m.tag("h3").text("Only in one session");
            m.tag("ul").body(|m| {
                for (session, what) in &matched.alone {
                    m.tag("li").text(&format!("{session}: {what}"));
                }
            });
        }
    });
}

fn row_cells(m: &mut Markup, row: &Row<'_>) {
    m.tag("td").text(&row.group.experiment.name);
    parts::words_cell(m, &row.group.place());
    parts::words_cell(m, row.first.name);
    for arm in [&row.first, &row.second] {
        if let Some(e) = &arm.estimate {
            let unit = row.group.unit();
            let interval =
                e.ends.map_or_else(|| "no interval".to_owned(), |ends| unit.format_ends(ends));
            parts::number_cell(m, e.median, |m| {
                m.text(&unit.format(e.median));
                m.text(" ");
                m.tag("span").a("class", "iv").text(&format!("{interval} n = {}", e.values.len()));
            });
        }
    }
    parts::number_cell(m, row.ratio.map_or(1.0, |r| r.value), |m| match row.ratio {
        Some(r) => {
            m.text(&ratio(r.value));
            let text = ratio_ends(r.value, r.ends);
            let interval = text.split_once(' ').map_or("", |(_, i)| i);
            m.text(" ");
            m.tag("span").a("class", "iv").text(interval);
        }
        None => {
            m.tag("span").a("class", "iv").text(&row.without_ratio());
        }
    });
    let class = match row.change {
        Change::Better => "vd vd-confirmed",
        Change::Worse => "vd vd-refuted",
        Change::Different => "vd vd-scope",
        Change::Same | Change::Unclear => "vd vd-undecided",
        Change::NotComparable => "vd vd-not",
    };
    m.tag("td").body(|m| {
        m.tag("span").a("class", class).body(|m| {
            m.tag("span").a("class", "icon").a("aria-hidden", "true").text(row.change.icon());
            m.text(row.change.name());
        });
        for difference in &row.differs {
            m.tag("div").a("class", "iv").text(difference);
        }
    });
}

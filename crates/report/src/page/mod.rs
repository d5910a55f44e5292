//! The report as one HTML file: no address outside it, works from a disk, light and dark.
//!
//! The order is that of a reader's questions: what was asked, what is the answer, how sure is it,
//! what does it rest on, how do I repeat it. Numbers carry `data-ref` and `data-field`, which name
//! their place in the embedded JSON; a test in `ui/` compares the two in a browser. A content
//! security policy inside the page forbids it to load anything.

mod chapters;
mod charts;
mod compare;
mod facts;
mod parts;

pub use compare::compare_html;

use crate::data;
use crate::group::groups;
use crate::headline::headlines;
use crate::input::Input;
use crate::markup::Markup;
use crate::svg;
use crate::table;

const PAGE_CSS: &str = include_str!("../../assets/page.css");
const VIEWER_JS: &str = include_str!("../../assets/viewer.js");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:";

/// The whole report.
pub fn html(input: &Input) -> String {
    let groups = groups(input);
    let headlines = headlines(&groups, input);
    let document = data::document(input, &groups, &headlines).to_string();
    let sections: Vec<(&'static str, &'static str, Markup)> = [
        ("answer", "Answer", chapters::answer(input, &headlines)),
        ("comparisons", "Comparisons", chapters::comparisons(input, &headlines)),
        ("experiments", "Experiments", charts::experiments(input, &groups)),
        ("costs", "Cost of calls", charts::costs(input, &groups)),
        ("time", "Where time went", charts::time(&headlines)),
        ("claims", "Claims", chapters::claims(input)),
        ("doubts", "Doubts", chapters::doubts(input)),
        ("conditions", "Conditions", facts::conditions(input)),
        (
            "tables",
            "Published layout",
            facts::tables(&table::medium_by_threads(&groups), &table::roles(&groups, input)),
        ),
        ("machine", "Machine", facts::machine(input)),
        ("plans", "Plans", facts::plans(&groups)),
        ("repeat", "How to repeat it", facts::repeat(input)),
    ]
    .into_iter()
    .filter(|(_, _, body)| !body.as_str().is_empty())
    .collect();
    let mut m = Markup::new();
    document_frame(&mut m, &input.study.title, |m| {
        parts::masthead(m, input);
        m.tag("div").a("class", "columns").body(|m| {
            m.tag("nav").a("aria-label", "Contents").body(|m| {
                for (id, name, _) in &sections {
                    m.tag("a").a("href", format!("#{id}")).text(name);
                }
            });
            m.tag("main").body(|m| {
                for (id, name, body) in &sections {
                    m.tag("section").a("id", *id).body(|m| {
                        m.tag("h2").text(name);
                        m.append(body);
                    });
                }
            });
        });
        parts::footer(m, input);
        m.tag("script").a("type", "application/json").a("id", "report-data").body(|m| {
            m.json(&document);
        });
        m.tag("script").a("type", "application/octet-stream").a("id", "report-runs").body(|m| {
            m.json(&data::runs(input));
        });
    });
    m.into_string()
}

/// Head, style and script around a body.
pub(crate) fn document_frame(m: &mut Markup, title: &str, body: impl FnOnce(&mut Markup)) {
    m.asset("<!doctype html>\n");
    m.tag("html").a("lang", "en").body(|m| {
        m.tag("head").body(|m| {
            m.tag("meta").a("charset", "utf-8").void();
            m.tag("meta").a("http-equiv", "Content-Security-Policy").a("content", POLICY).void();
            m.tag("meta")
                .a("name", "viewport")
                .a("content", "width=device-width,initial-scale=1")
                .void();
            m.tag("link").a("rel", "icon").a("href", "data:,").void();
            m.tag("title").text(title);
            m.tag("style").body(|m| {
                m.asset(svg::palette_css()).asset(svg::chart_css()).asset(PAGE_CSS);
            });
        });
        m.tag("body").body(|m| {
            svg::write_patterns(m);
            body(m);
            m.tag("script").body(|m| {
                m.asset(VIEWER_JS);
            });
        });
    });
    m.text("\n");
}

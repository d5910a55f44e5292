//! The page of timelines, and the same as a section of another page.
//!
//! Words, evidence, a still drawing and a table of shares are in the page itself; the script puts
//! zoomable lanes in the place of the drawing. So a reader without a script, a search and a printer
//! find everything but the zoom.

use super::svg::{self, Options};
use super::words;
use crate::markup::Markup;
use crate::page::frame::{Lanes, document_frame};
use ioloom_model::State;
use ioloom_trace::{Finding, Trace, shares, viewer};

/// The style of timelines, once for a page.
pub(crate) const CSS: &str = include_str!("../../assets/timeline.css");
/// The script that brings every timeline before it to life, once for a page.
pub(crate) const SCRIPT: &str = include_str!("../../assets/timeline.js");
/// More traces are listed and can be chosen, but are not drawn without the script.
const STILLS: usize = 2;

/// One HTML file: no address outside of it, works from a disk, light and dark. The first two
/// traces stand one above the other on one axis; the page lets the reader choose others.
pub fn timeline_page(traces: &[Trace]) -> String {
    let title = match traces {
        [] => "No trace".to_owned(),
        [one] => one.title.clone(),
        [a, b] => format!("{} beside {}", a.title, b.title),
        [a, rest @ ..] => format!("{} and {} others", a.title, rest.len()),
    };
    let mut m = Markup::new();
    document_frame(&mut m, &title, Lanes::Some, |m| {
        m.tag("div").a("class", "tl-page").body(|m| {
            m.tag("header").body(|m| {
                m.tag("div").a("class", "bar").body(|m| {
                    m.tag("span").a("class", "brand").text("ioloom");
                    m.tag("span").a("class", "study").text("timeline");
                    m.tag("button")
                        .a("type", "button")
                        .a("id", "theme")
                        .a("aria-label", "Colours: as the system has them")
                        .text("Auto");
                });
                m.tag("h1").text(if traces.len() > 1 {
                    "Where every thread's time went"
                } else {
                    &title
                });
            });
            m.tag("main").a("class", "single").body(|m| {
                m.tag("section").a("id", "timeline").body(|m| {
                    m.append(&root(traces, "always", traces.len() > 1));
                });
            });
        });
    });
    m.into_string()
}

/// The timelines as a part of another page of this crate, which has their style, patterns and script.
pub fn section(traces: &[Trace]) -> Markup {
    root(traces, "focus", true)
}

fn root(traces: &[Trace], wheel: &'static str, titles: bool) -> Markup {
    let mut m = Markup::new();
    if traces.is_empty() {
        m.tag("p").text("There is no trace.");
        return m;
    }
    let found: Vec<Vec<Finding>> = traces.iter().map(ioloom_trace::findings::findings).collect();
    m.tag("div").a("class", "tl-root").a("data-wheel", wheel).body(|m| {
        for (i, (trace, findings)) in traces.iter().zip(&found).enumerate() {
            introduction(m, i, trace, findings, titles);
        }
        m.tag("div").a("class", "tl-still").body(|m| {
            for trace in traces.iter().take(STILLS) {
                m.append(&svg::drawing(trace, &Options::default()).embedded());
                share_table(m, trace);
            }
        });
        for (i, trace) in traces.iter().enumerate() {
            evidence(m, i, trace);
        }
        for (trace, findings) in traces.iter().zip(&found) {
            m.tag("script")
                .a("type", "text/plain")
                .a("class", "tl-trace")
                .a("data-title", &trace.title)
                .body(|m| {
                    // Base64 holds nothing that ends a script.
                    m.text(&viewer::embedded(trace, findings));
                });
        }
    });
    m
}

/// Title, evidence in a line, losses, findings.
fn introduction(m: &mut Markup, i: usize, trace: &Trace, findings: &[Finding], titles: bool) {
    m.tag("div").a("class", "tl-words").a("data-trace", i).body(|m| {
        if titles {
            m.tag("h3").body(|m| {
                m.tag("span").a("class", "tl-letter").text("");
                m.text(&trace.title);
            });
        }
        m.tag("p").a("class", "tl-facts").text(&format!("{}.", words::evidence_line(trace)));
        if let Some(loss) = words::loss_line(trace) {
            m.tag("p").a("class", "tl-warning").body(|m| {
                m.tag("b").text("Events were lost: ");
                m.text(&loss);
            });
        }
        if findings.is_empty() {
            return;
        }
        m.tag("ul").a("class", "tl-findings").body(|m| {
            for f in findings {
                m.tag("li").a("data-finding", &f.id).body(|m| {
                    m.tag("b").text(&f.title);
                    m.text(&f.sentence);
                    m.tag("span").a("class", "try").text(&format!("Try: {}", f.try_this));
                    let led: Vec<_> = f.evidence.iter().map(|(k, v)| format!("{k} {v}")).collect();
                    if !led.is_empty() {
                        m.tag("span").a("class", "led").text(&led.join(" · "));
                    }
                });
            }
        });
    });
}

/// Shares of the whole run by role.
fn share_table(m: &mut Markup, trace: &Trace) {
    let roles = shares::roles(trace);
    m.tag("div").a("class", "scroll").body(|m| {
        m.tag("table").body(|m| {
            m.tag("thead").body(|m| {
                m.tag("tr").body(|m| {
                    m.tag("th").text("state");
                    for role in &roles {
                        let name = format!("{} ({})", role.role, role.threads);
                        m.tag("th").a("class", "r").text(&name);
                    }
                });
            });
            m.tag("tbody").body(|m| {
                for state in State::ALL {
                    m.tag("tr").body(|m| {
                        m.tag("td").text(state.name());
                        for role in &roles {
                            let total = words::total_of(&role.states);
                            m.tag("td").a("class", "r").text(&words::share_of(
                                &role.states,
                                state,
                                total,
                            ));
                        }
                    });
                }
            });
        });
    });
}

/// Sources, checks, notes.
fn evidence(m: &mut Markup, i: usize, trace: &Trace) {
    let e = &trace.evidence;
    m.tag("details").a("class", "tl-evidence").a("data-trace", i).body(|m| {
        m.tag("summary").body(|m| {
            m.tag("span").a("class", "tl-letter").text("");
            m.text(&format!(
                "What this rests on: level {} ({}), {} lost",
                e.level.number(),
                e.level.name(),
                words::lost(trace)
            ));
        });
        m.tag("div").a("class", "scroll").body(|m| {
            m.tag("table").body(|m| {
                head(m, &["source", "records", "lost", "cost of one", "access"]);
                m.tag("tbody").body(|m| {
                    for s in &e.sources {
                        let cost = s
                            .ns_per_event
                            .map_or_else(|| "not measured".to_owned(), |ns| format!("{ns:.0} ns"));
                        m.tag("tr").body(|m| {
                            m.tag("td").text(&s.name);
                            for text in [s.records.to_string(), s.lost.to_string(), cost] {
                                m.tag("td").a("class", "r").text(&text);
                            }
                            m.tag("td").text(&s.privilege);
                        });
                    }
                });
            });
            m.tag("table").body(|m| {
                head(m, &["check", "result"]);
                m.tag("tbody").body(|m| {
                    for (name, result) in words::checks(trace) {
                        m.tag("tr").body(|m| {
                            m.tag("td").text(name);
                            m.tag("td").a("class", "r").text(&result);
                        });
                    }
                });
            });
        });
        if !e.notes.is_empty() {
            m.tag("ul").body(|m| {
                for note in &e.notes {
                    m.tag("li").text(note);
                }
            });
        }
    });
}

fn head(m: &mut Markup, names: &[&str]) {
    m.tag("thead").body(|m| {
        m.tag("tr").body(|m| {
            for (i, name) in names.iter().enumerate() {
                let right = i > 0 && *name != "access";
                m.tag("th").maybe("class", right.then_some("r")).text(name);
            }
        });
    });
}

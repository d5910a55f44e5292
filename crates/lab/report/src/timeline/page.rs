//! The timeline page, and its content as a section of another page.
//!
//! The page contains text, evidence, a static drawing and a table of shares; the script replaces
//! the drawing with zoomable lanes. Without scripts, in searches and in print, everything except
//! zooming is available.

use super::svg::{self, SvgOptions};
use super::{ROLES, words};
use crate::markup::Markup;
use crate::page::frame::{Lanes, document_frame};
use ioloom_model::State;
use ioloom_trace::{Finding, Trace, shares, viewer};

/// The style of timelines, once per page.
pub(crate) const CSS: &str = include_str!("../../assets/timeline.css");
/// The script that makes every preceding timeline interactive, once per page.
pub(crate) const SCRIPT: &str = include_str!("../../assets/timeline.js");
/// Number of traces drawn without the script; others can only be selected.
const STILLS: usize = 2;

/// Returns a single HTML file without external resources, in light and dark mode. The first two
/// traces are drawn on one axis; the user can select others.
pub fn timeline_page(traces: &[Trace]) -> String {
    let title = match traces {
        [] => "No trace".to_owned(),
        [one] => one.title.clone(),
        [a, b] => format!("{} and {}", a.title, b.title),
        [a, rest @ ..] => format!("{} and {} others", a.title, rest.len()),
    };
    let mut m = Markup::new();
    document_frame(&mut m, &title, Lanes::Some, |m| {
        m.tag("div").a("class", "tl-page").body(|m| {
            m.tag("header").body(|m| {
                crate::page::parts::bar(m, "timeline");
                m.tag("h1").text(if traces.len() > 1 { "Thread timelines" } else { &title });
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

/// Returns the timelines as part of another page, which must include their style, patterns and
/// script.
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
                m.append(&svg::drawing(trace, &SvgOptions::default()).embedded());
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
                    // Base64 cannot contain anything that would end a script element.
                    m.text(&viewer::embedded(trace, findings));
                });
        }
    });
    m
}

/// Writes the title, one line of evidence, losses and findings.
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

/// Writes the shares of the whole run by role, and counts the roles beyond [`ROLES`].
fn share_table(m: &mut Markup, trace: &Trace) {
    let mut roles = shares::roles(trace);
    let rest = roles.split_off(roles.len().min(ROLES));
    m.tag("div").a("class", "scroll").a("tabindex", "0").body(|m| {
        m.tag("table").body(|m| {
            m.tag("thead").body(|m| {
                m.tag("tr").body(|m| {
                    m.tag("th").a("scope", "col").text("state");
                    for role in &roles {
                        let name = format!("{} ({})", role.role, role.threads);
                        m.tag("th").a("scope", "col").a("class", "r").text(&name);
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
    if let Some(more) = words::more_roles(rest.iter().map(|role| role.threads as usize)) {
        m.tag("p").text(&format!("{more}, not in this table."));
    }
}

/// Writes sources, checks and notes.
fn evidence(m: &mut Markup, i: usize, trace: &Trace) {
    let e = &trace.evidence;
    m.tag("details").a("class", "tl-evidence").a("data-trace", i).body(|m| {
        m.tag("summary").body(|m| {
            m.tag("span").a("class", "tl-letter").text("");
            m.text(&format!(
                "Evidence: level {} ({}), {} records lost",
                e.level.number(),
                e.level.name(),
                words::lost(trace)
            ));
        });
        m.tag("div").a("class", "scroll").a("tabindex", "0").body(|m| {
            m.tag("table").body(|m| {
                head(m, &["source", "records", "lost", "cost per record", "access"]);
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
                m.tag("th").a("scope", "col").maybe("class", right.then_some("r")).text(name);
            }
        });
    });
}

//! The frame of every page: head, style, content security policy and scripts.

use crate::markup::Markup;
use crate::{svg, timeline};

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:";

const VIEWER_JS: &str = include_str!("../../assets/viewer.js");
const PAGE_CSS: &str = include_str!("../../assets/page.css");
/// Whether a page contains timelines. Their style, patterns and script are embedded only once per
/// page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The page may contain timelines.
    Some,
    /// The page contains none.
    None,
}

impl Lanes {
    pub(crate) const fn of(any: bool) -> Self {
        if any { Self::Some } else { Self::None }
    }
}

/// Writes a document: head, style and script around a body.
pub(crate) fn document_frame(
    m: &mut Markup,
    title: &str,
    lanes: Lanes,
    body: impl FnOnce(&mut Markup),
) {
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
                if lanes == Lanes::Some {
                    m.asset(timeline::CSS);
                }
            });
        });
        m.tag("body").body(|m| {
            svg::write_patterns(m);
            if lanes == Lanes::Some {
                timeline::write_patterns(m);
            }
            body(m);
            if lanes == Lanes::Some {
                m.tag("script").body(|m| {
                    m.asset(timeline::SCRIPT);
                });
            }
            m.tag("script").body(|m| {
                m.asset(VIEWER_JS);
            });
        });
    });
    m.text("\n");
}

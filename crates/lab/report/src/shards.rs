//! The report of work that was split over many hosts, as one HTML file without external resources.
//!
//! It shows the result, what limited each host, when each worker was busy with which shard, and the
//! slowest shards.

use crate::markup::Markup;
use crate::page::frame::{Lanes as Timelines, document_frame};
use crate::page::parts::{bar, number_cell, table, words_cell};
use crate::svg::lanes::{self, Lanes};
use crate::svg::{NARROW, WIDE};
use ioloom_model::units::{format_count, format_ns, format_size};

/// A host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostRow {
    /// Its name.
    pub host: String,
    /// Its shards.
    pub shards: u64,
    /// Files that were processed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that failed.
    pub errors: u64,
    /// Sum of the durations of its shards, in nanoseconds.
    pub busy_ns: u64,
    /// Processor time, in nanoseconds.
    pub cpu_ns: u64,
    /// What limited it, in a sentence; empty if unknown.
    pub limit: String,
}

/// A slow shard.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowRow {
    /// Its number.
    pub shard: u64,
    /// Its host.
    pub host: String,
    /// Its duration in nanoseconds.
    pub elapsed_ns: u64,
    /// Its duration divided by the median.
    pub times_median: f64,
}

/// The content of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardsReport {
    /// What was done.
    pub title: String,
    /// The result, in a sentence.
    pub answer: String,
    /// What a reader must know before trusting the result.
    pub doubts: Vec<String>,
    /// Names and values.
    pub facts: Vec<(&'static str, String)>,
    /// Hosts.
    pub hosts: Vec<HostRow>,
    /// Workers over time.
    pub lanes: Lanes,
    /// Workers that are not drawn.
    pub more_lanes: usize,
    /// The slowest shards, the slowest first.
    pub slowest: Vec<SlowRow>,
    /// Errors, the first ones.
    pub errors: Vec<String>,
    /// The number of all errors.
    pub errors_count: u64,
}

/// Returns the page.
pub fn shards_page(report: &ShardsReport) -> String {
    let mut m = Markup::new();
    document_frame(&mut m, &report.title, Timelines::None, |m| {
        m.tag("header").body(|m| {
            bar(m, "shard merge");
            m.tag("h1").text(&report.title);
            m.tag("p").a("class", "question").text(&report.answer);
            for doubt in &report.doubts {
                m.tag("p").text(&format!("◇ {doubt}"));
            }
            m.tag("dl").a("class", "session").body(|m| {
                for (name, value) in &report.facts {
                    m.tag("div").body(|m| {
                        m.tag("dt").text(name);
                        m.tag("dd").text(value);
                    });
                }
            });
        });
        m.tag("main").a("class", "single").body(|m| {
            section(m, "hosts", "Hosts", |m| hosts(m, report));
            section(m, "workers", "Workers over time", |m| workers(m, report));
            section(m, "slowest", "Slowest shards", |m| slowest(m, report));
            if report.errors_count > 0 {
                section(m, "errors", "Errors", |m| errors(m, report));
            }
        });
    });
    m.into_string()
}

fn section(m: &mut Markup, id: &'static str, name: &str, body: impl FnOnce(&mut Markup)) {
    m.tag("section").a("id", id).body(|m| {
        m.tag("h2").text(name);
        body(m);
    });
}

fn hosts(m: &mut Markup, report: &ShardsReport) {
    let columns = [
        ("host", false),
        ("shards", true),
        ("files", true),
        ("size", true),
        ("errors", true),
        ("busy", true),
        ("CPU time", true),
        ("limited by", false),
    ];
    table(m, "sort", &columns, |m| {
        for row in &report.hosts {
            m.tag("tr").body(|m| {
                words_cell(m, &row.host);
                for (value, text) in [
                    (row.shards, format_count(row.shards)),
                    (row.files, format_count(row.files)),
                    (row.bytes, format_size(row.bytes)),
                    (row.errors, format_count(row.errors)),
                    (row.busy_ns, format_ns(row.busy_ns as f64)),
                    (row.cpu_ns, format_ns(row.cpu_ns as f64)),
                ] {
                    number_cell(m, value as f64, |m| {
                        m.text(&text);
                    });
                }
                words_cell(m, if row.limit.is_empty() { "unknown" } else { &row.limit });
            });
        }
    });
}

fn workers(m: &mut Markup, report: &ShardsReport) {
    m.tag("figure").body(|m| {
        m.tag("figcaption").text(&report.lanes.description);
        lanes::draw(&report.lanes, WIDE).write(m, "chart wide");
        lanes::draw(&report.lanes, NARROW).write_untitled(m, "chart narrow");
    });
    if report.more_lanes > 0 {
        let more = format_count(report.more_lanes as u64);
        m.tag("p").text(&format!("{more} more workers are not drawn."));
    }
}

fn slowest(m: &mut Markup, report: &ShardsReport) {
    let columns = [("shard", true), ("host", false), ("time", true), ("× median", true)];
    table(m, "sort", &columns, |m| {
        for row in &report.slowest {
            m.tag("tr").body(|m| {
                number_cell(m, row.shard as f64, |m| {
                    m.text(&format_count(row.shard));
                });
                words_cell(m, &row.host);
                number_cell(m, row.elapsed_ns as f64, |m| {
                    m.text(&format_ns(row.elapsed_ns as f64));
                });
                number_cell(m, row.times_median, |m| {
                    m.text(&format!("{:.1}", row.times_median));
                });
            });
        }
    });
}

fn errors(m: &mut Markup, report: &ShardsReport) {
    m.tag("ul").body(|m| {
        for error in &report.errors {
            m.tag("li").text(error);
        }
    });
    let more = report.errors_count.saturating_sub(report.errors.len() as u64);
    if more > 0 {
        m.tag("p").text(&format!("{} more errors are not listed.", format_count(more)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_nothing_is_loaded() {
        let report = ShardsReport {
            title: "<script>".to_owned(),
            answer: "2 files".to_owned(),
            doubts: vec!["a & b".to_owned()],
            facts: vec![("digest", "abc".to_owned())],
            hosts: vec![HostRow {
                host: "<b>".to_owned(),
                shards: 1,
                files: 2,
                bytes: 3,
                errors: 0,
                busy_ns: 4,
                cpu_ns: 5,
                limit: String::new(),
            }],
            lanes: Lanes {
                title: "Workers".to_owned(),
                description: "d".to_owned(),
                elapsed_ns: 0,
                lanes: Vec::new(),
            },
            more_lanes: 3,
            slowest: vec![SlowRow {
                shard: 1,
                host: "<b>".to_owned(),
                elapsed_ns: 4,
                times_median: 1.0,
            }],
            errors: vec!["cannot open '<i>'".to_owned()],
            errors_count: 5,
        };
        let page = shards_page(&report);
        for raw in ["<b>", "<i>", "<title><script>", "a & b", "http://", "https://"] {
            assert!(!page.contains(raw), "{raw}");
        }
        for shown in ["&lt;b&gt;", "4 more errors", "3 more workers", "unknown"] {
            assert!(page.contains(shown), "{shown}");
        }
    }
}

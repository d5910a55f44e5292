//! The chapter of the page cache: the published speeds and shares beside this machine's, what is
//! dirty over the time of a write, and why it is so.
//!
//! Files differ in size, so times stand as bytes per second and counters as shares of the file.

use super::{arm, row};
use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::{Unit, percent};
use crate::svg::lines;
use ioloom_model::units::format_size;

/// Bytes of the published file.
const PUBLISHED_BYTES: f64 = (1u64 << 30) as f64;
/// Points of a curve that are drawn.
const POINTS_MAX: usize = 60;

/// A speed: what, where it was published (table, row, column, in seconds), and the arm and the time
/// that stand for it here.
type Speed = (&'static str, Option<(&'static str, &'static str, &'static str)>, [&'static str; 3]);

const SPEEDS: [Speed; 8] = [
    (
        "reading, from the device",
        Some(("002_cat", "first", "total_s")),
        ["read-twice", "block-128KiB", "cold_ns"],
    ),
    (
        "reading again, from memory",
        Some(("002_cat", "second", "total_s")),
        ["read-twice", "block-128KiB", "warm_ns"],
    ),
    ("another process reads it", None, ["read-twice", "block-128KiB", "other_process_ns"]),
    (
        "writing past the cache, until the calls return",
        Some(("002_dd", "time dd direct", "elapsed_s")),
        ["write-returned", "direct", "returned_ns"],
    ),
    ("the same, until it is durable", None, ["write-durable", "direct-fdatasync", "durable_ns"]),
    (
        "writing through the cache, until the calls return",
        Some(("002_dd", "time dd buffered", "elapsed_s")),
        ["write-returned", "buffered", "returned_ns"],
    ),
    ("the same, until it is durable", None, ["write-durable", "buffered-fdatasync", "durable_ns"]),
    ("O_SYNC, 64 KiB a call", None, ["write-through", "sync-64", "returned_ns"]),
];

/// Shares of the file: what, and where it stands here.
const SHARES: [(&str, [&str; 3]); 5] = [
    ("paged in by the first reading", ["read-twice", "block-128KiB", "pagein_cold_bytes"]),
    ("paged in by the second", ["read-twice", "block-128KiB", "pagein_warm_bytes"]),
    ("paged out, written past the cache", ["write-returned", "direct", "pageout_bytes"]),
    ("paged out, through the cache and removed", ["write-removed", "buffered-rm", "pageout_bytes"]),
    (
        "paged out, through the cache and kept",
        ["write-durable", "buffered-fdatasync", "pageout_bytes"],
    ),
];

/// The chapter; empty without runs of ours.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    let size = arm(groups, "read-twice", "block-128KiB")
        .or_else(|| arm(groups, "write-returned", "direct"))
        .and_then(|arm| arm.metric("extra.file_bytes", input.seed));
    let Some(size) = size else { return m };
    if let Some(figure) = dirty(groups) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("What is dirty meanwhile.");
            m.text(
                " Changed pages of the whole machine over the time of one run each: what a buffered \
                 write leaves behind when its last call returns, and when it goes.",
            );
        });
    }
    m.tag("h3").text("Published and here");
    let here = format!("here, {}", format_size(size.median as u64));
    let columns = [("what", false), ("published, 1 GiB", true), (here.as_str(), true)];
    parts::table(&mut m, "plain", &columns, |m| {
        for speed in &SPEEDS {
            speed_row(m, input, groups, speed);
        }
        for (what, place) in &SHARES {
            share_row(m, input, groups, what, place);
        }
    });
    m.tag("p").a("class", "lead").text(
        "Bytes per second, then shares of the file. Published times are single runs; ours are \
         medians. Counters of paging are those of the whole machine, other work included.",
    );
    mechanism(&mut m);
    m
}

fn per_second(bytes: f64, ns: f64) -> String {
    format!("{}/s", format_size((bytes / ns * 1e9) as u64))
}

fn speed_row(m: &mut Markup, input: &Input, groups: &[Group<'_>], speed: &Speed) {
    let (what, published, [experiment, name, metric]) = speed;
    let seconds = published.and_then(|(table, key, column)| {
        let table = input.published.get(table)?;
        let at = table.columns.iter().position(|c| c == column)?;
        // The first cells of a row are its name.
        let row = table.rows.iter().find(|row| names(row, key))?;
        row[at].parse::<f64>().ok()
    });
    let ours = arm(groups, experiment, name).and_then(|arm| {
        let bytes = arm.metric("extra.file_bytes", input.seed)?.median;
        let ns = arm.metric(&format!("extra.{metric}"), input.seed)?.median;
        (ns > 0.0).then(|| per_second(bytes, ns))
    });
    let published =
        seconds.map_or_else(|| "–".to_owned(), |s| per_second(PUBLISHED_BYTES, s * 1e9));
    row(m, [what, &published, ours.as_deref().unwrap_or("not run")]);
}

/// Whether a row of a published table has this name: one cell, or two with a blank between.
fn names(row: &[String], key: &str) -> bool {
    row[0] == *key || row.len() > 1 && format!("{} {}", row[0], row[1]) == *key
}

fn share_row(m: &mut Markup, input: &Input, groups: &[Group<'_>], what: &str, place: &[&str; 3]) {
    let [experiment, name, metric] = place;
    let ours = arm(groups, experiment, name).and_then(|arm| {
        let bytes = arm.metric("extra.file_bytes", input.seed)?.median;
        Some(percent(arm.metric(&format!("extra.{metric}"), input.seed)?.median / bytes))
    });
    let published = published_share(input, what).map_or_else(|| "–".to_owned(), percent);
    row(m, [what, &published, ours.as_deref().unwrap_or("not run")]);
}

/// What `sar -B` showed in the seconds of each act, over the size of the file.
fn published_share(input: &Input, what: &str) -> Option<f64> {
    let sum = |table: &str, column: &str, seconds: &[&str]| {
        let table = input.published.get(table)?;
        let at = table.columns.iter().position(|c| c == column)?;
        let rows = table.rows.iter().filter(|row| seconds.contains(&row[2].as_str()));
        let kib: f64 = rows.filter_map(|row| row[at].parse::<f64>().ok()).sum();
        Some(kib * 1024.0 / PUBLISHED_BYTES)
    };
    let (read, out) = ("002_sar_paging_read", "pgpgout_per_s");
    if what == SHARES[0].0 {
        sum(read, "pgpgin_per_s", &["41", "42"])
    } else if what == SHARES[1].0 {
        sum(read, "pgpgin_per_s", &["45", "46"])
    } else if what == SHARES[2].0 {
        sum("002_sar_paging_write_direct", out, &["32", "33", "34", "35"])
    } else if what == SHARES[3].0 {
        sum("002_sar_paging_write_buffered", out, &["36", "37"])
    } else {
        None
    }
}

/// Dirty pages over the time of one run of each way of writing.
fn dirty(groups: &[Group<'_>]) -> Option<Figure> {
    let ways = [
        ("write-durable", "buffered-fdatasync"),
        ("write-removed", "buffered-rm"),
        ("write-returned", "direct"),
    ];
    let line = |(experiment, name): &(&str, &str)| {
        let curve = arm(groups, experiment, name)?.typical()?.curves.get("dirty")?;
        let step = curve.len().div_ceil(POINTS_MAX).max(1);
        let exact = |median: f64| Estimate { values: Vec::new(), median, ends: None };
        let point = |(seconds, bytes): &(f64, f64)| lines::Point {
            x: seconds * 1e9,
            y: exact(*bytes),
            thin: None,
            note: String::new(),
        };
        let points: Vec<_> = curve.iter().step_by(step).map(point).collect();
        (points.len() > 2).then(|| lines::Line { name: (*name).to_owned(), points })
    };
    let lines: Vec<lines::Line> = ways.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Changed pages over the time of a write".to_owned(),
            description: "Bytes of changed pages that are not written yet.".to_owned(),
            x_title: "after the start".to_owned(),
            x_unit: Unit::Time,
            y_title: "dirty".to_owned(),
            y_unit: Unit::Bytes,
            lines,
            levels: Vec::new(),
            plot_height: 260.0,
        })
    })
}

/// In words: what a write returns from, and what is still to come.
fn mechanism(m: &mut Markup) {
    m.tag("h3").text("Why it is so");
    m.tag("p").text(
        "A read that finds its pages in memory copies them and is done; one that does not asks the \
         device, and the kernel asks for more than was wanted, so that device and processor work at \
         the same time. That is why the time beyond the processor's is less than the time of the \
         device.",
    );
    m.tag("p").text(
        "A buffered write copies into pages, marks them as changed and returns: its speed is that of \
         memory. The device gets them later: when they are old, when there are too many of them, or \
         when somebody asks with fdatasync. Until then a power cut loses them, and removing the file \
         cancels them: that, and not the cache, is why the published buffered write gave the device \
         less than half. A direct write goes to the device at once, one request after another; what \
         it waits for is the wait that the buffered write puts off.",
    );
    m.tag("p").text(
        "Neither is durable by itself: fdatasync also empties the cache of the device. O_SYNC does \
         that for each call, and so pays it for each call.",
    );
}

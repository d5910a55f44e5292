//! The chapter of the page cache: the published speeds and shares beside this machine's, what is
//! dirty over the time of a write, what goes first when memory is short or all caches are dropped, a
//! file beside its device, the settings with what they do, and why it is so.
//!
//! Files differ in size, so times stand as bytes per second and counters as shares of the file.

mod other_views;

use super::arms::{arm, number, row};
use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::{Unit, percent};
use crate::svg::lines;
use ioloom_model::units::{format_ns, format_size};

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

/// Settings of the kernel, what they are in, and what they do.
const SETTINGS: [(&str, &str, &str); 8] = [
    (
        "dirty_background_ratio",
        " %",
        "from this part of the available memory on the kernel writes changed pages by itself",
    ),
    ("dirty_background_bytes", " bytes", "the same in bytes; 0 while the ratio is in force"),
    (
        "dirty_ratio",
        " %",
        "more than this part of the available memory cannot be changed; writers are held back before, \
         between the two limits",
    ),
    ("dirty_bytes", " bytes", "the same in bytes; 0 while the ratio is in force"),
    (
        "dirty_expire_centisecs",
        " cs",
        "a changed page of this age is written when the kernel looks next",
    ),
    ("dirty_writeback_centisecs", " cs", "how often the kernel looks; 0: never by itself"),
    ("swappiness", "", "how gladly it takes memory of programs in place of pages of files"),
    ("vfs_cache_pressure", "", "how gladly it takes names and inodes; 100: as gladly as pages"),
];

/// The chapter; empty without runs of ours.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    speeds(&mut m, input, groups);
    reclaimed(&mut m, input, groups);
    held_back(&mut m, input, groups);
    left_alone(&mut m, input, groups);
    other_views::sections(&mut m, input, groups);
    settings(&mut m, input, groups);
    columns_of_sar(&mut m, input, groups);
    if !m.as_str().is_empty() {
        mechanism(&mut m);
    }
    m
}

/// What is dirty meanwhile, and speeds and shares beside the published ones.
fn speeds(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let size = arm(groups, "read-twice", "block-128KiB")
        .or_else(|| arm(groups, "write-returned", "direct"))
        .and_then(|arm| arm.metric("extra.file_bytes", input.seed));
    let Some(size) = size else { return };
    if let Some(figure) = dirty(groups) {
        parts::figure(m, &figure, |m| {
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
    parts::table(m, "plain", &columns, |m| {
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
}

/// What goes first when memory is short, and what its user pays.
fn reclaimed(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    const PLACE: (&str, &str) = ("reclaim", "limit-128MiB");
    let Some(figure) = going(groups, PLACE) else { return };
    m.tag("h3").text("When memory is short");
    parts::figure(m, &figure, |m| {
        m.tag("b").text("What goes first.");
        m.text(
            " As many clean and changed pages of the same age in a group with little memory; then \
             memory is taken step by step. What of either is still there, in one run.",
        );
    });
    let of = |metric: &str| number(input, groups, PLACE.0, PLACE.1, metric);
    let part = |gone: &str, all: &str| Some(percent(of(gone)? / of(all)?));
    let told = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    m.tag("p").text(&format!(
        "When an eighth of what went was gone, {} of the clean pages were gone and {} of the changed \
         ones; when half was, {} and {}: changed pages have to be written first, and once they are, age \
         alone decides. Whoever used the clean file asked for nothing and pays: reading it again took \
         {}, {} of it came from the device, and of {} the kernel knew that it had gone a short while ago \
         (refaults). A step of taking memory took {}, the longest {}.",
        told(part("clean_gone_at_eighth_bytes", "clean_before_bytes")),
        told(part("changed_gone_at_eighth_bytes", "changed_before_bytes")),
        told(part("clean_gone_at_half_bytes", "clean_before_bytes")),
        told(part("changed_gone_at_half_bytes", "changed_before_bytes")),
        told(of("again_ns").map(format_ns)),
        told(part("again_device_bytes", "clean_before_bytes")),
        told(part("refaulted_bytes", "clean_before_bytes")),
        told(of("step_ns_p50").map(format_ns)),
        told(of("step_ns_max").map(format_ns)),
    ));
}

/// What is there of either kind over the memory that was taken.
fn going(groups: &[Group<'_>], (experiment, name): (&str, &str)) -> Option<Figure> {
    let run = arm(groups, experiment, name)?.typical()?;
    let line = |name: &str| {
        let curve = run.curves.get(&format!("{name} by memory taken"))?;
        let step = curve.len().div_ceil(POINTS_MAX).max(1);
        let point = |(taken, left): &(f64, f64)| exactly(*taken, *left);
        let points: Vec<_> = curve.iter().step_by(step).map(point).collect();
        (points.len() > 2).then(|| lines::Line { name: name.to_owned(), points })
    };
    let lines: Vec<_> = ["clean", "changed", "unwritten"].into_iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Pages that are left over the memory that was taken".to_owned(),
            description: "Bytes of clean pages, of changed ones, and of those not yet written."
                .to_owned(),
            x_title: "memory taken".to_owned(),
            x_unit: Unit::Bytes,
            y_title: "still there".to_owned(),
            y_unit: Unit::Bytes,
            lines,
            levels: Vec::new(),
            plot_height: 240.0,
        })
    })
}

/// A point of one run.
fn exactly(x: f64, y: f64) -> lines::Point {
    let y = Estimate { values: Vec::new(), median: y, ends: None };
    lines::Point { x, y, thin: None, note: String::new() }
}

/// What becomes of a writer that is faster than the device.
fn held_back(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |name: &str, metric: &str| number(input, groups, "held-back", name, metric);
    let told = |name: &str| {
        Some(format!(
            "{} for {}, the longest call {}, with {} unwritten at most and a limit of {}",
            format_ns(of(name, "returned_ns")?),
            format_size(of(name, "file_bytes")? as u64),
            format_ns(of(name, "write_call_ns_max")?),
            format_size(of(name, "unwritten_most_bytes")? as u64),
            format_size(of(name, "dirty_limit_bytes")? as u64),
        ))
    };
    let Some(usual) = told("as-it-is") else { return };
    let little = told("limits-of-96-and-64-MiB").map_or_else(
        || "with lower limits not run: settings are changed with --allow-sysctl alone".to_owned(),
        |text| format!("with lower limits {text}"),
    );
    m.tag("p")
        .text(&format!("A writer that is faster than the device: as it is {usual}; {little}."));
}

/// When pages are written that nobody asks for.
fn left_alone(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |name: &str, metric: &str| number(input, groups, "left-alone", name, metric);
    let (young, old) = (of("looks-1s-age-1s", "settled_ns"), of("looks-1s-age-5s", "settled_ns"));
    let Some((young, old)) = young.zip(old) else { return };
    let left = of("looks-never", "unwritten_end_bytes").zip(of("looks-never", "file_bytes"));
    let never = left.map_or_else(
        || "not run".to_owned(),
        |(left, all)| format!("{} of it was unwritten after 4 s", percent(left / all)),
    );
    m.tag("p").text(&format!(
        "A written file that nobody asks for, where the kernel looks each second: pages that may be 1 s \
         old were on the device after {}, pages that may be 5 s old after {}. Where it never looks: \
         {never}.",
        format_ns(young),
        format_ns(old),
    ));
}

/// The settings: published, here, and what they do.
fn settings(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |metric: &str| number(input, groups, "limits", "limits", metric);
    if !SETTINGS.iter().any(|(name, ..)| of(name).is_some()) {
        return;
    }
    let theirs = |name: &str| {
        let table = input.published.get("002_sysctl")?;
        let value = table.columns.iter().position(|column| column == "value")?;
        let row = table.rows.iter().find(|row| row[0] == format!("vm.{name}"))?;
        Some(row[value].clone())
    };
    m.tag("h3").text("The settings, and what they do");
    let columns = [("vm.", false), ("published", true), ("here", true), ("what it does", false)];
    parts::table(m, "plain", &columns, |m| {
        for (name, unit, does) in &SETTINGS {
            let told = |value: Option<String>| {
                value.map_or_else(|| "–".to_owned(), |value| format!("{value}{unit}"))
            };
            m.tag("tr").body(|m| {
                parts::words_cell(m, name);
                m.tag("td").a("class", "r").text(&told(theirs(name)));
                m.tag("td").a("class", "r").text(&told(of(name).map(|value| value.to_string())));
                parts::words_cell(m, does);
            });
        }
    });
    let limit = |words: &str, short: &str| {
        let bytes = format_size(of(&format!("{short}_bytes"))? as u64);
        let total = of(&format!("{short}_over_ratio_of_total"));
        let available = of(&format!("{short}_over_ratio_of_available"));
        Some(match total.zip(available) {
            Some((total, available)) => format!(
                "{words} {bytes}, {total:.2} times its ratio of all memory and {available:.2} times \
                 that of the available memory"
            ),
            None => format!("{words} {bytes}, given in bytes"),
        })
    };
    let limits = [
        limit("the kernel begins to write at", "background_limit"),
        limit("no more is changed than", "dirty_limit"),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let held = of("held_bytes").zip(of("dirty_limit_bytes")).zip(of("dirty_limit_held_bytes"));
    let held = held.map_or_else(String::new, |((held, before), limit)| {
        format!(
            " While a program held {} of memory the last of them fell by {}: it is a share of what is \
             available, and moves with it.",
            format_size(held as u64),
            format_size((before - limit).max(0.0) as u64),
        )
    });
    if !limits.is_empty() {
        m.tag("p").a("class", "lead").text(&format!(
            "What the kernel makes of them here: {}.{held} cs are hundredths of a second.",
            limits.join("; ")
        ));
    }
}

/// One column of sar is counted in two ways: both of the published row.
fn columns_of_sar(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    if number(input, groups, "limits", "limits", "total_bytes").is_none() {
        return;
    }
    let of = |table: &str, column: &str| {
        let table = input.published.get(table)?;
        let at = table.columns.iter().position(|name| name == column)?;
        table.rows.last()?[at].parse::<f64>().ok()
    };
    let (total, row) = (of("002_free", "total_kib"), |column| of("002_sar_memory", column));
    let theirs = total.zip(row("memused_kib")).zip(row("avail_kib"));
    let theirs = theirs.map_or_else(String::new, |((total, used), available)| {
        format!(
            " The published row has {used} KiB by the older rule and would have {} KiB by the newer.",
            total - available
        )
    });
    m.tag("p").a("class", "lead").text(&format!(
        "kbmemused of sar -r is two numbers: sysstat 12.7.8 and newer count all memory less what is \
         available, older ones all less free, buffers, cached and slab. ioloom watch shows the newer \
         and tells the older.{theirs}"
    ));
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
        let point = |(seconds, bytes): &(f64, f64)| exactly(seconds * 1e9, *bytes);
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

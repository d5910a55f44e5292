//! The page cache chapter: the published speeds and shares compared with this machine, dirty pages
//! during a write, which pages are reclaimed or dropped first, a file and its device, the kernel
//! settings, and an explanation.
//!
//! File sizes differ, so times are shown as bytes per second and counters as a percentage of the
//! file.

mod other_views;

use super::arms::{arm, number, row};
use super::causes::{self, Cause};
use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::{Unit, percent};
use crate::svg::lines;
use ioloom_model::record::RECLAIM_CURVES;
use ioloom_model::units::{format_ns, format_size};

/// Size of the published file in bytes.
const PUBLISHED_BYTES: f64 = (1u64 << 30) as f64;
/// Maximum number of points drawn per curve.
const POINTS_MAX: usize = 60;
/// Name under which some runs of version 0.2.0 stored the curve of dirty pages.
const CHANGED_EARLIER: &str = "change, by memory in use";

/// A speed: its name, its published number (table, row and column, in seconds), and the
/// corresponding experiment, arm and metric here.
type Speed = (&'static str, Option<(&'static str, &'static str, &'static str)>, [&'static str; 3]);

const SPEEDS: [Speed; 8] = [
    (
        "read from the device",
        Some(("002_cat", "first", "total_s")),
        ["read-twice", "block-128KiB", "cold_ns"],
    ),
    (
        "read again, from memory",
        Some(("002_cat", "second", "total_s")),
        ["read-twice", "block-128KiB", "warm_ns"],
    ),
    ("read by another process", None, ["read-twice", "block-128KiB", "other_process_ns"]),
    (
        "direct write, until the calls return",
        Some(("002_dd", "time dd direct", "elapsed_s")),
        ["write-returned", "direct", "returned_ns"],
    ),
    ("direct write, until durable", None, ["write-durable", "direct-fdatasync", "durable_ns"]),
    (
        "buffered write, until the calls return",
        Some(("002_dd", "time dd buffered", "elapsed_s")),
        ["write-returned", "buffered", "returned_ns"],
    ),
    ("buffered write, until durable", None, ["write-durable", "buffered-fdatasync", "durable_ns"]),
    ("O_SYNC, 64 KiB per call", None, ["write-through", "sync-64", "returned_ns"]),
];

/// A share of the file: its name, its published number, and the corresponding experiment, arm and
/// metric here.
struct Share {
    name: &'static str,
    /// Table, column and seconds of the rows that `sar -B` printed.
    published: Option<(&'static str, &'static str, &'static [&'static str])>,
    here: [&'static str; 3],
}

const SHARES: [Share; 5] = [
    Share {
        name: "paged in by the first read",
        published: Some(("002_sar_paging_read", "pgpgin_per_s", &["41", "42"])),
        here: ["read-twice", "block-128KiB", "pagein_cold_bytes"],
    },
    Share {
        name: "paged in by the second read",
        published: Some(("002_sar_paging_read", "pgpgin_per_s", &["45", "46"])),
        here: ["read-twice", "block-128KiB", "pagein_warm_bytes"],
    },
    Share {
        name: "paged out by direct writes",
        published: Some((
            "002_sar_paging_write_direct",
            "pgpgout_per_s",
            &["32", "33", "34", "35"],
        )),
        here: ["write-returned", "direct", "pageout_bytes"],
    },
    Share {
        name: "paged out by buffered writes, file removed",
        published: Some(("002_sar_paging_write_buffered", "pgpgout_per_s", &["36", "37"])),
        here: ["write-removed", "buffered-rm", "pageout_bytes"],
    },
    Share {
        name: "paged out by buffered writes, file kept",
        published: None,
        here: ["write-durable", "buffered-fdatasync", "pageout_bytes"],
    },
];

/// Kernel settings, their units and their effects.
const SETTINGS: [(&str, &str, &str); 8] = [
    (
        "dirty_background_ratio",
        " %",
        "above this percentage of available memory, the kernel starts to write dirty pages",
    ),
    ("dirty_background_bytes", " bytes", "the same limit in bytes; 0 if the ratio applies"),
    (
        "dirty_ratio",
        " %",
        "dirty pages cannot exceed this percentage of available memory; writers are throttled \
        earlier, between the two limits",
    ),
    ("dirty_bytes", " bytes", "the same limit in bytes; 0 if the ratio applies"),
    (
        "dirty_expire_centisecs",
        " cs",
        "a dirty page of this age is written at the next periodic check",
    ),
    ("dirty_writeback_centisecs", " cs", "interval between these checks; 0: no periodic checks"),
    ("swappiness", "", "preference for reclaiming program memory over file pages"),
    (
        "vfs_cache_pressure",
        "",
        "preference for reclaiming names and inodes; 100: the same as for pages",
    ),
];

/// Draws the chapter; empty without measured runs.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    speeds(&mut m, input, groups);
    reclaimed(&mut m, input, groups);
    throttled(&mut m, input, groups);
    unsynced(&mut m, input, groups);
    other_views::sections(&mut m, input, groups);
    settings(&mut m, input, groups);
    columns_of_sar(&mut m, input, groups);
    if !m.as_str().is_empty() {
        explanation(&mut m, groups);
    }
    m
}

/// Draws dirty pages during a write, and compares speeds and shares with the published ones.
fn speeds(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let size = arm(groups, "read-twice", "block-128KiB")
        .or_else(|| arm(groups, "write-returned", "direct"))
        .and_then(|arm| arm.metric("extra.file_bytes", input.seed));
    let Some(size) = size else { return };
    if let Some(figure) = dirty(groups) {
        parts::figure(m, &figure, |m| {
            m.tag("b").text("Dirty pages during a write.");
            m.text(
                " Dirty pages of the whole machine during one run per method: how much a buffered \
                write leaves dirty when its last call returns, and when that data is written.",
            );
        });
    }
    m.tag("h3").text("Speeds and paging");
    let here = format!("here, {}", format_size(size.median as u64));
    let columns = [("what", false), ("published, 1 GiB", true), (here.as_str(), true)];
    parts::table(m, "plain", &columns, |m| {
        for speed in &SPEEDS {
            speed_row(m, input, groups, speed);
        }
        for share in &SHARES {
            share_row(m, input, groups, share);
        }
    });
    m.tag("p").a("class", "lead").text(
        "Bytes per second, then percentages of the file. Published times are single runs; \
        measured times are medians. The paging counters cover the whole machine, including other \
        work.",
    );
}

/// Draws which pages are reclaimed first, and states the cost.
fn reclaimed(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    const ARM: (&str, &str) = ("reclaim", "limit-128MiB");
    let Some(figure) = remaining(groups, ARM) else { return };
    m.tag("h3").text("When memory is short");
    parts::figure(m, &figure, |m| {
        m.tag("b").text("What is reclaimed first.");
        m.text(
            " A control group with little memory holds equal numbers of clean and dirty pages of \
            the same age; then memory is allocated in steps. The chart shows the remaining pages \
            in one run.",
        );
    });
    let of = |metric: &str| number(input, groups, ARM.0, ARM.1, metric);
    let part = |gone: &str, all: &str| Some(percent(of(gone)? / of(all)?));
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    m.tag("p").text(&format!(
        "After an eighth of all reclaim, {} of the clean pages and {} of the dirty pages were \
        gone; after half of it, {} and {}. Reading the clean file again took {}, {} of it came \
        from the device, and the kernel recognized {} as recently evicted (refaults). An \
        allocation step took {}, and at most {}.",
        or_unknown(part("clean_gone_at_eighth_bytes", "clean_before_bytes")),
        or_unknown(part("changed_gone_at_eighth_bytes", "changed_before_bytes")),
        or_unknown(part("clean_gone_at_half_bytes", "clean_before_bytes")),
        or_unknown(part("changed_gone_at_half_bytes", "changed_before_bytes")),
        or_unknown(of("again_ns").map(format_ns)),
        or_unknown(part("again_device_bytes", "clean_before_bytes")),
        or_unknown(part("refaulted_bytes", "clean_before_bytes")),
        or_unknown(of("step_ns_p50").map(format_ns)),
        or_unknown(of("step_ns_max").map(format_ns)),
    ));
    causes::theory(
        m,
        "Documentation/admin-guide/mm/concepts.rst of the kernel",
        "A clean page is freed at once, because the device has the same data. A dirty page has to be \
        written first.",
    );
}

/// Draws the remaining pages of each kind by allocated memory.
fn remaining(groups: &[Group<'_>], (experiment, name): (&str, &str)) -> Option<Figure> {
    let run = arm(groups, experiment, name)?.typical()?;
    let line = |(stored, name): (&str, &str)| {
        let earlier = || run.curves.get(CHANGED_EARLIER).filter(|_| name == "dirty");
        let curve = run.curves.get(stored).or_else(earlier)?;
        let step = curve.len().div_ceil(POINTS_MAX).max(1);
        let point = |(taken, left): &(f64, f64)| exactly(*taken, *left);
        let points: Vec<_> = curve.iter().step_by(step).map(point).collect();
        (points.len() > 2).then(|| lines::Line { name: name.to_owned(), points })
    };
    let kinds = RECLAIM_CURVES.into_iter().zip(["clean", "dirty", "unwritten"]);
    let lines: Vec<_> = kinds.filter_map(line).collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Remaining pages by allocated memory".to_owned(),
            description: "Bytes of clean pages, dirty pages, and pages not yet written.".to_owned(),
            x_title: "allocated memory".to_owned(),
            x_unit: Unit::Bytes,
            y_title: "remaining".to_owned(),
            y_unit: Unit::Bytes,
            lines,
            levels: Vec::new(),
            plot_height: 240.0,
            misses: Vec::new(),
        })
    })
}

/// Returns a data point from a single run.
fn exactly(x: f64, y: f64) -> lines::Point {
    let y = Estimate { values: Vec::new(), median: y, ends: None };
    lines::Point { x, y, thin: None, note: String::new() }
}

/// States how a writer faster than the device is throttled.
fn throttled(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |name: &str, metric: &str| number(input, groups, "held-back", name, metric);
    let throttled = |name: &str| {
        Some(format!(
            "{} for {}, longest call {}, at most {} unwritten with a limit of {}",
            format_ns(of(name, "returned_ns")?),
            format_size(of(name, "file_bytes")? as u64),
            format_ns(of(name, "write_call_ns_max")?),
            format_size(of(name, "unwritten_most_bytes")? as u64),
            format_size(of(name, "dirty_limit_bytes")? as u64),
        ))
    };
    let Some(usual) = throttled("as-it-is") else { return };
    let lower = throttled("limits-of-96-and-64-MiB").map_or_else(
        || "not run with lower limits (settings are changed only with --allow-sysctl)".to_owned(),
        |text| format!("with lower limits: {text}"),
    );
    m.tag("p").text(&format!("A writer faster than the device: {usual}; {lower}."));
}

/// States when pages are written without a sync.
fn unsynced(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |name: &str, metric: &str| number(input, groups, "left-alone", name, metric);
    let (young, old) = (of("looks-1s-age-1s", "settled_ns"), of("looks-1s-age-5s", "settled_ns"));
    let Some((young, old)) = young.zip(old) else { return };
    let left = of("looks-never", "unwritten_end_bytes").zip(of("looks-never", "file_bytes"));
    let never = left.map_or_else(
        || "not run".to_owned(),
        |(left, all)| format!("{} of the file was unwritten at the end", percent(left / all)),
    );
    m.tag("p").text(&format!(
        "A file written without a sync, with a check every second: with a maximum age of 1 s, its \
        pages reached the device after {}; with a maximum age of 5 s, after {}. Without periodic \
        checks: {never}.",
        format_ns(young),
        format_ns(old),
    ));
}

/// Lists the settings with their published values, their values here, and their effects.
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
    m.tag("h3").text("Kernel settings");
    let columns = [("vm.", false), ("published", true), ("here", true), ("effect", false)];
    parts::table(m, "plain", &columns, |m| {
        for (name, unit, does) in &SETTINGS {
            let with_unit = |value: Option<String>| {
                value.map_or_else(|| "–".to_owned(), |value| format!("{value}{unit}"))
            };
            m.tag("tr").body(|m| {
                parts::words_cell(m, name);
                m.tag("td").a("class", "r").text(&with_unit(theirs(name)));
                m.tag("td")
                    .a("class", "r")
                    .text(&with_unit(of(name).map(|value| value.to_string())));
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
                "{words} {bytes}, {total:.2} times its ratio of total memory and {available:.2} \
                times its ratio of available memory"
            ),
            None => format!("{words} {bytes}, set in bytes"),
        })
    };
    let limits = [
        limit("the kernel starts to write at", "background_limit"),
        limit("dirty pages are limited to", "dirty_limit"),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let held = of("held_bytes").zip(of("dirty_limit_bytes")).zip(of("dirty_limit_held_bytes"));
    let held = held.map_or_else(String::new, |((held, before), limit)| {
        held_memory(held, before - limit, of("dirty_ratio"))
    });
    if !limits.is_empty() {
        m.tag("p").a("class", "lead").text(&format!(
            "The resulting limits here: {}.{held} cs is hundredths of a second.",
            limits.join("; ")
        ));
    }
}

/// A limit that changes by less than this share of the held memory did not change.
const CHANGED_MIN: f64 = 0.005;

/// Says how the limit of dirty pages changed while a program held memory, and by how much it would if
/// it were a percentage of available memory.
fn held_memory(held: f64, dropped: f64, percent: Option<f64>) -> String {
    let size = |bytes: f64| format_size(bytes.abs() as u64);
    let change = match dropped {
        d if d.abs() < CHANGED_MIN * held => "did not change".to_owned(),
        d if d < 0.0 => format!("rose by {}", size(d)),
        d => format!("dropped by {}", size(d)),
    };
    let expected = percent.filter(|percent| *percent > 0.0).map_or_else(String::new, |percent| {
        let bytes = size(held * percent / 100.0);
        format!("; as {percent:.0} % of available memory, it would drop by {bytes}")
    });
    format!(" While a program held {} of memory, the second limit {change}{expected}.", size(held))
}

/// Compares the two definitions of a sar column using the published row.
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
            " The published row reports {used} KiB by the older definition; the newer one would \
            give {} KiB.",
            total - available
        )
    });
    m.tag("p").a("class", "lead").text(&format!(
        "kbmemused in sar -r has two definitions: sysstat 12.7.8 and newer subtract available \
        memory from total memory; older versions subtract free, buffers, cached and slab. ioloom \
        watch shows the newer value and also prints the older one.{theirs}"
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

/// Returns whether a row of a published table has this name, in one cell or in two joined by a
/// space.
fn names(row: &[String], key: &str) -> bool {
    row[0] == *key || row.len() > 1 && format!("{} {}", row[0], row[1]) == *key
}

fn share_row(m: &mut Markup, input: &Input, groups: &[Group<'_>], share: &Share) {
    let [experiment, name, metric] = share.here;
    let ours = arm(groups, experiment, name).and_then(|arm| {
        let bytes = arm.metric("extra.file_bytes", input.seed)?.median;
        Some(percent(arm.metric(&format!("extra.{metric}"), input.seed)?.median / bytes))
    });
    let published = published_share(input, share).map_or_else(|| "–".to_owned(), percent);
    row(m, [share.name, &published, ours.as_deref().unwrap_or("not run")]);
}

/// Returns the sum of the published seconds divided by the file size.
fn published_share(input: &Input, share: &Share) -> Option<f64> {
    let (table, column, seconds) = share.published?;
    let table = input.published.get(table)?;
    let at = table.columns.iter().position(|c| c == column)?;
    let rows = table.rows.iter().filter(|row| seconds.contains(&row[2].as_str()));
    let kib: f64 = rows.filter_map(|row| row[at].parse::<f64>().ok()).sum();
    Some(kib * 1024.0 / PUBLISHED_BYTES)
}

/// Draws dirty pages over time for one run of each write method.
fn dirty(groups: &[Group<'_>]) -> Option<Figure> {
    let methods = [
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
    let lines: Vec<lines::Line> = methods.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Dirty pages during a write".to_owned(),
            description: "Bytes of dirty pages that have not been written yet.".to_owned(),
            x_title: "time since the start".to_owned(),
            x_unit: Unit::Time,
            y_title: "dirty".to_owned(),
            y_unit: Unit::Bytes,
            lines,
            levels: Vec::new(),
            plot_height: 260.0,
            misses: Vec::new(),
        })
    })
}

/// The comparisons behind the explanation.
const CAUSES: [Cause; 4] = [
    Cause {
        experiment: "write-returned",
        arms: ["direct", "buffered"],
        metric: "extra.returned_ns",
        what: "the time until a write returns",
        factor: "direct I/O instead of buffered writes",
        key: Some(("how", [Some("direct"), Some("buffered")])),
    },
    Cause {
        experiment: "write-durable",
        arms: ["direct-fdatasync", "buffered-fdatasync"],
        metric: "extra.durable_ns",
        what: "the time until the data is durable",
        factor: "direct I/O instead of buffered writes",
        key: Some(("how", [Some("direct"), Some("buffered")])),
    },
    Cause {
        experiment: "write-through",
        arms: ["sync-64", "fdatasync-64"],
        metric: "extra.durable_ns",
        what: "the time until the data is durable",
        factor: "O_SYNC on each write instead of one fdatasync",
        key: None,
    },
    Cause {
        experiment: "write-through",
        arms: ["sync-64", "fdatasync-64"],
        metric: "extra.device_flushes",
        what: "the number of device flushes",
        factor: "O_SYNC on each write instead of one fdatasync",
        key: None,
    },
];

/// Explains when a write returns, and what happens later.
fn explanation(m: &mut Markup, groups: &[Group<'_>]) {
    causes::write(m, groups, &CAUSES);
    causes::theory(
        m,
        "Documentation/admin-guide/sysctl/vm.rst of the kernel",
        "Dirty pages are written when they are older than dirty_expire_centisecs, when there are more \
        of them than the background limit, or on request. Removing the file before that cancels the \
        write.",
    );
    causes::theory(
        m,
        "open(2), fdatasync(2)",
        "Neither a buffered nor a direct write is durable by itself: that takes fdatasync, or O_SYNC \
        on every call.",
    );
}

#[cfg(test)]
mod tests {
    use super::held_memory;

    #[test]
    fn the_limit_is_described_by_its_change() {
        let gib = 1024.0 * 1024.0 * 1024.0;
        let words = |dropped: f64| held_memory(gib, dropped, Some(20.0));
        assert!(words(0.2 * gib).contains("dropped by 205 MiB; as 20 % of available memory"));
        assert!(words(0.0).contains("the second limit did not change; as 20 %"), "{}", words(0.0));
        assert!(words(-0.1 * gib).contains("rose by 102 MiB"), "{}", words(-0.1 * gib));
        assert!(held_memory(gib, 0.0, None).ends_with("did not change."));
    }
}

//! Formats the result of `ioloom memory` for a terminal.

use crate::out;
use ioloom_model::memory::{MemoryResult, SmtResult};
use ioloom_model::units::{format_ns, format_size};
use std::fmt::Write as _;

/// Bar width in columns, at most.
const BAR: usize = 34;
/// Columns of a line of the ladder in front of the bar.
const BEFORE_BAR: usize = 31;

pub(super) fn text(result: &MemoryResult, width: usize) -> String {
    let mut all = out::wrap(&ioloom_report::memory::so_what(result), width, 0);
    all.push('\n');
    all.push_str(&levels(result, width));
    all.push('\n');
    all.push_str(&ladder(result, width));
    let lines = findings(result);
    if !lines.is_empty() {
        all.push('\n');
        for (head, text) in lines {
            all.push_str(&out::labelled(head, 12, &text, width));
        }
    }
    if let Some(smt) = &result.smt {
        all.push('\n');
        all.push_str(&siblings(smt, width));
    }
    for doubt in &result.doubts {
        let text = format!("{}: {}", doubt.name(), doubt.advice());
        all.push('\n');
        all.push_str(&out::labelled("doubt", 12, &text, width));
    }
    all.push_str("\nPlausibility checks\n");
    for check in &result.checks {
        let head = format!("{:<4} {:<4} {}", check.id, check.state.name(), check.asks);
        all.push_str(&out::labelled(&head, 37, &check.evidence, width));
    }
    all
}

fn levels(result: &MemoryResult, width: usize) -> String {
    let mut table = out::table(width);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), format_size);
    table.set_header(vec!["level", "load", "cycles", "ends between", "kernel", "CPUID", "verdict"]);
    for l in &result.levels {
        table.add_row(vec![
            l.name.clone(),
            format_ns(l.latency_ns),
            l.latency_cycles.map_or_else(|| "-".to_owned(), |c| format!("{c:.1}")),
            l.bracket_bytes.map_or_else(
                || "-".to_owned(),
                |(low, high)| format!("{} and {}", format_size(low), format_size(high)),
            ),
            size(l.advertised_bytes),
            size(l.cpuid_bytes),
            l.verdict.clone(),
        ]);
    }
    let mut text = out::table_text(&table);
    for bytes in &result.not_visible_bytes {
        let _ = writeln!(text, "advertised but not visible: {}", format_size(*bytes));
    }
    if let Some(why) = &result.unclear {
        text.push_str(&out::wrap(&format!("UNRELIABLE: {why}"), width, 2));
    }
    text
}

/// Formats one line per doubling of the working set, with a logarithmic bar.
fn ladder(result: &MemoryResult, width: usize) -> String {
    let times = || result.ladder.iter().map(|p| p.ns_min);
    let (low, high) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let mut out = format!("{:>9}  {:>8}  {:>8}\n", "set", "least", "median");
    let columns = width.saturating_sub(BEFORE_BAR).min(BAR);
    let mut next = 0.0;
    for p in &result.ladder {
        if (p.bytes as f64) < next {
            continue;
        }
        next = p.bytes as f64 * 1.9;
        let part = (p.ns_min / (low * 0.8)).ln() / (high / (low * 0.8)).ln().max(1e-9);
        let bar = "█".repeat((part.clamp(0.0, 1.0) * columns as f64).round() as usize);
        let mark = if p.disturbed { "  disturbed" } else { "" };
        let (size, least) = (format_size(p.bytes), format_ns(p.ns_min));
        let _ = writeln!(out, "{size:>9}  {least:>8}  {:>8}  {bar}{mark}", format_ns(p.ns_median));
    }
    out
}

/// Formats the results of the other parts, one line each.
fn findings(result: &MemoryResult) -> Vec<(&'static str, String)> {
    let number = |name: &str| result.extra.get(name).copied();
    let last = |name: &str| result.curves.get(name).and_then(|c| c.last()).map(|(_, y)| *y);
    let mut out = Vec::new();
    let largest = result.ladder.last().map(|p| p.ns_min);
    if let (Some(store), Some(random)) = (last("ruler.store"), last("ruler.random")) {
        let chase = largest
            .map_or(String::new(), |ns| format!(", a dependent load takes {}", format_ns(ns)));
        let text = format!(
            "in the largest set a sequential store takes {}, a random load {}{chase}",
            format_ns(store),
            format_ns(random)
        );
        out.push(("rulers", text));
    }
    if let (Some(plain), Some(fast)) = (last("seed.plain"), last("seed.optimised")) {
        let first = |name: &str| result.curves[name].first().map_or(0.0, |(_, y)| *y);
        let text = format!(
            "the published loop takes {} per store at 4 KiB and {} at 32 MiB; not optimised {} and {}",
            format_ns(first("seed.optimised")),
            format_ns(fast),
            format_ns(first("seed.plain")),
            format_ns(plain)
        );
        out.push(("compiler", text));
    }
    if let (Some(rows), Some(columns)) = (number("row_order_ns"), number("column_order_ns")) {
        let text = format!(
            "a 32 MiB matrix takes {} per number by rows, {} by columns: {:.0} times as long",
            format_ns(rows),
            format_ns(columns),
            columns / rows
        );
        out.push(("order", text));
    }
    out.extend(translation(result));
    if let (Some(flight), Some(curve)) = (number("loads_in_flight"), result.curves.get("mlp")) {
        let (Some(one), Some(many)) = (curve.first(), curve.last()) else { return out };
        let text = format!(
            "{} per load with one chain; with {} chains {}: about {flight:.0} loads in flight",
            format_ns(one.1),
            many.0,
            format_ns(many.1)
        );
        out.push(("parallel", text));
    }
    out.extend(streams(result));
    out.extend(pairs(result));
    if let (Some(size), Some(rate)) = (number("read_buffer_bytes"), number("warm_read_bytes_per_s"))
    {
        let text = format!(
            "read cached files with {} buffers: {}/s; the smallest size within 5 % of the fastest",
            format_size(size as u64),
            format_size(rate as u64)
        );
        out.push(("buffer", text));
    }
    out
}

fn pairs(result: &MemoryResult) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    if let Some(why) = &result.pairs_skipped {
        out.push(("processors", format!("pairs not measured: {why}")));
    }
    let latency = |a: &ioloom_model::memory::CpuPair| a.one_way_ns;
    let nearest = result.pairs.iter().min_by(|a, b| latency(a).total_cmp(&latency(b)));
    let farthest = result.pairs.iter().max_by(|a, b| latency(a).total_cmp(&latency(b)));
    if let (Some(near), Some(far)) = (nearest, farthest) {
        let text = format!(
            "a cache line moves from processor {} to {} in {}, from {} to {} in {}",
            near.a,
            near.b,
            format_ns(near.one_way_ns),
            far.a,
            far.b,
            format_ns(far.one_way_ns)
        );
        out.push(("processors", text));
    }
    out
}

fn translation(result: &MemoryResult) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for (pages, head) in [("small", "small pages"), ("huge", "huge pages")] {
        let number = |key: &str| result.extra.get(&format!("tlb_{pages}_{key}")).copied();
        let mut text = Vec::new();
        if let (Some(low), Some(high)) = (number("l1_low_pages"), number("l1_high_pages")) {
            text.push(format!("first-level TLB reaches {low:.0} to {high:.0} 4 KiB pages"));
        }
        text.extend(number("l2_hit_ns").map(|ns| format!("misses cost +{}", format_ns(ns))));
        if let (Some(low), Some(high)) = (number("l2_low_pages"), number("l2_high_pages")) {
            text.push(format!("second level reaches {low:.0} to {high:.0} pages"));
        }
        text.extend(number("walk_ns").map(|ns| format!("a page walk costs +{}", format_ns(ns))));
        text.extend(
            number("reach_above_pages").map(|n| format!("no cost up to {n:.0} 4 KiB pages")),
        );
        if !text.is_empty() {
            out.push((head, text.join(", ")));
        }
    }
    let number = |key: &str| result.extra.get(key).copied();
    if let (Some(first), Some(second)) =
        (number("tlb_told_l1_entries"), number("tlb_told_l2_entries"))
        && !out.is_empty()
    {
        out.push(("CPUID", format!("reports {first:.0} and {second:.0} entries for small pages")));
    }
    if let (Some(fault), Some(fresh)) = (number("fault_ns"), number("first_touch_ns")) {
        let huge = number("huge_fault_ns")
            .map_or(String::new(), |ns| format!(", of a huge page {}", format_ns(ns)));
        let text = format!(
            "first touch of a page takes {}, of reused memory {}{huge}",
            format_ns(fresh),
            format_ns(fault)
        );
        out.push(("faults", text));
    }
    out
}

fn streams(result: &MemoryResult) -> Vec<(&'static str, String)> {
    let mut words = Vec::new();
    for stream in ["read", "write", "copy"] {
        let of: Vec<String> = result
            .curves
            .iter()
            .filter_map(|(name, curve)| {
                let threads = name.strip_prefix(&format!("bandwidth.{stream}."))?;
                let (_, rate) = curve.last()?;
                Some(format!("{}/s on {threads}", format_size(*rate as u64)))
            })
            .collect();
        if !of.is_empty() {
            words.push(format!("{stream} {}", of.join(", ")));
        }
    }
    if words.is_empty() { Vec::new() } else { vec![("bandwidth", words.join("; "))] }
}

fn siblings(smt: &SmtResult, width: usize) -> String {
    let mut out = String::new();
    if let Some(why) = &smt.skipped {
        out.push_str(&out::wrap(&format!("{why}; siblings not measured"), width, 0));
    }
    for work in &smt.works {
        let both = |what: &str, ns: Option<f64>| {
            ns.map(|ns| {
                format!(
                    "{what}: {:.2} times the throughput of one thread, {:.0} % less time",
                    work.throughput_ratio(ns),
                    work.time_saved(ns) * 100.0
                )
            })
        };
        let text: Vec<String> =
            [both("siblings", work.siblings_ns), both("separate cores", work.cores_ns)]
                .into_iter()
                .flatten()
                .collect();
        if !text.is_empty() {
            out.push_str(&out::labelled(&work.work, 12, &text.join("; "), width));
        }
    }
    if let Some(hidden) = &smt.hidden {
        out.push_str(&out::labelled("hidden SMT", 12, hidden, width));
    }
    out
}

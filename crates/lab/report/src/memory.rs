//! The memory hierarchy in a report: charts, the measured levels compared with those reported by
//! the kernel and CPUID, the published table compared with this machine, and why the measurements
//! differ.

use crate::chapter::causes;
use crate::estimate::Estimate;
use crate::markup::Markup;
use crate::page::frame::{Lanes, document_frame};
use crate::quantity::Unit;
use crate::svg::lines::{Line, Lines, Point};
use crate::svg::{NARROW, Svg, WIDE, ladder, lines};
use ioloom_model::memory::{CheckState, MemoryResult};
use ioloom_model::units::{format_ns, format_size};

/// The published table for the loop that stores one byte per cache line: KiB, ns per store.
const PUBLISHED: [(u64, f64); 14] = [
    (4, 0.420_382),
    (8, 0.367_063),
    (16, 0.343_080),
    (32, 0.325_464),
    (64, 0.886_360),
    (128, 0.889_040),
    (256, 0.892_584),
    (512, 1.106_641),
    (1024, 1.495_455),
    (2048, 1.510_899),
    (4096, 1.661_219),
    (8192, 2.780_471),
    (16384, 3.925_238),
    (32768, 4.266_433),
];

/// Returns a separate page.
pub fn html(result: &MemoryResult, machine: &str) -> String {
    let mut m = Markup::new();
    let title = "Measured memory hierarchy";
    document_frame(&mut m, title, Lanes::None, |m| {
        m.tag("header").body(|m| {
            crate::page::parts::bar(m, "memory");
            m.tag("h1").text(title);
            m.tag("p").a("class", "question").text(&format!("{machine}. {}", so_what(result)));
        });
        m.tag("main").a("class", "single").body(|m| {
            m.tag("section").a("id", "memory").body(|m| chapter(m, result));
        });
    });
    m.into_string()
}

/// Returns one sentence of advice for programmers.
pub fn so_what(result: &MemoryResult) -> String {
    if let Some(why) = &result.unclear {
        return format!("The curve shows no reliable levels: {why}.");
    }
    let caches: Vec<_> = result.levels.iter().filter_map(|l| Some((l, l.bracket_bytes?))).collect();
    let (Some((first, _)), Some((_, (low, _)))) = (caches.first(), caches.last()) else {
        return "The curve shows no cache.".to_owned();
    };
    // The position does not decide: a level can be extra or not visible.
    let second = caches.iter().find(|(level, _)| matches!(level.name.as_str(), "L2" | "level 2"));
    let second = second.or(caches.first()).map_or(*low, |(_, (low, _))| *low);
    let memory = result.levels.iter().find(|l| l.bracket_bytes.is_none());
    let far = memory.map_or(String::new(), |l| {
        format!(
            " beyond {}, a dependent load takes {}, {:.0} times as long as in {};",
            format_size(*low),
            format_ns(l.latency_ns),
            l.latency_ns / first.latency_ns,
            first.name
        )
    });
    format!(
        "Keep the working set of a thread below {};{far} access arrays in sequence.",
        format_size(second)
    )
}

/// Writes the chapter.
pub fn chapter(m: &mut Markup, result: &MemoryResult) {
    m.tag("h2").text("Levels");
    levels_table(m, result);
    if let Some(draw) = ladder::draw(result, WIDE) {
        let caption = "Load latency by working set. Each load goes to a random line and depends \
            on the previous load, so it can be neither predicted nor overlapped. Shaded: where a \
            level ends according to the curve. Vertical lines: sizes reported by the kernel.";
        figure(m, caption, draw, ladder::draw(result, NARROW));
    }
    for chart in charts(result) {
        figure(m, &chart.1, lines::draw(&chart.0, WIDE), Some(lines::draw(&chart.0, NARROW)));
    }
    published(m, result);
    explanation(m);
    smt(m, result);
    checks(m, result);
}

fn figure(m: &mut Markup, caption: &str, wide: Svg, narrow: Option<Svg>) {
    m.tag("figure").body(|m| {
        m.tag("figcaption").text(caption);
        wide.write(m, "chart wide");
        if let Some(narrow) = narrow {
            narrow.write_untitled(m, "chart narrow");
        }
    });
}

fn row(m: &mut Markup, cell: &'static str, cells: &[String]) {
    m.tag("tr").body(|m| {
        for (i, text) in cells.iter().enumerate() {
            m.tag(cell)
                .maybe("scope", (cell == "th").then_some("col"))
                .maybe("class", (i > 0).then_some("r"))
                .text(text);
        }
    });
}

fn table(m: &mut Markup, head: &[&str], rows: &[Vec<String>]) {
    m.tag("div").a("class", "scroll").a("tabindex", "0").body(|m| {
        m.tag("table").a("class", "plain").body(|m| {
            m.tag("thead").body(|m| {
                row(m, "th", &head.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>());
            });
            m.tag("tbody").body(|m| rows.iter().for_each(|cells| row(m, "td", cells)));
        });
    });
}

fn levels_table(m: &mut Markup, result: &MemoryResult) {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "–".to_owned(), format_size);
    let rows: Vec<Vec<String>> = result
        .levels
        .iter()
        .map(|l| {
            let cycles = l.latency_cycles.map_or_else(|| "–".to_owned(), |c| format!("{c:.1}"));
            let found = l.bracket_bytes.map_or_else(
                || "–".to_owned(),
                |(low, high)| format!("{} to {}", format_size(low), format_size(high)),
            );
            vec![
                l.name.clone(),
                format_ns(l.latency_ns),
                cycles,
                found,
                size(l.advertised_bytes),
                size(l.cpuid_bytes),
                l.verdict.clone(),
            ]
        })
        .collect();
    let head = ["level", "load latency", "cycles", "ends between", "kernel", "CPUID", "verdict"];
    table(m, &head, &rows);
    if let Some(why) = &result.unclear {
        m.tag("p").a("class", "lead").text(&format!("Not reliable: {why}."));
    }
}

fn line_of(result: &MemoryResult, curve: &str, name: &str) -> Option<Line> {
    let points = result.curves.get(curve)?;
    let point = |(x, y): &(f64, f64)| Point {
        x: *x,
        y: Estimate { values: vec![*y], median: *y, ends: None },
        thin: None,
        note: String::new(),
    };
    Some(Line { name: name.to_owned(), points: points.iter().map(point).collect() })
}

fn chart(
    title: &str,
    (x_title, x_unit): (&str, Unit),
    (y_title, y_unit): (&str, Unit),
    lines: Vec<Option<Line>>,
) -> Option<Lines> {
    let lines: Vec<Line> = lines.into_iter().flatten().filter(|l| !l.points.is_empty()).collect();
    (!lines.is_empty()).then(|| Lines {
        title: title.to_owned(),
        description: title.to_owned(),
        x_title: x_title.to_owned(),
        x_unit,
        y_title: y_title.to_owned(),
        y_unit,
        lines,
        levels: Vec::new(),
        plot_height: 260.0,
        misses: Vec::new(),
    })
}

/// An optional chart with its caption.
type Captioned = (Option<Lines>, String);

/// Axes that several charts share.
const BYTES: (&str, Unit) = ("working set", Unit::Bytes);
const TIME: (&str, Unit) = ("ns per access", Unit::Time);

/// Returns every available chart with its caption.
fn charts(result: &MemoryResult) -> Vec<(Lines, String)> {
    let all = [of_rulers(result), of_pages(result), of_streams(result)].concat();
    all.into_iter().filter_map(|(chart, caption)| Some((chart?, caption))).collect()
}

fn of_rulers(result: &MemoryResult) -> Vec<Captioned> {
    let of = |curve: &str, name: &str| line_of(result, curve, name);
    let ladder = Line {
        name: "dependent loads".to_owned(),
        points: line_of(&with_ladder(result), "ladder", "").map_or(Vec::new(), |l| l.points),
    };
    let rulers = vec![
        result.curves.contains_key("ruler.store").then_some(ladder),
        of("ruler.random", "random, independent loads"),
        of("ruler.load", "sequential loads"),
        of("ruler.store", "sequential stores"),
    ];
    let compilers = vec![of("seed.plain", "not optimized"), of("seed.optimised", "optimized")];
    vec![
        (
            chart("The same memory measured in several ways", BYTES, TIME, rulers),
            "Time per access by working set, for each kind of access. The published test uses \
            sequential stores."
                .to_owned(),
        ),
        (
            chart("The published loop by compiler", BYTES, ("ns per store", Unit::Time), compilers),
            "The same source, compiled with and without optimization.".to_owned(),
        ),
    ]
}

fn of_pages(result: &MemoryResult) -> Vec<Captioned> {
    let of = |curve: &str, name: &str| line_of(result, curve, name);
    vec![
        (
            chart(
                "Cost of address translation",
                ("pages touched", Unit::Number),
                ("additional ns per load", Unit::Time),
                vec![of("tlb.small.cost", "small pages"), of("tlb.huge.cost", "huge pages")],
            ),
            "Time per load with one line per page, minus that with as many adjacent lines."
                .to_owned(),
        ),
        (
            chart(
                "Parallel loads",
                ("parallel chains", Unit::Number),
                ("ns per load", Unit::Time),
                vec![of("mlp", "beyond the caches")],
            ),
            format!("Time per load by the number of loads in flight{}.", from_to(result, "mlp")),
        ),
        (
            chart(
                "Dependent loads with stores",
                BYTES,
                TIME,
                vec![of("chase.load", "loads only"), of("chase.store", "loads and stores")],
            ),
            "The same dependent loads, alone and with stores.".to_owned(),
        ),
    ]
}

/// Returns the first and the last time of a curve in words; empty if it has fewer than two points.
fn from_to(result: &MemoryResult, curve: &str) -> String {
    let points = result.curves.get(curve).map_or(&[][..], Vec::as_slice);
    let [(from, first), .., (to, last)] = points else { return String::new() };
    format!(": {} with {from}, {} with {to}", format_ns(*first), format_ns(*last))
}

fn of_streams(result: &MemoryResult) -> Vec<Captioned> {
    let of = |curve: &str, name: &str| line_of(result, curve, name);
    let rate = ("bytes per second", Unit::BytesPerSecond);
    let rates = |word: &str| -> Vec<Option<Line>> {
        let prefix = format!("bandwidth.{word}.");
        let names = result.curves.keys().filter_map(|k| k.strip_prefix(&prefix));
        let threads = |n: &str| if n == "1" { "thread" } else { "threads" };
        names.map(|n| of(&format!("{prefix}{n}"), &format!("{word}, {n} {}", threads(n)))).collect()
    };
    let buffer = result.extra.get("read_buffer_bytes").map_or(String::new(), |b| {
        format!(" The smallest buffer within 5 % of the best is {}.", format_size(*b as u64))
    });
    vec![
        (
            chart(
                "Bandwidth",
                BYTES,
                rate,
                [rates("read"), rates("write"), rates("copy")].concat(),
            ),
            "Sequential streams; a copied byte counts once.".to_owned(),
        ),
        (
            chart(
                "Reading a cached file",
                ("buffer", Unit::Bytes),
                rate,
                vec![of("bufsize", "read(2)")],
            ),
            format!("Throughput of read(2) by buffer size.{buffer}"),
        ),
    ]
}

/// Returns the result with its ladder included in the curves.
fn with_ladder(result: &MemoryResult) -> MemoryResult {
    let mut out = MemoryResult::default();
    let points = result.ladder.iter().map(|p| (p.bytes as f64, p.ns_min)).collect();
    out.curves.insert("ladder".to_owned(), points);
    out
}

fn published(m: &mut Markup, result: &MemoryResult) {
    let at = |curve: &str, bytes: u64| {
        let points = result.curves.get(curve)?;
        points.iter().find(|(x, _)| *x as u64 == bytes).map(|(_, y)| *y)
    };
    let chase = |bytes: u64| result.ladder.iter().find(|p| p.bytes == bytes).map(|p| p.ns_min);
    let text = |ns: Option<f64>| ns.map_or_else(|| "not measured".to_owned(), format_ns);
    let rows: Vec<Vec<String>> = PUBLISHED
        .iter()
        .map(|(kib, ns)| {
            let bytes = kib << 10;
            vec![
                format_size(bytes),
                format_ns(*ns),
                text(at("seed.optimised", bytes)),
                text(at("seed.plain", bytes)),
                text(chase(bytes)),
            ]
        })
        .collect();
    m.tag("h3").text("The published table and this machine");
    table(
        m,
        &["working set", "published", "same loop here", "not optimized", "dependent load here"],
        &rows,
    );
}

/// Explains why measurements can differ. The runs do not show it.
pub(crate) fn explanation(m: &mut Markup) {
    m.tag("h3").text("Why measurements differ");
    causes::theory(
        m,
        "Drepper, What every programmer should know about memory, section 3",
        "A cache level is a plateau of the curve: every access takes that level's latency until \
        the working set no longer fits. Second-level and higher caches are indexed by physical \
        address, so a plateau ends in a ramp, and its end is a range rather than one number. A \
        sequential store needs no result: the processor buffers it and continues, lines are \
        prefetched, and the remaining cost is that of moving bytes. Only an access that depends \
        on the previous one takes the full latency.",
    );
}

fn smt(m: &mut Markup, result: &MemoryResult) {
    let Some(smt) = &result.smt else { return };
    m.tag("h3").text("Threads that share a core");
    if let Some(why) = &smt.skipped {
        m.tag("p").a("class", "lead").text(&format!("{why}; siblings were not measured."));
    }
    let rows: Vec<Vec<String>> = smt
        .works
        .iter()
        .map(|w| {
            let both = |ns: Option<f64>| match ns {
                Some(ns) => format!(
                    "{:+.0} % throughput, {:.0} % less time",
                    (w.throughput_ratio(ns) - 1.0) * 100.0,
                    w.time_saved(ns) * 100.0
                ),
                None => "not measured".to_owned(),
            };
            vec![w.work.clone(), format_ns(w.alone_ns), both(w.siblings_ns), both(w.cores_ns)]
        })
        .collect();
    if !rows.is_empty() {
        table(m, &["work", "alone", "two on siblings", "two on separate cores"], &rows);
    }
    if let Some(hidden) = &smt.hidden {
        m.tag("p").a("class", "lead").text(&format!("Hidden siblings: {hidden}."));
    }
}

fn checks(m: &mut Markup, result: &MemoryResult) {
    m.tag("h3").text("Plausibility checks");
    m.tag("div").a("class", "scroll").a("tabindex", "0").body(|m| {
        m.tag("table").a("class", "plain").body(|m| {
            m.tag("tbody").body(|m| {
                for check in &result.checks {
                    let class = match check.state {
                        CheckState::Pass => "vd vd-confirmed",
                        CheckState::Warn => "vd vd-scope",
                        CheckState::Fail => "vd vd-refuted",
                        CheckState::Skipped => "vd vd-not",
                    };
                    m.tag("tr").body(|m| {
                        m.tag("td").text(&check.id);
                        m.tag("td").body(|m| {
                            m.tag("span").a("class", class).text(check.state.name());
                        });
                        m.tag("td").text(&check.asks);
                        m.tag("td").text(&check.evidence);
                    });
                }
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::memory::MemoryLevel;

    fn level(name: &str, ends: Option<u64>) -> MemoryLevel {
        MemoryLevel {
            name: name.to_owned(),
            latency_ns: 1.0,
            latency_cycles: None,
            bracket_bytes: ends.map(|bytes| (bytes, 2 * bytes)),
            advertised_bytes: None,
            cpuid_bytes: None,
            verdict: String::new(),
        }
    }

    /// The second cache is not always the second level of the curve.
    #[test]
    fn advice_is_about_the_second_cache() {
        let memory = ("memory", None);
        let [l1, l2, l3] = [("L1", Some(32 << 10)), ("L2", Some(1 << 20)), ("L3", Some(32 << 20))];
        let extra = ("extra, after L1", Some(256 << 10));
        let numbered = [("level 1", l1.1), ("level 2", l2.1)];
        for (levels, size) in [
            (&[l1, l2, l3, memory][..], "1.00 MiB"),
            (&[l1, extra, l2, l3, memory], "1.00 MiB"),
            (&[l2, l3, memory], "1.00 MiB"),
            (&[l1, l3, memory], "32.0 KiB"),
            (&numbered, "1.00 MiB"),
        ] {
            let levels = levels.iter().map(|(name, ends)| level(name, *ends)).collect();
            let text = so_what(&MemoryResult { levels, ..MemoryResult::default() });
            let wanted = format!("Keep the working set of a thread below {size};");
            assert!(text.starts_with(&wanted), "{text}");
        }
    }

    /// The words follow the curve, and what the runs do not show is theory.
    #[test]
    fn results_and_causes_are_not_typed_in() {
        let mut result = MemoryResult::default();
        result.curves.insert("mlp".to_owned(), vec![(1.0, 20.0), (8.0, 50.0)]);
        let page = html(&result, "a machine");
        assert!(page.contains("in flight: 20.0 ns with 1, 50.0 ns with 8."), "{page}");
        assert!(!page.contains("takes less time"));
        assert!(page.contains("Theory ("));
    }
}

//! The copy chapter: when each method returned and when its copy was durable, the published numbers
//! compared with this machine, consecutive copies, and an explanation.

mod series;
mod source;

use super::arms::{arm, median_of, row};
use super::causes::{self, Cause};
use crate::figures::Figure;
use crate::group::{ArmRuns, Group, Unusable};
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::{Better, Unit, percent};
use crate::svg::{heat, stages};

use ioloom_model::Outcome;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_stats::{median, trimmed_mean};
use source::{BUFFERED, PUBLISHED_CUT, UNBUFFERED, column};
use std::collections::BTreeSet;

/// Copy methods in the order of the chart.
const METHODS: [&str; 7] = ["buffered", "range", "mmap", "uncached", "direct", "reflink", "auto"];
/// Size of the published file in bytes.
const PUBLISHED_BYTES: u64 = 132_506_485;

/// Draws the chapter; empty without measured runs.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    if let Some(figure) = stages_of(input, groups) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("Returned is not durable.");
            m.text(
                " When the copy returned, when the file and directory were synced, and when the \
                last page had been written. Medians; each bar starts when the copy starts.",
            );
        });
    }
    published(&mut m, input, groups);
    methods(&mut m, input, groups);
    unsynced(&mut m, input, groups);
    series::section(&mut m, input, groups);
    if let Some(figure) = surface(groups) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("Request size and queue depth.");
            m.text(
                " Time until a direct copy of a cold file into a preallocated file was durable.",
            );
        });
    }
    requests(&mut m, input, groups);
    numbers(&mut m, input, groups);
    if !m.as_str().is_empty() {
        explanation(&mut m, groups);
    }
    m
}

/// Formats a time in nanoseconds that may be unknown.
fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "unknown".to_owned(), format_ns)
}

/// Returns the measured arms of all methods for one source.
fn ran<'g, 'a>(
    groups: &'g [Group<'a>],
    experiment: &'static str,
) -> impl Iterator<Item = (&'static str, &'g ArmRuns<'a>)> {
    METHODS.into_iter().filter_map(move |method| {
        let arm = arm(groups, experiment, method)?;
        (!arm.runs.is_empty()).then_some((method, arm))
    })
}

fn stages_of(input: &Input, groups: &[Group<'_>]) -> Option<Figure> {
    let mut rows = Vec::new();
    let mut push = |name: &str, heading: &str, arm: &ArmRuns<'_>| {
        let end = |metric: &str| arm.metric(&format!("extra.{metric}"), input.seed);
        rows.push(stages::Row {
            name: name.to_owned(),
            heading: heading.to_owned(),
            ends: [end("returned_ns"), end("durable_ns"), end("settled_ns")],
        });
    };
    for method in ["seed003-buffered", "seed003-direct"] {
        if let Some(arm) = arm(groups, "as-published", method).filter(|arm| !arm.runs.is_empty()) {
            push(method, "as published, cached source", arm);
        }
    }
    let sources = [("modes-warm", "cached source"), ("modes-cold", "cold source")];
    for (experiment, heading) in sources {
        for (method, arm) in ran(groups, experiment) {
            push(method, heading, arm);
        }
    }
    (!rows.is_empty()).then(|| {
        Figure::Stages(stages::Stages {
            title: "When a copy has returned, is durable and is fully written".to_owned(),
            description:
                "Bars from the start of a copy until it returned, until the sync finished, and \
                until all pages had been written."
                    .to_owned(),
            words: ["until return", "until durable", "until fully written"],
            x_title: "time since the start".to_owned(),
            unit: Unit::Time,
            rows,
        })
    })
}

/// Returns the median throughput of copies of this size in words.
fn throughput(bytes: f64, durations_ns: &[f64]) -> String {
    match durations_ns {
        [] => "–".to_owned(),
        all => Unit::BytesPerSecond.format(bytes / median(all) * 1e9),
    }
}

/// Compares the published means with the same statistic and the medians of the measured runs.
fn published(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let here =
        |method: &str| arm(groups, "as-published", method).filter(|arm| !arm.runs.is_empty());
    let Some(bytes) = median_of(here("seed003-buffered"), "file_bytes", input.seed) else { return };
    m.tag("h3").text("The published copies");
    let columns = [
        ("until", false),
        ("published, mean of middle third", true),
        ("published, median", true),
        ("here, mean of middle third", true),
        ("here, median", true),
        ("here, throughput", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (what, method, metric, name) in [
            ("buffered, returned", "seed003-buffered", "returned_ns", BUFFERED),
            ("direct, returned", "seed003-direct", "returned_ns", UNBUFFERED),
            ("buffered, durable", "seed003-buffered", "durable_ns", ""),
            ("direct, durable", "seed003-direct", "durable_ns", ""),
        ] {
            let values = here(method).map(|arm| arm.blocks(&format!("extra.{metric}")));
            let values: Vec<f64> = values.unwrap_or_default().into_iter().map(|(_, v)| v).collect();
            let theirs: Vec<f64> = column(input, name).iter().map(|s| s * 1e9).collect();
            let by = |values: &[f64], of: Statistic, none: &str| {
                if values.is_empty() { none.to_owned() } else { format_ns(of(values)) }
            };
            let [middle, plain] = RULES;
            row(
                m,
                [
                    what,
                    &by(&theirs, middle, "–"),
                    &by(&theirs, plain, "–"),
                    &by(&values, middle, "not run"),
                    &by(&values, plain, "not run"),
                    &throughput(bytes, &values),
                ],
            );
        }
    });
    let ratio =
        |a: &[f64], b: &[f64]| trimmed_mean(a, PUBLISHED_CUT) / trimmed_mean(b, PUBLISHED_CUT);
    let (theirs_a, theirs_b) = (column(input, UNBUFFERED), column(input, BUFFERED));
    let of = |method: &str, metric: &str| median_of(here(method), metric, input.seed);
    let ours = |metric| Some(of("seed003-direct", metric)? / of("seed003-buffered", metric)?);
    if let (false, Some(returned), Some(durable)) =
        (theirs_b.is_empty(), ours("returned_ns"), ours("durable_ns"))
    {
        m.tag("p").a("class", "lead").text(&format!(
            "In the published runs, the direct copy takes {:.1} times as long as the buffered \
            one; here, it takes {returned:.2} times as long to return, and {durable:.2} times as \
            long to become durable. The published file had {} bytes; the file used here has {}. \
            According to the publication, the printed mean excludes the smallest and the largest \
            value, but it is actually the mean of the middle third, which also excludes the slow \
            runs.",
            ratio(&theirs_a, &theirs_b),
            format_count(PUBLISHED_BYTES),
            format_count(bytes as u64),
        ));
    }
}

/// A statistic of a series.
type Statistic = fn(&[f64]) -> f64;

/// The statistics to compare: the mean of the middle third and the median.
const RULES: [Statistic; 2] = [|v| trimmed_mean(v, PUBLISHED_CUT), median];

/// Lists the page cache state after each method and how much another process reads from the device.
fn methods(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let sources = [("modes-warm", "warm"), ("modes-cold", "cold")];
    if sources.iter().all(|(experiment, _)| ran(groups, experiment).next().is_none()) {
        return;
    }
    m.tag("h3").text("State after each method");
    let columns = [
        ("method, source", false),
        ("returned", true),
        ("durable", true),
        ("fully written", true),
        ("unwritten", true),
        ("resident", true),
        ("hash", true),
        ("read from device", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (experiment, source) in sources {
            for (method, arm) in ran(groups, experiment) {
                let of = |metric: &str| median_of(Some(arm), metric, input.seed);
                let share = |metric: &str| {
                    let share = of(metric).zip(of("file_bytes")).map(|(part, all)| part / all);
                    share.map_or_else(|| "unknown".to_owned(), percent)
                };
                row(
                    m,
                    [
                        &format!("{method}, {source}"),
                        &time(of("returned_ns")),
                        &time(of("durable_ns")),
                        &time(of("settled_ns")),
                        &share("unwritten_bytes"),
                        &share("target_resident_bytes"),
                        &time(of("reader_ns")),
                        &share("reader_device_bytes"),
                    ],
                );
            }
        }
    });
    m.tag("p").a("class", "lead").text(
        "Unwritten and resident are percentages of the file when the copy returned. After the \
        timed part, another process computes the MD5 hash of the copy, as the published check \
        did; the table shows how long this takes and how much of the file it reads from the \
        device.",
    );
}

/// Lists when each copy was fully written without a sync, and the runs in which it was not.
fn unsynced(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let tried: Vec<_> = METHODS
        .into_iter()
        .filter_map(|method| Some((method, arm(groups, "left-alone", method)?)))
        .collect();
    if tried.is_empty() {
        return;
    }
    let written: Vec<String> = tried
        .iter()
        .filter_map(|(method, arm)| {
            let ns = median_of(Some(arm), "settled_ns", input.seed)?;
            Some(format!("{method} {}", format_ns(ns)))
        })
        .collect();
    if !written.is_empty() {
        m.tag("p").text(&format!(
            "Without a sync, the copies were fully written after: {}.",
            written.join(", ")
        ));
    }
    let gone = tried.iter().flat_map(|(method, arm)| arm.unusable.iter().map(move |n| (method, n)));
    let gone: Vec<String> = gone
        .map(|(method, (why, reason, times))| {
            let runs = if *times == 1 { "1 run".to_owned() } else { format!("{times} runs") };
            format!("{method}, {runs} {} ({reason})", why.name())
        })
        .collect();
    if !gone.is_empty() {
        let why = |(_, arm): &(&str, &ArmRuns<'_>)| {
            arm.unusable.iter().all(|(why, ..)| *why == Unusable::TimedOut)
        };
        let end = if tried.iter().all(why) { " These runs exceeded their deadline." } else { "" };
        let gone = gone.join("; ");
        m.tag("p").a("class", "lead").text(&format!("No result without a sync: {gone}.{end}"));
    }
}

/// Draws request size by queue depth if all combinations ran.
fn surface(groups: &[Group<'_>]) -> Option<Figure> {
    let group = groups.iter().find(|g| g.experiment.name == "surface")?;
    let done = || group.arms.iter().filter(|arm| !arm.is_again() && arm.estimate.is_some());
    let place = |arm: &ArmRuns<'_>| {
        let depth: u64 = arm.family.strip_prefix("depth-")?.parse().ok()?;
        Some((depth, *arm.factors.get("kib")? as u64))
    };
    let mut depths: Vec<u64> = done().filter_map(place).map(|(depth, _)| depth).collect();
    let mut blocks: Vec<u64> = done().filter_map(place).map(|(_, kib)| kib).collect();
    for all in [&mut depths, &mut blocks] {
        all.sort_unstable();
        all.dedup();
    }
    // Quick mode runs only two combinations; the list below has their numbers.
    if depths.len() < 2 || blocks.len() < 3 {
        return None;
    }
    let cells = done().filter_map(|arm| {
        let (depth, kib) = place(arm)?;
        let at = (depths.iter().position(|d| *d == depth)?, blocks.iter().position(|b| *b == kib)?);
        Some((at, heat::Cell::Value { name: arm.name.to_owned(), value: arm.estimate.clone()? }))
    });
    Some(Figure::Heat(heat::Heat {
        title: "Time until durable by request size and queue depth".to_owned(),
        description: "Rows show the requests in flight; columns show the request size.".to_owned(),
        x_title: "request size".to_owned(),
        y_title: "in flight ↓".to_owned(),
        columns: blocks.iter().map(|kib| format_size(kib << 10)).collect(),
        rows: depths.iter().map(u64::to_string).collect(),
        cells: cells.collect(),
        unit: Unit::Time,
        better: Better::Lower,
        metric: "until durable".to_owned(),
    }))
}

/// Lists how each file system handled unaligned requests.
fn requests(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of_media = groups.iter().filter(|g| g.experiment.name == "requests");
    let asked: Vec<_> = of_media
        .filter_map(|g| Some((g.medium, g.arms.first().filter(|arm| !arm.runs.is_empty())?)))
        .collect();
    if asked.is_empty() {
        return;
    }
    // If a medium is a tmpfs, it is the file system in memory.
    let is_tmpfs = asked.iter().any(|(_, arm)| file_system(arm) == "tmpfs");
    let memory = asked.first().map(|(_, arm)| *arm).filter(|_| !is_tmpfs);
    m.tag("h3").text("Unaligned requests");
    let sizes: BTreeSet<u64> = asked.iter().flat_map(|(_, arm)| request_sizes(arm)).collect();
    let heads: Vec<String> = sizes.iter().map(|bytes| format!("{bytes} bytes")).collect();
    let columns: Vec<(&str, bool)> = [("file system", false), ("alignment", true)]
        .into_iter()
        .chain(heads.iter().map(|head| (head.as_str(), true)))
        .collect();
    let answers = |m: &mut Markup, name: &str, arm: &ArmRuns<'_>, prefix: &str| {
        let of = |metric: String| median_of(Some(arm), &format!("{prefix}{metric}"), input.seed);
        let Some(multiple) = of("direct_multiple_bytes".to_owned()) else { return };
        let multiple =
            if multiple > 0.0 { format_size(multiple as u64) } else { "not reported".to_owned() };
        let answer = |bytes: &u64| {
            let word = |what: &str| match of(format!("{what}_{bytes}_refused")) {
                Some(refused) if refused > 0.5 => "refused",
                Some(_) => "served",
                None => "unknown",
            };
            format!("{}, {}", word("write"), word("read"))
        };
        m.tag("tr").body(|m| {
            parts::words_cell(m, name);
            for text in std::iter::once(multiple).chain(sizes.iter().map(answer)) {
                m.tag("td").a("class", "r").text(&text);
            }
        });
    };
    parts::table(m, "plain", &columns, |m| {
        for (medium, arm) in &asked {
            answers(m, &format!("{} ({medium})", file_system(arm)), arm, "");
        }
        if let Some(arm) = memory {
            answers(m, "tmpfs (memory)", arm, "memory_");
        }
    });
    let of = |arm: &ArmRuns<'_>, metric: &str| median_of(Some(arm), metric, input.seed);
    let needed = asked.iter().filter_map(|(_, arm)| of(arm, "tail_descriptors"));
    let in_memory = memory.and_then(|arm| of(arm, "memory_tail_descriptors"));
    let needed: Vec<f64> = needed.chain(in_memory).collect();
    let text = "Answers to a write, then to a read. Unaligned requests that succeed go through the \
                page cache.";
    m.tag("p").a("class", "lead").text(&format!("{text}{}", truncated(&needed)));
}

/// Returns the sizes of the unaligned requests of an arm, in bytes.
fn request_sizes(arm: &ArmRuns<'_>) -> Vec<u64> {
    let size =
        |name: &String| name.strip_prefix("write_")?.strip_suffix("_refused")?.parse::<u64>().ok();
    let done = arm.runs.iter().filter_map(|run| match &run.outcome {
        Outcome::Done { measured } => Some(measured),
        _ => None,
    });
    done.flat_map(|measured| measured.extra.keys().filter_map(size)).collect()
}

/// Returns the file system of the medium of an arm, or nothing if it is not recorded.
fn file_system<'a>(arm: &'a ArmRuns<'_>) -> &'a str {
    let medium = arm.runs.first().and_then(|run| run.set.medium.as_ref());
    medium.map_or("", |medium| medium.file_system.as_str())
}

/// Describes on how many file systems one descriptor wrote and truncated a padded block, after a
/// space; empty if unknown.
fn truncated(descriptors: &[f64]) -> String {
    let one = descriptors.iter().filter(|needed| **needed < 1.5).count();
    let could = match (descriptors.len(), one) {
        (0, _) => return String::new(),
        (1, 0) => "could not truncate the file".to_owned(),
        (1, _) => "could also truncate the file".to_owned(),
        (all, _) => format!("could also truncate the file on {one} of {all} file systems"),
    };
    format!(" The descriptor that wrote a padded last block {could}.")
}

/// Lists pairwise comparisons that only the full study runs.
fn numbers(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |experiment: &str, name: &str, metric: &str| {
        let arm = arm(groups, experiment, name).filter(|arm| !arm.runs.is_empty())?;
        median_of(Some(arm), metric, input.seed)
    };
    let mut lines = Vec::new();
    let growing = of("presized", "growing-4", "durable_ns");
    if let Some((growing, sized)) = growing.zip(of("surface", "depth-4-64", "durable_ns")) {
        lines.push(format!(
            "Growing target with four 64 KiB requests in flight: {}; preallocated target: {}; \
            preallocated target with sixteen 1 MiB requests: {}.",
            format_ns(growing),
            format_ns(sized),
            of("modes-cold", "direct", "durable_ns")
                .map_or_else(|| "not run".to_owned(), format_ns),
        ));
    }
    for (word, name) in
        [("in flight", "in-flight"), ("from the cache", "cache"), ("from the device", "device")]
    {
        if let Some((ns, plain)) =
            of("verify", name, "returned_ns").zip(of("verify", "none", "returned_ns"))
        {
            let bytes = of("verify", name, "verify_device_bytes").unwrap_or(0.0);
            lines.push(format!(
                "Verified {word}: {} instead of {}, with {} read from the device.",
                format_ns(ns),
                format_ns(plain),
                format_size(bytes as u64)
            ));
        }
    }
    for method in ["buffered", "range", "uncached", "direct"] {
        let held = of("beside", method, "bystander_held_bytes");
        let Some((held, all)) = held.zip(of("beside", method, "bystander_bytes")) else { continue };
        lines.push(format!(
            "During a copy ({method}) with little memory, {} of a file in use by another process \
            stayed cached; reading it took {} before the copy and {} after it.",
            percent(held / all),
            time(of("beside", method, "bystander_read_before_ns")),
            time(of("beside", method, "bystander_read_after_ns")),
        ));
    }
    if lines.is_empty() {
        return;
    }
    m.tag("h3").text("File size, verification, other files");
    m.tag("ul").body(|m| {
        for line in &lines {
            m.tag("li").text(line);
        }
    });
}

/// The comparisons behind the explanation.
const CAUSES: [Cause; 4] = [
    Cause {
        experiment: "modes-warm",
        arms: ["direct", "buffered"],
        metric: "extra.returned_ns",
        what: "the time until a copy returns",
        factor: "direct I/O instead of a buffered copy",
        key: None,
    },
    Cause {
        experiment: "modes-warm",
        arms: ["direct", "buffered"],
        metric: "extra.reader_ns",
        what: "the time that the next reader needs",
        factor: "direct I/O instead of a buffered copy",
        key: None,
    },
    Cause {
        experiment: "presized",
        arms: ["growing-4", "presized-4"],
        metric: "extra.durable_ns",
        what: "the time until a direct copy is durable",
        factor: "a growing instead of a preallocated target",
        key: Some(("presized", [Some("no"), None])),
    },
    Cause {
        experiment: "surface",
        arms: ["depth-4-64", "depth-16-1024"],
        metric: "extra.durable_ns",
        what: "the time until a direct copy is durable",
        factor: "four requests of 64 KiB instead of sixteen of 1 MiB",
        key: None,
    },
];

/// Explains what a copy has done when it returns.
fn explanation(m: &mut Markup, groups: &[Group<'_>]) {
    causes::write(m, groups, &CAUSES);
    causes::theory(
        m,
        "open(2), fsync(2)",
        "A buffered copy moves bytes between pages and returns; the pages are written later. Only \
        synced data is durable, and direct I/O does not flush the cache of the drive.",
    );
    causes::theory(
        m,
        "read(2), posix_fadvise(2)",
        "Written pages stay cached. Hashing a new copy without evicting it reads the page cache and \
        detects no errors on the way to the device.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_has_its_unit() {
        let size = 853.0 * 1_048_576.0;
        assert_eq!(throughput(size, &[1e9, 1e9]), "853 MiB/s");
        assert_eq!(throughput(size, &[]), "–");
    }

    #[test]
    fn truncation_is_that_of_the_runs() {
        assert_eq!(truncated(&[]), "");
        assert!(truncated(&[1.0, 2.0]).ends_with("truncate the file on 1 of 2 file systems."));
        assert!(truncated(&[1.0]).ends_with("block could also truncate the file."));
        assert!(truncated(&[2.0]).ends_with("block could not truncate the file."));
    }
}

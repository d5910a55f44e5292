//! The chapter of copying: when each way had returned and when it was durable, the published numbers
//! beside this machine's by both statistics, what a series of runs hides, and why it is so.

mod series;
mod source;

use super::arms::{arm, median_of, row};
use crate::figures::Figure;
use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::{Better, Unit, percent};
use crate::svg::{heat, stages};

use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_stats::{median, trimmed_mean};
use source::{BUFFERED, PUBLISHED_CUT, UNBUFFERED, column};

/// Ways in the order of the picture.
const WAYS: [&str; 7] = ["buffered", "range", "mmap", "uncached", "direct", "reflink", "auto"];
/// Bytes of the published file.
const PUBLISHED_BYTES: u64 = 132_506_485;

/// The chapter; empty without runs of ours.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    if let Some(figure) = stages_of(input, groups) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("Returned is not durable.");
            m.text(
                " When the copier had returned, when file and directory were synced, and when no \
                 page of the copy was left to write. Medians; each bar begins with the copy.",
            );
        });
    }
    published(&mut m, input, groups);
    ways(&mut m, input, groups);
    alone(&mut m, input, groups);
    series::section(&mut m, input, groups);
    if let Some(figure) = surface(groups) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("How large, and how many under way.");
            m.text(
                " Time until the copy of a cold file was durable, past the cache, into a file that \
                 has its size before.",
            );
        });
    }
    requests(&mut m, input, groups);
    numbers(&mut m, input, groups);
    if !m.as_str().is_empty() {
        mechanism(&mut m);
    }
    m
}

/// A time of an arm that ran; one that nobody could tell is unknown.
fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "unknown".to_owned(), format_ns)
}

/// The arms of all ways from one source, as far as they ran.
fn ran<'g, 'a>(
    groups: &'g [Group<'a>],
    experiment: &'static str,
) -> impl Iterator<Item = (&'static str, &'g ArmRuns<'a>)> {
    WAYS.into_iter().filter_map(move |way| {
        let arm = arm(groups, experiment, way)?;
        (!arm.runs.is_empty()).then_some((way, arm))
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
    for way in ["seed003-buffered", "seed003-direct"] {
        if let Some(arm) = arm(groups, "as-published", way).filter(|arm| !arm.runs.is_empty()) {
            push(way, "as published, source in memory", arm);
        }
    }
    let sources = [("modes-warm", "source in memory"), ("modes-cold", "source on the device")];
    for (experiment, heading) in sources {
        for (way, arm) in ran(groups, experiment) {
            push(way, heading, arm);
        }
    }
    (!rows.is_empty()).then(|| {
        Figure::Stages(stages::Stages {
            title: "When a copy has returned, is durable and is settled".to_owned(),
            description:
                "Bars from the start of a copy to its return, to the end of the sync, and \
                          to the moment at which nothing of it was left to write."
                    .to_owned(),
            words: ["until it returned", "until it was durable", "until nothing was left to write"],
            x_title: "after the start".to_owned(),
            unit: Unit::Time,
            rows,
        })
    })
}

/// The published means beside the same statistic of our runs, and beside ours.
fn published(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let here = |way: &str| arm(groups, "as-published", way).filter(|arm| !arm.runs.is_empty());
    let Some(bytes) = median_of(here("seed003-buffered"), "file_bytes", input.seed) else { return };
    m.tag("h3").text("The published copies");
    let columns = [
        ("until", false),
        ("published, middle third", true),
        ("published, median", true),
        ("here, middle third", true),
        ("here, median", true),
        ("here, per second", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (what, way, metric, name) in [
            ("through the cache, returned", "seed003-buffered", "returned_ns", BUFFERED),
            ("past the cache, returned", "seed003-direct", "returned_ns", UNBUFFERED),
            ("through the cache, durable", "seed003-buffered", "durable_ns", ""),
            ("past the cache, durable", "seed003-direct", "durable_ns", ""),
        ] {
            let values = here(way).map(|arm| arm.blocks(&format!("extra.{metric}")));
            let values: Vec<f64> = values.unwrap_or_default().into_iter().map(|(_, v)| v).collect();
            let theirs: Vec<f64> = column(input, name).iter().map(|s| s * 1e9).collect();
            let by = |values: &[f64], of: Statistic, none: &str| {
                if values.is_empty() { none.to_owned() } else { format_ns(of(values)) }
            };
            let [middle, plain] = RULES;
            let speed = (bytes / median(&values) * 1e9) as u64;
            let speed = if values.is_empty() { "–".to_owned() } else { format_size(speed) };
            row(
                m,
                [
                    what,
                    &by(&theirs, middle, "–"),
                    &by(&theirs, plain, "–"),
                    &by(&values, middle, "not run"),
                    &by(&values, plain, "not run"),
                    &speed,
                ],
            );
        }
    });
    let ratio =
        |a: &[f64], b: &[f64]| trimmed_mean(a, PUBLISHED_CUT) / trimmed_mean(b, PUBLISHED_CUT);
    let (theirs_a, theirs_b) = (column(input, UNBUFFERED), column(input, BUFFERED));
    let of = |way: &str, metric: &str| median_of(here(way), metric, input.seed);
    let ours = |metric| Some(of("seed003-direct", metric)? / of("seed003-buffered", metric)?);
    if let (false, Some(returned), Some(durable)) =
        (theirs_b.is_empty(), ours("returned_ns"), ours("durable_ns"))
    {
        m.tag("p").a("class", "lead").text(&format!(
            "Past the cache over through it: {:.1} times as published; here {returned:.2} times \
             until the copier returned, and {durable:.2} times until the copy was durable. The \
             published file had {} bytes, the one here has {}. The printed mean is called one without the least and the \
             greatest; it is that of the third in the middle, which leaves out the slow runs too.",
            ratio(&theirs_a, &theirs_b),
            format_count(PUBLISHED_BYTES),
            format_count(bytes as u64),
        ));
    }
}

/// A statistic of a series.
type Statistic = fn(&[f64]) -> f64;

/// The statistics that stand beside each other: the mean of the middle third, and the median.
const RULES: [Statistic; 2] = [|v| trimmed_mean(v, PUBLISHED_CUT), median];

/// Every way with what it left behind and what another process found.
fn ways(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let sources = [("modes-warm", "warm"), ("modes-cold", "cold")];
    if sources.iter().all(|(experiment, _)| ran(groups, experiment).next().is_none()) {
        return;
    }
    m.tag("h3").text("What each way leaves behind");
    let columns = [
        ("way, source", false),
        ("returned", true),
        ("durable", true),
        ("settled", true),
        ("unwritten", true),
        ("in memory", true),
        ("hashed", true),
        ("from device", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (experiment, source) in sources {
            for (way, arm) in ran(groups, experiment) {
                let of = |metric: &str| median_of(Some(arm), metric, input.seed);
                let share = |metric: &str| {
                    let share = of(metric).zip(of("file_bytes")).map(|(part, all)| part / all);
                    share.map_or_else(|| "unknown".to_owned(), percent)
                };
                row(
                    m,
                    [
                        &format!("{way}, {source}"),
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
        "Shares are of the size of the file: what of the copy was unwritten and what was in memory \
         when the copier returned. Then, outside of what is timed, another process hashes the copy \
         with MD5, as the published check did: how long that takes, and what the device gives for it.",
    );
}

/// When each way was written if nobody asked, and which of them have no such time, and why.
fn alone(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let tried: Vec<_> =
        WAYS.into_iter().filter_map(|way| Some((way, arm(groups, "left-alone", way)?))).collect();
    if tried.is_empty() {
        return;
    }
    let told: Vec<String> = tried
        .iter()
        .filter_map(|(way, arm)| {
            let ns = median_of(Some(arm), "settled_ns", input.seed)?;
            Some(format!("{way} {}", format_ns(ns)))
        })
        .collect();
    if !told.is_empty() {
        m.tag("p").text(&format!(
            "Left alone, without any sync, nothing of the copy was left to write after: {}.",
            told.join(", ")
        ));
    }
    let gone = tried.iter().flat_map(|(way, arm)| arm.unusable.iter().map(move |n| (way, n)));
    let gone: Vec<String> = gone
        .map(|(way, (why, reason, times))| {
            let runs = if *times == 1 { "1 run".to_owned() } else { format!("{times} runs") };
            format!("{way}, {runs} {} ({reason})", why.name())
        })
        .collect();
    if !gone.is_empty() {
        m.tag("p").a("class", "lead").text(&format!(
            "Left alone, but without a result: {}. Such a run says that it took longer, not how long.",
            gone.join("; ")
        ));
    }
}

/// Block by depth, where the whole surface ran.
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
    // Two corners are no surface: the list below says what they are.
    if depths.len() < 2 || blocks.len() < 3 {
        return None;
    }
    let cells = done().filter_map(|arm| {
        let (depth, kib) = place(arm)?;
        let at = (depths.iter().position(|d| *d == depth)?, blocks.iter().position(|b| *b == kib)?);
        Some((at, heat::Cell::Value { name: arm.name.to_owned(), value: arm.estimate.clone()? }))
    });
    Some(Figure::Heat(heat::Heat {
        title: "Durable time over the size of requests and their number".to_owned(),
        description: "Rows are requests under way, columns their size.".to_owned(),
        x_title: "size of a request".to_owned(),
        y_title: "under way ↓".to_owned(),
        columns: blocks.iter().map(|kib| format_size(kib << 10)).collect(),
        rows: depths.iter().map(u64::to_string).collect(),
        cells: cells.collect(),
        unit: Unit::Time,
        better: Better::Lower,
        metric: "until durable".to_owned(),
    }))
}

/// What each file system answered to requests that do not fit.
fn requests(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of_media = groups.iter().filter(|g| g.experiment.name == "requests");
    let asked: Vec<_> = of_media
        .filter_map(|g| Some((g.medium, g.arms.first().filter(|arm| !arm.runs.is_empty())?)))
        .collect();
    if asked.is_empty() {
        return;
    }
    m.tag("h3").text("Requests that are no multiple of a sector");
    let columns = [
        ("file system", false),
        ("must be multiples of", true),
        ("335 bytes, write and read", true),
        ("981 bytes", true),
        ("7171 bytes", true),
    ];
    let answers = |m: &mut Markup, name: &str, arm: &ArmRuns<'_>, prefix: &str| {
        let of = |metric: String| median_of(Some(arm), &format!("{prefix}{metric}"), input.seed);
        let Some(multiple) = of("direct_multiple_bytes".to_owned()) else { return };
        let multiple =
            if multiple > 0.0 { format_size(multiple as u64) } else { "not said".to_owned() };
        let answer = |bytes: u32| {
            let word = |what: &str| match of(format!("{what}_{bytes}_refused")) {
                Some(refused) if refused > 0.5 => "refused",
                Some(_) => "served",
                None => "unknown",
            };
            format!("{}, {}", word("write"), word("read"))
        };
        row(m, [name, &multiple, &answer(335), &answer(981), &answer(7171)]);
    };
    parts::table(m, "plain", &columns, |m| {
        for (medium, arm) in &asked {
            let system = arm.runs.first().and_then(|r| r.set.medium.as_ref());
            let system = system.map_or("", |medium| medium.file_system.as_str());
            answers(m, &format!("{system} ({medium})"), arm, "");
        }
        answers(m, "tmpfs (memory)", asked[0].1, "memory_");
    });
    m.tag("p").a("class", "lead").text(
        "What is served although it does not fit goes through memory, whatever was asked for. One \
         descriptor both wrote the padded last block and cut it: Linux needs no second one.",
    );
}

/// Comparisons of two numbers that only the full study runs.
fn numbers(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let of = |experiment: &str, name: &str, metric: &str| {
        let arm = arm(groups, experiment, name).filter(|arm| !arm.runs.is_empty())?;
        median_of(Some(arm), metric, input.seed)
    };
    let mut lines = Vec::new();
    let growing = of("presized", "growing-4", "durable_ns");
    if let Some((growing, sized)) = growing.zip(of("surface", "depth-4-64", "durable_ns")) {
        lines.push(format!(
            "A target that grows with the bytes, 64 KiB a request and four under way: {}; one that \
             has its size before: {}; the same with 1 MiB and sixteen: {}.",
            format_ns(growing),
            format_ns(sized),
            of("modes-cold", "direct", "durable_ns")
                .map_or_else(|| "not run".to_owned(), format_ns),
        ));
    }
    for (word, name) in
        [("on the way", "in-flight"), ("in memory", "cache"), ("from the device", "device")]
    {
        if let Some((ns, plain)) =
            of("verify", name, "returned_ns").zip(of("verify", "none", "returned_ns"))
        {
            let bytes = of("verify", name, "verify_device_bytes").unwrap_or(0.0);
            lines.push(format!(
                "Checked {word}: {} in place of {}; the device gave {} for it.",
                format_ns(ns),
                format_ns(plain),
                format_size(bytes as u64)
            ));
        }
    }
    for way in ["buffered", "range", "uncached", "direct"] {
        let held = of("beside", way, "bystander_held_bytes");
        let Some((held, all)) = held.zip(of("beside", way, "bystander_bytes")) else { continue };
        lines.push(format!(
            "Beside a copy ({way}) with little memory {} of the file that others use stayed; reading it \
             took {} before and {} after.",
            percent(held / all),
            time(of("beside", way, "bystander_read_before_ns")),
            time(of("beside", way, "bystander_read_after_ns")),
        ));
    }
    if lines.is_empty() {
        return;
    }
    m.tag("h3").text("Size, checks, neighbours");
    m.tag("ul").body(|m| {
        for line in &lines {
            m.tag("li").text(line);
        }
    });
}

/// In words: what a copy returns from, and why past the cache is slow or fast.
fn mechanism(m: &mut Markup) {
    m.tag("h3").text("Why it is so");
    m.tag("p").text(
        "A buffered copy moves bytes from pages to pages and returns: with a source in memory no \
         device has been asked for anything, and all of the copy is still to be written. That is the \
         time that was published as that of buffering. When the copy has to be on the device the \
         same bytes have to go there; what is then left of the difference is not the memory but the \
         way: the system reads ahead and writes back in large requests with many under way.",
    );
    m.tag("p").text(
        "Past the cache the program has to do the same itself. A few small requests under way leave \
         the device idle between them, and a target that grows lets only one write at a time change \
         its size: the published copy had nearly the same speed on two quite different disks. Larger \
         requests, more of them, and a target that has its size before bring it nearer to what the \
         device gives, and when they return nearly nothing is left to do.",
    );
    m.tag("p").text(
        "What was written stays in memory and serves whoever reads it next. A hash of the fresh copy \
         is therefore a hash of memory: it finds what went wrong on the way there, and nothing that \
         went wrong on the way to the device. Durable is only what was synced; the flag that goes \
         past the system's cache tells the drive nothing about its own.",
    );
}

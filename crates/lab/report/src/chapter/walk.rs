//! The walk chapter: four published media compared with this machine, the gain from threads on
//! each, and two laws that explain it.
//!
//! Tree sizes differ, so times are per file. The published tree has 2 835 154 files. Two laws are
//! fitted to every ladder with enough thread counts and shown with their errors: the scalability
//! law, which contains only shares, and a closed queueing network of a processor and a device,
//! which models the waiting.

use super::causes::{self, Cause};
use super::what_if;
use crate::estimate::{Estimate, Ratio};
use crate::figures::Figure;
use crate::group::Group;
use crate::input::{Input, TreeRow};
use crate::markup::Markup;
use crate::medium::short_names;
use crate::page::parts;
use crate::quantity::{Unit, percent, plain};
use crate::svg::lines;
use crate::svg::treemap::Treemap;
use crate::table::Table;
use ioloom_model::Condition;
use ioloom_model::units::format_count;
use ioloom_predict::scaling::{NETWORK_POINTS_MIN, Point};
use ioloom_predict::walk_media::PROBES;
use ioloom_predict::{Usl, WalkFit};
use std::collections::{BTreeMap, BTreeSet};

/// Columns of the published table with their names for display.
const MEDIA: [(&str, &str); 4] = [
    ("nvme_s", "NVMe, published"),
    ("hdd_s", "hard disk, published"),
    ("usb2_s", "USB 2 flash drive, published"),
    ("usb3_2_s", "USB 3.2 flash drive, published"),
];
/// The experiments with plain thread ladders.
const LADDERS: [&str; 2] = ["threads-cold", "threads-warm"];
const AXIS: &str = "threads";
/// The medium of a slowed device.
const SLOW: &str = "slow";
/// Height of the map of the tree in pixels.
const MAP_HEIGHT: f64 = 300.0;

/// Times by thread count on one medium.
struct Ladder {
    name: String,
    /// Whether it was measured here.
    here: bool,
    /// Whether names were cached.
    warm: bool,
    /// Whether the medium was slowed.
    slow: bool,
    files: f64,
    /// Share of the time of all processors in the last probe of a prediction; 0 if it is not known.
    busy: f64,
    steps: Vec<Step>,
}

struct Step {
    threads: u32,
    /// Elapsed seconds.
    seconds: f64,
    /// Speedup over one thread, with its ends if it was measured here.
    gain: Option<Estimate>,
}

/// Draws the chapter; empty without the published table and without a measured ladder.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    let mut ladders = input.published.get("001_walk").map_or_else(Vec::new, |t| {
        let files = input.published.get("001_terms").and_then(files_of).unwrap_or(f64::NAN);
        MEDIA.iter().filter_map(|(column, name)| published(t, column, name, files)).collect()
    });
    let media = short_names(groups.iter().map(|g| g.medium));
    ladders.extend(groups.iter().filter_map(|g| measured(input, g, &media)));
    if ladders.is_empty() {
        return m;
    }
    if let Some(figure) = gains(&ladders) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("Speedup from threads.");
            m.text(&format!(
                " Speedup over one thread, on the published media and here. Published times are \
                single runs; measured times are medians, paired over blocks; bars: {}.",
                figure.ends_words()
            ));
        });
    }
    m.tag("h3").text("Time per file");
    table(&mut m, &ladders);
    if let Some(tree) = &input.tree {
        map(&mut m, tree);
    }
    explanation(&mut m, groups, input.seed);
    what_if(&mut m, &ladders);
    fits(&mut m, &ladders);
    not_here(&mut m, input, &ladders);
    m
}

/// Draws the tree that was walked, as `ioloom du --svg` does.
fn map(m: &mut Markup, tree: &TreeRow) {
    let (bytes, files) = (Unit::Bytes.format(tree.bytes as f64), format_count(tree.files));
    let figure = Figure::Map(Treemap {
        title: format!("{}: {bytes} in {files} files", tree.set),
        description: format!("Each area is a directory's share of {bytes}."),
        tiles: tree.tiles.clone(),
        unit: Unit::Bytes,
        height: MAP_HEIGHT,
    });
    parts::figure(m, &figure, |m| {
        m.tag("b").text("The tree that was walked.");
        m.text(&format!(
            " {files} files with {bytes}; each area is a directory's share, including its \
            subdirectories. A walk takes as long for a small file as for a large one: what \
            matters is the number of names and how many of them share a directory."
        ));
    });
}

fn files_of(terms: &Table) -> Option<f64> {
    terms.rows.iter().find(|row| row[0] == "files")?[1].parse().ok()
}

fn published(table: &Table, column: &str, name: &str, files: f64) -> Option<Ladder> {
    let at = table.columns.iter().position(|c| c == column)?;
    let read =
        |row: &Vec<String>| Some((row[0].parse::<u32>().ok()?, row[at].parse::<f64>().ok()?));
    let times: Vec<(u32, f64)> = table.rows.iter().filter_map(read).collect();
    let one = times.iter().find(|(n, _)| *n == 1)?.1;
    let exact = |median: f64| Estimate { values: Vec::new(), median, ends: None };
    let steps = times
        .into_iter()
        .map(|(threads, seconds)| {
            let gain = Some(exact(one / seconds)).filter(|g| g.median.is_finite());
            Step { threads, seconds, gain }
        })
        .collect();
    Some(Ladder {
        name: name.to_owned(),
        here: false,
        warm: false,
        slow: false,
        files,
        busy: 0.0,
        steps,
    })
}

fn measured(input: &Input, group: &Group<'_>, media: &BTreeMap<&str, String>) -> Option<Ladder> {
    if !LADDERS.contains(&group.experiment.name.as_str()) {
        return None;
    }
    let arms: Vec<_> = group.arms.iter().filter(|a| !a.is_again()).collect();
    let one = arms.iter().find(|a| a.factors.get(AXIS) == Some(&1.0))?;
    let (files, _) = one.work()?;
    let steps: Vec<Step> = arms
        .iter()
        .filter_map(|arm| {
            let threads = *arm.factors.get(AXIS)? as u32;
            let seconds = arm.estimate.as_ref()?.median / 1e9;
            let paired = group.gain(arm, one).map(|r| Estimate {
                values: Vec::new(),
                median: r.value,
                ends: Some(r.ends),
            });
            Some(Step { threads, seconds, gain: paired })
        })
        .collect();
    let warm = group.condition == Condition::Warm;
    let slow = group.medium == SLOW;
    let mut name = format!("here, {}", group.condition);
    if !matches!(group.medium, "work" | "image") {
        let medium = media.get(group.medium).map_or(group.medium, String::as_str);
        name.push_str(&format!(", {medium}"));
    }
    let probe = arms.iter().find(|a| a.factors.get(AXIS) == PROBES.map(f64::from).last());
    let busy = probe.and_then(|arm| {
        let cpu_ns = arm.metric("cpu_per_file_ns", input.seed)?.median * files as f64;
        Some(cpu_ns / arm.estimate.as_ref()?.median / f64::from(input.machine.cpus_usable.max(1)))
    });
    let (files, busy) = (files as f64, busy.unwrap_or(0.0));
    (steps.len() > 1).then_some(Ladder { name, here: true, warm, slow, files, busy, steps })
}

fn gains(ladders: &[Ladder]) -> Option<Figure> {
    let line = |l: &Ladder| lines::Line {
        name: l.name.clone(),
        points: l
            .steps
            .iter()
            .filter_map(|s| {
                let note = format!("{} threads: {}", s.threads, per_file(s.seconds, l.files));
                Some(lines::Point { x: f64::from(s.threads), y: s.gain.clone()?, thin: None, note })
            })
            .collect(),
    };
    // Measured ladders come first, so that they always have the first styles.
    let own = ladders.iter().filter(|l| l.here).chain(ladders.iter().filter(|l| !l.here));
    let lines: Vec<lines::Line> = own.map(line).filter(|l| l.points.len() > 1).collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Speedup from threads on each medium".to_owned(),
            description: "Speedup over one thread by the number of threads.".to_owned(),
            x_title: "threads".to_owned(),
            x_unit: Unit::Number,
            y_title: "speedup over one thread".to_owned(),
            y_unit: Unit::Number,
            lines,
            levels: Vec::new(),
            plot_height: 320.0,
            misses: Vec::new(),
        })
    })
}

fn per_file(seconds: f64, files: f64) -> String {
    Unit::Time.format(seconds * 1e9 / files)
}

fn table(m: &mut Markup, ladders: &[Ladder]) {
    let counts: BTreeSet<u32> = ladders.iter().flat_map(|l| &l.steps).map(|s| s.threads).collect();
    let mut columns = vec![("threads", true)];
    columns.extend(ladders.iter().map(|l| (l.name.as_str(), true)));
    let best = |l: &Ladder| l.steps.iter().map(|s| s.seconds).fold(f64::INFINITY, f64::min);
    parts::table(m, "plain wraps", &columns, |m| {
        for n in counts {
            m.tag("tr").body(|m| {
                m.tag("td").a("class", "r").text(&n.to_string());
                for ladder in ladders {
                    let step = ladder.steps.iter().find(|s| s.threads == n);
                    m.tag("td").a("class", "r").body(|m| {
                        let Some(step) = step else { return };
                        let text = per_file(step.seconds, ladder.files);
                        if step.seconds <= best(ladder) {
                            m.tag("b").text(&text);
                        } else {
                            m.text(&text);
                        }
                    });
                }
            });
        }
    });
    m.tag("p").a("class", "lead").text(
        "The elapsed time divided by the number of files, to make trees of different sizes \
        comparable; the best time on each medium is in bold.",
    );
}

/// The comparisons behind the explanation.
const CAUSES: [Cause; 4] = [
    Cause {
        experiment: "threads-cold",
        arms: ["statx-16", "statx-1"],
        metric: "elapsed_ns",
        what: "the time of a cold walk",
        factor: "16 threads instead of one",
        key: Some(("threads", [Some("16"), Some("1")])),
    },
    Cause {
        experiment: "threads-cold",
        arms: ["statx-256", "statx-16"],
        metric: "elapsed_ns",
        what: "the time of a cold walk",
        factor: "256 threads instead of 16",
        key: Some(("threads", [Some("256"), Some("16")])),
    },
    Cause {
        experiment: "threads-warm",
        arms: ["statx-8", "statx-1"],
        metric: "elapsed_ns",
        what: "the time of a warm walk",
        factor: "8 threads instead of one",
        key: Some(("threads", [Some("8"), Some("1")])),
    },
    Cause {
        experiment: "head-travel",
        arms: ["sweep-1", "statx-1"],
        metric: "head_travel_bytes",
        what: "the distance between the blocks read in order",
        factor: "reading all names first and calling stat in inode order",
        key: None,
    },
];

/// Explains the cost per file, and how much of it threads can reduce.
fn explanation(m: &mut Markup, groups: &[Group<'_>], seed: u64) {
    causes::write(m, groups, &CAUSES);
    causes::theory(
        m,
        "stat(2), Documentation/filesystems/ext4 of the kernel",
        "The walker makes one stat call per file. If the inode is not cached, the thread sleeps while \
        the kernel reads a block that contains neighbouring inodes. A sleeping thread needs no core, \
        so more threads than cores can help.",
    );
    if let Some(costs) = costs(groups, seed) {
        m.tag("p").text(&costs);
    }
    if let Some(words) = warm_and_cold(groups) {
        m.tag("p").text(&words);
    }
}

/// Compares the warm and the cold walks with equal numbers of threads, paired over blocks.
fn warm_and_cold(groups: &[Group<'_>]) -> Option<String> {
    let of = |name: &'static str| groups.iter().filter(move |g| g.experiment.name == name);
    let (cold, warm) = of(LADDERS[0]).find_map(|cold| {
        let warm = of(LADDERS[1]).find(|g| g.medium == cold.medium && g.set == cold.set)?;
        Some((cold, warm))
    })?;
    let ratios: Vec<Ratio> = cold
        .arms
        .iter()
        .filter(|arm| !arm.is_again() && !arm.is_cut_short())
        .filter_map(|arm| {
            let mut same = warm.arms.iter().filter(|other| other.plan == arm.plan);
            let other = same.find(|other| !other.is_again() && !other.is_cut_short())?;
            Ratio::paired(&other.blocks("elapsed_ns"), &arm.blocks("elapsed_ns"))
        })
        .collect();
    let low = ratios.iter().map(|r| r.value).min_by(f64::total_cmp)?;
    let high = ratios.iter().map(|r| r.value).max_by(f64::total_cmp)?;
    let more = ratios.iter().filter(|r| r.is_gain()).count();
    let less = ratios.iter().filter(|r| r.is_clear() && !r.is_gain()).count();
    let few = ratios.iter().filter(|r| !r.ends.is_interval()).count();
    let all = ratios.len();
    let sure = match all - less - more - few {
        _ if few == all => "Too few blocks ran for an interval, so this may be noise.".to_owned(),
        _ if less == all => format!(
            "The 95 % interval of the ratio is below 1 at each of the thread counts compared ({all})."
        ),
        rest => format!(
            "Of the thread counts compared ({all}), the 95 % interval of the ratio is below 1 at {less}, \
             above 1 at {more}, includes 1 at {rest}, and is unknown at {few}."
        ),
    };
    Some(format!(
        "Here, a warm walk takes {} to {} of the time of a cold walk with as many threads. {sure}",
        percent(low),
        percent(high),
    ))
}

/// Returns a sentence with the cost per file on one thread here.
fn costs(groups: &[Group<'_>], seed: u64) -> Option<String> {
    let of = |experiment: &str, metric: &str| {
        let group = groups.iter().find(|g| g.experiment.name == experiment)?;
        let arm = group.arms.iter().find(|a| a.factors.get(AXIS) == Some(&1.0) && !a.is_again())?;
        Some((arm.metric(metric, seed)?.median, arm.work()?.0 as f64))
    };
    let (warm, _) = of("threads-warm", "cpu_per_file_ns")?;
    let time = |ns| Unit::Time.format(ns);
    let mut words =
        format!("With one thread, a file takes {} of CPU time here if warm", time(warm));
    if let Some((cold, _)) = of("threads-cold", "cpu_per_file_ns") {
        words.push_str(&format!(", {} if cold", time(cold)));
        if let Some((reads, files)) = of("threads-cold", "device_reads").filter(|r| r.0 >= 1.0) {
            words.push_str(&format!(
                "; there was one device read per {} files",
                plain(files / reads)
            ));
        }
    }
    words.push('.');
    Some(words)
}

/// Predicts the ladders of this machine from three of their times, and draws both.
fn what_if(m: &mut Markup, ladders: &[Ladder]) {
    let own: Vec<what_if::Measured<'_>> = ladders
        .iter()
        .filter(|l| l.here)
        .map(|l| what_if::Measured {
            name: &l.name,
            busy: l.busy,
            cells: l.steps.iter().map(|s| (s.threads, s.seconds / l.files)).collect(),
        })
        .collect();
    what_if::write(m, &own);
}

fn fits(m: &mut Markup, ladders: &[Ladder]) {
    let fitted: Vec<(&Ladder, Usl, Option<WalkFit>)> = ladders
        .iter()
        .filter_map(|l| {
            let points: Vec<Point> = l.steps.iter().map(|s| (s.threads, s.seconds)).collect();
            Some((l, Usl::fit(&points).ok()?, WalkFit::fit(&points).ok()))
        })
        .collect();
    if fitted.is_empty() {
        return;
    }
    m.tag("h3").text("Two laws and their errors");
    m.tag("p").a("class", "lead").text(
        "The scalability law has a serial share and a coherence cost. The network consists of one \
        shared processor and one device with a queue; its times are per file on one thread. The \
        errors are the root mean square over the thread counts and the maximum. A fit to few \
        thread counts is weak evidence; a large error means that something else is the bottleneck.",
    );
    let columns = [
        ("medium", false),
        ("counts", true),
        ("serial share", true),
        ("coherence", true),
        ("error, law", true),
        ("processor", true),
        ("device", true),
        ("lost order", true),
        ("error, network", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (ladder, usl, fit) in &fitted {
            let time = |seconds: f64| per_file(seconds, ladder.files);
            let error = |rms: f64, worst: f64| format!("{}, {}", percent(rms), percent(worst));
            m.tag("tr").body(|m| {
                parts::words_cell(m, &ladder.name);
                for text in [
                    ladder.steps.len().to_string(),
                    percent(usl.sigma),
                    plain(usl.kappa),
                    error(usl.errors.rms, usl.errors.worst),
                ] {
                    m.tag("td").a("class", "r").text(&text);
                }
                let network = fit.as_ref().map_or_else(
                    || {
                        let needs = format!("needs {NETWORK_POINTS_MIN} counts");
                        ["–".to_owned(), "–".to_owned(), "–".to_owned(), needs]
                    },
                    |fit| {
                        [
                            time(fit.model.cpu_s),
                            time(fit.model.device_s),
                            percent(fit.model.interleave),
                            error(fit.errors.rms, fit.errors.worst),
                        ]
                    },
                );
                for text in network {
                    m.tag("td").a("class", "r").text(&text);
                }
            });
        }
    });
}

/// Lists what could not be measured here, with remedies.
fn not_here(m: &mut Markup, input: &Input, ladders: &[Ladder]) {
    let cold = ladders.iter().any(|l| l.here && !l.warm);
    let head = input.records.iter().any(|r| {
        r.measured().is_some_and(|measured| measured.extra.contains_key("head_travel_bytes"))
    });
    let mut missing = Vec::new();
    if !cold {
        missing.push((
            "cold names",
            "run as root (a disk image is remounted), or as root with --drop-caches",
        ));
    }
    if !head {
        missing.push(("head movement", "ioloom study walk --full as root"));
    }
    missing
        .push(("a slow medium", "ioloom study walk --full as root (a disk image is slowed down)"));
    if ladders.iter().any(|l| l.here && l.slow) {
        missing.pop();
    }
    if missing.is_empty() {
        return;
    }
    m.tag("ul").a("class", "notrun").body(|m| {
        for (what, remedy) in missing {
            m.tag("li").text(&format!("not measured: {what}; remedy: {remedy}"));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::treemap::Tile;

    #[test]
    fn the_tree_that_was_walked_is_drawn() {
        let tile = |name: &str, value, inside| Tile { name: name.to_owned(), value, inside };
        let inside = vec![tile("d007", 3000.0, Vec::new())];
        let tiles = vec![tile("d000", 5000.0, inside), tile("d001", 4000.0, Vec::new())];
        let tree = TreeRow { set: "tree001".to_owned(), files: 24_000, bytes: 9000, tiles };
        let mut m = Markup::new();
        map(&mut m, &tree);
        let text = m.into_string();
        for word in ["d000", "d007", "own files", "tree001: ", "24 000 files", "chart narrow"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

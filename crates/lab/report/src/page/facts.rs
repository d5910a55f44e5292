//! Sections on the basis of the results: conditions and proofs, file sets and media, machine,
//! plans, and how to repeat the study.

use super::parts;
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::quantity::percent;
use crate::table::Table;
use ioloom_model::layout::layout;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_model::{Condition, FileSetRealised, RunRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a condition was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    /// The measurements contradict the condition.
    Failed,
    /// The measurements prove the condition.
    Proved,
    /// The measurements are inconclusive.
    Unknown,
}

impl Proof {
    const fn of(proved: Option<bool>) -> Self {
        match proved {
            Some(true) => Self::Proved,
            Some(false) => Self::Failed,
            None => Self::Unknown,
        }
    }

    /// Writes the word with its icon.
    fn write(self, m: &mut Markup) {
        let (class, icon, word) = match self {
            Self::Proved => ("vd vd-confirmed", "✓", "proved"),
            Self::Failed => ("vd vd-refuted", "✕", "not proved"),
            Self::Unknown => ("vd vd-undecided", "?", "unknown"),
        };
        m.tag("span").a("class", class).body(|m| {
            m.tag("span").a("class", "icon").a("aria-hidden", "true").text(icon);
            m.text(word);
        });
    }
}

/// Writes the requested conditions, how they were established, and whether they were proved.
pub(crate) fn conditions(input: &Input) -> Markup {
    let mut m = Markup::new();
    let mut rows: BTreeMap<(String, String, Proof, String), Vec<&RunRecord>> = BTreeMap::new();
    for r in &input.records {
        let key = match &r.proof {
            Some(p) => {
                // Between runs, reasons differ only in their numbers, which are shown as ranges.
                let proof = Proof::of(p.proved);
                (p.asked.name().to_owned(), p.made_by.clone(), proof, masked(&p.reason))
            }
            None if r.measured().is_some() => {
                let asked = r.key.condition.name().to_owned();
                (asked, "–".to_owned(), Proof::Unknown, String::new())
            }
            None => continue,
        };
        rows.entry(key).or_default().push(r);
    }
    if rows.is_empty() {
        return m;
    }
    m.tag("p").a("class", "lead").text(
        "The condition is established before each run and proved by measurements before and after \
        it. A condition that cannot be proved casts doubt on the result.",
    );
    let columns = [
        ("condition", false),
        ("established by", false),
        ("proof", false),
        ("runs", true),
        ("names and inodes", false),
        ("resident before", true),
        ("read from device", true),
        ("reason", false),
    ];
    parts::table(&mut m, "sort conditions", &columns, |m| {
        for ((asked, made_by, proof, _), runs) in &rows {
            m.tag("tr").body(|m| {
                m.tag("td").text(asked);
                m.tag("td").text(made_by);
                m.tag("td").body(|m| proof.write(m));
                parts::number_cell(m, runs.len() as f64, |m| {
                    m.text(&runs.len().to_string());
                });
                let metadata: BTreeSet<_> = runs
                    .iter()
                    .filter_map(|r| {
                        Some(format!("{:?}", r.proof.as_ref()?.metadata).to_lowercase())
                    })
                    .collect();
                m.tag("td").text(&metadata.into_iter().collect::<Vec<_>>().join(", "));
                let resident = |r: &&RunRecord| r.proof.as_ref()?.resident_before;
                let device = |r: &&RunRecord| r.proof.as_ref()?.device_share;
                range_cell(m, runs.iter().filter_map(resident).collect());
                range_cell(m, runs.iter().filter_map(device).collect());
                m.tag("td").text(&why(runs));
            });
        }
    });
    below(&mut m, input);
    m
}

/// A second cold read that takes a smaller share of the time of the first shows a cache below.
const BELOW_MAX: f64 = 0.67;

/// Writes whether a cache below this kernel was found under each medium.
fn below(m: &mut Markup, input: &Input) {
    let mut media: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for r in &input.records {
        let read = r.proof.as_ref().filter(|p| p.asked == Condition::Cold);
        if let Some(read) = read {
            media.entry(r.key.medium.as_str()).or_default().extend(read.second_read);
        }
    }
    for (medium, shares) in media {
        let found = shares.iter().any(|share| *share <= BELOW_MAX);
        let words = match (shares.is_empty(), found) {
            (true, _) => format!(
                "Caches below this kernel, such as that of a hypervisor, were not probed on {medium}."
            ),
            (_, true) => format!(
                "A cache below this kernel holds data of {medium}: a second cold read of the same \
                 files took {} of the time of the first. Later cold runs measure that cache rather \
                 than the device.",
                range(shares.into_iter())
            ),
            (_, false) => format!(
                "No sign of a cache below this kernel on {medium}: a second cold read of the same \
                 files took {} of the time of the first. A cache that held the files before both reads \
                 would not show.",
                range(shares.into_iter())
            ),
        };
        m.tag("p").text(&words);
    }
}

/// Replaces every number of a text with one character.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | '.' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

/// Returns the reason for these runs, or the first one as an example if the numbers differ.
fn why(runs: &[&RunRecord]) -> String {
    let reasons: BTreeSet<&str> =
        runs.iter().filter_map(|r| Some(r.proof.as_ref()?.reason.as_str())).collect();
    let first = runs.iter().find_map(|r| Some(r.proof.as_ref()?.reason.as_str()));
    match (first, reasons.len()) {
        (None, _) => "no proof was recorded".to_owned(),
        (Some(reason), 0 | 1) => reason.to_owned(),
        (Some(reason), _) => format!("for example: {reason}"),
    }
}

fn range(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.is_empty() {
        "not measured".to_owned()
    } else if percent(low) == percent(high) {
        percent(low)
    } else {
        format!("{} to {}", percent(low), percent(high))
    }
}

/// Writes a cell with a range, which is sorted by its lower end.
fn range_cell(m: &mut Markup, values: Vec<f64>) {
    let low = values.iter().copied().filter(|v| v.is_finite()).reduce(f64::min);
    parts::number_cell(m, low, |m| {
        m.text(&range(values.into_iter()));
    });
}

/// Writes the tables in the layout of the sources. Ladders on one medium are collapsed because they
/// have charts.
pub(crate) fn tables(media: &[Table], roles: &[Table]) -> Markup {
    let mut m = Markup::new();
    let (alone, several): (Vec<_>, Vec<_>) = media.iter().partition(|t| t.columns.len() <= 2);
    for t in several.into_iter().chain(roles) {
        parts::plain_table(&mut m, t);
    }
    if !alone.is_empty() {
        m.tag("details").body(|m| {
            m.tag("summary").text("Thread ladders on one medium");
            for t in alone {
                parts::plain_table(m, t);
            }
        });
    }
    m
}

/// Writes the machine, its devices and features, the file sets and their media.
pub(crate) fn machine(inputs: &[Input]) -> Markup {
    let mut m = Markup::new();
    let Some(input) = inputs.first() else { return m };
    let f = &input.machine;
    let unknown = || "unknown".to_owned();
    let words = |v: &Option<String>| v.clone().unwrap_or_else(unknown);
    let bytes = |v: Option<u64>| v.map_or_else(unknown, format_size);
    let facts = [
        ("processor", words(&f.cpu_model)),
        (
            "cores",
            format!(
                "{} online, {} usable, threads per core: {}",
                f.cpus_online,
                f.cpus_usable,
                f.threads_per_core.map_or_else(unknown, |n| n.to_string())
            ),
        ),
        (
            "memory",
            format!("{}, {} available", bytes(f.memory_bytes), bytes(f.memory_available_bytes)),
        ),
        ("page size", format_size(f.page_bytes)),
        ("kernel", words(&f.kernel)),
        ("clock source", words(&f.clock_source)),
        (
            "virtual machine",
            f.virtual_machine.map_or_else(unknown, |v| if v { "yes" } else { "no" }.to_owned()),
        ),
        ("privileged", if f.privileged { "yes" } else { "no" }.to_owned()),
        ("fingerprint", f.fingerprint.clone()),
    ];
    m.tag("dl").a("class", "facts").body(|m| {
        for (name, value) in &facts {
            m.tag("dt").text(name);
            m.tag("dd").text(value);
        }
        for (name, value) in &f.limits {
            m.tag("dt").text(name);
            m.tag("dd").text(value);
        }
        for feature in &f.features {
            m.tag("dt").text(&feature.name);
            m.tag("dd").text(feature.missing.as_deref().unwrap_or("works"));
        }
    });
    devices(&mut m, input);
    sets(&mut m, inputs);
    m
}

fn devices(m: &mut Markup, input: &Input) {
    if input.machine.devices.is_empty() {
        return;
    }
    m.tag("h3").text("Devices");
    let columns = [
        ("device", false),
        ("size", true),
        ("rotational", false),
        ("scheduler", false),
        ("queue", true),
        ("readahead", true),
        ("mounts", false),
    ];
    parts::table(m, "plain", &columns, |m| {
        for d in &input.machine.devices {
            let dash = || "–".to_owned();
            let mounts: Vec<_> =
                d.mounts.iter().map(|(dir, kind)| format!("{dir} ({kind})")).collect();
            let flag = d.rotational.map_or("–", |r| if r { "yes" } else { "no" });
            m.tag("tr").body(|m| {
                m.tag("td").text(&d.name);
                m.tag("td").a("class", "r").text(&d.bytes.map_or_else(dash, format_size));
                m.tag("td").text(flag);
                m.tag("td").text(d.scheduler.as_deref().unwrap_or("–"));
                m.tag("td")
                    .a("class", "r")
                    .text(&d.queue_requests.map_or_else(dash, |n| n.to_string()));
                let ahead = d.read_ahead_kib.map_or_else(dash, |k| format!("{k} KiB"));
                m.tag("td").a("class", "r").text(&ahead);
                m.tag("td").text(&mounts.join(", "));
            });
        }
    });
}

fn sets(m: &mut Markup, inputs: &[Input]) {
    let mut sets: BTreeMap<(String, String), (&FileSetRealised, &str)> = BTreeMap::new();
    for input in inputs {
        for r in input.records.iter().filter(|r| !r.key.set.is_empty()) {
            let about = input.study.sets.get(&r.key.set).map_or("", |s| s.about.as_str());
            sets.entry((r.key.set.clone(), r.key.medium.clone())).or_insert((&r.set, about));
        }
    }
    if sets.is_empty() {
        return;
    }
    m.tag("h3").text("File sets and media");
    let columns = [
        ("file set", false),
        ("medium", false),
        ("files", true),
        ("bytes", true),
        ("mean size", true),
        ("mean compute", true),
        ("represents", false),
        ("hash", false),
    ];
    parts::table(m, "sort plain", &columns, |m| {
        for ((name, medium), (set, about)) in &sets {
            let place = set.medium.as_ref().map_or_else(
                || medium.clone(),
                |md| {
                    let device = md.block_device.as_deref().unwrap_or("no block device");
                    format!("{medium}: {} on {device}", md.file_system)
                },
            );
            let compute = set.compute_ns_mean.map_or_else(|| "–".to_owned(), format_ns);
            m.tag("tr").body(|m| {
                parts::words_cell(m, name);
                parts::words_cell(m, &place);
                parts::number_cell(m, set.files as f64, |m| {
                    m.text(&format_count(set.files));
                });
                parts::number_cell(m, set.bytes_total as f64, |m| {
                    m.text(&format_size(set.bytes_total));
                });
                parts::number_cell(m, set.bytes_mean, |m| {
                    m.text(&format_size(set.bytes_mean.round() as u64));
                });
                parts::number_cell(m, set.compute_ns_mean, |m| {
                    m.text(&compute);
                });
                m.tag("td").text(about);
                m.tag("td").a("class", "nb").body(|m| m.tag("code").text(&set.hash));
            });
        }
    });
}

/// Writes every plan with its effect.
pub(crate) fn plans(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for arm in groups.iter().flat_map(|g| &g.arms) {
        let spelled = arm.plan.to_string();
        let sentence = match arm.plan.files().map(layout) {
            Some(Ok(layout)) => layout.sentence(),
            Some(Err(reason)) => reason,
            None => input.explained.get(&spelled).cloned().unwrap_or_default(),
        };
        seen.insert(spelled, sentence);
    }
    if seen.is_empty() {
        return m;
    }
    let over_files = groups.iter().flat_map(|g| &g.arms).any(|a| a.plan.files().is_some());
    m.tag("p").a("class", "lead").text(if !over_files {
        "A plan is written as subject:method/settings."
    } else {
        "A plan is written as method/schedule/options: n threads, l requests in flight, p compute \
         permits, r readers, h hybrids that read and compute, c compute threads, w files read \
         ahead."
    });
    parts::table(&mut m, "sort plain", &[("plan", false), ("effect", false)], |m| {
        for (plan, sentence) in &seen {
            m.tag("tr").body(|m| {
                m.tag("td").body(|m| parts::plan(m, plan));
                m.tag("td").text(sentence);
            });
        }
    });
    m
}

/// Writes the command, the seed and the version.
pub(crate) fn repeat(inputs: &[Input]) -> Markup {
    let mut m = Markup::new();
    let Some(input) = inputs.first() else { return m };
    let sessions: Vec<&str> = inputs.iter().map(|i| i.session.as_str()).collect();
    let seeds: BTreeSet<String> = inputs.iter().map(|i| i.seed.to_string()).collect();
    m.tag("p").text("To repeat the study with the same version and seed:");
    m.tag("pre").body(|m| m.tag("code").text(&input.command));
    m.tag("dl").a("class", "facts").body(|m| {
        for (name, value) in [
            ("seed", seeds.into_iter().collect::<Vec<_>>().join(", ")),
            ("version and commit", input.version.clone()),
            ("session", sessions.join(", ")),
            ("started", input.started()),
            ("took", parts::took(inputs)),
            ("full records", input.store_path.clone().unwrap_or_else(|| "not stored".to_owned())),
        ] {
            m.tag("dt").text(name);
            m.tag("dd").text(&value);
        }
    });
    m
}

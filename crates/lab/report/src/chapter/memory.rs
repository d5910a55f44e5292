//! The memory chapter: the published table compared with several measurements on this machine, and
//! why they differ.

use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::markup::Markup;
use crate::memory::explanation;
use crate::page::parts;
use crate::quantity::Unit;
use crate::svg::lines;
use ioloom_model::units::{format_ns, format_size};
use std::collections::BTreeSet;

const AXIS: &str = "kib";
/// Arm families of the experiment `rulers` with their display names.
const RULERS: [(&str, &str); 4] = [
    ("chase", "dependent load, here"),
    ("random", "independent random loads, here"),
    ("store", "published loop, here"),
    ("plain", "published loop, not optimized, here"),
];

/// Draws the chapter; empty without the experiment `rulers`.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    let Some(group) = groups.iter().find(|g| g.experiment.name == "rulers") else { return m };
    let published: Vec<(f64, f64)> = input.published.get("002_ladder").map_or_else(Vec::new, |t| {
        let read = |row: &Vec<String>| Some((row[0].parse().ok()?, row[1].parse().ok()?));
        t.rows.iter().filter_map(read).collect()
    });
    if let Some(figure) = picture(group, &published) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("Two measures of the same memory.");
            m.text(&format!(
                " The published loop on the published processor and here, and dependent loads \
                here. Each run is the minimum over its blocks; marks are medians over runs; bars: \
                {}.",
                figure.ends_words()
            ));
        });
    }
    m.tag("h3").text("The published table and this machine");
    table(&mut m, group, &published);
    explanation(&mut m);
    m.tag("p").a("class", "lead").text(
        "The command ioloom memory measures more sizes, detects this machine's cache levels in \
        the curve, and compares them with those reported by the kernel and CPUID.",
    );
    m
}

fn arms_of<'a>(group: &'a Group<'_>, family: &str) -> Vec<(f64, &'a ArmRuns<'a>)> {
    let arms = group.arms.iter().filter(|a| !a.is_again() && a.family == family);
    let mut found: Vec<_> = arms.filter_map(|a| Some((*a.factors.get(AXIS)?, a))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

fn picture(group: &Group<'_>, published: &[(f64, f64)]) -> Option<Figure> {
    let own = RULERS.iter().map(|(family, name)| lines::Line {
        name: (*name).to_owned(),
        points: arms_of(group, family)
            .into_iter()
            .filter_map(|(kib, arm)| {
                let note = arm.name.to_owned();
                Some(lines::Point { x: kib * 1024.0, y: arm.estimate.clone()?, thin: None, note })
            })
            .collect(),
    });
    let theirs = lines::Line {
        name: "published loop, published".to_owned(),
        points: published
            .iter()
            .map(|(kib, ns)| lines::Point {
                x: kib * 1024.0,
                y: Estimate { values: vec![*ns], median: *ns, ends: None },
                thin: None,
                note: "published".to_owned(),
            })
            .collect(),
    };
    let lines: Vec<_> = own.chain(std::iter::once(theirs)).filter(|l| l.points.len() > 1).collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Two measures of the same memory".to_owned(),
            description: "Time per access by working set size, measured in several ways."
                .to_owned(),
            x_title: "working set".to_owned(),
            x_unit: Unit::Bytes,
            y_title: "ns per access".to_owned(),
            y_unit: Unit::Time,
            lines,
            levels: Vec::new(),
            plot_height: 320.0,
            misses: Vec::new(),
        })
    })
}

fn table(m: &mut Markup, group: &Group<'_>, published: &[(f64, f64)]) {
    let sizes: BTreeSet<u64> = RULERS
        .iter()
        .flat_map(|(family, _)| arms_of(group, family))
        .map(|(kib, _)| kib as u64)
        .chain(published.iter().map(|(kib, _)| *kib as u64))
        .collect();
    let used: Vec<_> = RULERS.iter().filter(|(f, _)| !arms_of(group, f).is_empty()).collect();
    let mut columns = vec![("working set", true), ("published loop, published", true)];
    columns.extend(used.iter().map(|(_, name)| (*name, true)));
    parts::table(m, "plain", &columns, |m| {
        for kib in sizes {
            m.tag("tr").body(|m| {
                m.tag("td").a("class", "r").text(&format_size(kib << 10));
                let theirs = published.iter().find(|(k, _)| *k as u64 == kib).map(|(_, ns)| *ns);
                let ours = used.iter().map(|(family, _)| {
                    let arms = arms_of(group, family);
                    let arm = arms.into_iter().find(|(k, _)| *k as u64 == kib);
                    arm.and_then(|(_, arm)| arm.estimate.as_ref().map(|e| e.median))
                });
                for ns in std::iter::once(theirs).chain(ours) {
                    let text = ns.map_or_else(|| "not measured".to_owned(), format_ns);
                    m.tag("td").a("class", "r").text(&text);
                }
            });
        }
    });
}

//! Sections with charts: experiments, cost of calls, and where time was spent.

use super::parts;
use crate::figures;
use crate::group::{ArmRuns, Group, NotRun, NotRunReason, Unusable, not_run};
use crate::headline::Headline;
use crate::input::Input;
use crate::markup::Markup;
use crate::quantity::count;
use ioloom_model::study::Experiment;
use ioloom_model::units::format_counted;
use ioloom_model::{CallKind, RunRecord};
use std::collections::BTreeMap;

/// Writes every experiment with its charts, doubts, numbers and missing runs.
pub(crate) fn experiments(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    let missing = not_run(input);
    let mut without_runs = Vec::new();
    for experiment in &input.study.experiments {
        let own: Vec<_> = groups.iter().filter(|g| g.experiment.name == experiment.name).collect();
        let gone: Vec<_> = missing.iter().filter(|n| n.experiment == experiment.name).collect();
        if own.is_empty() {
            if !gone.is_empty() {
                without_runs.push((experiment, gone));
            }
            continue;
        }
        m.tag("article").body(|m| {
            m.tag("h3").text(&experiment.question);
            m.tag("p").a("class", "where").text(&experiment.name);
            for group in &own {
                m.tag("div").a("class", "group").a("id", &group.id).body(|m| {
                    one_group(m, input, group);
                });
            }
            not_run_list(m, &gone);
        });
    }
    without_runs_list(&mut m, &without_runs);
    let known = |r: &&RunRecord| input.study.experiments.iter().any(|e| e.name == r.key.experiment);
    let unknown = input.records.iter().filter(|r| !known(r)).count();
    if unknown > 0 {
        m.tag("p").a("class", "lead").text(&format!(
            "{unknown} runs belong to experiments that are not in this study; they appear only in \
            the embedded data."
        ));
    }
    m
}

/// Writes the experiments without runs, collapsed.
fn without_runs_list(m: &mut Markup, experiments: &[(&Experiment, Vec<&NotRun>)]) {
    if experiments.is_empty() {
        return;
    }
    m.tag("details").body(|m| {
        let one = experiments.len() == 1;
        let words = if one { "experiment without runs" } else { "experiments without runs" };
        m.tag("summary").text(&format!("{} {words}", experiments.len()));
        m.tag("dl").a("class", "silent").body(|m| {
            for (experiment, gone) in experiments {
                m.tag("dt").body(|m| {
                    m.text(&experiment.question);
                    m.text(" ");
                    m.tag("span").a("class", "where").text(&experiment.name);
                });
                m.tag("dd").body(|m| not_run_list(m, gone));
            }
        });
    });
}

fn one_group(m: &mut Markup, input: &Input, group: &Group<'_>) {
    let figures = figures::of_group(group);
    if figures.is_empty() {
        let words = format!("{}: no arm finished, so there is no chart.", group.place());
        m.tag("p").a("class", "lead").text(&words);
    }
    for (i, figure) in figures.iter().enumerate() {
        parts::figure(m, figure, |m| {
            m.tag("b").text(&group.place());
            let words = match i {
                0 => caption(group, figure),
                _ => " all arms, best first.".to_owned(),
            };
            m.text(&words);
        });
    }
    if let Some((arm, noise)) = group.noise() {
        let text = crate::quantity::ratio_ends(noise.value, noise.ends);
        let few = if noise.ends.is_interval() { "" } else { ", minimum to maximum" };
        let words = format!(
            "Noise: {} compared with itself: {text}{few} over {} blocks.",
            arm.name, noise.n
        );
        m.tag("p").a("class", "noise").text(&words);
    }
    parts::doubts(m, &group.doubts(input), input);
    m.tag("details").body(|m| {
        m.tag("summary").text("Numbers");
        numbers(m, group);
    });
    refusals(m, group);
}

fn caption(group: &Group<'_>, figure: &figures::Figure) -> String {
    let runs: usize = group.arms.iter().map(|a| a.runs.len()).sum();
    let fewest = group.arms.iter().map(|a| a.runs.len()).filter(|n| *n > 0).min();
    format!(
        " {}: median and {}, {}, {}, at least {} per arm.",
        group.metric_name,
        figure.ends_words(),
        format_counted(group.arms.len() as u64, "arm", "arms"),
        format_counted(runs as u64, "run", "runs"),
        fewest.unwrap_or(0)
    )
}

fn numbers(m: &mut Markup, group: &Group<'_>) {
    let name = &group.metric_name;
    let columns = [
        ("arm", false),
        ("plan", false),
        (name.as_str(), true),
        ("n", true),
        ("raw values", false),
    ];
    parts::table(m, "sort numbers", &columns, |m| {
        for arm in &group.arms {
            let Some(e) = &arm.estimate else { continue };
            m.tag("tr").body(|m| {
                m.tag("td").body(|m| {
                    m.text(arm.name);
                    if !arm.doubts.is_empty() {
                        let names: Vec<_> = arm.doubts.iter().map(|d| d.name()).collect();
                        m.text(" ");
                        m.tag("span").a("class", "dmark").a("title", names.join(", ")).text("◇");
                    }
                });
                m.tag("td").body(|m| parts::plan(m, &arm.plan.to_string()));
                parts::number_cell(m, e.median, |m| parts::estimate(m, &arm.id, group.unit(), e));
                parts::number_cell(m, e.values.len() as f64, |m| {
                    parts::number(m, &arm.id, "n", &e.values.len().to_string());
                });
                let raw: Vec<_> = e.values.iter().map(|v| group.unit().format(*v)).collect();
                m.tag("td").a("class", "raws").text(&raw.join("  "));
            });
        }
    });
}

/// Writes the arms that were refused, failed or timed out, with the reasons.
fn refusals(m: &mut Markup, group: &Group<'_>) {
    let gone: Vec<(&ArmRuns<'_>, &(Unusable, String, usize))> =
        group.arms.iter().flat_map(|a| a.unusable.iter().map(move |n| (a, n))).collect();
    if gone.is_empty() {
        return;
    }
    m.tag("ul").a("class", "refused").body(|m| {
        for (arm, (why, reason, times)) in gone {
            m.tag("li").body(|m| {
                m.tag("b").text(arm.name);
                m.text(&format!(" {}", why.name()));
                if *times > 1 {
                    m.text(&format!(" ({times} runs)"));
                }
                m.text(": ");
                m.text(reason);
            });
        }
    });
}

/// Writes the arms without runs, one line per reason.
fn not_run_list(m: &mut Markup, gone: &[&NotRun]) {
    let mut reasons: Vec<NotRunReason> = gone.iter().map(|n| n.reason).collect();
    reasons.sort_unstable_by_key(|reason| reason.words());
    reasons.dedup();
    if gone.is_empty() {
        return;
    }
    m.tag("ul").a("class", "notrun").body(|m| {
        for reason in reasons {
            m.tag("li").body(|m| {
                m.text(reason.words());
                m.text(": ");
                for (i, n) in gone.iter().filter(|n| n.reason == reason).enumerate() {
                    m.text(if i > 0 { ", " } else { "" });
                    m.tag("code").text(&n.arm);
                    if n.values != "all" {
                        m.text(&format!(" ({})", n.values));
                    }
                }
            });
        }
    });
}

/// Writes the cost of calls by size.
pub(crate) fn costs(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    for group in groups {
        for (family, figure) in figures::call_costs(group, input) {
            let arms: Vec<_> =
                group.arms.iter().filter(|a| a.family == family && !a.is_again()).collect();
            let (least, most) = calls_per_point(&arms);
            parts::figure(&mut m, &figure, |m| {
                m.tag("b").text(&format!("{family}, {}", group.condition));
                m.text(&format!(
                    " Thick lines: median over runs, with {}; thin lines: 99th percentile. Each \
                    point is based on {} to {} calls.",
                    figure.ends_words(),
                    count(least),
                    count(most)
                ));
            });
        }
    }
    m
}

/// Returns the smallest and the largest number of calls per point of a cost chart.
fn calls_per_point(arms: &[&ArmRuns<'_>]) -> (u64, u64) {
    let mut points: Vec<u64> = Vec::new();
    for arm in arms {
        let mut kinds: BTreeMap<CallKind, u64> = BTreeMap::new();
        for (kind, stats) in arm.measured().flat_map(|m| &m.calls) {
            // As in the lines: a call that was only counted has no point.
            if stats.p50_ns == 0 {
                continue;
            }
            *kinds.entry(*kind).or_default() += stats.count;
        }
        points.extend(kinds.into_values().filter(|n| *n > 0));
    }
    (points.iter().copied().min().unwrap_or(0), points.iter().copied().max().unwrap_or(0))
}

/// Writes shares of time, single threads and reads in flight of the best plans.
pub(crate) fn time(headlines: &[Headline<'_, '_>]) -> Markup {
    let mut m = Markup::new();
    let mut seen: Vec<&str> = Vec::new();
    for h in headlines.iter().filter(|h| h.group.is_speed()) {
        // Only the first comparison of an experiment is drawn; the data contains all of them.
        if seen.contains(&h.group.experiment.name.as_str()) {
            continue;
        }
        seen.push(&h.group.experiment.name);
        let (shares, flight) = (figures::shares(h), figures::in_flight(h.best));
        if shares.is_none() && flight.is_none() {
            continue;
        }
        m.tag("article").body(|m| {
            m.tag("h3").text(&format!("{}: {}", h.group.experiment.name, h.group.place()));
            if let Some(figure) = shares {
                parts::figure(m, &figure, |m| {
                    m.tag("b").text("Shares of the total time of all threads of a role.");
                    m.text(" Each bar adds up to 100\u{A0}%; time without evidence is unknown.");
                });
            }
            if let Some(figure) = flight {
                parts::figure(m, &figure, |m| {
                    m.tag("b").text("Reads in flight");
                    m.text(" during the run of ");
                    parts::plan(m, &h.best.plan.to_string());
                    m.text(" that is closest to the median.");
                });
            }
            if let Some(figure) = figures::thread_shares(h.best) {
                m.tag("details").body(|m| {
                    m.tag("summary").text("Threads of that run");
                    parts::small_figure(m, &figure);
                });
            }
        });
    }
    m
}

//! Sections with text and tables: answer, comparisons, claims, doubts.

use super::parts;
use crate::advice::Advice;
use crate::doubts::of_study;
use crate::estimate::{Ends, RANGE_NOTE};
use crate::figures;
use crate::first_page::{FirstPage, Judged, OF_SESSION, VERIFY, distinct};
use crate::fit::{NAME_MAX, QUESTIONS_MAX, SINCE_MAX, TEXT_MAX, clipped, left_out};
use crate::group::Group;
use crate::headline::{Headline, answer as sentences, chosen, limit_words};
use crate::input::{ClaimRow, Input, Verdict};
use crate::markup::Markup;
use ioloom_model::Doubt;
use std::collections::{BTreeMap, BTreeSet};

/// Writes the machine, one line per question, and the score of the claims. What has no room on a screen
/// is folded.
pub(crate) fn first_page(page: &FirstPage<'_, '_>) -> Markup {
    let mut m = Markup::new();
    m.tag("p").a("class", "lead").text(&page.machine);
    let (shown, more) = page.lines.split_at(page.lines.len().min(QUESTIONS_MAX));
    let (since, earlier) = page.since.split_at(page.since.len().min(SINCE_MAX));
    answer_lines(&mut m, shown);
    if !page.score.is_empty() {
        m.tag("p").a("class", "lead").body(|m| {
            let words = page.score.strip_suffix(VERIFY);
            m.text(words.unwrap_or(&page.score));
            if words.is_some() {
                m.tag("code").text(VERIFY);
            }
        });
    }
    let changes = |m: &mut Markup, of: &[&str]| {
        for since in of {
            m.tag("p").a("class", "lead").text(&clipped(since, TEXT_MAX));
        }
    };
    changes(&mut m, since);
    if let Some(words) = left_out(more.len(), earlier.len()) {
        m.tag("details").body(|m| {
            m.tag("summary").text(&format!("{words}, which one screen has no room for"));
            answer_lines(m, more);
            changes(m, earlier);
        });
    }
    m
}

fn answer_lines(m: &mut Markup, lines: &[Advice<'_, '_>]) {
    if lines.is_empty() {
        return;
    }
    m.tag("dl").a("class", "advice").body(|m| {
        for line in lines {
            m.tag("dt").text(&line.heading(NAME_MAX));
            m.tag("dd").body(|m| {
                parts::pieces(m, &line.sentence());
                if !line.doubts.is_empty() {
                    m.text(" ");
                    m.tag("span").a("class", "dname").text(&format!("◇ {}", line.doubt_words()));
                }
            });
        }
    });
}

/// Writes two sentences, the limits with their evidence, and the chart.
pub(crate) fn answer(
    input: &Input,
    groups: &[Group<'_>],
    headlines: &[Headline<'_, '_>],
    alone: bool,
) -> Markup {
    let mut m = Markup::new();
    // A page with several studies starts with the sentences of all studies.
    if alone {
        sentences_of(&mut m, headlines, groups);
    }
    let chosen = chosen(headlines);
    let limits: Vec<_> = chosen
        .iter()
        .filter_map(|h| Some((h, h.limit.as_ref().filter(|(_, s)| !s.is_empty())?)))
        .collect();
    if let Some(picture) = figures::overview(&chosen) {
        parts::figure(&mut m, &picture, |m| {
            let fastest = chosen.iter().all(|h| h.is_fastest());
            let plan = if fastest { "fastest plan" } else { "chosen plan" };
            m.tag("b").text(&format!("Gain of the {plan}."));
            m.text(&format!(
                " To the right of the dashed line, it wins; bars: {}.",
                picture.ends_words()
            ));
        });
    }
    if !limits.is_empty() {
        m.tag("dl").a("class", "limits").body(|m| {
            for (h, (word, sentence)) in limits {
                m.tag("dt").text(&format!("{}: {}", h.group.set, limit_words(word)));
                m.tag("dd").text(sentence);
            }
        });
    }
    let mut general: BTreeSet<Doubt> =
        input.doubts.iter().filter(|d| d.experiment.is_none()).map(|d| d.doubt).collect();
    general.extend(chosen.iter().flat_map(|h| frequent_doubts(h)));
    parts::doubts(&mut m, &general, input);
    m
}

/// Writes the answer in two sentences.
pub(crate) fn sentences_of(m: &mut Markup, headlines: &[Headline<'_, '_>], groups: &[Group<'_>]) {
    let [first, second] = sentences(headlines, groups);
    m.tag("p").a("class", "answer").body(|m| {
        parts::pieces(m, &first);
        if !second.is_empty() {
            m.text(" ");
            parts::pieces(m, &second);
        }
    });
}

/// Returns the doubts shared by at least half of the runs behind the answer.
fn frequent_doubts(h: &Headline<'_, '_>) -> Vec<Doubt> {
    let mut seen: BTreeMap<Doubt, usize> = BTreeMap::new();
    let arms = std::iter::once(h.best).chain(h.gains.iter().map(|(_, other, _)| *other));
    let runs: Vec<_> = arms.flat_map(|a| &a.runs).collect();
    for doubt in runs.iter().flat_map(|r| &r.doubts) {
        *seen.entry(*doubt).or_default() += 1;
    }
    seen.into_iter().filter(|(_, n)| n * 2 >= runs.len()).map(|(d, _)| d).collect()
}

/// Writes one row per comparison.
pub(crate) fn comparisons(input: &Input, headlines: &[Headline<'_, '_>]) -> Markup {
    let mut m = Markup::new();
    if headlines.is_empty() {
        return m;
    }
    m.tag("p").a("class", "lead").text(
        "The best plan in each comparison, and its gain over simpler plans, or over the next best \
        plan if it is the simplest. Of more than two plans, the best is chosen by every fourth block \
        and compared in the others. Ratios in bold have an interval that excludes 1.",
    );
    let columns = [
        ("experiment", false),
        ("file set and condition", false),
        ("best plan", false),
        ("plans", true),
        ("median", true),
        ("n", true),
        ("gain", true),
        ("limited by", false),
    ];
    parts::table(&mut m, "sort comparisons", &columns, |m| {
        for h in headlines {
            m.tag("tr").body(|m| comparison_row(m, input, h));
        }
    });
    let few = |h: &Headline<'_, '_>| h.ends().any(|ends| !ends.is_interval());
    if headlines.iter().any(few) {
        m.tag("p").a("class", "lead").text(RANGE_NOTE);
    }
    m
}

fn comparison_row(m: &mut Markup, input: &Input, h: &Headline<'_, '_>) {
    let g = h.group;
    m.tag("td").body(|m| {
        m.tag("a").a("href", format!("#{}", g.id)).text(&g.experiment.name);
        let doubts = g.doubts(input);
        if !doubts.is_empty() {
            let names: Vec<_> = doubts.iter().map(|d| d.name()).collect();
            m.text(" ");
            m.tag("span").a("class", "dmark").a("title", names.join(", ")).text("◇");
        }
    });
    parts::words_cell(m, &g.place());
    m.tag("td").body(|m| parts::plan(m, &h.best.plan.to_string()));
    parts::number_cell(m, h.out_of as f64, |m| {
        m.text(&h.out_of.to_string());
    });
    if let Some(e) = &h.best.estimate {
        parts::number_cell(m, e.median, |m| parts::estimate(m, &h.best.id, g.unit(), e));
        parts::number_cell(m, e.values.len() as f64, |m| {
            parts::number(m, &h.best.id, "n", &e.values.len().to_string());
        });
    }
    let sort = h.gains.first().and_then(|(_, _, r)| *r).map_or(0.0, |r| r.value);
    parts::number_cell(m, sort, |m| {
        if h.gains.is_empty() {
            m.tag("span").a("class", "iv").text("nothing to compare");
        }
        for (id, other, ratio) in &h.gains {
            m.tag("div").a("class", "gain").body(|m| {
                match ratio {
                    Some(r) => parts::ratio(m, id, r),
                    None => m.tag("span").a("class", "iv").text("too few common blocks"),
                }
                let next = if h.is_simplest { "over the next best, " } else { "over " };
                m.tag("span").a("class", "over").text(&format!("{next}{}", other.name));
            });
        }
    });
    m.tag("td").text(h.limit.as_ref().map_or("unknown", |(word, _)| word));
}

/// Writes all claims with their verdicts; the page script makes the filter work.
pub(crate) fn claims(inputs: &[Input]) -> Markup {
    let mut m = Markup::new();
    if inputs.iter().all(|input| input.verdicts.is_empty()) {
        return m;
    }
    let claims: Vec<(Judged<'_>, bool)> = distinct(inputs)
        .into_iter()
        .flat_map(|rows| {
            let several = rows.len() > 1;
            rows.into_iter().map(move |row| (row, several))
        })
        .collect();
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    // A claim that repeats another is counted with it.
    for ((.., claim), _) in claims.iter().filter(|((.., c), _)| c.same_as.is_none()) {
        *counts.entry(claim.verdict).or_default() += 1;
    }
    m.tag("p").a("class", "lead").text(OF_SESSION);
    m.tag("div").a("class", "filter").a("id", "claim-filter").body(|m| {
        for verdict in Verdict::ALL {
            let Some(count) = counts.get(&verdict) else { continue };
            m.tag("button")
                .a("type", "button")
                .a("data-verdict", verdict.name())
                .a("aria-pressed", "true")
                .body(|m| {
                    parts::verdict(m, verdict);
                    m.tag("span").a("class", "count").text(&count.to_string());
                });
        }
        m.tag("input")
            .a("type", "search")
            .a("id", "claim-search")
            .a("placeholder", "search claims")
            .a("aria-label", "search claims")
            .void();
    });
    let columns = [("claim", false), ("verdict", false), ("published", false), ("here", false)];
    parts::table(&mut m, "sort claims", &columns, |m| {
        // Decided claims come first; otherwise, the order of the claims is preserved.
        let decided = |c: &ClaimRow| {
            matches!(c.verdict, Verdict::Confirmed | Verdict::Refuted | Verdict::Scope)
        };
        for wanted in [true, false] {
            for (row, several) in claims.iter().filter(|((.., c), _)| decided(c) == wanted) {
                claim_row(m, *row, *several);
            }
        }
    });
    m
}

/// Writes a claim with a verdict, which is one of several if studies disagree.
fn claim_row(m: &mut Markup, (input, index, claim): Judged<'_>, several: bool) {
    let order = Verdict::ALL.iter().position(|v| *v == claim.verdict).unwrap_or(9);
    m.tag("tr").a("data-verdict", claim.verdict.name()).body(|m| {
        m.tag("td").a("data-sort", &claim.id).a("class", "statement").body(|m| {
            m.tag("span").a("class", "cid").text(&claim.id);
            m.text(" ");
            m.text(&claim.statement);
            if let Some(first) = &claim.same_as {
                m.text(&format!(" Repeats {first} and is counted with it."));
            }
            if several {
                let (study, session) = (&input.study.name, &input.session);
                m.text(&format!(" Verdict of {study}, session {session}; another one differs."));
            }
        });
        m.tag("td").a("data-sort", order).body(|m| parts::verdict(m, claim.verdict));
        m.tag("td").text(if claim.published.is_empty() { "none" } else { &claim.published });
        m.tag("td").body(|m| {
            if let Some((value, low, high)) = claim.effect {
                let text = crate::quantity::ratio_ends(value, Ends::interval(low, high));
                let (value, interval) = text.split_once(' ').unwrap_or((&text, ""));
                parts::number(m, &format!("{}c{index}", input.prefix), "ratio", value);
                m.text(" ");
                m.tag("span").a("class", "iv").text(interval);
                m.text(" ");
            }
            m.text(&claim.sentence);
            let pictures = figures::claim(claim, input);
            if !pictures.is_empty() {
                m.tag("details").body(|m| {
                    m.tag("summary").text("Measured and published");
                    for picture in &pictures {
                        parts::small_figure(m, picture);
                    }
                });
            }
        });
    });
}

/// Writes every doubt with its occurrences and advice.
pub(crate) fn doubts(input: &Input) -> Markup {
    let mut m = Markup::new();
    let seen = of_study(input);
    if seen.is_empty() {
        m.tag("p").text("None of the known reasons to distrust these results applies.");
        return m;
    }
    let columns = [("doubt", false), ("runs", true), ("found in", false), ("what to do", false)];
    parts::table(&mut m, "sort doubt-table", &columns, |m| {
        for (doubt, found) in &seen {
            m.tag("tr").body(|m| {
                m.tag("td").body(|m| {
                    m.tag("span").a("class", "dname").text(&format!("◇ {doubt}"));
                });
                let runs = found.runs;
                parts::number_cell(m, runs as f64, |m| {
                    m.text(&if runs > 0 { runs.to_string() } else { "–".to_owned() });
                });
                m.tag("td").body(|m| {
                    m.text(&found.places());
                    for detail in &found.details {
                        m.tag("div").a("class", "iv").text(detail);
                    }
                });
                m.tag("td").text(&input.advice(*doubt));
            });
        }
    });
    m
}

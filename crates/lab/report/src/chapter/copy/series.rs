//! Consecutive copies in the copy chapter: what their mean hides, and whether a copy's time depends
//! on its disk location.
//!
//! The chart shows only the typical run of each arm, because averaging several runs would lose the
//! order of the copies.

use super::source::{PUBLISHED_CUT, SERIES, column};
use crate::chapter::arms::{arm, row};
use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::Unit;
use crate::svg::lines;
use ioloom_model::Measured;
use ioloom_model::units::{format_ns, format_size};
use ioloom_stats::{Alternation, FirstRun, TwoRegimes, median, spearman, trimmed_mean};

/// Significance level for the correlations, the same as for the series tests.
const CHANCE: f64 = 0.05;

/// An arm with repeated copies of a file.
struct Arm {
    arm: &'static str,
    /// Display name.
    name: &'static str,
    /// Whether the copies bypass the cache.
    direct: bool,
}

/// The arms that were measured here.
const ARMS: [Arm; 4] = [
    Arm { arm: "direct", name: "direct", direct: true },
    Arm { arm: "buffered", name: "buffered", direct: false },
    Arm { arm: "direct-over", name: "direct, overwriting", direct: true },
    Arm { arm: "buffered-over", name: "buffered, overwriting", direct: false },
];

/// A series of copies: its name and the seconds that each copy took.
type Series = (&'static str, Vec<f64>);

/// Returns the measured series, each from one run.
fn own_series(groups: &[Group<'_>]) -> Vec<Series> {
    ARMS.iter()
        .filter_map(|own| {
            let curve = arm(groups, "in-a-row", own.arm)?.typical()?.curves.get("series")?;
            Some((own.name, curve.iter().map(|(_, ns)| ns / 1e9).collect()))
        })
        .collect()
}

/// Writes the section; nothing without measured series.
pub(super) fn section(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let ours = own_series(groups);
    if ours.is_empty() {
        return;
    }
    let read = |direct: Option<bool>| -> Vec<Series> {
        let wanted = SERIES.iter().filter(|s| direct.is_none_or(|direct| s.direct == direct));
        let read = wanted.map(|s| (s.name, column(input, s.column)));
        read.filter(|(_, values)| !values.is_empty()).collect()
    };
    m.tag("h3").text("Consecutive copies");
    let unbuffered = read(Some(true));
    if !unbuffered.is_empty() {
        parts::figure(m, &consecutive("published", &unbuffered), |m| {
            m.tag("b").text("What the mean hides.");
            m.text(
                " Each published unbuffered copy relative to the median of its series. Fast and \
                slow copies alternate, which neither a plain nor a trimmed mean reveals.",
            );
        });
    }
    parts::figure(m, &consecutive("here", &ours), |m| {
        m.tag("b").text("The same on this machine.");
        m.text(" The typical run of each series. The scale differs from that of the chart above.");
    });
    let columns = [
        ("series", false),
        ("middle third", true),
        ("median", true),
        ("lag 1", true),
        ("alternates", true),
        ("first differs", true),
        ("two groups", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (words, values) in &read(None) {
            series_row(m, &format!("published: {words}"), values);
        }
        for (words, values) in &ours {
            series_row(m, &format!("here: {words}"), values);
        }
    });
    m.tag("p").a("class", "lead").text(
        "Lag 1 is the correlation of each copy with the previous one; below −0.5, consecutive \
        copies usually differ. A series alternates if it crosses its median more often than 95 % \
        of random series. First differs: how much the first copy differs from the others. Two \
        groups: the distance between the groups, if the values form two groups.",
    );
    locations(m, groups);
}

fn consecutive(whose: &str, all: &[Series]) -> Figure {
    let line = |(name, values): &Series| {
        let centre = median(values);
        let exact = |median: f64| Estimate { values: Vec::new(), median, ends: None };
        let points = values.iter().enumerate().map(|(i, seconds)| lines::Point {
            x: i as f64,
            y: exact(seconds / centre - 1.0),
            thin: None,
            note: format_ns(seconds * 1e9),
        });
        lines::Line { name: (*name).to_owned(), points: points.collect() }
    };
    Figure::Lines(lines::Lines {
        title: format!("Consecutive copies relative to their median: {whose}"),
        description: "Difference between the time of each copy and the median of its series."
            .to_owned(),
        x_title: "number of earlier copies".to_owned(),
        x_unit: Unit::Number,
        y_title: "relative to the median".to_owned(),
        y_unit: Unit::Share,
        lines: all.iter().map(line).collect(),
        levels: Vec::new(),
        plot_height: 240.0,
        misses: Vec::new(),
    })
}

fn series_row(m: &mut Markup, words: &str, values: &[f64]) {
    let seconds = |s: f64| format_ns(s * 1e9);
    let answer = |found: Option<(bool, String)>| match found {
        Some((true, why)) => format!("yes, {why}"),
        Some((false, why)) => format!("no, {why}"),
        None => "too few".to_owned(),
    };
    let alternation = Alternation::test(values).ok();
    let lag1 = alternation.map_or_else(|| "too few".to_owned(), |t| format!("{:.2}", t.lag1));
    let alternates = alternation.map(|t| (t.found, format!("p = {:.4}", t.p)));
    let first = FirstRun::test(values).ok();
    let first = first.map(|t| (t.found, format!("{:+.0} %", t.change * 100.0)));
    let two = TwoRegimes::test(values).ok();
    let two = two.map(|t| (t.found, format!("{:.0} % apart", t.change * 100.0)));
    row(
        m,
        [
            words,
            &seconds(trimmed_mean(values, PUBLISHED_CUT)),
            &seconds(median(values)),
            &lag1,
            &answer(alternates),
            &answer(first),
            &answer(two),
        ],
    );
}

/// Returns the typical runs of the arms that queried the locations of their copies.
fn located<'a>(groups: &'a [Group<'_>]) -> Vec<(&'static Arm, &'a Measured)> {
    let typical = |own: &'static Arm| Some((own, arm(groups, "in-a-row", own.arm)?.typical()?));
    let ours = ARMS.iter().filter_map(typical);
    ours.filter(|(_, run)| run.extra.contains_key("places_known")).collect()
}

/// Lists the time and location of each copy and states whether they are related.
fn locations(m: &mut Markup, groups: &[Group<'_>]) {
    let ours = located(groups);
    if ours.is_empty() {
        return;
    }
    // Only two fit next to each other. Direct copies come first because the published ones are
    // direct.
    let mut shown: Vec<_> =
        ours.iter().filter(|(_, run)| known(run, "places_known") > 0.0).collect();
    shown.sort_by_key(|(own, _)| !own.direct);
    shown.truncate(2);
    m.tag("h3").text("Locations of the copies");
    let mut columns = vec![("copy", false)];
    for (own, _) in &shown {
        columns.extend([(own.name, true), ("location", true)]);
    }
    let copies = shown.iter().filter_map(|(_, run)| Some(run.curves.get("series")?.len())).max();
    if let Some(copies) = copies {
        parts::table(m, "plain", &columns, |m| {
            for copy in 1..=copies {
                m.tag("tr").body(|m| {
                    parts::words_cell(m, &copy.to_string());
                    for (_, run) in &shown {
                        let at = |curve: &str| value_at(run, curve, copy);
                        let took = at("series").map_or_else(|| "–".to_owned(), format_ns);
                        m.tag("td").a("class", "r").text(&took);
                        let first = run.curves.get("place_bytes").and_then(|all| all.first());
                        let from = at("place_bytes").zip(first).map(|(b, (_, first))| b - first);
                        let place = at("place").zip(from);
                        let place =
                            place.map_or_else(|| "unknown".to_owned(), |(n, b)| location(n, b));
                        m.tag("td").a("class", "r").text(&place);
                    }
                });
            }
        });
    }
    m.tag("ul").body(|m| {
        for (own, run) in &ours {
            m.tag("li").text(&relation(own.name, run));
        }
    });
    m.tag("p").a("class", "lead").text(
        "The file system was queried after each copy. A letter stands for a location: copies with \
        the same letter share at least half of their blocks. The number is the distance between \
        the middle of a copy and the middle of the first one. An overwriting copy is a new file \
        until it is complete, so it cannot use the blocks of the file it replaces, and successive \
        copies may alternate between two regions. A single series only shows what is possible; \
        the verdict on claim 003-C14 uses all of them.",
    );
}

fn known(run: &Measured, number: &str) -> f64 {
    run.extra.get(number).copied().unwrap_or(0.0)
}

fn value_at(run: &Measured, curve: &str, copy: usize) -> Option<f64> {
    let points = run.curves.get(curve)?;
    points.iter().find(|(x, _)| *x == copy as f64).map(|(_, value)| *value)
}

/// Formats a location as its letter and its distance from the first copy in bytes.
fn location(number: f64, after: f64) -> String {
    let letter = match number as u8 {
        n @ 0..26 => char::from(b'A' + n).to_string(),
        n => format!("no. {}", n + 1),
    };
    let size = format_size(after.abs() as u64);
    match after {
        0.0 => letter,
        _ if after > 0.0 => format!("{letter}, +{size}"),
        _ => format!("{letter}, −{size}"),
    }
}

/// Minimum rank correlation at which locations are considered to follow the copy order.
const ORDERED: f64 = 0.8;

/// Returns whether disk locations follow the copy order, forwards or backwards.
fn in_order(run: &Measured) -> bool {
    let Some(places) = run.curves.get("place_bytes") else { return false };
    let (order, place): (Vec<f64>, Vec<f64>) = places.iter().copied().unzip();
    spearman(&order, &place).abs() >= ORDERED
}

/// Returns a sentence on whether the times of a series go with the locations.
fn relation(words: &str, run: &Measured) -> String {
    let number = |name: &str| run.extra.get(name).copied();
    let (known, places) = (known(run, "places_known"), known(run, "places"));
    if known == 0.0 {
        return format!(
            "{words}: no copy had a known location when it returned, because nothing was written \
            yet or the file system does not report locations. Whether the location goes with the \
            times is unknown."
        );
    }
    if known < 2.0 {
        return format!(
            "{words}: the location of only 1 copy is known. Whether the location goes with the times is \
            unknown."
        );
    }
    let copies = run.curves.get("series").map_or(known, |series| series.len() as f64);
    if places < 2.0 && known < copies {
        return format!("{words}: the {known:.0} copies with a known location share one.");
    }
    if places < 2.0 {
        return format!(
            "{words}: all copies share one location, so it does not explain their differences."
        );
    }
    let turned = number("place_turned_share").unwrap_or(0.0);
    let stayed = number("place_stayed_share").unwrap_or(0.0);
    let order = if turned > 0.5 {
        "alternating between two regions of the disk"
    } else if places == known && known < copies {
        "one for each copy with a known location"
    } else if places == known {
        "one for each copy"
    } else if stayed > 0.5 {
        "mostly the same as for the previous copy"
    } else {
        "in no regular order"
    };
    let effect = match (number("place_time_rho"), number("place_time_p")) {
        (Some(rho), Some(p)) if p < CHANCE && in_order(run) => format!(
            "both location and time follow the order of the copies, so their relation cannot be \
            determined (rank correlation {rho:.2})"
        ),
        (Some(rho), Some(p)) if p < CHANCE => format!(
            "the time goes with the location: copies at higher offsets took {} (rank correlation \
             {rho:.2}, p = {p:.4})",
            if rho > 0.0 { "longer" } else { "less time" }
        ),
        (Some(rho), Some(p)) => {
            format!("no relation to the location is shown (rank correlation {rho:.2}, p = {p:.2})")
        }
        _ => "too few copies to relate time and location".to_owned(),
    };
    format!("{words}: {places:.0} locations, {order}; {effect}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_text(values: &[f64]) -> String {
        let mut m = Markup::new();
        series_row(&mut m, "a series", values);
        m.as_str().to_owned()
    }

    #[test]
    fn the_alternation_that_the_published_mean_hides_is_shown() {
        let published =
            [5.231, 5.529, 5.206, 5.533, 5.109, 5.566, 5.142, 5.531, 5.131, 5.486, 5.212, 5.531];
        let text = row_text(&published);
        assert!(text.contains("5.36 s") && text.contains("-0.9"), "{text}");
        assert!(text.contains("yes, p = 0.00"), "{text}");
        let steady =
            row_text(&[1.0, 1.01, 1.02, 1.01, 1.0, 1.02, 1.01, 1.0, 1.01, 1.02, 1.0, 1.01]);
        assert!(!steady.contains("yes"), "{steady}");
        assert!(row_text(&[1.0, 2.0, 1.0]).contains("too few"));
    }

    #[test]
    fn a_series_is_drawn_over_its_own_median() {
        let series = ("s", vec![2.0, 4.0, 2.0]);
        let Figure::Lines(drawn) = consecutive("here", &[series]) else { panic!("lines") };
        let y: Vec<f64> = drawn.lines[0].points.iter().map(|p| p.y.median).collect();
        assert_eq!(y, [0.0, 1.0, 0.0]);
        assert_eq!(drawn.lines[0].points[2].x, 2.0);
    }

    fn series_at(places: &[f64], rho: f64, p: f64, turned: f64) -> Measured {
        let mut run = Measured::default();
        let points = |values: &[f64]| (1..).map(f64::from).zip(values.iter().copied()).collect();
        run.curves.insert("place".to_owned(), points(places));
        let all = places.iter().copied().fold(0.0, f64::max) + 1.0;
        for (name, value) in [
            ("places_known", places.len() as f64),
            ("places", all),
            ("place_turned_share", turned),
            ("place_time_rho", rho),
            ("place_time_p", p),
        ] {
            run.extra.insert(name.to_owned(), value);
        }
        run
    }

    #[test]
    fn locations_are_related_to_times() {
        let turns = relation("over", &series_at(&[0.0, 1.0, 0.0, 1.0], 0.87, 0.001, 1.0));
        assert!(
            turns.contains(
                "2 locations, alternating between two regions of the disk; the time goes with the \
                 location"
            ),
            "{turns}"
        );
        let mut walked = series_at(&[0.0, 1.0, 2.0, 3.0], 0.9, 0.001, 0.0);
        let points = (1..5).map(|i| (f64::from(i), f64::from(i) * 1e9)).collect();
        walked.curves.insert("place_bytes".to_owned(), points);
        let walked = relation("new", &walked);
        assert!(walked.contains("both location and time follow the order"), "{walked}");
        let same = relation("over", &series_at(&[0.0, 1.0, 0.0, 1.0], 0.1, 0.8, 1.0));
        assert!(same.contains("no relation to the location is shown"), "{same}");
        assert!(
            relation("x", &series_at(&[0.0, 0.0], 0.0, 1.0, 0.0))
                .contains("all copies share one location")
        );
        let of_twelve = |places: &[f64]| {
            let mut run = series_at(places, 0.0, 1.0, 0.0);
            run.curves.insert("series".to_owned(), (1..13).map(|i| (f64::from(i), 1e9)).collect());
            relation("x", &run)
        };
        assert!(of_twelve(&[0.0]).contains("the location of only 1 copy is known"));
        assert_eq!(of_twelve(&[0.0; 2]), "x: the 2 copies with a known location share one.");
        assert!(of_twelve(&[0.0; 12]).contains("all copies share one location"));
        let unknown = relation("x", &series_at(&[], 0.0, 1.0, 0.0));
        assert!(unknown.contains("nothing was written yet"), "{unknown}");
        assert!(unknown.contains("goes with the times is unknown"), "{unknown}");
        assert_eq!(location(1.0, 3.0 * 1_073_741_824.0), "B, +3.00 GiB");
        assert_eq!(
            (location(0.0, 0.0), location(30.0, 0.0)),
            ("A".to_owned(), "no. 31".to_owned())
        );
        assert_eq!(value_at(&series_at(&[0.0, 1.0], 0.0, 1.0, 0.0), "place", 2), Some(1.0));
    }
}

//! Copies in a row in the chapter of copying: what their mean hides, and whether the time of a copy
//! goes with the place of the disk that it lies in.
//!
//! Drawn is one run, the typical one: the order of its copies is what matters, and a mean of several
//! runs would have none.

use super::{COLUMNS, PUBLISHED_CUT, column};
use crate::chapter::{arm, row};
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

/// Probability below which chance is not believed, as in the tests of a series.
const CHANCE: f64 = 0.05;

/// Our series: arms and words for them.
const OURS: [(&str, &str); 4] = [
    ("direct", "past the cache"),
    ("buffered", "through the cache"),
    ("direct-over", "past, over the last"),
    ("buffered-over", "through, over the last"),
];

/// Our series with words: those that one run made.
fn own_series(groups: &[Group<'_>]) -> Vec<(String, Vec<f64>)> {
    OURS.into_iter()
        .filter_map(|(name, words)| {
            let curve = arm(groups, "in-a-row", name)?.typical()?.curves.get("series")?;
            Some((words.to_owned(), curve.iter().map(|(_, ns)| ns / 1e9).collect()))
        })
        .collect()
}

/// The section; nothing without a series of ours.
pub(super) fn section(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let ours = own_series(groups);
    if ours.is_empty() {
        return;
    }
    let theirs = COLUMNS.iter().map(|(name, words)| ((*words).to_owned(), column(input, name)));
    let theirs: Vec<_> = theirs.filter(|(_, values)| !values.is_empty()).collect();
    m.tag("h3").text("Twelve in a row");
    let unbuffered = |(words, _): &&(String, Vec<f64>)| words.starts_with("un");
    let published: Vec<_> = theirs.iter().filter(unbuffered).collect();
    if !published.is_empty() {
        parts::figure(m, &in_a_row("As published", &published), |m| {
            m.tag("b").text("What the mean hides.");
            m.text(
                " Each published copy past the cache against the median of its series. They go up and \
                 down in turn; a mean, trimmed or not, cannot show it.",
            );
        });
    }
    parts::figure(m, &in_a_row("Here", &ours.iter().collect::<Vec<_>>()), |m| {
        m.tag("b").text("The same here.");
        m.text(" One run of each series, the typical one. The scale is another than above.");
    });
    let columns = [
        ("series", false),
        ("middle third", true),
        ("median", true),
        ("lag 1", true),
        ("in turn", true),
        ("first differs", true),
        ("two states", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for (words, values) in &theirs {
            series_row(m, &format!("published: {words}"), values);
        }
        for (words, values) in &ours {
            series_row(m, &format!("here: {words}"), values);
        }
    });
    m.tag("p").a("class", "lead").text(
        "Lag 1 is the correlation of each copy with the one before; below −0.5 neighbours differ as \
         a rule. In turn means more changes of side than chance gives in 95 of 100 series. First: how far \
         it lies from the others. Two states: how far apart, if the values fall into two groups.",
    );
    places(m, groups);
}

fn in_a_row(whose: &str, all: &[&(String, Vec<f64>)]) -> Figure {
    let line = |(name, values): &&(String, Vec<f64>)| {
        let centre = median(values);
        let exact = |median: f64| Estimate { values: Vec::new(), median, ends: None };
        let points = values.iter().enumerate().map(|(i, seconds)| lines::Point {
            x: i as f64,
            y: exact(seconds / centre - 1.0),
            thin: None,
            note: format_ns(seconds * 1e9),
        });
        lines::Line { name: name.clone(), points: points.collect() }
    };
    Figure::Lines(lines::Lines {
        title: format!("Copies in a row against their median: {whose}"),
        description: "Time of each copy of a series, less the median of the series.".to_owned(),
        x_title: "copies before it".to_owned(),
        x_unit: Unit::Number,
        y_title: "more than the median".to_owned(),
        y_unit: Unit::Share,
        lines: all.iter().map(line).collect(),
        levels: Vec::new(),
        plot_height: 240.0,
    })
}

fn series_row(m: &mut Markup, words: &str, values: &[f64]) {
    let seconds = |s: f64| format_ns(s * 1e9);
    let says = |found: Option<(bool, String)>| match found {
        Some((true, why)) => format!("yes, {why}"),
        Some((false, why)) => format!("no, {why}"),
        None => "too few".to_owned(),
    };
    let turns = Alternation::test(values).ok();
    let lag1 = turns.map_or_else(|| "too few".to_owned(), |t| format!("{:.2}", t.lag1));
    let turns = turns.map(|t| (t.found, format!("p {:.4}", t.p)));
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
            &says(turns),
            &says(first),
            &says(two),
        ],
    );
}

/// Our series, typical runs, that asked where their copies lie.
fn lying<'a>(groups: &'a [Group<'_>]) -> Vec<(&'static str, &'a Measured)> {
    let typical =
        |(name, words): (_, &'static str)| Some((words, arm(groups, "in-a-row", name)?.typical()?));
    let ours = OURS.into_iter().filter_map(typical);
    ours.filter(|(_, run)| run.extra.contains_key("places_known")).collect()
}

/// Copy after copy: how long it took and where it lies, and in words whether one goes with the other.
fn places(m: &mut Markup, groups: &[Group<'_>]) {
    let ours = lying(groups);
    let told_of = |(_, run): &&(_, &Measured)| known(run, "places_known") > 0.0;
    // Two fit beside each other; those past the cache are what was published.
    let past = |(words, _): &&&(&str, _)| !words.starts_with("past");
    let mut shown: Vec<_> = ours.iter().filter(told_of).collect();
    shown.sort_by_key(|series| past(&series));
    shown.truncate(2);
    if ours.is_empty() {
        return;
    }
    m.tag("h3").text("Where the copies lay");
    let mut columns = vec![("copy", false)];
    for (words, _) in &shown {
        columns.extend([(*words, true), ("lay in", true)]);
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
                        let place = place.map_or_else(|| "unknown".to_owned(), |(n, b)| lay(n, b));
                        m.tag("td").a("class", "r").text(&place);
                    }
                });
            }
        });
    }
    m.tag("ul").body(|m| {
        for (words, run) in &ours {
            m.tag("li").text(&told(words, run));
        }
    });
    m.tag("p").a("class", "lead").text(
        "Asked of the file system after each copy. A letter is a place: copies of one letter have half \
         of their blocks in common; beside it stands how far behind (+) or before (−) the first copy the \
         middle of this one lies. A copy over the last one is a new file until it is complete, so the \
         two cannot lie in one place, and such copies may go back and forth between regions. One series \
         shows what may be; claim 003-C14 judges by all of them.",
    );
}

fn known(run: &Measured, number: &str) -> f64 {
    run.extra.get(number).copied().unwrap_or(0.0)
}

fn value_at(run: &Measured, curve: &str, copy: usize) -> Option<f64> {
    let points = run.curves.get(curve)?;
    points.iter().find(|(x, _)| *x == copy as f64).map(|(_, value)| *value)
}

/// A place in words: its letter, and how many bytes after the first copy it lies.
fn lay(number: f64, after: f64) -> String {
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

/// Rank correlation of places with the order of their copies from which on the two are the same.
const ORDERED: f64 = 0.8;

/// Whether the copies lie on the disk in the order in which they were made, or the other way round.
fn in_order(run: &Measured) -> bool {
    let Some(places) = run.curves.get("place_bytes") else { return false };
    let (order, place): (Vec<f64>, Vec<f64>) = places.iter().copied().unzip();
    spearman(&order, &place).abs() >= ORDERED
}

/// What the places of a series say of its times, one sentence.
fn told(words: &str, run: &Measured) -> String {
    let number = |name: &str| run.extra.get(name).copied();
    let (known, places) = (known(run, "places_known"), known(run, "places"));
    if known == 0.0 {
        return format!(
            "{words}: no copy had a place when it had returned, for nothing of it was written yet (or \
             this file system does not tell), so no place can have made it slow."
        );
    }
    if places < 2.0 {
        return format!(
            "{words}: all in one place, so what differs between them is not the place."
        );
    }
    let turned = number("place_turned_share").unwrap_or(0.0);
    let stayed = number("place_stayed_share").unwrap_or(0.0);
    let order = if turned > 0.5 {
        "in two regions of the disk by turns"
    } else if places == known {
        "each copy in one of its own"
    } else if stayed > 0.5 {
        "most copies where the one before lay"
    } else {
        "in no turns"
    };
    let goes = match (number("place_time_rho"), number("place_time_p")) {
        (Some(rho), Some(p)) if p < CHANCE && in_order(run) => format!(
            "place and time both follow the order of the copies, so what one does to the other cannot \
             be told (rank correlation {rho:.2})"
        ),
        (Some(rho), Some(p)) if p < CHANCE => format!(
            "the time goes with the place: copies that lie farther back took {} (rank correlation \
             {rho:.2}, p {p:.4})",
            if rho > 0.0 { "longer" } else { "less time" }
        ),
        (Some(rho), Some(p)) => {
            format!("the time does not go with the place (rank correlation {rho:.2}, p {p:.2})")
        }
        _ => "too few to tell whether the time goes with the place".to_owned(),
    };
    format!("{words}: {places:.0} places, {order}; {goes}.")
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
    fn what_the_published_mean_hides_is_told_beside_it() {
        let published =
            [5.231, 5.529, 5.206, 5.533, 5.109, 5.566, 5.142, 5.531, 5.131, 5.486, 5.212, 5.531];
        let text = row_text(&published);
        assert!(text.contains("5.36 s") && text.contains("-0.9"), "{text}");
        assert!(text.contains("yes, p 0.00"), "{text}");
        let steady =
            row_text(&[1.0, 1.01, 1.02, 1.01, 1.0, 1.02, 1.01, 1.0, 1.01, 1.02, 1.0, 1.01]);
        assert!(!steady.contains("yes"), "{steady}");
        assert!(row_text(&[1.0, 2.0, 1.0]).contains("too few"));
    }

    #[test]
    fn a_series_is_drawn_over_its_own_median() {
        let series = ("s".to_owned(), vec![2.0, 4.0, 2.0]);
        let Figure::Lines(drawn) = in_a_row("Here", &[&series]) else { panic!("lines") };
        let y: Vec<f64> = drawn.lines[0].points.iter().map(|p| p.y.median).collect();
        assert_eq!(y, [0.0, 1.0, 0.0]);
        assert_eq!(drawn.lines[0].points[2].x, 2.0);
    }

    fn lies(places: &[f64], rho: f64, p: f64, turned: f64) -> Measured {
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
    fn places_are_told_with_what_they_say_of_time() {
        let turns = told("over", &lies(&[0.0, 1.0, 0.0, 1.0], 0.87, 0.001, 1.0));
        assert!(
            turns.contains(
                "2 places, in two regions of the disk by turns; the time goes with the place"
            ),
            "{turns}"
        );
        let mut walked = lies(&[0.0, 1.0, 2.0, 3.0], 0.9, 0.001, 0.0);
        let points = (1..5).map(|i| (f64::from(i), f64::from(i) * 1e9)).collect();
        walked.curves.insert("place_bytes".to_owned(), points);
        let walked = told("new", &walked);
        assert!(walked.contains("both follow the order"), "{walked}");
        let same = told("over", &lies(&[0.0, 1.0, 0.0, 1.0], 0.1, 0.8, 1.0));
        assert!(same.contains("does not go with the place"), "{same}");
        assert!(told("x", &lies(&[0.0, 0.0], 0.0, 1.0, 0.0)).contains("all in one place"));
        assert!(told("x", &lies(&[], 0.0, 1.0, 0.0)).contains("nothing of it was written"));
        assert_eq!(lay(1.0, 3.0 * 1_073_741_824.0), "B, +3.00 GiB");
        assert_eq!((lay(0.0, 0.0), lay(30.0, 0.0)), ("A".to_owned(), "no. 31".to_owned()));
        assert_eq!(value_at(&lies(&[0.0, 1.0], 0.0, 1.0, 0.0), "place", 2), Some(1.0));
    }
}

//! Sections of the page: contents, tables, marks and timelines, and the charts of one experiment.

use crate::page::attributes;
use crate::records::sample;
use crate::synthetic;
use ioloom_report::{Input, PictureRow, html, html_all, picture, pictures};
use std::collections::BTreeSet;

/// The prefix of a study can start with that of another.
#[test]
fn each_chapter_starts_in_the_contents() {
    let of = |prefix: &str| Input { prefix: prefix.to_owned(), ..sample(1) };
    let page = html_all(&[of("walk-"), of("walk-nfs-")]);
    for prefix in ["walk", "walk-nfs"] {
        assert!(page.contains(&format!("href=\"#{prefix}-answer\" class=\"part\"")), "{prefix}");
    }
}

/// Cells with units are sorted by their numbers.
#[test]
fn cells_with_units_have_numbers() {
    let page = html(&sample(1));
    let (_, rest) = page.split_once("<section id=\"tables\"").expect("the tables");
    let (tables, _) = rest.split_once("</section>").expect("the end of the tables");
    let cells = tables.split("<td class=\"r\"").skip(1).filter_map(|cell| cell.split_once('>'));
    let cells: Vec<_> = cells.filter(|(_, text)| text.contains(" ms [")).collect();
    assert!(cells.len() > 10, "{}", cells.len());
    for (written, text) in cells {
        assert!(written.starts_with(" data-sort=\""), "{text}");
    }
}

/// A published or computed number has no runs.
#[test]
fn marks_without_runs_have_no_count() {
    assert!(!html(&sample(1)).contains("n = 0"));
}

/// Each place in which an experiment ran has its own chart.
#[test]
fn an_experiment_has_a_chart_of_each_place() {
    let mut input = sample(1);
    let name = "elapsed-small-files";
    let mut elsewhere = input.records.clone();
    elsewhere.retain(|r| r.key.experiment == name);
    elsewhere.iter_mut().for_each(|r| r.key.medium = "slow".to_owned());
    let before = pictures(&input, name).len();
    input.records.extend(elsewhere);
    let drawn = pictures(&input, name);
    assert_eq!(drawn.len(), 2 * before);
    assert!(drawn.iter().any(|(place, svg)| place.ends_with(", on slow") && svg.contains("<svg")));
    assert_eq!(picture(&input, Some(name)).as_ref(), drawn.first().map(|(_, svg)| svg));
}

/// Traced runs share an axis; a trace that is too large for the page is named.
#[test]
fn traced_runs_share_an_axis() {
    let picture = |arm: &str, compute: &str, trace| PictureRow {
        experiment: "sync-or-reader".to_owned(),
        arm: arm.to_owned(),
        compute: compute.parse().expect("work"),
        trace,
    };
    let mut input = sample(1);
    let without = html(&input).len();
    assert!(!html(&input).contains("id=\"timelines\""));
    input.pictures = vec![
        picture("sync-4", "sleep", synthetic::sync_threads()),
        picture("large", "spin", synthetic::million()),
        picture("reader-4", "sleep", synthetic::reader_and_computers()),
    ];
    let page = html(&input);
    assert!(page.contains("id=\"timelines\"") && page.contains("href=\"#timelines\""));
    assert_eq!(page.matches("class=\"tl-trace\"").count(), 2);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    let titles = [&input.pictures[0].trace.title, &input.pictures[2].trace.title];
    assert!(
        at(&format!("data-title=\"{}", titles[0])) < at(&format!("data-title=\"{}", titles[1]))
    );
    assert!(page.contains("is too large for this page; `ioloom trace export FILE "));
    assert!(page.contains("the state sleep represents computing"));
    assert!(page.len() < without + (2 << 20), "{} bytes", page.len());
    for part in ["http://", "https://"] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(part), "{part}");
    }
}

/// Each chapter has its lanes; style, patterns and script are shared.
#[test]
fn chapters_share_one_script() {
    let chapter = |seed: u64, trace| {
        let mut input = sample(seed);
        input.prefix = format!("s{seed}-");
        input.pictures = vec![PictureRow {
            experiment: "sync-or-reader".to_owned(),
            arm: "sync-4".to_owned(),
            compute: "none".parse().expect("work"),
            trace,
        }];
        input
    };
    let [a, b] =
        [chapter(1, synthetic::sync_threads()), chapter(2, synthetic::reader_and_computers())];
    let page = html_all(&[a.clone(), b]);
    assert_eq!(page.matches("class=\"tl-root\"").count(), 2);
    for once in ["timeline-ready", ".tl-legend{", "id=\"tlp-summed\""] {
        assert_eq!(page.matches(once).count(), 1, "{once}");
    }
    let last = page.rfind("class=\"tl-root\"").expect("lanes");
    assert!(
        last < page.find("timeline-ready").expect("the script"),
        "the script comes after the lanes"
    );
    let ids = attributes(&page, "id");
    let unique: BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    let alone = html_all(&[Input { pictures: Vec::new(), ..a }]);
    assert!(!alone.contains("timeline-ready"), "a page without lanes has no script for them");
}

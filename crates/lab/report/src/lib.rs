//! Turns results into terminal text, SVG and single-file HTML without performing any I/O.
//!
//! [`Input`] contains everything a report shows: study, machine, records, verdicts, doubts. The
//! output is [`html()`] (one self-contained page; [`html_all()`] with a chapter per study),
//! [`terminal()`] (a summary for 80 columns), [`compare()`] and [`compare_html()`] (two sessions
//! compared), [`picture()`] (one chart as an SVG file) and [`tables()`] (CSV and Markdown in the
//! layout of the source studies). The same input always produces the same bytes. Numbers are
//! computed by `ioloom-stats`; this crate only selects, formats and draws them.
//!
//! [`group`] turns records into comparisons, [`headline`] determines the answer, [`figures`] turns
//! comparisons into charts, [`svg`] draws them, and [`page`] adds the text. All markup is written
//! by [`markup::Markup`], which escapes by construction.

pub mod advice;
mod chapter;
mod choice;
pub mod compare;
pub mod data;
mod doubts;
pub mod estimate;
pub mod export;
pub mod figures;
pub mod first_page;
mod fit;
pub mod group;
pub mod headline;
pub mod input;
pub mod machine;
mod markdown;
pub mod markup;
mod medium;
pub mod memory;
mod merge;
pub mod metric;
pub mod page;
pub mod quantity;
pub mod shards;
pub mod source_tables;
pub mod svg;
pub mod table;
mod terminal;
pub mod timeline;

pub use export::{anonymous, json};
pub use input::{ClaimCurve, ClaimRow, DoubtRow, Input, Mode, PictureRow, TreeRow, Verdict};
pub use markdown::markdown;
pub use merge::merge;
pub use page::{compare_html, html, html_all};
pub use table::Table;
pub use terminal::{LINES_MAX, compare_terminal, terminal, terminal_all};

/// Returns the comparison of two sessions as plain text for 100 columns.
pub fn compare(a: &Input, b: &Input) -> String {
    compare_terminal(a, b, 100, false)
}

/// Returns the two tables of the source studies if the records contain the data: medium × threads,
/// and roles.
pub fn tables(input: &Input) -> Vec<Table> {
    let groups = group::groups(input);
    let mut out = source_tables::medium_by_threads(&groups);
    out.extend(source_tables::roles(&groups, input));
    out
}

/// Returns the first chart of an experiment as an SVG file, or the chart of gains if no name is given.
/// Returns `None` if the records do not contain the data.
pub fn picture(input: &Input, experiment: Option<&str>) -> Option<String> {
    if let Some(name) = experiment {
        return pictures(input, name).into_iter().next().map(|(_, svg)| svg);
    }
    let groups = group::groups(input);
    let figure = figures::overview(&headline::chosen(&headline::headlines(&groups)))?;
    Some(figure.draw(svg::WIDE).standalone())
}

/// Returns the chart of each comparison of an experiment as an SVG file, after its place: file set,
/// condition, compute and medium.
pub fn pictures(input: &Input, experiment: &str) -> Vec<(String, String)> {
    let groups = group::groups(input);
    let of_experiment = groups.iter().filter(|group| group.experiment.name == experiment);
    let drawn = of_experiment.filter_map(|group| {
        let figure = figures::of_group(group).into_iter().next()?;
        Some((group.place(), figure.draw(svg::WIDE).standalone()))
    });
    drawn.collect()
}

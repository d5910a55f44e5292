//! The report as Markdown: the first page, and a table of the measured arms of each comparison.

use crate::first_page::FirstPage;
use crate::fit::NAME_MAX;
use crate::group::{Group, groups};
use crate::headline::{answer, headlines, plain_text};
use crate::input::Input;

/// Returns the report of one or more studies as Markdown.
pub fn markdown(inputs: &[Input]) -> String {
    let all: Vec<_> = inputs.iter().map(groups).collect();
    let mut out = String::from("# I/O concurrency on this machine\n");
    let page = FirstPage::new(inputs, &all);
    if let Some(page) = &page {
        out.push_str(&format!("\n{}\n\n", escaped(&page.machine)));
        for line in &page.lines {
            let text = escaped(&plain_text(&line.sentence()));
            out.push_str(&format!("- **{}:** {text}", escaped(&line.heading(NAME_MAX))));
            if !line.doubts.is_empty() {
                out.push_str(&format!(" (◇ {})", line.doubt_words()));
            }
            out.push('\n');
        }
        if !page.score.is_empty() {
            out.push_str(&format!("\n{}\n", page.score));
        }
    }
    for (input, groups) in inputs.iter().zip(&all) {
        out.push_str(&format!("\n## {}\n", escaped(&input.study.title)));
        out.push_str(&format!(
            "\nSession {}, {} mode, {} runs, {}.\n",
            input.session,
            input.mode.name(),
            input.records.len(),
            input.started()
        ));
        if page.is_none() {
            for sentence in answer(&headlines(groups)).iter().filter(|s| !s.is_empty()) {
                out.push_str(&format!("\n{}\n", escaped(&plain_text(sentence))));
            }
        }
        groups.iter().for_each(|group| table(&mut out, group));
    }
    out.replace(['\u{A0}', '\u{202F}'], " ")
}

/// Writes the measured arms of a comparison.
fn table(out: &mut String, group: &Group<'_>) {
    let measured = || group.arms.iter().filter_map(|arm| Some((arm, arm.estimate.as_ref()?)));
    if measured().next().is_none() {
        return;
    }
    let place = escaped(&group.place());
    out.push_str(&format!("\n### {}\n\n{place}\n\n", escaped(&group.experiment.question)));
    out.push_str(&format!("| arm | {} | ends | n |\n|---|---:|---:|---:|\n", group.metric_name));
    for (arm, estimate) in measured() {
        let ends = estimate.ends.map_or("–".to_owned(), |ends| group.unit().format_ends(ends));
        let median = group.unit().format(estimate.median);
        let n = estimate.values.len();
        out.push_str(&format!("| {} | {median} | {ends} | {n} |\n", escaped(arm.name)));
    }
}

/// Escapes what Markdown would format.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '[' | ']' | '#' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

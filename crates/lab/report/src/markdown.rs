//! The report as Markdown: the first page, the doubts of each study, and a table of the arms of each
//! comparison.

use crate::doubts::of_study;
use crate::first_page::FirstPage;
use crate::fit::NAME_MAX;
use crate::group::{Group, groups};
use crate::headline::{answer, headlines, plain_text};
use crate::input::{Input, runs_words};
use crate::markup::controls;

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
    for text in inputs.iter().filter_map(Input::unfinished) {
        out.push_str(&format!("\n{}\n", escaped(&text)));
    }
    for since in inputs.iter().filter_map(|input| input.since.as_deref()) {
        out.push_str(&format!("\n{}\n", escaped(since)));
    }
    for (input, groups) in inputs.iter().zip(&all) {
        out.push_str(&format!("\n## {}\n", escaped(&input.study.title)));
        out.push_str(&format!(
            "\nSession {}, {} mode, {}, {}.\n",
            input.session,
            input.mode.name(),
            runs_words(input),
            input.started()
        ));
        if page.is_none() {
            for sentence in answer(&headlines(groups), groups).iter().filter(|s| !s.is_empty()) {
                out.push_str(&format!("\n{}\n", escaped(&plain_text(sentence))));
            }
        }
        doubts(&mut out, input);
        groups.iter().for_each(|group| table(&mut out, group));
    }
    out.replace(['\u{A0}', '\u{202F}'], " ")
}

/// Writes every doubt of a study with the place and what to do.
fn doubts(out: &mut String, input: &Input) {
    let seen = of_study(input);
    if seen.is_empty() {
        return;
    }
    out.push_str("\nDoubts:\n\n");
    for (doubt, found) in &seen {
        let runs = match found.runs {
            0 => String::new(),
            1 => "1 run, ".to_owned(),
            n => format!("{n} runs, "),
        };
        let places = escaped(&found.places());
        let advice = escaped(&input.advice(*doubt));
        out.push_str(&format!("- ◇ {doubt} ({runs}{places}): {advice}"));
        for detail in &found.details {
            out.push_str(&format!("; {}", escaped(detail)));
        }
        out.push('\n');
    }
}

/// Writes the measured arms of a comparison, and why others have no result.
fn table(out: &mut String, group: &Group<'_>) {
    let measured = group.arms.iter().filter_map(|arm| Some((arm, arm.estimate.as_ref()?)));
    let unusable = group.arms.iter().flat_map(|arm| arm.unusable.iter().map(move |why| (arm, why)));
    let (measured, unusable): (Vec<_>, Vec<_>) = (measured.collect(), unusable.collect());
    if measured.is_empty() && unusable.is_empty() {
        return;
    }
    let place = escaped(&group.place());
    out.push_str(&format!("\n### {}\n\n{place}\n\n", escaped(&group.experiment.question)));
    out.push_str(&format!("| arm | {} | ends | n |\n|---|---:|---:|---:|\n", group.metric_name));
    for (arm, estimate) in measured {
        let ends = estimate.ends.map_or("–".to_owned(), |ends| group.unit().format_ends(ends));
        let median = group.unit().format(estimate.median);
        let n = estimate.values.len();
        out.push_str(&format!("| {} | {median} | {ends} | {n} |\n", escaped(arm.name)));
    }
    for (arm, (why, reason, runs)) in unusable {
        let (name, reason) = (escaped(arm.name), escaped(reason));
        out.push_str(&format!(
            "| {name} | not measured, {}: {reason} | – | {runs} |\n",
            why.name()
        ));
    }
}

/// Escapes what Markdown would format.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '[' | ']' | '#' | '\\' => out.extend(['\\', c]),
            c if controls(c) => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn control_characters_and_overrides_become_spaces() {
        assert_eq!(escaped("a\u{202E}b\u{2066}c\u{1b}d|"), "a b c d\\|");
        assert_eq!(escaped("a\u{61C}b\u{200E}c\u{200F}d\u{2028}e"), "a b c d e");
    }
}

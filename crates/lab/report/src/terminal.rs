//! The terminal summary: the answer, comparisons, verdicts, doubts, and the report path.
//!
//! Lines are wrapped here rather than by the terminal, which also keeps log files readable. Colour
//! adds no information, and tables have none because their column widths are counted in characters.

use crate::advice::{Advice, advice};
use crate::compare::{Change, Matched, ZEROS_NOTE, matched, most};
use crate::estimate::{Ends, RANGE_NOTE, Ratio};
use crate::first_page::{FirstPage, OF_SESSION};
use crate::fit::{NAME_MAX, TEXT_MAX, clipped, left_out};
use crate::group::{NotRunReason, groups, not_run};
use crate::headline::{Headline, answer, chosen, headlines, plain_text};
use crate::input::{Input, Verdict, runs_words};
use crate::markup::controls;
use crate::quantity::{bracketed, ratio, ratio_ends};
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use ioloom_model::Doubt;
use ioloom_model::units::format_counted;
use std::collections::BTreeMap;

struct Paint {
    color: bool,
}

impl Paint {
    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn with(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Returns the summaries of several studies, followed by the path of their report.
pub fn terminal_all(inputs: &[Input], width: usize, color: bool) -> String {
    let groups: Vec<_> = inputs.iter().map(groups).collect();
    if let Some(page) = FirstPage::new(inputs, &groups) {
        return first_page(&page, inputs, width, color);
    }
    let mut out = String::new();
    for (i, input) in inputs.iter().enumerate() {
        let last = i + 1 == inputs.len();
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&summary(input, width, color, last));
    }
    out
}

/// Maximum number of lines of the first page: one screen.
pub const LINES_MAX: usize = 40;

/// Returns the first page: at most one screen. Answers, summaries of other studies and changes that
/// have no room are counted.
fn first_page(page: &FirstPage<'_, '_>, inputs: &[Input], width: usize, color: bool) -> String {
    let width = width.clamp(40, 160);
    let paint = Paint { color };
    let mut head = String::new();
    push_wrapped(&mut head, &page.machine, width, 2);
    for text in inputs.iter().filter_map(Input::unfinished) {
        push_wrapped(&mut head, &clean(&text), width, 2);
    }
    head.push('\n');
    let mut tail = String::new();
    if !page.score.is_empty() {
        tail.push_str(&paint.bold("Claims"));
        tail.push('\n');
        push_wrapped(&mut tail, &format!("  {}", page.score), width, 2);
    }
    let mut report = String::new();
    if let Some(path) = inputs.iter().find_map(|input| input.report_path.as_ref()) {
        report.push_str(&paint.bold("Report "));
        report.push_str(&clean(path));
        report.push('\n');
    }
    let lines = |text: &str| text.lines().count();
    // A line is reserved for what has no room.
    let mut room = LINES_MAX.saturating_sub(lines(&head) + lines(&tail) + lines(&report) + 1);
    let mut answers = answers(page, width, &paint);
    answers.extend(summaries(inputs, width, &paint));
    let mut fit = |blocks: Vec<String>| -> (String, usize) {
        let all = blocks.len();
        let fitting = blocks.into_iter().map_while(|block| {
            room = room.checked_sub(lines(&block))?;
            Some(block)
        });
        let fitting: Vec<String> = fitting.collect();
        (fitting.concat(), all - fitting.len())
    };
    let (answers, more) = fit(answers);
    let (changes, earlier) = fit(changes(page, width));
    let mut out = [head, answers, tail, changes].concat();
    if let Some(words) = left_out(more, earlier) {
        let text = format!("{words}: see the report.");
        out.push_str(&text);
        out.push('\n');
    }
    out + &report
}

/// Returns the answer to each question.
fn answers(page: &FirstPage<'_, '_>, width: usize, paint: &Paint) -> Vec<String> {
    let one = |line: &Advice<'_, '_>| {
        let topic = clean(&line.heading(width.min(NAME_MAX)));
        let mut out = paint.bold(&topic) + "\n";
        push_wrapped(&mut out, &format!("  {}", plain_text(&line.sentence())), width, 2);
        if !line.doubts.is_empty() {
            push_wrapped(&mut out, &format!("  ◇ {}", line.doubt_words()), width, 4);
        }
        out
    };
    page.lines.iter().map(one).collect()
}

/// Summarises studies without a question of users by their fastest plans.
fn summaries(inputs: &[Input], width: usize, paint: &Paint) -> Vec<String> {
    let one = |input: &Input| {
        let own = groups(input);
        let all = headlines(&own);
        if !advice(input, &own).is_empty() || chosen(&all).is_empty() {
            return None;
        }
        let mut out = paint.bold(&clean(&clipped(&input.study.title, width.min(NAME_MAX)))) + "\n";
        for sentence in answer(&all, &own).iter().filter(|s| !s.is_empty()) {
            push_wrapped(&mut out, &format!("  {}", plain_text(sentence)), width, 2);
        }
        Some(out)
    };
    inputs.iter().filter_map(one).collect()
}

/// Returns what changed since earlier sessions.
fn changes(page: &FirstPage<'_, '_>, width: usize) -> Vec<String> {
    let one = |since: &&str| {
        let mut out = String::new();
        push_wrapped(&mut out, &clipped(since, TEXT_MAX), width, 2);
        out
    };
    page.since.iter().map(one).collect()
}

/// Returns the summary of a session in at most `width` columns, ending with a newline.
pub fn terminal(input: &Input, width: usize, color: bool) -> String {
    terminal_all(std::slice::from_ref(input), width, color)
}

fn summary(input: &Input, width: usize, color: bool, last: bool) -> String {
    let width = width.clamp(40, 160);
    let paint = Paint { color };
    let groups = groups(input);
    let headlines = headlines(&groups);
    let mut out = String::new();
    let runs = runs_words(input);
    let title = format!("{} ({}, {runs})", input.study.title, input.mode.name());
    for line in wrap(&title, width, 0) {
        out.push_str(&paint.bold(&line));
        out.push('\n');
    }
    if let Some(text) = input.unfinished() {
        push_wrapped(&mut out, &clean(&text), width, 2);
    }
    out.push('\n');
    for sentence in answer(&headlines, &groups).iter().filter(|s| !s.is_empty()) {
        push_wrapped(&mut out, &plain_text(sentence), width, 0);
    }
    out.push('\n');
    if headlines.iter().any(|h| h.group.is_speed()) {
        out.push_str(&comparison_table(&headlines, width));
        out.push('\n');
    }
    if !input.verdicts.is_empty() {
        out.push_str(&verdict_lines(input, width, &paint));
    }
    doubt_lines(&mut out, input, width, &paint);
    let missing = not_run(input);
    let left_out = missing.iter().filter(|n| n.reason == NotRunReason::Quick).count();
    if left_out > 0 {
        let text = format!(
            "Quick mode skipped {left_out} arm families; run them with ioloom study --full."
        );
        push_wrapped(&mut out, &text, width, 2);
    }
    if let Some(path) = input.report_path.as_ref().filter(|_| last) {
        out.push_str(&paint.bold("Report "));
        out.push_str(&clean(path));
        out.push('\n');
    }
    out
}

fn table(width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(160));
    table
}

fn finished(table: &Table) -> String {
    let lines = table.to_string();
    let lines: Vec<_> = lines.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

/// Maximum number of comparisons in the terminal; the page has all of them.
const ROWS_MAX: usize = 12;

fn comparison_table(headlines: &[Headline<'_, '_>], width: usize) -> String {
    let mut t = table(width);
    let all: Vec<_> = headlines.iter().filter(|h| h.group.is_speed()).collect();
    let shown = all.iter().take(ROWS_MAX).flat_map(|h| &h.gains);
    let ends: Vec<Ends> = shown.filter_map(|(_, _, r)| Some(r.as_ref()?.ends)).collect();
    let some_few = ends.iter().any(|e| !e.is_interval());
    let gain = match some_few && !ends.iter().any(Ends::is_interval) {
        true => "gain (min to max)",
        false => "gain [95 %]",
    };
    t.set_header(["experiment", "best", gain, "over", "n"]);
    for h in all.iter().take(ROWS_MAX) {
        let lines = |f: &dyn Fn(&str, Option<Ratio>) -> String| {
            let lines: Vec<_> = h.gains.iter().map(|(_, o, r)| f(o.name, *r)).collect();
            lines.join("\n")
        };
        let ratios =
            lines(&|_, r| r.map_or_else(|| "–".to_owned(), |r| ratio_ends(r.value, r.ends)));
        t.add_row(vec![
            Cell::new(format!("{}\n{}", clean(&h.group.experiment.name), clean(&h.group.place()))),
            Cell::new(clean(h.best.name)),
            Cell::new(if h.gains.is_empty() { "–" } else { &ratios })
                .set_alignment(CellAlignment::Right),
            Cell::new(lines(&|name, _| clean(name))),
            Cell::new(lines(&|_, r| r.map_or(0, |r| r.n).to_string()))
                .set_alignment(CellAlignment::Right),
        ]);
    }
    if let Some(column) = t.column_mut(2) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    let mut out = finished(&t);
    if all.len() > ROWS_MAX {
        out.push_str(&format!(" and {} more in the report\n", all.len() - ROWS_MAX));
    }
    if some_few {
        push_wrapped(&mut out, RANGE_NOTE, width, 0);
    }
    out
}

fn verdict_lines(input: &Input, width: usize, paint: &Paint) -> String {
    let mut out = paint.bold("Claims");
    let mut used = columns("Claims");
    for verdict in Verdict::ALL {
        let first = input.verdicts.iter().filter(|c| c.same_as.is_none());
        let count = first.filter(|c| c.verdict == verdict).count();
        if count == 0 {
            continue;
        }
        let code = match verdict {
            Verdict::Confirmed => "32",
            Verdict::Refuted => "31",
            Verdict::Scope => "33",
            Verdict::Undecided
            | Verdict::NotTestableHere
            | Verdict::Consistent
            | Verdict::Inconsistent => "2",
        };
        let text = format!("{} {count} {}", verdict.icon(), verdict.name());
        if used + 2 + columns(&text) > width {
            out.push('\n');
            used = 0;
        }
        out.push_str("  ");
        out.push_str(&paint.with(code, &text));
        used += 2 + columns(&text);
    }
    out.push('\n');
    push_wrapped(&mut out, &format!("  {OF_SESSION}"), width, 2);
    out
}

fn doubt_lines(out: &mut String, input: &Input, width: usize, paint: &Paint) {
    let mut seen: BTreeMap<Doubt, usize> = BTreeMap::new();
    for doubt in input.records.iter().flat_map(|r| &r.doubts) {
        *seen.entry(*doubt).or_default() += 1;
    }
    for row in &input.doubts {
        seen.entry(row.doubt).or_default();
    }
    if seen.is_empty() {
        return;
    }
    out.push_str(&paint.bold("Doubts"));
    out.push('\n');
    for (doubt, runs) in seen {
        let counted = || format!(" ({})", format_counted(runs as u64, "run", "runs"));
        let of = if runs > 0 { counted() } else { String::new() };
        push_wrapped(out, &format!("  ◇ {doubt}{of}: {}", input.advice(doubt)), width, 4);
    }
}

/// A remark about chance in multiple comparisons.
pub(crate) const CHANCE: &str = "By chance, about one in twenty unchanged arms is outside its 95 \
    % interval; a real change affects several arms.";

/// Returns the comparison of two sessions for a terminal of `width` columns.
pub fn compare_terminal(a: &Input, b: &Input, width: usize, color: bool) -> String {
    let width = width.clamp(40, 160);
    let paint = Paint { color };
    let matched = matched(a, b);
    let mut out = String::new();
    let title = format!("{} (second) / {} (first)", b.session, a.session);
    out.push_str(&paint.bold(&clean(&title)));
    out.push_str("\n\n");
    for remark in &matched.remarks {
        push_wrapped(&mut out, &format!("◇ differs in {}", clean(remark)), width, 2);
    }
    let mut t = table(width);
    t.set_header(["", "file set, condition", "arm", "second / first", "n", "change"]);
    for row in &matched.rows {
        t.add_row(vec![
            Cell::new(row.change.icon()),
            Cell::new(clean(&row.group.place())),
            Cell::new(clean(row.first.name)),
            Cell::new(
                row.ratio.map_or_else(|| row.without_ratio(), |r| ratio_ends(r.value, r.ends)),
            )
            .set_alignment(CellAlignment::Right),
            Cell::new(row.n()).set_alignment(CellAlignment::Right),
            Cell::new(row.change.name()),
        ]);
    }
    out.push_str(&with_headings(&finished(&t), &matched, width, &paint));
    if matched.has_too_few() {
        push_wrapped(&mut out, RANGE_NOTE, width, 0);
    }
    if matched.has_zeros() {
        push_wrapped(&mut out, ZEROS_NOTE, width, 0);
    }
    out.push('\n');
    compare_words(&mut out, &matched, width);
    out
}

/// Returns the table of a comparison with the name of each experiment above its rows.
fn with_headings(table: &str, matched: &Matched<'_>, width: usize, paint: &Paint) -> String {
    let mut out = String::new();
    let mut rows = matched.rows.iter();
    let mut heading = "";
    for line in table.lines() {
        // Only the first line of a row begins with an icon.
        let is_first = line.chars().nth(1).is_some_and(|c| c != ' ');
        if is_first && let Some(row) = rows.next() {
            let experiment = row.group.experiment.name.as_str();
            if experiment != heading {
                heading = experiment;
                for line in wrap(experiment, width, 0) {
                    out.push_str(&paint.bold(&line));
                    out.push('\n');
                }
            }
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Writes a summary of a comparison.
fn compare_words(out: &mut String, matched: &Matched<'_>, width: usize) {
    let count = |c: Change| matched.rows.iter().filter(|r| r.change == c).count();
    let mut text = format!(
        "{}: {} better, {} worse, {} different, {} the same within 5 %, {} unclear",
        format_counted(matched.rows.len() as u64, "arm", "arms"),
        count(Change::Better),
        count(Change::Worse),
        count(Change::Different),
        count(Change::Same),
        count(Change::Unclear)
    );
    let refused = count(Change::NotComparable);
    if refused > 0 {
        text.push_str(&format!(", {refused} not comparable"));
    }
    text.push('.');
    push_wrapped(out, &text, width, 0);
    for (difference, arms) in matched.refusals() {
        let arms = format_counted(arms as u64, "arm is", "arms are");
        let text = format!("  ≠ {arms} not comparable, {}", clean(difference));
        push_wrapped(out, &text, width, 4);
    }
    if matched.has_intervals() {
        push_wrapped(out, CHANCE, width, 0);
    }
    if let Some((row, r)) = most(matched.rows.iter().filter(|r| r.change == Change::Worse)) {
        let text = format!(
            "Largest regression: {} in {}, {}, {} {}.",
            clean(row.first.name),
            clean(&row.group.experiment.name),
            clean(&row.group.place()),
            ratio(r.value),
            bracketed(r.ends, ratio)
        );
        push_wrapped(out, &text, width, 0);
    }
    for (session, what) in &matched.alone {
        push_wrapped(out, &format!("only in {}: {}", clean(session), clean(what)), width, 2);
    }
}

/// Replaces the characters of [`controls`]: a name in a record must not move the cursor, or break or
/// reorder the line.
fn clean(text: &str) -> String {
    text.chars().map(|c| if controls(c) { '\u{FFFD}' } else { c }).collect()
}

fn push_wrapped(out: &mut String, text: &str, width: usize, indent: usize) {
    for line in wrap(text, width, indent) {
        out.push_str(&line);
        out.push('\n');
    }
}

/// Wraps text into lines of at most `width` columns without breaking words; continuation lines are
/// indented. No-break spaces keep numbers together.
fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let text = clean(text);
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut lines = vec![lead];
    let mut empty = true;
    for word in text.split([' ', '\n', '\t']).filter(|w| !w.is_empty()) {
        let line = lines.last_mut().map_or(0, |l| columns(l));
        if !empty && line + 1 + columns(word) > width {
            lines.push(" ".repeat(indent));
            empty = true;
        }
        if let Some(last) = lines.last_mut() {
            if !empty {
                last.push(' ');
            }
            last.push_str(word);
        }
        empty = false;
    }
    // No-break spaces have no use after wrapping.
    lines.into_iter().map(|l| l.replace(['\u{A0}', '\u{202F}'], " ")).collect()
}

/// Returns the display width of text in columns: wide East Asian characters take two.
fn columns(text: &str) -> usize {
    text.chars()
        .map(|c| match c as u32 {
            0x300..=0x36F | 0x200B..=0x200F => 0,
            0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF => 2,
            0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0x1F300..=0x1FAFF => 2,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_between_words() {
        let lines = wrap("  one two three four five", 12, 4);
        assert_eq!(lines, ["  one two", "    three", "    four", "    five"]);
        assert!(wrap("파일 이름이 아주 긴 경우에도", 12, 0).iter().all(|l| columns(l) <= 12));
        for odd in ['\u{1b}', '\u{202E}', '\u{2066}'] {
            assert!(!wrap(&format!("a{odd}[31mb"), 80, 0)[0].contains(odd), "{odd:?}");
        }
    }
}
